//! A real engine behind the gateway, until Ctrl-C or until the engine ends.

use std::ffi::OsString;
use std::process::{ExitCode, ExitStatus};

use anyhow::{Context as _, ensure};
use futures_util::future;
use serving_sentinel::engines::verbosity::VerbosityDecision;
use serving_sentinel::layer::Lane;
use serving_sentinel::output::{LogFile, OutputReader, launch};
use tokio::net::TcpListener;
use tokio::process::Command;

use crate::cli::{Cli, RealEngine, missing_model, option};
use crate::engine::{Engine, free_port};
use crate::http::{self, Origin};
use crate::proxy::{self, Gateway, Route};
use crate::read_back;
use crate::screen::Screen;
use crate::signals;

pub(crate) async fn run(
    cli: &Cli,
    engine: RealEngine,
    screen: &Screen,
) -> anyhow::Result<ExitCode> {
    let RealEngine { lane, program, mut arguments } = engine;
    if let Some(file) = missing_model(&arguments) {
        anyhow::bail!("there is no model file `{file}`; check the path after -m");
    }
    let listener = listen(cli).await?;
    let origin = origin(&mut arguments)?;
    let mut command = Command::new(&program);
    command.args(&arguments).stdin(std::process::Stdio::null());
    match launch::prepare(&mut command).await {
        Ok(VerbosityDecision::Raise) => {
            screen.say("This build prints where it puts the model only at verbosity 4: it is started with that.");
        }
        Ok(_) => {}
        Err(error @ launch::AskVersionError::Start { .. }) => return Err(error.into()),
        // It can still serve.
        Err(error) => tracing::warn!("{error}"),
    }
    let model = lane.model().cloned();
    let lane = Lane::open(lane);
    let mut reader = OutputReader::new(&lane);
    if let Some(file) = &cli.engine_log {
        reader = reader.with_log_file(LogFile::new(file));
    }
    if cli.read_back {
        read_back::start(&lane, &origin)?;
    }
    let engine = Engine::start(reader, lane.clone(), origin.clone(), command)?;
    screen.say(&format!(
        "Serving on http://{}; waiting for the engine at {origin}.",
        listener.local_addr()?
    ));

    let client = http::client();
    let routes = vec![Route { lane: lane.clone(), model, origin }];
    let app = proxy::app(Gateway { routes, client: client.clone() });
    let lanes = [lane];
    let ready = async {
        if engine.ready(&client).await {
            screen.say("The engine is ready.");
            if cli.read_back {
                let description = read_back::description(&engine.lane).await;
                screen.say(&format!("The engine says of itself: {description}."));
            }
        }
    };
    let outcome = tokio::select! {
        error = http::serve(listener, app) => Err(error),
        signal = signals::terminated() => Ok(ExitCode::from(128 + signal)),
        status = engine.ended() => Ok(engine_ended(screen, status)),
        ((), never) = future::join(ready, screen.follow(&lanes)) => match never {},
    };
    screen.finish(&lanes);
    tokio::select! {
        () = engine.stop() => {}
        // Told twice: then not as gently.
        _ = signals::terminated() => {}
    }
    outcome
}

/// The gateway's own address.
pub(crate) async fn listen(cli: &Cli) -> anyhow::Result<TcpListener> {
    let address = cli.listen.unwrap_or_else(|| ([127, 0, 0, 1], 0).into());
    TcpListener::bind(address).await.with_context(|| {
        format!("cannot listen on {address}; give another with --listen, or end what uses it")
    })
}

/// Where the engine will answer, by its own arguments and environment. One that names no port gets a free one.
fn origin(arguments: &mut Vec<OsString>) -> anyhow::Result<Origin> {
    let told = |names: &[&str], variable: &str| {
        option(arguments, names).map(str::to_owned).or_else(|| std::env::var(variable).ok())
    };
    let host = told(&["--host"], "LLAMA_ARG_HOST").unwrap_or_else(|| "127.0.0.1".to_owned());
    let port = told(&["--port"], "LLAMA_ARG_PORT");
    ensure!(
        !host.contains('/'),
        "the engine listens on a Unix socket, `{host}`; give it a --host and --port"
    );
    let secured = told(&["--ssl-key-file"], "LLAMA_ARG_SSL_KEY_FILE");
    ensure!(
        secured.is_none(),
        "the gateway speaks plain HTTP with its engine; leave out --ssl-key-file"
    );
    let port = if let Some(port) = port {
        port.parse().with_context(|| format!("the engine's port `{port}` is no port"))?
    } else {
        let port = free_port()?;
        arguments.extend(["--port".into(), port.to_string().into()]);
        port
    };
    // An engine that listens everywhere is reached here.
    let host = match host.as_str() {
        "0.0.0.0" => "127.0.0.1",
        "::" => "::1",
        host => host,
    };
    let host = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
    format!("{host}:{port}").parse()
}

/// Tells how the engine ended by itself. It was there to serve, so that no end of it is a success.
fn engine_ended(screen: &Screen, status: Option<ExitStatus>) -> ExitCode {
    let Some(status) = status else { return ExitCode::FAILURE };
    screen.say(&format!("The engine ended: {status}. Its own words: --engine-log FILE keeps them, RUST_LOG=serving_sentinel::engine=info shows them."));
    match code(status) {
        0 => ExitCode::FAILURE,
        code => ExitCode::from(code),
    }
}

#[cfg(unix)]
fn code(status: ExitStatus) -> u8 {
    use std::os::unix::process::ExitStatusExt as _;
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1)
}

#[cfg(not(unix))]
fn code(status: ExitStatus) -> u8 {
    status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1)
}
