//! Plain HTTP, both ends of it: serving, and asking an engine on this machine or network.

use std::fmt;
use std::str::FromStr;

use anyhow::Context as _;
use axum::Router;
use axum::body::Body;
use axum::http::Uri;
use axum::http::uri::{Authority, Parts, PathAndQuery, Scheme};
use axum::serve::ListenerExt as _;
use hyper_util::client::legacy::{self, connect::HttpConnector};
use hyper_util::rt::TokioExecutor;
use tokio::net::TcpListener;

pub(crate) type Client = legacy::Client<HttpConnector, Body>;

/// A client that adds nothing of its own.
pub(crate) fn client() -> Client {
    let mut connector = HttpConnector::new();
    connector.set_nodelay(true);
    // A connection each: an engine closes an idle one whenever it likes, and a request whose body is a stream cannot
    // be sent again. On one machine a new one costs nothing.
    legacy::Client::builder(TokioExecutor::new()).pool_max_idle_per_host(0).build(connector)
}

/// Serves for good; gives why it ended all the same.
pub(crate) async fn serve(listener: TcpListener, app: Router) -> anyhow::Error {
    // Pieces of a few hundred bytes: without this they would wait for each other in the kernel.
    let listener = listener.tap_io(|connection| drop(connection.set_nodelay(true)));
    match axum::serve(listener, app).await {
        Ok(()) => anyhow::anyhow!("the server ended by itself"),
        Err(error) => anyhow::Error::new(error).context("the server ended"),
    }
}

/// Where a server answers: `http://127.0.0.1:8080`.
#[derive(Clone, Debug)]
pub(crate) struct Origin(Authority);

impl Origin {
    /// The address of a path there.
    #[expect(clippy::expect_used, reason = "an address with all three parts is one")]
    pub(crate) fn uri(&self, path: PathAndQuery) -> Uri {
        let mut parts = Parts::default();
        parts.scheme = Some(Scheme::HTTP);
        parts.authority = Some(self.0.clone());
        parts.path_and_query = Some(path);
        Uri::from_parts(parts).expect("scheme, host and path make an address")
    }
}

impl FromStr for Origin {
    type Err = anyhow::Error;

    /// Reads a host and port: `127.0.0.1:8080`.
    fn from_str(authority: &str) -> anyhow::Result<Self> {
        authority.parse().map(Self).with_context(|| format!("`{authority}` is no host and port"))
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http://{}", self.0)
    }
}
