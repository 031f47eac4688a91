//! A program of the stack as a child: started with its configuration, asked whether it is ready, ended or killed, and
//! started again with what it had kept.

use std::fs::{File, OpenOptions};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

use crate::web::{eventually, get};

/// A port that is free now.
pub(crate) fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// The folder of the configurations.
pub(crate) fn config(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("collector-config").join(name)
}

/// A binary that `.ci/stack` made.
fn binary(name: &str) -> PathBuf {
    let home = std::env::var_os("SENTINEL_STACK_HOME").expect(
        "SENTINEL_STACK_HOME is not set: build the collector, Jaeger and Prometheus with `.ci/stack` and give the folder it prints",
    );
    PathBuf::from(home).join(name)
}

/// A program of the stack; killed when it is dropped.
pub(crate) struct Program {
    name: &'static str,
    arguments: Vec<String>,
    variables: Vec<(&'static str, String)>,
    folder: PathBuf,
    /// Answers 200 when the program serves.
    health: String,
    child: Child,
}

impl Program {
    /// Starts it in this folder, where its output stands in `<name>.log`, and waits until it serves.
    pub(crate) async fn start(
        name: &'static str,
        folder: &Path,
        arguments: Vec<String>,
        variables: Vec<(&'static str, String)>,
        health: String,
    ) -> Self {
        std::fs::create_dir_all(folder).unwrap();
        let child = spawn(name, folder, &arguments, &variables);
        let mut program =
            Self { name, arguments, variables, folder: folder.to_owned(), health, child };
        program.wait_until_ready().await;
        program
    }

    /// Starts a collector with this file of `collector-config/`.
    pub(crate) async fn collector(
        file: &str,
        folder: &Path,
        mut variables: Vec<(&'static str, String)>,
    ) -> Self {
        let health = format!("127.0.0.1:{}", free_port());
        variables.push(("HEALTH_ENDPOINT", health.clone()));
        let arguments = vec!["--config".to_owned(), config(file).display().to_string()];
        Self::start("otelcol", folder, arguments, variables, format!("http://{health}/")).await
    }

    async fn wait_until_ready(&mut self) {
        let (name, health) = (self.name, self.health.clone());
        let log = self.folder.join(format!("{name}.log"));
        let child = &mut self.child;
        eventually(&format!("{name} serves"), || {
            let ended = child.try_wait().unwrap();
            let (health, log) = (health.clone(), log.clone());
            async move {
                assert!(ended.is_none(), "{name} ended: {ended:?}\n{}", tail(&log));
                get(&health, &[]).await.map_err(|error| format!("{error}\n{}", tail(&log)))
            }
        })
        .await;
    }

    /// SIGTERM, and its end.
    pub(crate) async fn terminate(&mut self) -> ExitStatus {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        let child = &mut self.child;
        eventually(&format!("{} ends after SIGTERM", self.name), || {
            let ended = child.try_wait().unwrap();
            async move { ended.ok_or_else(|| "it runs".to_owned()) }
        })
        .await
    }

    /// SIGKILL.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Starts it again, with the files it left.
    pub(crate) async fn restart(&mut self) {
        self.child = spawn(self.name, &self.folder, &self.arguments, &self.variables);
        self.wait_until_ready().await;
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            println!(
                "-- {}:\n{}",
                self.name,
                tail(&self.folder.join(format!("{}.log", self.name)))
            );
        }
    }
}

fn spawn(
    name: &str,
    folder: &Path,
    arguments: &[String],
    variables: &[(&'static str, String)],
) -> Child {
    let log: File = OpenOptions::new()
        .create(true)
        .append(true)
        .open(folder.join(format!("{name}.log")))
        .unwrap();
    let path = binary(name);
    Command::new(&path)
        .args(arguments)
        .envs(variables.iter().map(|(name, value)| (name, value)))
        .current_dir(folder)
        .stdin(Stdio::null())
        .stdout(log.try_clone().unwrap())
        .stderr(log)
        .spawn()
        .unwrap_or_else(|error| panic!("{}: {error}; `.ci/stack` builds it", path.display()))
}

/// The last lines of a log, shortened.
fn tail(log: &Path) -> String {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<String> = text.lines().map(|line| line.chars().take(300).collect()).collect();
    lines[lines.len().saturating_sub(8)..].join("\n")
}
