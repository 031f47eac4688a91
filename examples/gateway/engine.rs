//! One engine as a child: started, watched, waited for, and ended with the gateway. Never judged and never killed for
//! being slow: that is reported, and left to people.

use std::net::TcpListener;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use crate::http::{Client, Origin};
use anyhow::Context as _;
use axum::http::uri::PathAndQuery;
use serving_sentinel::layer::Lane;
use serving_sentinel::output::OutputReader;
use tokio::process::{Child, Command};
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

/// How often the health endpoint is asked until it says yes.
const HEALTH_INTERVAL: Duration = Duration::from_millis(100);

/// How long an engine that was told to end may take, before it is ended.
const PATIENCE: Duration = Duration::from_secs(10);

/// How long what an ended engine left in its pipes may take to read; a grandchild can hold them open.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// How long what was found may take to be told, before this program ends.
const TELLING: Duration = Duration::from_secs(1);

/// An engine that was started.
#[derive(Debug)]
pub(crate) struct Engine {
    pub(crate) lane: Lane,
    /// Where it answers.
    pub(crate) origin: Origin,
    ended: watch::Receiver<Option<ExitStatus>>,
    stop: oneshot::Sender<()>,
    supervisor: JoinHandle<()>,
}

impl Engine {
    /// Starts the engine; `reader` hands its output to its lane.
    pub(crate) fn start(
        reader: OutputReader,
        lane: Lane,
        origin: Origin,
        mut command: Command,
    ) -> anyhow::Result<Self> {
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        // Ctrl-C in a terminal goes to a whole group: the engine hears of it from us, once.
        #[cfg(unix)]
        command.process_group(0);
        let mut child = command.spawn().with_context(|| {
            let program = command.as_std().get_program().to_string_lossy();
            format!(
                "cannot start `{program}`; check that it is installed, in PATH, and may be executed"
            )
        })?;
        let watching = tokio::spawn(reader.run(child.stdout.take(), child.stderr.take()));
        let (report, ended) = watch::channel(None);
        let (stop, told_to_stop) = oneshot::channel();
        let supervisor = tokio::spawn({
            let lane = lane.clone();
            async move {
                // While this end of its stdin is open, the engine knows that we live.
                let stdin = child.stdin.take();
                let status = supervise(&mut child, told_to_stop).await;
                drop(stdin);
                drop(timeout(LAST_WORDS, watching).await);
                if let Some(status) = status {
                    lane.ended(&status.to_string());
                }
                report.send_replace(status);
            }
        });
        Ok(Self { lane, origin, ended, stop, supervisor })
    }

    /// Waits until the engine's health endpoint says that it can answer, and tells the lane. Gives `false` when the
    /// engine ended instead.
    pub(crate) async fn ready(&self, client: &Client) -> bool {
        let health = self.origin.uri(PathAndQuery::from_static("/health"));
        let healthy = async {
            loop {
                let answer = client.get(health.clone()).await;
                if answer.is_ok_and(|answer| answer.status().is_success()) {
                    return;
                }
                sleep(HEALTH_INTERVAL).await;
            }
        };
        tokio::select! {
            () = healthy => self.lane.ready(),
            _ = self.ended() => return false,
        }
        true
    }

    /// Waits for the engine to end; gives how it did.
    pub(crate) async fn ended(&self) -> Option<ExitStatus> {
        let mut ended = self.ended.clone();
        ended.wait_for(Option::is_some).await.ok().and_then(|status| *status)
    }

    /// Tells the engine to end, and waits until it has.
    pub(crate) async fn stop(self) {
        self.lane.stopping();
        // It may have ended by itself.
        let _ = self.stop.send(());
        drop(self.supervisor.await);
        self.lane.flush(TELLING);
    }
}

/// Waits for the child's end, or brings it about when told to.
async fn supervise(child: &mut Child, told_to_stop: oneshot::Receiver<()>) -> Option<ExitStatus> {
    tokio::select! {
        status = child.wait() => return status.ok(),
        _ = told_to_stop => {}
    }
    terminate(child);
    if let Ok(status) = timeout(PATIENCE, child.wait()).await {
        return status.ok();
    }
    tracing::warn!(
        "the engine did not end within {} s of SIGTERM; it is killed",
        PATIENCE.as_secs()
    );
    drop(child.kill().await);
    child.wait().await.ok()
}

/// Asks the child to end: llama-server finishes what it does and says its last words.
#[cfg(unix)]
fn terminate(child: &Child) {
    use rustix::process::{Pid, Signal, kill_process};
    // None: it has ended, and its number may be another's by now.
    let Some(id) = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw) else {
        return;
    };
    let _ = kill_process(id, Signal::TERM);
}

/// Ends the child: there is nothing gentler here.
#[cfg(not(unix))]
fn terminate(child: &mut Child) {
    drop(child.start_kill());
}

/// A port that is free now.
pub(crate) fn free_port() -> anyhow::Result<u16> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).context("no free port for an engine")?;
    Ok(listener.local_addr()?.port())
}
