use super::*;

const AWAY: &str = "TracesClient export failed with gRPC code: Unavailable: connection refused";
const REFUSED: &str = "HTTP export failed with status code: 404";

struct Step {
    second: u64,
    signal: Signal,
    outcome: Result<(), &'static str>,
    lines: &'static [&'static str],
}

const fn step(
    second: u64,
    signal: Signal,
    outcome: Result<(), &'static str>,
    lines: &'static [&'static str],
) -> Step {
    Step { second, signal, outcome, lines }
}

fn state(collectors: &[(Signal, &str)]) -> State {
    let signals = collectors
        .iter()
        .map(|&(signal, collector)| SignalState {
            signal,
            collector: collector.into(),
            hint: None,
            trouble: None,
        })
        .collect();
    State { signals, ..State::default() }
}

/// The kind of a line, and of what it is.
fn told(line: &Line) -> String {
    match line {
        Line::Away { trouble, .. } => format!("away {}", trouble.collector),
        Line::Back { collector, lost } => format!("back {collector} {lost}"),
        Line::Refused { trouble, .. } => format!("refused {}", trouble.signal),
        Line::Taken { signal, .. } => format!("taken {signal}"),
        Line::Ignored(setting) => setting.to_string(),
    }
}

#[expect(clippy::disallowed_methods, reason = "a test needs some instant to count from")]
fn run(case: &str, state: &mut State, steps: &[Step]) {
    let start = Instant::now();
    for Step { second, signal, outcome, lines } in steps {
        let now = start + Duration::from_secs(*second);
        let said = state.note(*signal, 10, outcome.map_err(str::to_owned), now);
        assert_eq!(said.iter().map(told).collect::<Vec<_>>(), *lines, "{case}, second {second}");
    }
}

use Signal::{Logs, Metrics, Traces};

#[test]
fn an_outage_is_told_once_whatever_the_number_of_signals() {
    let mut state = state(&[(Traces, "a"), (Metrics, "a"), (Logs, "a")]);
    run(
        "one collector",
        &mut state,
        &[
            step(0, Traces, Ok(()), &[]),
            step(5, Traces, Err(AWAY), &["away a"]),
            step(6, Logs, Err(AWAY), &[]),
            step(10, Traces, Err(AWAY), &[]),
            step(60, Metrics, Err(AWAY), &[]),
            step(70, Traces, Ok(()), &[]),
            // The log records are left from long ago, and traces have been arriving.
            step(120, Metrics, Ok(()), &["back a 40"]),
        ],
    );
    assert_eq!(state.lost, 40);
    assert!(state.signals.iter().all(|state| state.trouble.is_none()));
}

#[test]
fn a_signal_with_nothing_to_send_does_not_keep_an_outage_open() {
    let mut state = state(&[(Traces, "a"), (Logs, "a")]);
    run(
        "an idle signal",
        &mut state,
        &[
            step(0, Logs, Err(AWAY), &["away a"]),
            step(30, Traces, Ok(()), &[]),
            step(60, Traces, Ok(()), &["back a 10"]),
        ],
    );
}

#[test]
fn a_collector_that_comes_and_goes_does_not_flood_the_log() {
    let mut state = state(&[(Traces, "a")]);
    run(
        "flapping",
        &mut state,
        &[
            step(0, Traces, Err(AWAY), &["away a"]),
            step(5, Traces, Ok(()), &["back a 10"]),
            step(10, Traces, Err(AWAY), &[]),
            step(15, Traces, Ok(()), &[]),
            step(59, Traces, Err(AWAY), &[]),
            step(61, Traces, Ok(()), &[]),
            step(62, Traces, Err(AWAY), &["away a"]),
        ],
    );
}

#[test]
fn a_refusal_is_of_one_signal_and_ends_with_it() {
    let mut state = state(&[(Traces, "a"), (Logs, "a")]);
    run(
        "no pipeline for logs",
        &mut state,
        &[
            step(0, Logs, Err(REFUSED), &["refused logs"]),
            step(5, Traces, Ok(()), &[]),
            step(100, Traces, Ok(()), &[]),
            step(200, Logs, Err(REFUSED), &[]),
            step(300, Logs, Ok(()), &["taken logs"]),
        ],
    );
}

#[test]
fn an_outage_may_turn_into_a_refusal() {
    let mut state = state(&[(Traces, "a")]);
    run(
        "back, but unwilling",
        &mut state,
        &[
            step(0, Traces, Err(AWAY), &["away a"]),
            step(5, Traces, Err(REFUSED), &["refused traces", "back a 10"]),
            step(70, Traces, Err(AWAY), &["away a"]),
        ],
    );
}

#[test]
fn collectors_fail_each_on_its_own() {
    let mut state = state(&[(Traces, "a"), (Metrics, "b")]);
    run(
        "two collectors",
        &mut state,
        &[
            step(0, Traces, Err(AWAY), &["away a"]),
            step(1, Metrics, Err(AWAY), &["away b"]),
            step(2, Metrics, Ok(()), &["back b 10"]),
            step(3, Traces, Ok(()), &["back a 10"]),
        ],
    );
}

#[test]
fn kinds_of_trouble() {
    let rows = [
        ("LogsClient export failed with gRPC code: Unimplemented", TroubleKind::Refused),
        ("LogsClient export failed with gRPC code: Unauthenticated", TroubleKind::Refused),
        ("X export failed with gRPC code: ResourceExhausted", TroubleKind::Unreachable),
        ("X export failed with gRPC code: Unknown: transport error", TroubleKind::Unreachable),
        ("HTTP export failed with status code: 401", TroubleKind::Refused),
        ("HTTP export failed with status code: 301", TroubleKind::Refused),
        ("HTTP export failed with status code: 429", TroubleKind::Unreachable),
        ("HTTP export failed with status code: 503", TroubleKind::Unreachable),
        ("HTTP export failed: network error: connection refused", TroubleKind::Unreachable),
        ("no answer within 10s", TroubleKind::Unreachable),
    ];
    for (error, kind) in rows {
        assert_eq!(TroubleKind::of(error), kind, "{error}");
    }
}
