//! What engines print: recognisers as data, one file per engine, and the one matcher that runs them.
//!
//! A line goes through three steps. One scan over its bytes looks for the rare literals of all formats: most lines end
//! here, with nothing allocated. Then its log prefixes come off (`prefix`) and its JSON is opened (`unwrap`). Then
//! only the formats whose literal was there run their pattern, on the bare message from its first to its last byte.

mod error;
mod file;
mod format;
mod frames;
mod matcher;
mod prefix;
mod program;
mod residence;
mod slog;
mod unwrap;
mod yields;

pub mod verbosity;

use std::sync::Arc;

use crate::evidence::Evidence;

pub use error::{FormatProblem, LoadFormatsError};
pub use format::Format;
pub use matcher::{Matcher, StreamState};

/// What one line is.
#[derive(Debug, Default)]
pub struct Recognised {
    /// The service within the stream that the line is of, where a prefix tells: a router child's port, a compose
    /// service, a journald unit. `None` for a plain line, and for a line that no format could be of.
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
