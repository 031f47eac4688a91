//! Walks every file and every row.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde::Deserialize;
use serving_sentinel::engines::{Matcher, StreamState};

use crate::{OWN, WRAPPINGS, Wrapping, child, recognise};

#[derive(Deserialize)]
struct File {
    engine: String,
    #[serde(default)]
    format: Vec<Row>,
}

#[derive(Deserialize)]
struct Row {
    id: String,
    yields: Yields,
    literal: String,
    #[serde(default)]
    raw: bool,
    rejects: Vec<String>,
    matches: Vec<Sample>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Yields {
    One(String),
    Several(Vec<String>),
}

impl Row {
    fn kinds(&self) -> &[String] {
        match &self.yields {
            Yields::One(kind) => std::slice::from_ref(kind),
            Yields::Several(kinds) => kinds,
        }
    }

    /// What a sample's line states: the facts of one kind, or one of each kind.
    fn facts(&self, given: Gives) -> Vec<(&str, BTreeMap<String, String>)> {
        let kinds = self.kinds();
        match given {
            Gives::One(_) if kinds == ["nothing"] => Vec::new(),
            Gives::One(fields) => vec![(kinds[0].as_str(), fields)],
            Gives::Many(facts) if kinds.len() == 1 => {
                facts.into_iter().map(|fields| (kinds[0].as_str(), fields)).collect()
            }
            Gives::Many(facts) => kinds.iter().map(String::as_str).zip(facts).collect(),
        }
    }
}

#[derive(Deserialize)]
struct Sample {
    after: Option<String>,
    line: String,
    gives: Gives,
}

/// The fields of the fact that a line states; a list for a line that states several.
#[derive(Clone, Deserialize)]
#[serde(untagged)]
enum Gives {
    One(BTreeMap<String, String>),
    Many(Vec<BTreeMap<String, String>>),
}

fn files() -> Vec<(String, File)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/engines");
    let mut paths: Vec<_> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "toml"));
    paths.sort();
    let read = |path: &Path| {
        let text = fs::read_to_string(path).unwrap();
        let file =
            toml::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        (text, file)
    };
    assert!(!paths.is_empty(), "no files of recognisers");
    paths.iter().map(|path| read(path)).collect()
}

fn samples(file: &File) -> impl Iterator<Item = (&Row, &Sample)> {
    file.format.iter().flat_map(|row| row.matches.iter().map(move |sample| (row, sample)))
}

/// Whether a line can stand in a wrapping. One that brings an envelope of its own (JSON, a structured Go line, a time)
/// never stands behind an engine's prefix, and a time never behind a router's.
fn fits(line: &str, wrapping: &Wrapping) -> bool {
    let is_timed = line.starts_with(|first: char| first.is_ascii_digit());
    let is_go = line.starts_with("time=")
        || line.split(' ').next().is_some_and(|source| source.contains(".go:"));
    let has_envelope = line.starts_with('{') || is_go || is_timed;
    let is_router = wrapping.service.is_some_and(|service| service() == child());
    (wrapping.takes_json || !has_envelope) && !(is_timed && is_router)
}

/// The facts of a sample's line, wrapped, in a stream of its own.
fn facts_of(sample: &Sample, wrap: fn(&str) -> String) -> Found {
    let mut stream = StreamState::default();
    if let Some(head) = &sample.after {
        recognise(wrap(head).as_bytes(), &mut stream);
    }
    let (recognised, words) = recognise(wrap(&sample.line).as_bytes(), &mut stream);
    let texts = |words: crate::words::Words| {
        let fields =
            words.fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        (words.kind, fields)
    };
    let engine = recognised.engine.as_deref().map(str::to_owned);
    Found { engine, service: recognised.service, facts: words.into_iter().map(texts).collect() }
}

/// What is found in a line.
struct Found {
    engine: Option<String>,
    service: Option<serving_sentinel::engines::Service>,
    facts: Vec<(&'static str, BTreeMap<String, String>)>,
}

#[test]
fn every_file_proves_itself_when_loaded() {
    for (text, file) in files() {
        let known =
            Matcher::builtin().formats().filter(|format| format.engine() == file.engine).count();
        assert_eq!(known, file.format.len(), "{}: a row is not built in", file.engine);
        let reloaded = Matcher::builtin().with_file("the same", &text).unwrap_or_else(|error| {
            panic!("{error}: {:?}", std::error::Error::source(&error).map(ToString::to_string))
        });
        assert_eq!(
            reloaded.formats().count(),
            Matcher::builtin().formats().count(),
            "{}: ids replace",
            file.engine
        );
    }
}

#[test]
fn every_row_has_lines_that_it_must_and_must_not_match() {
    for (_, file) in files() {
        for row in &file.format {
            assert!(
                !row.matches.is_empty() && !row.rejects.is_empty(),
                "{}: one kind of sample is missing",
                row.id
            );
        }
        for format in Matcher::builtin().formats() {
            assert!(!format.source().is_empty(), "{}: no source", format.id());
        }
    }
}

#[test]
fn every_sample_gives_exactly_what_its_row_says() {
    for (_, file) in files() {
        for (row, sample) in samples(&file) {
            let found = facts_of(sample, str::to_owned);
            let expected = row.facts(sample.gives.clone());
            assert_eq!(found.facts, expected, "{}: {:?}", row.id, sample.line);
            assert_eq!(
                found.engine.as_deref(),
                Some(file.engine.as_str()),
                "{}: {:?}",
                row.id,
                sample.line
            );
            assert!(sample.line.contains(&row.literal), "{}: {:?}", row.id, sample.line);
        }
    }
}

#[test]
fn every_sample_is_recognised_behind_every_prefix() {
    for (_, file) in files() {
        for (row, sample) in samples(&file) {
            let bare = facts_of(sample, str::to_owned).facts;
            for wrapping in WRAPPINGS.iter().filter(|wrapping| fits(&sample.line, wrapping)) {
                let wrapped = facts_of(sample, wrapping.wrap);
                assert_eq!(
                    wrapped.facts, bare,
                    "{} behind {}: {:?}",
                    row.id, wrapping.name, sample.line
                );
                assert_eq!(
                    wrapped.service,
                    wrapping.service.map(|service| service()),
                    "{}",
                    wrapping.name
                );
                assert!(wrapped.engine.is_some(), "{} behind {}", row.id, wrapping.name);
            }
        }
    }
}

#[test]
fn beside_prefixed_lines_only_raw_rows_count_without_the_prefix() {
    for (_, file) in files() {
        let text_samples = samples(&file).filter(|(_, sample)| !sample.line.starts_with('{'));
        for (row, sample) in text_samples.filter(|(row, _)| row.kinds() != ["nothing"]) {
            let mut stream = StreamState::default();
            let head =
                sample.after.as_deref().unwrap_or("print_info: arch                  = gemma3");
            recognise(format!("{OWN}{head}").as_bytes(), &mut stream);
            let (_, words) = recognise(sample.line.as_bytes(), &mut stream);
            let facts = if row.raw { row.facts(sample.gives.clone()).len() } else { 0 };
            assert_eq!(words.len(), facts, "{}: {:?}", row.id, sample.line);
        }
    }
}
