//! Each expectation of the harness can fail, and says what there was.

#![allow(
    clippy::unwrap_used,
    clippy::float_cmp,
    reason = "tests: what is exported is exact, and its absence is a failure"
)]

mod support;

use std::cell::OnceCell;

use serving_sentinel::lane::LaneConfig;
use serving_sentinel::layer::Lane;
use serving_sentinel::placement::Plan;

use support::memory::{Exported, export};
use support::{feed, load_of};

/// One load that fell back to the CPU.
fn out() -> Exported {
    export(|| {
        let lane = Lane::open(LaneConfig::new("chat-0").with_plan(Plan::ALL_ON_GPU));
        feed(&lane, &load_of("llama-server-no-gpu-banner-lies.stderr.log"));
        lane
    })
}

#[test]
fn the_harness_sees_what_is_there() {
    let out = out();
    out.span("serving.load");
    out.expect_event("serving.load", "serving.placement.cpu_fallback");
    out.expect_no_event("serving.throughput");
    out.record("serving.placement.cpu_fallback");
    out.expect_no_record("serving.throughput");
    assert_eq!(
        out.value("serving.placement.state", &[("serving.placement.verdict", "cpu_fallback")]),
        1.0
    );
    out.expect_no_point("serving.decode.rate", &[]);
}

macro_rules! fails {
    ($($name:ident: $says:literal, |$out:ident| $expectation:expr;)*) => {$(
        #[test]
        #[should_panic(expected = $says)]
        fn $name() {
            let cell = OnceCell::new();
            let $out: &Exported = cell.get_or_init(out);
            let _ = $expectation;
        }
    )*};
}

fails! {
    no_such_span: "0 spans `chat` instead of one among:\nserving.load", |out| out.span("chat");
    no_such_event: "0 events `serving.engine.wedged` instead of one", |out| out.expect_event("serving.load", "serving.engine.wedged");
    an_event_after_all: "an event `serving.placement..` among:\nserving.load", |out| out.expect_no_event("serving.placement");
    no_such_record: "0 records `serving.engine.wedged` instead of one", |out| out.record("serving.engine.wedged");
    a_record_after_all: "a record `serving.placement..` among", |out| out.expect_no_record("serving.placement");
    several_points: "5 points `serving.placement.state` with [] instead of one", |out| out.value("serving.placement.state", &[]);
    no_such_point: "0 points `serving.decode.rate`", |out| out.value("serving.decode.rate", &[]);
    a_point_after_all: "points `serving.placement.state` with [] among", |out| out.expect_no_point("serving.placement.state", &[]);
    no_such_recording: "recordings are part of the repository", |_out| support::recording("no-such-recording.log");
}
