//! Alarms: a log record when one is raised and one when it ends.

use opentelemetry_proto::tonic::logs::v1::LogRecord;

use crate::otlp::attribute;
use crate::run::RUN;
use crate::wire::{attributes, event, records};
use crate::{COLLAPSING, HEALTHY, LYING, Lane, SILENT};

#[test]
fn an_alarm_is_a_log_record_when_it_is_raised_and_when_it_ends() {
    const ERROR: (&str, i32) = ("ERROR", 17);
    const WARN: (&str, i32) = ("WARN", 13);
    const INFO: (&str, i32) = ("INFO", 9);
    let summary = |record: &LogRecord| {
        let state = attribute(&record.attributes, "serving.alarm.state").unwrap();
        (record.event_name.clone(), (record.severity_text.clone(), record.severity_number), state)
    };
    let (requests, fallback, unreported) = (COLLAPSING.requests(), LYING.load(), SILENT.load());
    // Each with the span that its trace id leads to.
    let told: [(&Lane, &[_]); 4] = [
        (&HEALTHY, &[]),
        (
            &LYING,
            &[
                ("serving.placement.cpu_fallback", ERROR, "raised", fallback),
                ("serving.placement.cpu_fallback", INFO, "expired", fallback),
            ],
        ),
        (
            &SILENT,
            &[
                ("serving.placement.unreported", WARN, "raised", unreported),
                ("serving.placement.unreported", INFO, "expired", unreported),
            ],
        ),
        (
            &COLLAPSING,
            &[
                ("serving.throughput.degraded", WARN, "raised", requests[3]),
                ("serving.throughput.recovered", INFO, "cleared", requests[4]),
            ],
        ),
    ];
    for (lane, expected) in told {
        let records = records(&RUN.received, lane.name);
        let found: Vec<_> = records.iter().map(|record| summary(record)).collect();
        let names: Vec<_> = expected
            .iter()
            .map(|(name, (level, number), state, _)| {
                ((*name).to_owned(), ((*level).to_owned(), *number), (*state).to_owned())
            })
            .collect();
        assert_eq!(found, names, "{}", lane.name);
        for (record, (.., span)) in records.iter().zip(expected) {
            assert_eq!(record.trace_id, span.trace_id, "{}", record.event_name);
            assert_eq!(record.span_id, span.span_id, "{}", record.event_name);
        }
    }
    assert_eq!(RUN.received.logs.len(), 6, "no record is of another lane, or of none");
}

#[test]
fn an_alarm_says_the_same_as_its_span_event() {
    for (lane, span, name) in [
        (&LYING, LYING.load(), "serving.placement.cpu_fallback"),
        (&SILENT, SILENT.load(), "serving.placement.unreported"),
        (&COLLAPSING, COLLAPSING.requests()[3], "serving.throughput.degraded"),
        (&COLLAPSING, COLLAPSING.requests()[4], "serving.throughput.recovered"),
    ] {
        let records = records(&RUN.received, lane.name);
        let record = records.iter().find(|record| record.event_name == name).unwrap();
        let mut told = attributes(&record.attributes);
        told.remove("serving.alarm.state").unwrap();
        let mut expected = attributes(&event(span, name).attributes);
        // An event of `tracing` has no lists.
        if let Some(causes) = expected.get_mut("serving.causes") {
            *causes = causes[0].clone();
        }
        assert_eq!(told, expected, "{name}");
    }
}
