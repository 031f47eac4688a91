//! The same over HTTP: one lane, loaded, asked once and ended.

use crate::facts::{fallback, take_advice};
use crate::gateway::{Gateway, chat, gateway, send};
use crate::otlp::{Collector, Wire};
use crate::wire::{Series, attributes, event, events, records, rows, spans};
use crate::{LOAD, LYING, MODEL, REQUEST};

#[tokio::test]
async fn over_http_the_same_arrives() {
    let collector = Collector::start(Wire::Http);
    let own = gateway();
    let arguments = [
        "--lane",
        "lying-banner",
        "--model",
        MODEL,
        "--minimum-share",
        "1",
        "--expect",
        "85",
        "--",
    ];
    let engine = [own.to_str().unwrap(), "__replay", LYING.run];
    let endpoint = [("OTEL_EXPORTER_OTLP_ENDPOINT", collector.endpoint())];
    let mut gateway = Gateway::start_with(&[&arguments[..], &engine].concat(), &endpoint).await;
    gateway.expect_line("The engine is ready.").await;
    assert!(send(chat(&gateway.address, false)).await.unwrap().status().is_success());
    gateway.expect_line("alarms serving.placement.cpu_fallback").await;
    gateway.terminate();
    assert_eq!(gateway.code().await, Some(143));

    let received = collector.received();
    let [load] = spans(&received, LYING.name, LOAD)[..] else { panic!("{:#?}", received.spans) };
    let mut told = attributes(&event(load, "serving.placement.cpu_fallback").attributes);
    take_advice(&mut told, "--list-devices");
    assert_eq!(told, fallback());
    let [request] = spans(&received, LYING.name, REQUEST)[..] else { panic!("{received:#?}") };
    assert_eq!(events(request), ["serving.placement.cpu_fallback"]);
    let alarms: Vec<_> =
        records(&received, LYING.name).into_iter().map(|it| it.severity_text.as_str()).collect();
    assert_eq!(alarms, ["ERROR", "INFO"]);
    let last = Series::last(&received);
    assert_eq!(last.of("serving.throughput.judged"), rows([("lying-banner on_par", 1.0)]));
    assert_eq!(
        last.of("serving.placement.violations"),
        rows([("lying-banner no_device cpu_fallback", 1.0)])
    );
}
