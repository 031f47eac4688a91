//! The README tells the truth: its commands run, its names are those that leave, its defaults are the code's.
//!
//! Its Rust code is compiled as doctests (`src/lib.rs`), which run what needs no engine and no file.

#![cfg(all(unix, feature = "otlp", feature = "output"))]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serving_sentinel::engines::verbosity::{PLACEMENT_VERBOSITY, VERBOSITY_VARIABLE};
use serving_sentinel::evidence::Cause;
use serving_sentinel::otlp::OtlpBuilder;
use serving_sentinel::output::{LineBuffer, LogFile, OutputReader};
use serving_sentinel::telemetry::names;
use serving_sentinel::{
    AlarmKind, AlarmPolicy, PlacementPolicy, PlacementVerdict, SentinelLayerBuilder,
    ThroughputPolicy, WedgePolicy,
};

const README: &str = include_str!("../README.md");

// === Reading it ===

/// Text and fenced blocks, in turn.
fn parts() -> impl Iterator<Item = (bool, &'static str)> {
    README.split("```").enumerate().map(|(number, part)| (number % 2 == 1, part))
}

/// What stands between backquotes.
fn codes() -> BTreeSet<&'static str> {
    let text = parts().filter(|(is_block, _)| !is_block);
    text.flat_map(|(_, text)| text.split('`').skip(1).step_by(2)).collect()
}

/// The shell commands, as the words of each.
fn commands() -> Vec<Vec<&'static str>> {
    let blocks = parts().filter_map(|(_, part)| part.strip_prefix("console\n"));
    let typed = blocks.flat_map(str::lines).filter_map(|line| line.strip_prefix("$ "));
    let in_text = codes().into_iter().filter(|code| code.starts_with("cargo "));
    typed.chain(in_text).map(|command| command.split_whitespace().collect()).collect()
}

/// The row of a table that says this in one of its cells.
#[track_caller]
fn row(code: &str) -> Vec<&'static str> {
    let code = format!("`{code}`");
    let row = README.lines().find(|line| line.starts_with('|') && line.contains(&code));
    let row = row.unwrap_or_else(|| panic!("no table has {code}"));
    row.trim_matches('|').split('|').map(str::trim).collect()
}

fn file(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

// === Its code ===

/// Who reads this page on the web sees the lines that rustdoc hides.
#[test]
fn code_is_shown_as_it_is_pasted() {
    let blocks: Vec<_> =
        parts().filter(|(is_block, part)| *is_block && part.starts_with("rust")).collect();
    assert!(blocks.len() > 8);
    for line in blocks.iter().flat_map(|(_, block)| block.lines()) {
        assert!(line != "#" && !line.trim_start().starts_with("# "), "{line}");
    }
}

/// What needs a feature that is off by default is no doctest of this page. Its module has the same words, and is one.
#[test]
fn code_that_needs_a_feature_is_that_of_its_module() {
    let docs = file("src/readback/mod.rs");
    let docs = docs.lines().map_while(|line| line.strip_prefix("//!"));
    let docs =
        docs.map(|line| line.strip_prefix(' ').unwrap_or(line)).collect::<Vec<_>>().join("\n");
    let ignored: Vec<_> =
        parts().filter_map(|(_, part)| part.strip_prefix("rust,ignore\n")).collect();
    assert_eq!(ignored.len(), 1);
    for block in ignored {
        assert!(docs.contains(&format!("```\n{block}```")), "src/readback/mod.rs lacks:\n{block}");
    }
}

// === Its commands ===

/// An example, which Cargo has built beside the tests.
fn example(name: &str) -> Command {
    let test = std::env::current_exe().unwrap();
    let target = test.parent().and_then(Path::parent).unwrap();
    let mut command = Command::new(target.join("examples").join(name));
    command.current_dir(env!("CARGO_MANIFEST_DIR")).env("NO_COLOR", "1").env_remove("RUST_LOG");
    command
}

#[track_caller]
fn said(command: &mut Command) -> (String, String) {
    let Output { status, stdout, stderr } = command
        .output()
        .unwrap_or_else(|error| panic!("{command:?}: {error}; `cargo build --examples` makes it"));
    let text = |bytes| String::from_utf8(bytes).unwrap();
    let (stdout, stderr) = (text(stdout), text(stderr));
    assert!(status.success(), "{command:?}: {status}\n{stdout}\n{stderr}");
    (stdout, stderr)
}

/// The names of all examples, and where each begins.
fn examples() -> Vec<(String, PathBuf)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples");
    let paths = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    paths.map(|path| (path.file_stem().unwrap().to_str().unwrap().to_owned(), path)).collect()
}

#[test]
fn every_example_is_named_and_every_named_one_is_there() {
    let there: BTreeSet<String> = examples().into_iter().map(|(name, _)| name).collect();
    let is_flag = |pair: &[&str]| pair[0] == "--example";
    let named = commands()
        .iter()
        .flat_map(|words| words.windows(2).filter(|pair| is_flag(pair)).map(|pair| pair[1]))
        .map(str::to_owned)
        .collect();
    assert_eq!(there, named);
}

#[test]
fn a_small_example_is_small() {
    for (name, path) in examples().into_iter().filter(|(_, path)| path.is_file()) {
        let lines = std::fs::read_to_string(path).unwrap().lines().count();
        assert!(lines < 70, "{name} has {lines} lines");
    }
}

#[test]
fn the_gateway_knows_its_options() {
    let (help, _) = said(example("gateway").arg("--help"));
    let mut checked = 0;
    for words in commands().iter().filter(|words| words.contains(&"gateway")) {
        let own = words.split(|word| *word == "--").nth(1).unwrap_or_default();
        for option in own.iter().filter(|word| word.starts_with("--")) {
            let is_there =
                help.lines().any(|line| line.split_whitespace().any(|word| word == *option));
            assert!(is_there, "{option} is not in:\n{help}");
            checked += 1;
        }
    }
    assert!(checked >= 5, "the README shows options");
}

#[test]
fn the_gateways_lanes_are_explained() {
    let demo = file("examples/gateway/demo.rs");
    let lanes: Vec<_> =
        demo.split("Scene { lane: \"").skip(1).filter_map(|rest| rest.split('"').next()).collect();
    assert_eq!(lanes.len(), 4);
    for lane in lanes {
        assert_eq!(row(lane).len(), 2, "{lane}");
    }
}

#[test]
fn a_log_is_scanned() {
    let (found, _) = said(&mut example("scan_log"));
    assert!(found.starts_with("scanned, load 1: cpu_fallback, by buffers\n"), "{found}");
    assert!(found.contains("refutes  banner 19/19"), "{found}");
    let healthy = "tests/fixtures/recordings/llama-server-remote-gpu-19-of-19.stderr.log";
    let (found, _) = said(example("scan_log").arg(healthy));
    assert!(found.starts_with("scanned, load 1: gpu, by buffers\n"), "{found}");
}

#[test]
fn a_child_is_watched() {
    let log = "tests/fixtures/recordings/llama-server-cpu-only-build.stderr.log";
    let (_, alarms) = said(example("watch").args(["cat", log]));
    assert!(alarms.contains("serving.placement.verdict=\"cpu_fallback\""), "{alarms}");
    assert!(alarms.contains("serving.cause=\"cpu_only_build\""), "{alarms}");
}

#[test]
fn a_child_that_answers_and_says_nothing_is_judged() {
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = server.local_addr().unwrap().to_string();
    // It lives until its stdin closes, and that is when its verdict was read.
    let mut watch = example("watch");
    watch.args(["--health", &address, "cat"]).stdin(Stdio::piped()).stderr(Stdio::piped());
    let mut watch = watch.spawn().unwrap();
    let mut stdin = watch.stdin.take();
    for answer in ["HTTP/1.1 503 Service Unavailable\r\n\r\n", "HTTP/1.1 200 OK\r\n\r\n"] {
        let (mut client, _) = server.accept().unwrap();
        client.read_exact(&mut [0; b"GET /health HTTP/1.0\r\n\r\n".len()]).unwrap();
        client.write_all(answer.as_bytes()).unwrap();
    }
    let mut alarms = String::new();
    for line in BufReader::new(watch.stderr.take().unwrap()).lines().map(Result::unwrap) {
        if line.contains("serving.placement.verdict=\"unreported\"") {
            drop(stdin.take());
        }
        alarms.extend([&line, "\n"]);
    }
    assert!(watch.wait().unwrap().success(), "{alarms}");
    assert!(stdin.is_none(), "{alarms}");
}

#[test]
fn lines_logged_already_are_heard() {
    let (log, _) = said(&mut example("engine_target"));
    assert!(log.contains("serving.placement.verdict=\"cpu_fallback\""), "{log}");
    assert!(!log.contains("CPU_Mapped"), "the program's own filter holds: {log}");
}

#[test]
fn answers_are_judged() {
    let (verdicts, _) = said(&mut example("judge_answer"));
    assert_eq!(verdicts, "whole:    on_par\nstreamed: degraded\n");
}

#[test]
fn without_a_collector_the_log_says_so() {
    let nobody = "http://127.0.0.1:9";
    let (log, _) = said(example("export").env("OTEL_EXPORTER_OTLP_ENDPOINT", nobody));
    assert_eq!(log.matches("cannot be reached").count(), 1, "{log}");
    assert!(log.contains("serving.placement.verdict=\"cpu_fallback\""), "{log}");
    assert!(log.contains("serving.decode.ratio=0.044"), "{log}");
}

// === Its names ===

#[test]
fn variables_are_those_of_the_code() {
    let is_variable = |word: &&str| word.starts_with("OTEL_") && !word.ends_with('_');
    let words = README.split(|c: char| !c.is_ascii_uppercase() && c != '_').filter(is_variable);
    let words: BTreeSet<_> = words.collect();
    assert!(words.len() > 10);
    let table = file("src/otlp/mod.rs");
    for name in words {
        let signals = ["TRACES", "METRICS", "LOGS"];
        let of_any = signals.iter().fold(name.to_owned(), |name, signal| name.replace(signal, "*"));
        let is_known = [name, &of_any].iter().any(|name| table.contains(&format!("`{name}`")));
        assert!(is_known, "{name} is not in the table of src/otlp/mod.rs");
    }
    let spoken = format!("{VERBOSITY_VARIABLE}={PLACEMENT_VERBOSITY}");
    assert!(commands().iter().any(|words| words.contains(&spoken.as_str())));
}

#[test]
fn every_telemetry_name_is_one_that_leaves() {
    let constants = file("src/telemetry/names.rs");
    let is_name = |code: &&str| code.starts_with("serving.") || code.starts_with("gen_ai.");
    for name in codes().into_iter().filter(is_name).filter(|code| !code.ends_with('*')) {
        assert!(constants.contains(&format!("\"{name}\"")), "{name} is not in names.rs");
    }
}

#[test]
fn every_metric_and_alarm_is_named() {
    let contract = file("tests/fixtures/telemetry_contract.txt");
    let metrics: Vec<_> = contract.lines().filter(|line| !line.starts_with('#')).collect();
    assert!(metrics.len() > 10);
    for metric in metrics {
        let told: Vec<_> = metric.split('|').map(str::trim).collect();
        assert_eq!(row(told[0])[1], format!("{}, `{}`", told[1], told[2]), "{}", told[0]);
    }
    for alarm in AlarmKind::ALL.map(names::alarm) {
        assert!(["ERROR", "WARN"].contains(&row(alarm)[1]), "{alarm}");
    }
}

#[test]
fn every_verdict_and_cause_is_named() {
    let verdicts = PlacementVerdict::ALL.map(PlacementVerdict::as_str);
    let named = codes();
    for word in verdicts.into_iter().chain(Cause::ALL.map(Cause::as_str)) {
        assert!(named.contains(word), "{word}");
    }
}

// === Its numbers ===

#[test]
fn defaults_are_the_codes() {
    let mib = |bytes: u64| format!("{} MiB", bytes >> 20);
    let rows = [
        ("ThroughputPolicy::with_floor", ThroughputPolicy::DEFAULT_FLOOR.to_string()),
        ("ThroughputPolicy::with_above", ThroughputPolicy::DEFAULT_ABOVE.to_string()),
        ("ThroughputPolicy::with_min_tokens", ThroughputPolicy::DEFAULT_MIN_TOKENS.to_string()),
        (
            "ThroughputPolicy::with_consecutive_contended",
            ThroughputPolicy::DEFAULT_CONSECUTIVE_CONTENDED.to_string(),
        ),
        ("PlacementPolicy::with_host_share", PlacementPolicy::DEFAULT_HOST_SHARE.to_string()),
        ("AlarmPolicy::with_time_to_live", format!("{:?}", AlarmPolicy::DEFAULT_TIME_TO_LIVE)),
        ("WedgePolicy::with_bulk_budget", format!("{:?}", WedgePolicy::DEFAULT_BULK_BUDGET)),
        ("WedgePolicy::with_drip_budget", format!("{:?}", WedgePolicy::DEFAULT_DRIP_BUDGET)),
        ("WedgePolicy::with_load_budget", format!("{:?}", WedgePolicy::DEFAULT_LOAD_BUDGET)),
        ("SentinelLayerBuilder::max_lanes", SentinelLayerBuilder::DEFAULT_MAX_LANES.to_string()),
        ("OtlpBuilder::max_lanes", OtlpBuilder::DEFAULT_MAX_LANES.to_string()),
        (
            "SentinelLayerBuilder::meter_grace",
            format!("{:?}", SentinelLayerBuilder::DEFAULT_METER_GRACE),
        ),
        (
            "OutputReader::with_max_line_bytes",
            format!("{} KiB", LineBuffer::DEFAULT_MAX_BYTES.get() >> 10),
        ),
        (
            "OutputReader::with_queue_bytes",
            format!("{} each", mib(OutputReader::DEFAULT_QUEUE_BYTES.get().into())),
        ),
        ("LogFile::with_cap_bytes", mib(LogFile::DEFAULT_CAP_BYTES)),
    ];
    #[cfg(feature = "readback")]
    let rows = {
        use serving_sentinel::ReadBack;
        rows.into_iter().chain([
            ("ReadBack::with_interval", format!("{:?}", ReadBack::DEFAULT_INTERVAL)),
            ("ReadBack::with_timeout", format!("{:?}", ReadBack::DEFAULT_TIMEOUT)),
            ("ReadBack::with_max_body_bytes", mib(ReadBack::DEFAULT_MAX_BODY_BYTES.get().into())),
        ])
    };
    for (setter, value) in rows {
        assert_eq!(row(setter)[1].replace(" s", "s"), value, "{setter}");
    }
}

#[test]
fn supported_rust_and_features_are_those_of_the_manifest() {
    let manifest = file("Cargo.toml");
    let rust = manifest.split("rust-version = \"").nth(1).and_then(|rest| rest.split('"').next());
    let rust = format!("Rust {}", rust.unwrap());
    for (name, text) in [("README.md", README), ("src/lib.rs", &file("src/lib.rs"))] {
        assert_eq!(text.matches("Rust 1.").count(), text.matches(&rust).count(), "{name}: {rust}");
    }
    let features = manifest.split("[features]").nth(1).unwrap().split("\n[").next().unwrap();
    let default = features.lines().find(|line| line.starts_with("default = ")).unwrap();
    for feature in default.split('"').skip(1).step_by(2) {
        assert!(README.contains(&format!("| `{feature}` | yes |")), "{feature}");
    }
}
