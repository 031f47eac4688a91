use super::*;
use crate::otlp::values::Protocol;

fn settings(variables: &[(&str, &str)]) -> Result<Settings, OtlpError> {
    Settings::read(&|name| {
        variables.iter().find(|(known, _)| *known == name).map(|(_, value)| value.into())
    })
}

#[test]
fn nothing_said_is_the_specification() {
    let settings = settings(&[]).unwrap();
    let endpoints: Vec<_> = settings.routes().map(|(_, route)| route.endpoint.as_str()).collect();
    assert_eq!(
        endpoints,
        [
            "http://localhost:4318/v1/traces",
            "http://localhost:4318/v1/metrics",
            "http://localhost:4318/v1/logs"
        ]
    );
    assert_eq!(
        settings.span_batching,
        Batching { queue: 2048, batch: 512, delay: Duration::from_secs(5) }
    );
    assert_eq!(
        settings.log_batching,
        Batching { queue: 2048, batch: 512, delay: Duration::from_secs(1) }
    );
    assert_eq!(settings.metric_interval, Duration::from_secs(60));
    assert_eq!(settings.temporality, Temporality::Cumulative);
    assert_eq!(settings.propagators, [Propagator::TraceContext, Propagator::Baggage]);
    assert_eq!(settings.ignored, []);
}

/// What is set, which signal is looked at, and its endpoint.
type EndpointRow = (&'static str, &'static [(&'static str, &'static str)], Signal, &'static str);
const ENDPOINTS: &[EndpointRow] = &[
    (
        "a base gets the signal's path",
        &[("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:4318")],
        Signal::Logs,
        "http://c:4318/v1/logs",
    ),
    (
        "a base with a path and a slash",
        &[("OTEL_EXPORTER_OTLP_ENDPOINT", "https://c/otlp/")],
        Signal::Metrics,
        "https://c/otlp/v1/metrics",
    ),
    (
        "a signal's own endpoint stands as it is",
        &[
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c"),
            ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://d/x"),
        ],
        Signal::Traces,
        "http://d/x",
    ),
    (
        "an empty value is no value",
        &[("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c"), ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", " ")],
        Signal::Traces,
        "http://c/v1/traces",
    ),
    (
        "gRPC has no path",
        &[("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"), ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:1")],
        Signal::Traces,
        "http://c:1",
    ),
    (
        "gRPC without an endpoint",
        &[("OTEL_EXPORTER_OTLP_LOGS_PROTOCOL", "GRPC")],
        Signal::Logs,
        "http://localhost:4317",
    ),
    (
        "gRPC without a scheme is secure",
        &[("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"), ("OTEL_EXPORTER_OTLP_ENDPOINT", "c:4317")],
        Signal::Traces,
        "https://c:4317",
    ),
    (
        "unless told otherwise",
        &[
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "c:4317"),
            ("OTEL_EXPORTER_OTLP_INSECURE", "true"),
        ],
        Signal::Traces,
        "http://c:4317",
    ),
];

#[test]
fn endpoints() {
    for (case, variables, signal, endpoint) in ENDPOINTS {
        let settings = settings(variables).unwrap();
        let route = settings.routes().find(|(of, _)| of == signal).unwrap().1;
        assert_eq!(route.endpoint, *endpoint, "{case}");
        assert_eq!(settings.ignored, [], "{case}");
    }
}

/// What cannot be used, and what the error names.
const ERRORS: &[(&[(&str, &str)], &str)] = &[
    (
        &[("OTEL_EXPORTER_OTLP_ENDPOINT", "localhost:4318")],
        "the endpoint in OTEL_EXPORTER_OTLP_ENDPOINT cannot be used: `localhost:4318` does not start \
         with http:// or https:// and a host; give a URL such as http://localhost:4318",
    ),
    (
        &[("OTEL_EXPORTER_OTLP_LOGS_ENDPOINT", "collector")],
        "the endpoint in OTEL_EXPORTER_OTLP_LOGS_ENDPOINT cannot be used: `collector` is no URL \
         (relative URL without a base); give a URL such as http://localhost:4318",
    ),
    (
        &[("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json")],
        "the protocol http/json in OTEL_EXPORTER_OTLP_PROTOCOL is not built in; use `http/protobuf` \
         or `grpc`",
    ),
];

#[test]
fn what_leaves_no_honest_default_is_an_error() {
    for (variables, text) in ERRORS {
        assert_eq!(settings(variables).unwrap_err().to_string(), *text);
    }
    // An exporter that is not used needs no usable endpoint.
    let unused =
        [("OTEL_LOGS_EXPORTER", "none"), ("OTEL_EXPORTER_OTLP_LOGS_ENDPOINT", "collector")];
    assert!(settings(&unused).unwrap().logs.is_none());
    let disabled = [("OTEL_SDK_DISABLED", "TRUE"), ("OTEL_EXPORTER_OTLP_ENDPOINT", "collector")];
    assert!(settings(&disabled).unwrap().routes().next().is_none());
}

/// Values that are not understood.
const IGNORED: &[(&str, &str)] = &[
    ("OTEL_SDK_DISABLED", "yes"),
    ("OTEL_TRACES_EXPORTER", "console"),
    ("OTEL_METRICS_EXPORTER", "prometheus,none"),
    ("OTEL_EXPORTER_OTLP_PROTOCOL", "http"),
    ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "udp"),
    ("OTEL_EXPORTER_OTLP_COMPRESSION", "zstd"),
    ("OTEL_EXPORTER_OTLP_TIMEOUT", "10s"),
    ("OTEL_EXPORTER_OTLP_LOGS_TIMEOUT", "0"),
    ("OTEL_METRIC_EXPORT_INTERVAL", "0"),
    ("OTEL_METRIC_EXPORT_TIMEOUT", "-1"),
    ("OTEL_BSP_MAX_QUEUE_SIZE", "0"),
    ("OTEL_BLRP_SCHEDULE_DELAY", "soon"),
    ("OTEL_TRACES_SAMPLER", "jaeger_remote"),
    ("OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE", "sometimes"),
    ("OTEL_RESOURCE_ATTRIBUTES", "a=b,c"),
    ("OTEL_RESOURCE_ATTRIBUTES", "a=%zz"),
    ("OTEL_PROPAGATORS", "b3"),
    ("OTEL_EXPORTER_OTLP_CLIENT_KEY", "/key.pem"),
    ("OTEL_EXPORTER_OTLP_INSECURE", "1"),
];

#[test]
fn what_is_not_understood_is_ignored_and_told_of_once() {
    let usual = format!("{:?}", settings(&[]).unwrap());
    for (variable, value) in IGNORED {
        let mut settings = settings(&[(variable, value)]).unwrap();
        let ignored = std::mem::take(&mut settings.ignored);
        assert_eq!(ignored.len(), 1, "{variable}={value}: {ignored:?}");
        let text = ignored[0].to_string();
        assert!(text.starts_with(&format!("`{value}` in {variable} is ignored; ")), "{text}");
        if *variable == "OTEL_PROPAGATORS" {
            // A list of which nothing is understood is an empty one.
            assert_eq!(settings.propagators, []);
        } else {
            assert_eq!(format!("{settings:?}"), usual, "{variable}={value}");
        }
    }
}

#[test]
fn a_signal_has_its_own_settings_before_the_general_ones() {
    let settings = settings(&[
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
        ("OTEL_EXPORTER_OTLP_LOGS_PROTOCOL", "http/protobuf"),
        ("OTEL_EXPORTER_OTLP_TIMEOUT", "3000"),
        ("OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "2000"),
        ("OTEL_BLRP_EXPORT_TIMEOUT", "1000"),
        ("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip"),
        ("OTEL_EXPORTER_OTLP_METRICS_COMPRESSION", "none"),
        ("OTEL_EXPORTER_OTLP_HEADERS", "a=1"),
        ("OTEL_EXPORTER_OTLP_LOGS_HEADERS", "b=x%20y, c = 3 "),
    ])
    .unwrap();
    let (traces, metrics, logs) =
        (settings.traces.unwrap(), settings.metrics.unwrap(), settings.logs.unwrap());
    assert_eq!(traces.protocol, Protocol::Grpc);
    assert_eq!(logs.protocol, Protocol::Http);
    let millis = |route: &Route| route.timeout.as_millis();
    assert_eq!((millis(&traces), millis(&metrics), millis(&logs)), (2000, 3000, 1000));
    let compressed = |route: &Route| route.compression.is_some();
    assert_eq!((compressed(&traces), compressed(&metrics), compressed(&logs)), (true, false, true));
    assert_eq!(traces.headers, [("a".to_owned(), "1".to_owned())]);
    let own = [("b".to_owned(), "x y".to_owned()), ("c".to_owned(), "3".to_owned())];
    assert_eq!(logs.headers, own);
}

#[test]
fn a_bad_header_does_not_show_its_value() {
    let settings = settings(&[("OTEL_EXPORTER_OTLP_HEADERS", "good=1,Bearer hunter2")]).unwrap();
    assert_eq!(settings.traces.unwrap().headers, [("good".to_owned(), "1".to_owned())]);
    let [ignored] = &settings.ignored[..] else { panic!("{:?}", settings.ignored) };
    assert!(!ignored.to_string().contains("hunter2"), "{ignored}");
}

#[test]
fn samplers() {
    let rows = [
        ("always_off", None, "AlwaysOff"),
        ("parentbased_always_off", None, "ParentBased(AlwaysOff)"),
        ("traceidratio", Some("0.25"), "TraceIdRatioBased(0.25)"),
        ("parentbased_traceidratio", Some("2"), "ParentBased(TraceIdRatioBased(1.0))"),
    ];
    for (name, ratio, expected) in rows {
        let mut variables = vec![("OTEL_TRACES_SAMPLER", name)];
        variables.extend(ratio.map(|ratio| ("OTEL_TRACES_SAMPLER_ARG", ratio)));
        assert_eq!(format!("{:?}", settings(&variables).unwrap().sampler), expected, "{name}");
    }
}

#[test]
fn a_swapped_port_is_hinted_at_and_credentials_are_kept_out_of_the_log() {
    let endpoint = [("OTEL_EXPORTER_OTLP_ENDPOINT", "http://user:hunter2@c:4317")];
    let route = settings(&endpoint).unwrap().traces.unwrap();
    assert_eq!(&*route.collector(), "http://c:4317");
    let hint = "port 4317 usually speaks grpc: try OTEL_EXPORTER_OTLP_PROTOCOL=grpc";
    assert_eq!(route.hint().as_deref(), Some(hint));
    assert_eq!(settings(&[]).unwrap().traces.unwrap().hint(), None);
}
