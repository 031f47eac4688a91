//! Metrics: gauges while the engines live, counters and histograms at the end.

use std::collections::{BTreeMap, BTreeSet};

use crate::facts::mib;
use crate::run::RUN;
use crate::wire::{Series, rows};
use crate::{
    COLLAPSING, EXPECTATION_SOURCE, EXPECTED_RATE, HEALTHY, LANES, LYING, Lane, MODEL, SILENT,
};

/// A late export in which all engines lived and all were judged.
fn alive() -> Series {
    let judged = |series: &Series| series.of("serving.placement.state").values().sum::<f64>();
    let exports = Series::exports(&RUN.received).into_iter();
    // Gauges are read one after the other: while the last of these was, an engine may have ended.
    let alive = exports.filter(|series| judged(series) == 4.0).rev().nth(1);
    alive.expect("no export shows four verdicts at once")
}

#[test]
fn gauges_show_each_lane_as_it_stands() {
    let alive = alive();
    let verdicts = ["gpu", "partial", "cpu", "cpu_fallback", "unreported"];
    let stands = [
        (&HEALTHY, "gpu"),
        (&LYING, "cpu_fallback"),
        (&SILENT, "unreported"),
        (&COLLAPSING, "gpu"),
    ];
    let states = stands.iter().flat_map(|(lane, stands)| {
        verdicts.map(|verdict| {
            (format!("{} {verdict}", lane.name), f64::from(u8::from(verdict == *stands)))
        })
    });
    assert_eq!(alive.of("serving.placement.state"), states.collect());
    assert_eq!(
        alive.of("serving.placement.layers"),
        rows([
            ("healthy accelerator", 19.0),
            ("healthy host", 0.0),
            ("lying-banner accelerator", 0.0),
            ("lying-banner host", 19.0),
            ("collapsing accelerator", 19.0),
            ("collapsing host", 0.0),
        ])
    );
    #[expect(clippy::cast_precision_loss, reason = "sizes of recorded buffers")]
    let bytes = |size| mib(size) as f64;
    let on_device = |lane: &Lane| {
        [
            ("model RPC0[127.0.0.1:50053] accelerator", bytes(235.16)),
            ("model CPU_Mapped host", bytes(170.0)),
            ("kv RPC0[127.0.0.1:50053] accelerator", bytes(6.0) + bytes(30.0)),
            ("compute RPC0[127.0.0.1:50053] accelerator", bytes(20.52)),
            ("compute CPU host", bytes(6.52)),
        ]
        .map(|(buffer, bytes)| (format!("{} {buffer}", lane.name), bytes))
    };
    let on_host = [
        ("lying-banner model CPU_Mapped host", bytes(235.16)),
        ("lying-banner model CPU_REPACK host", bytes(12.66)),
        ("lying-banner kv CPU host", bytes(6.0) + bytes(30.0)),
        ("lying-banner compute CPU host", bytes(21.77)),
    ];
    let mut expected = rows(on_host);
    expected.extend(on_device(&HEALTHY).into_iter().chain(on_device(&COLLAPSING)));
    assert_eq!(alive.of("serving.placement.bytes"), expected);

    let expected: BTreeMap<_, _> =
        LANES.iter().map(|lane| (lane.name.to_owned(), EXPECTED_RATE)).collect();
    assert_eq!(alive.of("serving.decode.expected_rate"), expected);
    assert_eq!(
        alive.values_of("serving.decode.expected_rate", "serving.expectation.source"),
        [EXPECTATION_SOURCE.to_owned()].into()
    );
}

#[test]
fn alarms_are_gauges_as_long_as_they_stand() {
    const DEGRADED: &str = "collapsing serving.throughput.degraded";
    let mut alarms = alive().of("serving.alarms.active");
    // It stands for half a second, and is seen to.
    alarms.remove(DEGRADED);
    let degraded: BTreeSet<_> = Series::exports(&RUN.received)
        .iter()
        .filter_map(|series| series.of("serving.alarms.active").get(DEGRADED).copied())
        .map(|active| active == 1.0)
        .collect();
    assert_eq!(degraded, [false, true].into());

    let standing: Vec<_> = alarms
        .iter()
        .filter(|(_, active)| **active != 0.0)
        .map(|(name, _)| name.as_str())
        .collect();
    assert_eq!(
        standing,
        ["lying-banner serving.placement.cpu_fallback", "silent serving.placement.unreported"]
    );
    // 8 kinds on 4 lanes, and blindness that is of no lane.
    assert_eq!(alarms.len(), 8 * 4 - 1 + 1, "{alarms:#?}");
    assert_eq!(alarms["serving.sentinel.blind"], 0.0);
}

#[test]
fn counters_and_histograms_hold_exactly_what_was_recorded() {
    let last = Series::last(&RUN.received);
    let each = |value: &dyn Fn(&Lane) -> f64| -> BTreeMap<String, f64> {
        LANES.iter().map(|lane| (lane.name.to_owned(), value(lane))).collect()
    };
    #[expect(clippy::cast_precision_loss, reason = "lines of a recording")]
    let recorded = each(&|lane| lane.recording().lines.len() as f64);
    let mut lines: BTreeMap<String, f64> = BTreeMap::new();
    for (name, value) in last.of("serving.sentinel.lines") {
        let (lane, kind) = name.split_once(' ').unwrap();
        assert!(["evidence", "other"].contains(&kind) && value > 0.0, "{name}: {value}");
        *lines.entry(lane.to_owned()).or_default() += value;
    }
    assert_eq!(lines, recorded, "lines seen, and lines recorded");

    assert_eq!(
        last.of("serving.throughput.judged"),
        rows([
            ("healthy on_par", 3.0),
            ("lying-banner on_par", 3.0),
            ("silent on_par", 3.0),
            ("collapsing on_par", 4.0),
            ("collapsing degraded", 1.0),
        ])
    );
    assert_eq!(last.of("serving.throughput.violations"), rows([("collapsing", 1.0)]));
    assert_eq!(
        last.of("serving.placement.violations"),
        rows([("lying-banner no_device cpu_fallback", 1.0), ("silent unreported", 1.0)])
    );
    assert_eq!(last.of("serving.requests.in_flight"), each(&|_| 0.0));

    let sourced = |values: BTreeMap<String, f64>| -> BTreeMap<String, f64> {
        values.into_iter().map(|(lane, value)| (format!("{lane} engine_response"), value)).collect()
    };
    let decode = each(&|lane| lane.sum("predicted_per_second"));
    let ratio = each(&|lane| lane.sum("predicted_per_second") / EXPECTED_RATE);
    let prefill = each(&|lane| lane.sum("prompt_per_second"));
    close(&last.of("serving.decode.rate"), &sourced(decode));
    close(&last.of("serving.decode.ratio"), &ratio);
    close(&last.of("serving.prefill.rate"), &sourced(prefill));
    let requests: Vec<u64> = last.counts("serving.decode.rate").into_values().collect();
    assert_eq!(requests, [5, 3, 3, 3]);
    let slow = last.points("serving.decode.rate").find(|point| point.count == 5).unwrap();
    // The slow request is in (4, 8], the others in (64, 96] tokens/s.
    let buckets: Vec<_> =
        slow.buckets.iter().enumerate().filter(|(_, count)| **count > 0).collect();
    assert_eq!(buckets, [(4, &1), (11, &4)]);
}

#[test]
fn requests_are_told_as_the_conventions_want() {
    let last = Series::last(&RUN.received);
    let tokens = |of: &str| -> f64 {
        let ends = LANES.iter().flat_map(|lane| lane.recording().ends);
        ends.map(|end| end["usage"][of].as_f64().unwrap()).sum()
    };
    assert_eq!(
        last.of("gen_ai.client.token.usage"),
        rows([("input", tokens("prompt_tokens")), ("output", tokens("completion_tokens"))])
    );
    let per_token: f64 = LANES
        .iter()
        .flat_map(|lane| lane.recording().ends)
        .map(|end| end["timings"]["predicted_per_second"].as_f64().unwrap().recip())
        .sum();
    close(&last.of("gen_ai.server.time_per_output_token"), &rows([("", per_token)]));
    for metric in ["gen_ai.server.request.duration", "gen_ai.server.time_to_first_token"] {
        assert_eq!(last.counts(metric), rows([("", 14)]), "{metric}");
    }
    // The engine plays in real time, so that a request takes at least what the engine says that it took.
    let engines: f64 =
        LANES.iter().map(|lane| lane.sum("prompt_ms") + lane.sum("predicted_ms")).sum();
    let durations = last.of("gen_ai.server.request.duration")[""];
    assert!((engines / 1000.0 - 0.5..60.0).contains(&durations), "{durations} s of {engines} ms");
    for (key, value) in [
        ("gen_ai.operation.name", "chat"),
        ("gen_ai.provider.name", "llama_cpp"),
        ("gen_ai.request.model", MODEL),
    ] {
        assert_eq!(last.values_of("gen_ai.", key), [value.to_owned()].into());
    }
}

#[test]
fn what_has_ended_is_no_longer_shown() {
    let last = Series::last(&RUN.received);
    for metric in [
        "serving.placement.state",
        "serving.placement.layers",
        "serving.placement.bytes",
        "serving.decode.expected_rate",
    ] {
        assert_eq!(last.of(metric), BTreeMap::new(), "{metric}");
    }
    assert_eq!(last.of("serving.alarms.active"), rows([("serving.sentinel.blind", 0.0)]));
}

/// Equal but for the last digits, which depend on the order of adding.
#[track_caller]
fn close(found: &BTreeMap<String, f64>, expected: &BTreeMap<String, f64>) {
    let is_close = found.len() == expected.len()
        && found.iter().zip(expected).all(|((one, found), (other, expected))| {
            one == other && (found - expected).abs() <= expected.abs() * 1e-9
        });
    assert!(is_close, "{found:#?} instead of {expected:#?}");
}
