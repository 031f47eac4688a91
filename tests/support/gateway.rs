//! The built gateway example as a child, and what it takes to ask it something.

#![allow(dead_code, reason = "each test uses a part of it")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::ffi::OsStr;
use std::path::PathBuf;
use std::process::{Output, Stdio};
use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use hyper_util::client::legacy;
use hyper_util::rt::TokioExecutor;
use serde_json::json;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, ChildStdout, Command};
use tokio::time::timeout;

/// Far more than anything here takes: reaching it is a failure.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// The built example, next to the folder of this test's own program.
pub(crate) fn gateway() -> PathBuf {
    let own = std::env::current_exe().unwrap();
    let path = own.ancestors().nth(2).unwrap().join("examples/gateway");
    assert!(
        path.is_file(),
        "{} is not built; run `cargo build --example gateway`, or `cargo test`",
        path.display()
    );
    path
}

pub(crate) fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(gateway());
    command
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    for (name, _) in std::env::vars_os() {
        let name_text = name.to_string_lossy();
        if ["OTEL_", "RUST_LOG", "LLAMA_"].iter().any(|prefix| name_text.starts_with(prefix)) {
            command.env_remove(OsStr::new(&name));
        }
    }
    command
}

pub(crate) async fn run(arguments: &[&str]) -> Output {
    timeout(PATIENCE, command(arguments).output()).await.expect("the gateway does not end").unwrap()
}

/// A gateway that runs until it is dropped.
pub(crate) struct Gateway {
    child: Child,
    lines: tokio::io::Lines<BufReader<ChildStdout>>,
    pub(crate) address: String,
    said: Vec<String>,
}

impl Gateway {
    pub(crate) async fn start(arguments: &[&str]) -> Self {
        Self::start_with(arguments, &[]).await
    }

    pub(crate) async fn start_with(arguments: &[&str], variables: &[(&str, String)]) -> Self {
        let mut command = command(arguments);
        // Killed, it could not end its engine.
        command.envs(variables.iter().cloned()).kill_on_drop(false);
        let mut child = command.spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut gateway = Self { child, lines, address: String::new(), said: Vec::new() };
        let line = gateway.expect_line("Serving on ").await;
        line["Serving on ".len()..].split(';').next().unwrap().clone_into(&mut gateway.address);
        gateway
    }

    /// A gateway before an engine that answers on this port; its child only waits.
    pub(crate) async fn before(port: u16) -> Self {
        Self::before_with(port, &[], &[]).await
    }

    pub(crate) async fn before_with(
        port: u16,
        options: &[&str],
        variables: &[(&str, String)],
    ) -> Self {
        let port = port.to_string();
        let engine = ["--", "sh", "-c", "exec sleep 600", "sh", "--port", &port];
        Self::start_with(&[options, &engine].concat(), variables).await
    }

    /// Waits for a line that has this in it; gives the whole of it.
    pub(crate) async fn expect_line(&mut self, part: &str) -> String {
        loop {
            let line = timeout(PATIENCE, self.lines.next_line()).await;
            let Ok(Ok(Some(line))) = line else {
                panic!("no line says {part:?} but only {:#?}", self.said)
            };
            self.said.push(line.clone());
            if line.contains(part) {
                return line;
            }
        }
    }

    pub(crate) fn engine_address(&self) -> &str {
        let line = self.said.iter().find(|line| line.starts_with("Serving on ")).unwrap();
        line.rsplit_once(' ').unwrap().1.trim_end_matches('.')
    }

    pub(crate) fn terminate(&self) {
        let Some(id) = self.child.id() else { return };
        let id = rustix::process::Pid::from_raw(id.try_into().unwrap()).unwrap();
        rustix::process::kill_process(id, rustix::process::Signal::TERM).unwrap();
    }

    /// Waits for the end; gives the exit code.
    pub(crate) async fn code(&mut self) -> Option<i32> {
        timeout(PATIENCE, self.child.wait())
            .await
            .expect("the gateway does not end")
            .unwrap()
            .code()
    }
}

impl Drop for Gateway {
    /// Asks, so that it ends its engine too.
    fn drop(&mut self) {
        self.terminate();
    }
}

pub(crate) fn chat(address: &str, stream: bool) -> Request {
    let question = json!({"model": "any", "messages": [{"role": "user", "content": "hello"}], "stream": stream});
    let request = Request::post(format!("{address}/v1/chat/completions"))
        .header("content-type", "application/json");
    request.body(Body::from(question.to_string())).unwrap()
}

pub(crate) async fn send(request: Request) -> Result<Response, legacy::Error> {
    let client = legacy::Client::builder(TokioExecutor::new()).build_http::<Body>();
    Ok(client.request(request).await?.map(Body::new))
}
