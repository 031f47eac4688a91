//! What never leaves: engine lines, prompts and completions.

use std::collections::HashSet;
use std::fmt::Debug;

use crate::LANES;
use crate::otlp::Received;
use crate::recording::Recording;
use crate::run::RUN;

#[test]
fn nothing_that_an_engine_printed_or_answered_leaves() {
    let Received { spans, metrics, logs, .. } = &RUN.received;
    let left: HashSet<String> =
        [debug(spans), debug(metrics), debug(logs)].iter().flat_map(|text| phrases(text)).collect();
    assert!(left.contains("the model is on"), "phrases are found where there are some");
    for lane in LANES {
        let Recording { lines, completions, .. } = lane.recording();
        let mut private = 0;
        let prompt = "Is this thing on?".to_owned();
        for text in lines.iter().chain(&completions).chain([&prompt]) {
            for phrase in phrases(text) {
                assert!(!left.contains(&phrase), "{}: {phrase:?} of {text:?} has left", lane.name);
                private += 1;
            }
        }
        assert!(private > 100, "{}: {private} phrases are no search", lane.name);
    }
}

fn debug(items: &impl Debug) -> String {
    format!("{items:?}")
}

/// All runs of four words with two of at least three letters among them: so much alike is no coincidence.
fn phrases(text: &str) -> Vec<String> {
    let is_text = |word: &&str| word.len() >= 3 && word.chars().any(char::is_alphabetic);
    let words: Vec<&str> = text
        .split(|character: char| !character.is_alphanumeric() && !"_-.".contains(character))
        .map(|word| word.trim_matches(['-', '.']))
        .filter(|word| !word.is_empty())
        .collect();
    let runs = words.windows(4).filter(|run| run.iter().filter(|word| is_text(word)).count() >= 2);
    runs.map(|run| run.join(" ")).collect()
}
