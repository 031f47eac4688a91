//! What does one line of engine output cost?
#![expect(clippy::unwrap_used, reason = "a bench")]

use std::hint::black_box;

use regex::bytes::{Regex, RegexSetBuilder};
use serving_sentinel::engines::{Matcher, StreamState};
use serving_sentinel::lane::{LaneConfig, Policy};
use serving_sentinel::observer::Observer;

mod support;

/// 110 bytes of a real load that state nothing of interest.
const NOTHING: &str = "0.00.789.456 I srv    load_model: for more info see https://github.com/ggml-org/llama.cpp/pull/16391 and other";
const BANNER: &str = "0.00.671.349 I load_tensors: offloaded 19/19 layers to GPU";
const RUN: &str =
    include_str!("../tests/fixtures/recordings/llama-server-remote-gpu-19-of-19.stderr.log");

/// Every pattern of the data files, as it stands there.
fn patterns() -> Vec<String> {
    let folder = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/src/engines")).unwrap();
    let files = folder
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|it| it == "toml"));
    let rows = files.flat_map(|file| {
        let mut table: toml::Table = std::fs::read_to_string(file).unwrap().parse().unwrap();
        match table.remove("format") {
            Some(toml::Value::Array(rows)) => rows,
            _ => Vec::new(),
        }
    });
    rows.map(|row| row["pattern"].as_str().unwrap().to_owned()).collect()
}

#[expect(clippy::disallowed_methods, reason = "a bench reads the clock")]
fn main() {
    assert_eq!(NOTHING.len(), 110);
    let mut criterion = support::criterion();
    let patterns = patterns();
    let in_turn: Vec<Regex> = patterns.iter().map(|pattern| Regex::new(pattern).unwrap()).collect();
    let set = RegexSetBuilder::new(&patterns).size_limit(1 << 28).build().unwrap();
    let matcher = Matcher::builtin();

    for (question, line) in [
        ("engine_line/nothing_of_interest", NOTHING.as_bytes()),
        ("engine_line/banner", BANNER.as_bytes()),
    ] {
        // The peers are given the bare message: they have no prefix reader.
        let message = &line["0.00.000.000 I ".len()..];
        let mut stream = StreamState::default();
        support::Question::new(question)
            .contender("each_pattern_in_turn", || {
                black_box(
                    in_turn.iter().filter(|pattern| pattern.is_match(black_box(message))).count(),
                );
            })
            .contender("regex_set", || {
                black_box(set.matches(black_box(message)).len());
            })
            .contender("matcher", || {
                black_box(matcher.recognise(black_box(line), &mut stream));
            })
            .ask(&mut criterion);
    }

    let lines: Vec<&[u8]> = RUN.lines().map(str::as_bytes).collect();
    let now = std::time::Instant::now();
    support::Question::new("engine_line/whole_load_of_260_lines")
        .contender("each_pattern_in_turn", || {
            for line in &lines {
                black_box(in_turn.iter().filter(|pattern| pattern.is_match(line)).count());
            }
        })
        .contender("observer", || {
            let mut out = Vec::new();
            let mut observer =
                Observer::new(LaneConfig::new("lane"), Policy::default(), matcher.clone());
            for line in &lines {
                observer.line(line, now, &mut out);
            }
            black_box(out);
        })
        .ask(&mut criterion);
    criterion.final_summary();
}
