//! Ctrl-C and SIGTERM: what ends a server in the terminal, and under a supervisor.

/// Waits to be told to end; gives the signal's number, to exit with 128 more.
#[cfg(unix)]
pub(crate) async fn terminated() -> u8 {
    use tokio::signal::unix::{SignalKind, signal};
    let (Ok(mut interrupt), Ok(mut terminate)) =
        (signal(SignalKind::interrupt()), signal(SignalKind::terminate()))
    else {
        // Without handlers the system ends the process itself.
        return std::future::pending().await;
    };
    tokio::select! {
        _ = interrupt.recv() => 2,
        _ = terminate.recv() => 15,
    }
}

/// Waits to be told to end; gives the signal's number, to exit with 128 more.
#[cfg(not(unix))]
pub(crate) async fn terminated() -> u8 {
    match tokio::signal::ctrl_c().await {
        Ok(()) => 2,
        Err(_) => std::future::pending().await,
    }
}
