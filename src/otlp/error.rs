//! What can go wrong: setting up, and delivering the rest at the end.

use std::path::PathBuf;
use std::time::Duration;

use thiserror::Error;

use super::health::ExportTrouble;
use super::signal::Signal;

/// Why exporting could not be set up. A collector that is away is no such reason.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum OtlpError {
    /// An endpoint is no URL that can be exported to.
    #[error(
        "the endpoint in {variable} cannot be used: {reason}; give a URL such as http://localhost:4318"
    )]
    Endpoint {
        /// The variable.
        variable: String,
        /// What is wrong with it.
        reason: String,
    },
    /// `http/json` was asked for, which is not built in.
    #[error("the protocol http/json in {variable} is not built in; use `http/protobuf` or `grpc`")]
    UnsupportedProtocol {
        /// The variable.
        variable: String,
    },
    /// A certificate or key file cannot be used.
    #[error("the file {} in {variable} cannot be used: {reason}", path.display())]
    File {
        /// The variable.
        variable: String,
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// TLS cannot be set up.
    #[error("TLS cannot be set up: {reason}")]
    Tls {
        /// What is wrong.
        reason: String,
    },
    /// An exporter refused its settings.
    #[error("the exporter of {signal} cannot be built")]
    Exporter {
        /// What it would have exported.
        signal: Signal,
        /// Its own words.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The thread for the connections could not be started.
    #[error("the thread that exports could not be started")]
    Thread(#[source] std::io::Error),
}

/// Why not all telemetry was delivered.
#[derive(Clone, Debug, Error, PartialEq)]
#[non_exhaustive]
pub enum FlushError {
    /// The time ran out first.
    #[error("telemetry was not all sent within {after:?}; the rest is dropped")]
    TimedOut {
        /// The time given.
        after: Duration,
    },
    /// The collector did not take it.
    #[error("{0}")]
    Undelivered(ExportTrouble),
    /// The SDK could not flush.
    #[error("telemetry could not be flushed: {reason}")]
    Sdk {
        /// Its own words.
        reason: String,
    },
}
