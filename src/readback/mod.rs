//! Asks an engine's own endpoints, and hands what they answer to the lane. Opt-in: nobody is asked unless told so.
//!
//! ```
//! use serving_sentinel::readback::ReadBackError;
//! use serving_sentinel::{Lane, ReadBack};
//! use std::time::Duration;
//!
//! /// Call it on a tokio runtime. It asks as long as the lane is open.
//! fn ask_the_engine(lane: &Lane) -> Result<(), ReadBackError> {
//!     let ask = ReadBack::new("http://127.0.0.1:11434")?.with_interval(Duration::from_secs(10));
//!     tokio::spawn(lane.read_back(ask));
//!     Ok(())
//! }
//! ```
//!
//! | engine | endpoint | what it tells |
//! | --- | --- | --- |
//! | Ollama | `/api/ps` | how much of the lane's model is in device memory: placement, by the basis `readback` |
//! | llama-server | `/props` | build, model file, slots |
//! | llama-server | `/slots` | whether each request gets on: the watch on wedges |
//! | llama-server | `/metrics` (with `--metrics`) | the mean decode rate of the requests that ended, requests that run and wait |
//! | vLLM | `/metrics` | the decode rate of all running requests, requests that run and wait |
//!
//! An engine that its lines or its configuration have not named is tried for all of them. Forks of llama-server are
//! asked what it is asked; nobody but Ollama is asked for `/api/ps`, as others imitate it with made-up sizes.
//!
//! # What it can decide
//!
//! Ollama's sizes outrank a banner, and the lines that tell a device type alone. They never outrank the buffers and
//! layers that are in a log: they are estimates up to Ollama 0.24, and where its runner's banner lies, or nothing of it
//! was understood, they say `100% GPU`. A model that is not loaded says nothing. Of all other engines no endpoint tells
//! placement, so that only their lines do.
//!
//! A first verdict that would rest on less waits for the answer, no longer than the timeout and two seconds.
//!
//! # How it asks
//!
//! One question at a time, and at most one in each interval, whatever becomes of it; endpoints take turns. Nothing is
//! asked before the engine is ready (its own line, [`Lane::ready`], a timed request), while it loads again, or once it
//! stops. What is not there (404, 501) or wants a key (401, 403) is not asked again before the next load. Redirects are
//! not followed, bodies are read up to a limit, and a connection is kept for 4 s. Only plain HTTP is spoken.
//!
//! An engine that cannot be read is blindness (`serving.sentinel.blind`, cause `readback_failed`, the reason in the
//! advice): at once when it wants a key, or has none of the endpoints, and after
//! [`FAILURES_UNTIL_BLIND`](ReadBack::FAILURES_UNTIL_BLIND) questions in a row that one of them did not answer.
//!
//! **A llama-server with `--sleep-idle-seconds`** takes a question to `/slots` for work: it wakes up for it, and does not
//! fall asleep. [`ReadBack::without_slots`] leaves that question out; the others do not wake it (tried with a build of
//! 2026-10).

mod address;
mod answers;
mod client;
mod endpoint;
mod run;
mod schedule;

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderValue;

use crate::layer::Lane;
use address::Address;
use endpoint::Endpoint;
use run::Reader;
use schedule::Schedule;

/// How an engine is asked. The module's page says what, and what becomes of it.
#[derive(Clone, Debug)]
pub struct ReadBack {
    address: Address,
    interval: Duration,
    timeout: Duration,
    max_body_bytes: NonZeroU32,
    model: Option<Arc<str>>,
    /// Marked as a secret: it does not show in `Debug`.
    authorization: Option<HeaderValue>,
    without: Option<Endpoint>,
}

/// Why an engine cannot be asked so.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReadBackError {
    /// The address leads to no engine.
    #[error(
        "`{given}` cannot be read back: {reason}; give an address such as http://127.0.0.1:11434"
    )]
    Address {
        /// The address, without a password.
        given: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// The API key cannot be sent. It is not repeated here.
    #[error(
        "the API key holds a character that no HTTP header can; give it as the engine was given it, in one line"
    )]
    ApiKey,
}

/// What became of the questions to one engine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReadBackSummary {
    /// Questions, those left out whose load was over before the answer came.
    pub asked: u64,
    /// Questions that were answered so that the answer tells something.
    pub answered: u64,
    /// What the last of the others came to; `None` when all were answered.
    pub last_error: Option<String>,
}

impl ReadBack {
    /// 5 s: a stall is seen in time, and an engine's own log of requests stays readable.
    pub const DEFAULT_INTERVAL: Duration = Duration::from_secs(5);
    /// 100 ms.
    pub const MIN_INTERVAL: Duration = Duration::from_millis(100);
    /// 5 s: an engine that computes a long batch answers between two of its steps.
    pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(5);
    /// 1 MiB: older builds of llama-server repeat the prompt of each slot.
    pub const DEFAULT_MAX_BODY_BYTES: NonZeroU32 = NonZeroU32::new(1024 * 1024).unwrap();
    /// So many questions in a row that an endpoint does not answer are blindness.
    pub const FAILURES_UNTIL_BLIND: u32 = Schedule::FAILURES_UNTIL_BLIND;

    /// Asks the engine at that address: `http://127.0.0.1:11434`, or with a path where a proxy has one.
    ///
    /// # Errors
    ///
    /// [`ReadBackError::Address`] unless it is one of plain HTTP, without a password and a query.
    pub fn new(address: &str) -> Result<Self, ReadBackError> {
        Ok(Self {
            address: Address::parse(address)?,
            interval: Self::DEFAULT_INTERVAL,
            timeout: Self::DEFAULT_TIMEOUT,
            max_body_bytes: Self::DEFAULT_MAX_BODY_BYTES,
            model: None,
            authorization: None,
            without: None,
        })
    }

    /// Sets the time from one question to the next. One that is shorter than [`MIN_INTERVAL`](Self::MIN_INTERVAL) is
    /// taken for that.
    ///
    /// By default, this is [`DEFAULT_INTERVAL`](Self::DEFAULT_INTERVAL).
    #[must_use]
    pub fn with_interval(self, interval: Duration) -> Self {
        Self { interval: interval.max(Self::MIN_INTERVAL), ..self }
    }

    /// Sets how long an answer may take, from the connection to its last byte; half of it for the connection.
    ///
    /// By default, this is [`DEFAULT_TIMEOUT`](Self::DEFAULT_TIMEOUT).
    #[must_use]
    pub fn with_timeout(self, timeout: Duration) -> Self {
        Self { timeout, ..self }
    }

    /// Sets how many bytes of an answer are read. A larger one is none.
    ///
    /// By default, this is [`DEFAULT_MAX_BODY_BYTES`](Self::DEFAULT_MAX_BODY_BYTES).
    #[must_use]
    pub fn with_max_body_bytes(self, max_body_bytes: NonZeroU32) -> Self {
        Self { max_body_bytes, ..self }
    }

    /// Sets the name by which the engine knows the lane's model (`llama3.2:3b`), where that is another than the lane's.
    /// The tag `latest` goes without saying.
    ///
    /// By default, it is the lane's model; of a lane without one, and an engine that is known to be Ollama, it is the
    /// only model that is loaded.
    #[must_use]
    pub fn with_model(self, model: impl Into<Arc<str>>) -> Self {
        Self { model: Some(model.into()), ..self }
    }

    /// Leaves llama-server's `/slots` out, which would wake one that is asleep. A request that stands still is then seen
    /// in the engine's log alone.
    ///
    /// By default, it is asked.
    #[must_use]
    pub fn without_slots(self) -> Self {
        Self { without: Some(Endpoint::Slots), ..self }
    }

    /// Sets the key that the engine wants (`--api-key` of llama-server and vLLM), sent as `Authorization: Bearer`.
    ///
    /// By default, none is sent.
    ///
    /// # Errors
    ///
    /// [`ReadBackError::ApiKey`] when it holds what no header can.
    pub fn with_api_key(self, key: &str) -> Result<Self, ReadBackError> {
        let header = HeaderValue::try_from(format!("Bearer {key}"));
        let mut header = header.map_err(|_| ReadBackError::ApiKey)?;
        header.set_sensitive(true);
        Ok(Self { authorization: Some(header), ..self })
    }
}

impl Lane {
    /// Asks the engine's endpoints as long as somebody holds the lane, for `tokio::spawn`. Dropped before, it asks
    /// nothing more.
    ///
    /// It needs a tokio runtime with I/O and time. Without a `SentinelLayer` there is nobody to tell, and it ends at
    /// once.
    pub fn read_back(
        &self,
        read_back: ReadBack,
    ) -> impl Future<Output = ReadBackSummary> + Send + 'static + use<> {
        Reader::new(self, read_back).run()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_is_never_a_burst() {
        let asked = ReadBack::new("http://127.0.0.1:1").unwrap().with_interval(Duration::ZERO);
        assert_eq!(asked.interval, ReadBack::MIN_INTERVAL);
    }

    #[test]
    fn a_key_is_never_shown() {
        let asked = ReadBack::new("http://127.0.0.1:1").unwrap();
        let keyed = asked.clone().with_api_key("hush").unwrap();
        assert!(!format!("{keyed:?}").contains("hush"), "{keyed:?}");
        let error = asked.with_api_key("hu\nsh").unwrap_err();
        assert_eq!(error, ReadBackError::ApiKey);
        assert!(!error.to_string().contains("sh"), "{error}");
    }
}
