//! The run that most tests look at, made once.

use std::sync::LazyLock;

use opentelemetry_proto::tonic::trace::v1::Span;
use opentelemetry_proto::tonic::trace::v1::Status;
use opentelemetry_proto::tonic::trace::v1::status::StatusCode;
use tokio::time::timeout;

use crate::gateway::{PATIENCE, command};
use crate::otlp::{Collector, Received, Wire};
use crate::wire::spans;
use crate::{LANES, LOAD, Lane, REQUEST};

pub(crate) struct Run {
    pub(crate) received: Received,
    pub(crate) process: u32,
    /// The loads that had arrived while the program, and so its engines, ran.
    pub(crate) early_loads: usize,
}

pub(crate) static RUN: LazyLock<Run> = LazyLock::new(|| {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let collector = Collector::start(Wire::Grpc);
        let mut command = command(&[]);
        command
            .env("OTEL_EXPORTER_OTLP_ENDPOINT", collector.endpoint())
            .env("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
            // Quick, so that each state of the run is seen.
            .env("OTEL_BSP_SCHEDULE_DELAY", "50")
            .env("OTEL_BLRP_SCHEDULE_DELAY", "50")
            .env("OTEL_METRIC_EXPORT_INTERVAL", "200");
        let mut child = command.spawn().unwrap();
        let process = child.id().unwrap();
        let loads = |received: &Received| {
            let loads = received.spans.iter().filter(|span| span.data.name == LOAD).count();
            (loads == LANES.len()).then_some(loads)
        };
        let arrived = collector.wait_for("span of the fourth load", loads);
        let early_loads = if child.try_wait().unwrap().is_none() { arrived } else { 0 };
        let output = timeout(PATIENCE, child.wait_with_output())
            .await
            .expect("the gateway does not end")
            .unwrap();
        let logged = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{logged}");
        Run { received: collector.received(), process, early_loads }
    })
});

impl Lane {
    pub(crate) fn load(&self) -> &'static Span {
        let [load] = spans(&RUN.received, self.name, LOAD)[..] else { panic!("{}", self.name) };
        load
    }

    pub(crate) fn requests(&self) -> Vec<&'static Span> {
        spans(&RUN.received, self.name, REQUEST)
    }
}

pub(crate) fn status(span: &Span) -> StatusCode {
    span.status.as_ref().map_or(StatusCode::Unset, Status::code)
}
