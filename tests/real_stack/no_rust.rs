//! The collector that reads engine logs by itself (`no-rust.yaml`), on recorded runs: what it tells of them, and where
//! it is blind.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::Path;

use crate::program::{Program, free_port};
use crate::web::{eventually, get};

/// The value of the one series of this name whose labels hold all of these.
fn value(page: &str, name: &str, labels: &[&str]) -> Result<f64, String> {
    let is_it = |line: &&str| {
        line.strip_prefix(name).is_some_and(|rest| {
            rest.starts_with('{') && labels.iter().all(|label| rest.contains(label))
        })
    };
    let found: Vec<&str> = page.lines().filter(is_it).collect();
    let [line] = found.as_slice() else { return Err(format!("{name} {labels:?}: {found:#?}")) };
    line.rsplit_once(' ').unwrap().1.parse().map_err(|error| format!("{line}: {error}"))
}

fn recording(name: &str) -> Vec<u8> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    std::fs::read(folder.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn engine_logs_become_metrics_without_any_program_of_ours() {
    let folder = tempfile::tempdir().unwrap();
    let logs = folder.path().join("logs");
    std::fs::create_dir_all(&logs).unwrap();
    for (lane, log) in [
        ("good", "recordings/llama-server-remote-gpu-19-of-19.stderr.log"),
        ("lying", "recordings/llama-server-no-gpu-banner-lies.stderr.log"),
        ("silent", "recordings/llama-server-default-verbosity.stderr.log"),
        ("oom", "cases/010-cuda-oom-load-failed.log"),
    ] {
        std::fs::write(logs.join(format!("{lane}.log")), recording(log)).unwrap();
    }
    let [metrics, own] = std::array::from_fn(|_| free_port());
    let variables = vec![
        ("ENGINE_LOGS", logs.join("*.log").display().to_string()),
        ("ENGINE_LOGS_FROM", "beginning".to_owned()),
        ("PROMETHEUS_PORT", metrics.to_string()),
        ("SELF_METRICS_PORT", own.to_string()),
    ];
    let _collector = Program::collector("no-rust.yaml", folder.path(), variables).await;
    let page = format!("http://127.0.0.1:{metrics}/metrics");
    let expect = async |name: &str, labels: &[&str], expected: f64| {
        eventually(&format!("{name} {labels:?} is {expected}"), || async {
            let found = value(&get(&page, &[]).await?, name, labels)?;
            let is_it = (found - expected).abs() < 1e-6 * expected.abs().max(1.0);
            if is_it { Ok(()) } else { Err(format!("{found}")) }
        })
        .await;
    };
    let mebibytes = |number: f64| number * 1_048_576.0;
    let weights = "serving_buffer=\"model\"";

    expect(
        "serving_placement_bytes",
        &["\"good\"", weights, "\"accelerator\"", "RPC0["],
        mebibytes(235.16),
    )
    .await;
    expect("serving_placement_bytes", &["\"good\"", weights, "\"host\""], mebibytes(170.0)).await;
    expect("serving_decode_rate_per_second_sum", &["\"good\"", "engine_log"], 86.93).await;
    expect("serving_decode_rate_per_second_count", &["\"good\""], 1.0).await;
    expect("serving_prefill_rate_per_second_sum", &["\"good\""], 269.41).await;
    expect("serving_alarms_active", &["\"oom\"", "serving.engine.load_failed"], 1.0).await;
    // The banner is passed on; the bytes refute it.
    expect("serving_placement_layers", &["\"lying\"", "\"accelerator\""], 19.0).await;
    expect("serving_placement_bytes", &["\"lying\"", weights, "CPU_Mapped"], mebibytes(235.16))
        .await;
    let told = get(&page, &[]).await.unwrap();
    let of = |lane: &str, part: &str| {
        told.lines().any(|line| line.contains(&format!("\"{lane}\"")) && line.contains(part))
    };
    assert!(
        !told.lines().any(|line| line.starts_with("serving_placement_bytes")
            && line.contains("\"lying\"")
            && line.contains("accelerator")),
        "{told}"
    );
    // A silent engine has lines, and no placement.
    assert!(of("silent", "serving_sentinel_lines_total"), "{told}");
    assert!(!of("silent", "serving_placement_"), "{told}");

    // What comes later is added to what was there.
    let more = b"slot print_timing: id  3 | task 9 |        eval time =     400.00 ms /    40 tokens (   10.00 ms per token,   100.00 tokens per second)\n";
    OpenOptions::new().append(true).open(logs.join("good.log")).unwrap().write_all(more).unwrap();
    expect("serving_decode_rate_per_second_count", &["\"good\""], 2.0).await;
    expect("serving_decode_rate_per_second_sum", &["\"good\""], 186.93).await;
    // A rotated file is read on.
    std::fs::rename(logs.join("good.log"), logs.join("good.log.1")).unwrap();
    std::fs::write(logs.join("good.log"), more).unwrap();
    expect("serving_decode_rate_per_second_count", &["\"good\""], 3.0).await;
}
