//! An engine's endpoints by a script: each path answers as it is told to, or misbehaves, and every question is noted.
//!
//! It runs on a thread of its own, so that a test may block as much as it likes.
#![allow(dead_code, reason = "each test uses a part of it")]
#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "a test waits, and says what must be"
)]

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Condvar, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::time::sleep;

/// How long a test waits for what must come.
const PATIENCE: Duration = Duration::from_secs(20);

/// How a path answers.
#[derive(Clone, Debug)]
pub(crate) enum Reply {
    /// 200 with this body.
    Body(String),
    /// This status, with a short body.
    Status(u16),
    /// 302 to this path.
    Redirect(&'static str),
    /// Nothing, for ever.
    Hang,
    /// The connection is closed without a word.
    Reset,
    /// The connection is closed in the middle of a body.
    Cut,
    /// A body without an end, as fast as it is taken.
    Endless,
    /// A good body, a byte at a time.
    Slow(String),
}

/// One question.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) path: String,
    /// All of its head.
    pub(crate) head: String,
    pub(crate) at: Instant,
    /// Which connection it came by, counted from 1.
    pub(crate) connection: usize,
    /// Questions without an answer when it came, itself among them.
    pub(crate) open: usize,
}

#[derive(Default)]
struct State {
    replies: BTreeMap<String, Reply>,
    asked: Vec<Asked>,
    connections: usize,
    open: usize,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

/// A server that listens until it is dropped. What it was not told of is not found.
pub(crate) struct Engine {
    address: SocketAddr,
    shared: Arc<Shared>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Engine {
    pub(crate) fn start() -> Self {
        let shared = Arc::new(Shared::default());
        let (stop, stopped) = oneshot::channel();
        let (tell, told) = std::sync::mpsc::channel();
        let serving = shared.clone();
        let thread = thread::spawn(move || {
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async move {
                let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
                tell.send(listener.local_addr().unwrap()).unwrap();
                tokio::select! {
                    () = accept(listener, serving) => {}
                    _ = stopped => {}
                }
            });
        });
        let address = told.recv().unwrap();
        Self { address, shared, stop: Some(stop), thread: Some(thread) }
    }

    pub(crate) fn address(&self) -> String {
        format!("http://{}", self.address)
    }

    /// From now on the path answers so.
    pub(crate) fn answer(&self, path: &str, reply: Reply) {
        self.shared.state.lock().unwrap().replies.insert(path.to_owned(), reply);
    }

    pub(crate) fn body(&self, path: &str, body: impl Into<String>) {
        self.answer(path, Reply::Body(body.into()));
    }

    pub(crate) fn asked(&self) -> Vec<Asked> {
        self.shared.state.lock().unwrap().asked.clone()
    }

    /// The paths that were asked for, in order.
    pub(crate) fn paths(&self) -> Vec<String> {
        self.asked().into_iter().map(|asked| asked.path).collect()
    }

    /// Waits until so many more questions were asked.
    #[track_caller]
    pub(crate) fn wait_for_more(&self, questions: usize) {
        let deadline = Instant::now() + PATIENCE;
        let mut state = self.shared.state.lock().unwrap();
        let wanted = state.asked.len() + questions;
        while state.asked.len() < wanted {
            let left = deadline.saturating_duration_since(Instant::now());
            assert!(
                !left.is_zero(),
                "no {wanted} questions within {PATIENCE:?}: {:#?}",
                state.asked
            );
            state = self.shared.changed.wait_timeout(state, left).unwrap().0;
        }
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        let connection = {
            let mut state = shared.state.lock().unwrap();
            state.connections += 1;
            state.connections
        };
        tokio::spawn(serve(stream, connection, shared.clone()));
    }
}

/// Counts a question as open until it is answered, or nobody waits any more.
struct Open(Arc<Shared>);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.state.lock().unwrap().open -= 1;
    }
}

async fn serve(mut stream: TcpStream, connection: usize, shared: Arc<Shared>) {
    let mut head = Vec::new();
    let mut chunk = [0; 1024];
    loop {
        let Ok(read) = stream.read(&mut chunk).await else { return };
        if read == 0 {
            return;
        }
        head.extend_from_slice(&chunk[..read]);
        if !head.ends_with(b"\r\n\r\n") {
            continue;
        }
        let text = String::from_utf8(std::mem::take(&mut head)).unwrap();
        let path = text.split(' ').nth(1).unwrap_or_default().to_owned();
        let (reply, open) = {
            let mut state = shared.state.lock().unwrap();
            state.open += 1;
            let open = state.open;
            let asked =
                Asked { path: path.clone(), head: text, at: Instant::now(), connection, open };
            state.asked.push(asked);
            shared.changed.notify_all();
            let reply = state.replies.get(&path).cloned().unwrap_or(Reply::Status(404));
            (reply, Open(shared.clone()))
        };
        let goes_on = write(&mut stream, reply).await;
        drop(open);
        if !goes_on {
            return;
        }
    }
}

fn with_head(status: &str, more: &str, body: &str) -> String {
    format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n{more}\r\n{body}", body.len())
}

/// Answers; `false` when the connection is over.
async fn write(stream: &mut TcpStream, reply: Reply) -> bool {
    match reply {
        Reply::Body(body) => {
            stream.write_all(with_head("200 OK", "", &body).as_bytes()).await.is_ok()
        }
        Reply::Status(status) => {
            let answer = with_head(&format!("{status} As Told"), "", "{\"error\":{}}");
            stream.write_all(answer.as_bytes()).await.is_ok()
        }
        Reply::Redirect(to) => {
            let answer = with_head("302 Found", &format!("location: {to}\r\n"), "");
            stream.write_all(answer.as_bytes()).await.is_ok()
        }
        Reply::Hang => {
            // Until the client gives up.
            let _ = stream.read(&mut [0; 1]).await;
            false
        }
        Reply::Reset => false,
        Reply::Cut => {
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 99\r\n\r\n{\"mod").await;
            false
        }
        Reply::Endless => {
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await;
            while stream.write_all(&[b' '; 4096]).await.is_ok() {}
            false
        }
        Reply::Slow(body) => {
            for byte in with_head("200 OK", "", &body).into_bytes() {
                if stream.write_all(&[byte]).await.is_err() {
                    return false;
                }
                sleep(Duration::from_millis(20)).await;
            }
            true
        }
    }
}
