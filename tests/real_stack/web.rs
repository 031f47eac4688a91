//! Asking a program over HTTP, and waiting until its answer is the one that is waited for.

use std::time::{Duration, Instant};

use axum::body::Body;
use axum::extract::Request;
use serde_json::Value;
use url::Url;

use crate::gateway::send;

/// Time enough for anything here, on a busy machine too.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
/// How often somebody is asked.
const PAUSE: Duration = Duration::from_millis(100);

/// The answer's body, if its status is a success.
pub(crate) async fn get(url: &str, query: &[(&str, &str)]) -> Result<String, String> {
    let url = Url::parse_with_params(url, query).map_err(|error| error.to_string())?;
    let request = Request::get(url.as_str()).body(Body::empty()).unwrap();
    let answer = send(request).await.map_err(|error| format!("{url}: {error:?}"))?;
    let status = answer.status();
    let body = axum::body::to_bytes(answer.into_body(), usize::MAX)
        .await
        .map_err(|error| format!("{url}: {error}"))?;
    let body = String::from_utf8_lossy(&body).into_owned();
    if status.is_success() { Ok(body) } else { Err(format!("{url}: {status}: {body}")) }
}

/// The same, of JSON.
pub(crate) async fn get_json(url: &str, query: &[(&str, &str)]) -> Result<Value, String> {
    let body = get(url, query).await?;
    serde_json::from_str(&body).map_err(|error| format!("{url}: {error} in {body}"))
}

/// Asks until the answer is there; says what the last answer was if it never comes.
#[track_caller]
pub(crate) fn eventually<T, F>(what: &str, ask: impl FnMut() -> F) -> impl Future<Output = T>
where
    F: Future<Output = Result<T, String>>,
{
    within(PATIENCE, what, ask)
}

#[track_caller]
pub(crate) fn within<T, F>(
    patience: Duration,
    what: &str,
    mut ask: impl FnMut() -> F,
) -> impl Future<Output = T>
where
    F: Future<Output = Result<T, String>>,
{
    let at = std::panic::Location::caller();
    async move {
        let until = Instant::now() + patience;
        loop {
            match ask().await {
                Ok(answer) => return answer,
                Err(last) if Instant::now() >= until => {
                    panic!("{at}: {what}: not within {patience:?}; the last answer: {last}")
                }
                Err(_) => tokio::time::sleep(PAUSE).await,
            }
        }
    }
}

/// The sum of all series of this name on a page of Prometheus' text format.
pub(crate) fn metric(page: &str, name: &str) -> usize {
    let series = page.lines().filter_map(|line| line.strip_prefix(name)).filter(|rest| {
        rest.starts_with(['{', ' ']) || rest.starts_with("_total{") || rest.starts_with("_total ")
    });
    let values = series.map(|rest| rest.rsplit(' ').next().unwrap().parse::<f64>().unwrap());
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a count")]
    let sum = values.sum::<f64>() as usize;
    sum
}
