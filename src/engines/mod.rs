//! What engines print: recognisers as data, one file per engine, and the one matcher that runs them.

pub mod verbosity;

use std::sync::Arc;

use crate::evidence::Evidence;

/// Recognises engine lines. Made once, shared by all streams.
#[derive(Debug)]
pub struct Matcher {}

/// What the matcher remembers of one output stream, or of one service within it.
#[derive(Debug, Default)]
pub struct StreamState {}

/// What one line is.
#[derive(Debug, Default)]
pub struct Recognised {
    /// The service within the stream that the line is of, where a prefix tells: a router child's port, a compose
    /// service, a journald unit. `None` for a plain line.
    pub service: Option<Service>,
    /// The engine whose format the line has; `None` for a line that is of no known format.
    pub engine: Option<Arc<str>>,
    /// What the line states: mostly nothing, mostly one fact.
    pub evidence: Vec<Evidence>,
}

/// A service within a stream, as a log prefix names it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Service {
    /// A child of llama-server in router mode: its port.
    RouterChild(Box<str>),
    /// A name before a line: a compose service, a container's tag, a journald unit.
    Named(Box<str>),
}

impl Matcher {
    /// The recognisers that come with the crate.
    pub fn builtin() -> Arc<Self> {
        Arc::new(Self {})
    }

    /// Recognises one line, without its line end.
    pub fn recognise(&self, line: &[u8], stream: &mut StreamState) -> Recognised {
        let _ = (line, stream);
        Recognised::default()
    }
}
