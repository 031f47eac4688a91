//! Makes an engine that a program is about to start say where it puts the model.
//!
//! Asks a llama-server for its version and raises its verbosity where that build would be silent. What the user chose
//! is left alone, and no other program is asked anything.

use std::ffi::OsStr;
use std::io;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::Command;
use tokio::time::timeout;

use crate::engines::verbosity::{
    PLACEMENT_VERBOSITY, VERBOSITY_VARIABLE, VerbosityDecision, decide, is_chosen, is_llama_program,
};

/// How long an engine may take to say its version. A GPU's driver can need seconds to start, even for that.
pub const VERSION_TIMEOUT: Duration = Duration::from_secs(5);

/// A version is a few lines; what is beyond this is not read.
const VERSION_LIMIT_BYTES: u64 = 64 * 1024;

/// Why an engine's version is not known. The engine can be started all the same, as the user wrote it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AskVersionError {
    /// The program cannot be started, and so cannot serve either.
    #[error("cannot start `{program}`; check that it is installed, in PATH, and may be executed")]
    Start {
        /// The program as given.
        program: String,
        /// What the system says.
        source: io::Error,
    },
    /// The program started, and its output cannot be read.
    #[error("cannot read what `{program} --version` prints")]
    Read {
        /// The program as given.
        program: String,
        /// What the system says.
        source: io::Error,
    },
    /// No answer within [`VERSION_TIMEOUT`]; the process that was asked is killed.
    #[error("`{program} --version` gave no answer within {} s; set {VERBOSITY_VARIABLE}={PLACEMENT_VERBOSITY} yourself if placement stays unreported", VERSION_TIMEOUT.as_secs())]
    Timeout {
        /// The program as given.
        program: String,
    },
}

/// Prepares a command that starts an engine: where it is a llama-server that would not print its placement, and the
/// user chose no verbosity, sets [`VERBOSITY_VARIABLE`] on it. Gives what was decided.
///
/// For that it runs the program once with `--version`, in the command's own environment and directory. Needs a tokio
/// runtime with I/O and time.
///
/// ```no_run
/// # async fn start() -> Result<(), Box<dyn std::error::Error>> {
/// use serving_sentinel::output::launch;
///
/// let mut engine = tokio::process::Command::new("llama-server");
/// engine.args(["-m", "model.gguf"]);
/// launch::prepare(&mut engine).await?;
/// let child = engine.spawn()?;
/// # Ok(())
/// # }
/// ```
///
/// # Errors
///
/// [`AskVersionError`] when the version cannot be had; the command is then unchanged.
pub async fn prepare(command: &mut Command) -> Result<VerbosityDecision, AskVersionError> {
    let decision = decision(command).await?;
    if decision == VerbosityDecision::Raise {
        command.env(VERBOSITY_VARIABLE, PLACEMENT_VERBOSITY);
    }
    Ok(decision)
}

async fn decision(command: &Command) -> Result<VerbosityDecision, AskVersionError> {
    let engine = command.as_std();
    let program = Path::new(engine.get_program());
    if !program.file_name().and_then(OsStr::to_str).is_some_and(is_llama_program) {
        return Ok(VerbosityDecision::OtherProgram);
    }
    if is_chosen(engine.get_args().filter_map(OsStr::to_str), |name| is_set(command, name)) {
        return Ok(VerbosityDecision::UserChose);
    }
    Ok(decide(&version_text(command).await?))
}

/// Whether the engine will see that variable: the command's own word counts first, else it is inherited.
fn is_set(command: &Command, name: &str) -> bool {
    let own = command.as_std().get_envs().find(|(key, _)| *key == name);
    own.map_or_else(|| std::env::var_os(name).is_some(), |(_, value)| value.is_some())
}

/// What the engine prints when asked for its version, on both streams.
async fn version_text(engine: &Command) -> Result<String, AskVersionError> {
    let program = || engine.as_std().get_program().to_string_lossy().into_owned();
    let mut asked = Command::new(engine.as_std().get_program());
    asked
        .arg("--version")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    for (key, value) in engine.as_std().get_envs() {
        match value {
            Some(value) => asked.env(key, value),
            None => asked.env_remove(key),
        };
    }
    if let Some(directory) = engine.as_std().get_current_dir() {
        asked.current_dir(directory);
    }
    let mut child =
        asked.spawn().map_err(|source| AskVersionError::Start { program: program(), source })?;
    // Each by itself: a program that fills one pipe must not wait for the other to be read.
    let (stdout, stderr) = (read(child.stdout.take()), tokio::spawn(read(child.stderr.take())));
    let answer = timeout(VERSION_TIMEOUT, async {
        Ok((stdout.await?, stderr.await.map_err(io::Error::other)??))
    });
    // The child is dropped, and so killed and reaped, whatever comes of it: an answer needs no exit.
    match answer.await {
        Ok(Ok((stdout, stderr))) => Ok(stdout + "\n" + &stderr),
        Ok(Err(source)) => Err(AskVersionError::Read { program: program(), source }),
        Err(_) => Err(AskVersionError::Timeout { program: program() }),
    }
}

async fn read(stream: Option<impl AsyncRead + Unpin>) -> io::Result<String> {
    let mut bytes = Vec::new();
    if let Some(stream) = stream {
        stream.take(VERSION_LIMIT_BYTES).read_to_end(&mut bytes).await?;
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use tempfile::TempDir;

    use super::*;

    /// A program of that name which is a shell script. Another process writes it: a file that this one holds open for
    /// writing while another test starts a child cannot be run.
    fn script(name: &str, body: &str) -> (TempDir, Command) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(name);
        let written = std::process::Command::new("sh")
            .args(["-c", r#"printf '#!/bin/sh\n%s\n' "$1" > "$0" && chmod 755 "$0""#])
            .args([path.as_os_str(), OsStr::new(body)])
            .status();
        assert!(written.unwrap().success());
        let mut command = Command::new(path);
        command.args(["-m", "model.gguf"]);
        (folder, command)
    }

    fn verbosity(command: &Command) -> Option<&OsStr> {
        command
            .as_std()
            .get_envs()
            .find(|(key, _)| *key == VERBOSITY_VARIABLE)
            .and_then(|(_, value)| value)
    }

    #[tokio::test]
    async fn a_build_that_would_be_silent_is_told_to_speak() {
        let (_folder, mut command) = script("llama-server", "echo 'version: 9181 (0123456)' >&2");
        assert_eq!(prepare(&mut command).await.unwrap(), VerbosityDecision::Raise);
        assert_eq!(verbosity(&command), Some(OsStr::new("4")));
    }

    #[tokio::test]
    async fn a_build_that_speaks_is_left_alone() {
        let (_folder, mut command) = script("llama-server", "echo 'version: 6448 (24a6734d)'");
        assert_eq!(prepare(&mut command).await.unwrap(), VerbosityDecision::PrintsByDefault);
        assert_eq!(verbosity(&command), None);
    }

    #[tokio::test]
    async fn a_choice_of_the_user_is_left_alone_and_nothing_is_run() {
        let (_folder, mut command) = script("llama-server", "exec sleep 60");
        command.args(["-lv", "1"]);
        assert_eq!(prepare(&mut command).await.unwrap(), VerbosityDecision::UserChose);

        let (_folder, mut command) = script("llama-server", "exec sleep 60");
        command.env(VERBOSITY_VARIABLE, "2");
        assert_eq!(prepare(&mut command).await.unwrap(), VerbosityDecision::UserChose);
        assert_eq!(verbosity(&command), Some(OsStr::new("2")));
    }

    #[tokio::test]
    async fn another_program_is_not_run() {
        let (folder, mut command) = script("serve.sh", "touch \"$(dirname \"$0\")/was-run\"");
        assert_eq!(prepare(&mut command).await.unwrap(), VerbosityDecision::OtherProgram);
        assert!(!folder.path().join("was-run").exists());
    }

    #[tokio::test]
    async fn a_program_that_is_not_there_is_named() {
        let error = prepare(&mut Command::new("/nowhere/llama-server")).await.unwrap_err();
        assert!(
            matches!(&error, AskVersionError::Start { program, .. } if program == "/nowhere/llama-server")
        );
        assert!(error.to_string().contains("check that it is installed"), "{error}");
    }

    #[tokio::test(start_paused = true)]
    async fn no_answer_is_an_error_after_five_seconds() {
        let (_folder, mut command) = script("llama-server", "exec sleep 60");
        let begin = tokio::time::Instant::now();
        let error = prepare(&mut command).await.unwrap_err();
        assert!(matches!(error, AskVersionError::Timeout { .. }), "{error}");
        assert_eq!(begin.elapsed().as_secs(), VERSION_TIMEOUT.as_secs());
        assert_eq!(verbosity(&command), None);
    }
}
