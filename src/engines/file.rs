//! The TOML form of recognisers: text becomes formats whose captures are known to fit their evidence.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use regex::bytes::{Regex, RegexBuilder};
use serde::Deserialize;
use toml::Spanned;

use super::error::{FormatProblem, LoadFormatsError};
use super::format::{FieldSource, Format};
use super::residence::Residences;
use super::unwrap;
use super::yields::{self, KINDS, Kind};

/// One engine's file, loaded.
#[derive(Debug)]
pub(super) struct EngineFile {
    pub(super) engine: Arc<str>,
    /// Engines whose lines stand among this one's: its runner's, its library's.
    pub(super) embeds: Vec<Arc<str>>,
    pub(super) residences: Residences,
    pub(super) formats: Vec<Format>,
}

/// Whether a file's samples are run when it is loaded.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Samples {
    /// They prove the file: it comes from outside.
    Run,
    /// A test has run them: the file comes with the crate.
    Trust,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileRow {
    engine: String,
    #[serde(default)]
    embeds: Vec<String>,
    #[serde(default)]
    residence: Vec<ResidenceRow>,
    #[serde(default)]
    software_devices: Vec<Spanned<String>>,
    #[serde(default)]
    format: Vec<FormatRow>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ResidenceRow {
    is: String,
    names: Spanned<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FormatRow {
    id: Spanned<String>,
    yields: OneOrMore,
    literal: String,
    pattern: String,
    #[serde(default)]
    with: BTreeMap<String, String>,
    #[serde(default)]
    unless: OneOrMore,
    #[serde(default)]
    raw: bool,
    #[serde(default)]
    weak: bool,
    continues: Option<String>,
    since: Option<Box<str>>,
    until: Option<Box<str>>,
    source: Box<str>,
    #[serde(default)]
    rejects: Vec<String>,
    #[serde(default)]
    matches: Vec<SampleRow>,
}

/// A string, or a list of them.
#[derive(Deserialize)]
#[serde(untagged)]
enum OneOrMore {
    One(String),
    More(Vec<String>),
}

impl Default for OneOrMore {
    fn default() -> Self {
        Self::More(Vec::new())
    }
}

impl OneOrMore {
    fn as_slice(&self) -> &[String] {
        match self {
            Self::One(text) => std::slice::from_ref(text),
            Self::More(texts) => texts,
        }
    }
}

/// A line that shows a format. What it gives is for the test that walks all rows.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SampleRow {
    line: String,
    #[serde(default, rename = "after")]
    _after: Option<String>,
    #[serde(default, rename = "gives")]
    _gives: Option<toml::Value>,
}

/// Loads a file's text.
pub(super) fn load(
    file: &str,
    text: &str,
    samples: Samples,
) -> Result<EngineFile, LoadFormatsError> {
    let rows: FileRow = toml::from_str(text).map_err(|source| LoadFormatsError::Syntax {
        file: file.to_owned(),
        source: source.into(),
    })?;
    let line_of =
        |spanned: &Spanned<String>| 1 + text[..spanned.span().start].matches('\n').count();
    let refuse_rule = |names: &Spanned<String>, problem| LoadFormatsError::Residence {
        file: file.to_owned(),
        line: line_of(names),
        problem,
    };

    let mut residences = Residences::default();
    for row in &rows.residence {
        let residence = yields::residence(&row.is).ok_or_else(|| {
            refuse_rule(
                &row.names,
                FormatProblem::FieldValue { field: "is".to_owned(), value: row.is.clone() },
            )
        })?;
        let names =
            anchored(row.names.get_ref()).map_err(|problem| refuse_rule(&row.names, problem))?;
        residences.rules.push((names, residence));
    }
    for names in &rows.software_devices {
        residences
            .software
            .push(anchored(names.get_ref()).map_err(|problem| refuse_rule(names, problem))?);
    }

    let engine: Arc<str> = rows.engine.into();
    let ids: HashSet<String> = rows.format.iter().map(|row| row.id.get_ref().clone()).collect();
    let mut seen = HashSet::new();
    let mut formats = Vec::with_capacity(rows.format.len());
    for row in rows.format {
        let (line, id) = (line_of(&row.id), row.id.get_ref().clone());
        let checked = if seen.insert(id.clone()) {
            row.into_format(&engine, &ids, samples)
        } else {
            Err(FormatProblem::DuplicateId)
        };
        formats.push(checked.map_err(|problem| LoadFormatsError::Format {
            file: file.to_owned(),
            line,
            id,
            problem,
        })?);
    }
    let embeds = rows.embeds.into_iter().map(Arc::from).collect();
    Ok(EngineFile { engine, embeds, residences, formats })
}

impl FormatRow {
    fn into_format(
        self,
        engine: &Arc<str>,
        ids: &HashSet<String>,
        samples: Samples,
    ) -> Result<Format, FormatProblem> {
        let mut kinds = Vec::new();
        for name in self.yields.as_slice() {
            let Some(kind) = Kind::from_name(name) else {
                let known = list(KINDS.iter().map(|kind| kind.name));
                return Err(FormatProblem::UnknownYields { given: name.clone(), known });
            };
            kinds.push(kind);
        }
        let pattern = anchored(&self.pattern)?;
        let fields = fields(&kinds, &pattern, &self.with, self.continues.is_some())?;
        if let Some(head) = self.continues.as_ref().filter(|head| !ids.contains(*head)) {
            return Err(FormatProblem::UnknownHead { head: head.clone() });
        }
        self.check_literal()?;
        let format = Format {
            engine: engine.clone(),
            id: self.id.into_inner().into(),
            kinds,
            literal: self.literal.into(),
            pattern,
            fields,
            unless: self.unless.as_slice().iter().filter(|it| !it.is_empty()).cloned().collect(),
            raw: self.raw,
            weak: self.weak,
            continues: self.continues.map(Arc::from),
            since: self.since,
            until: self.until,
            source: self.source,
        };
        if samples == Samples::Run {
            prove(&format, &self.matches, &self.rejects)?;
        }
        Ok(format)
    }

    fn check_literal(&self) -> Result<(), FormatProblem> {
        // Go's JSON escapes the angle brackets and the ampersand, some writers escape the slash.
        let plain = |byte: u8| (b' '..=b'~').contains(&byte) && !br#""\/<>&"#.contains(&byte);
        if self.literal.is_empty() || !self.literal.bytes().all(plain) {
            return Err(FormatProblem::Literal);
        }
        if self.matches.is_empty() {
            return Err(FormatProblem::NoSample);
        }
        match self.matches.iter().find(|sample| !sample.line.contains(&self.literal)) {
            Some(sample) => Err(FormatProblem::LiteralNotInSample { line: sample.line.clone() }),
            None => Ok(()),
        }
    }
}

/// Runs a format's own samples.
fn prove(format: &Format, matches: &[SampleRow], rejects: &[String]) -> Result<(), FormatProblem> {
    let is_read = |line: &str| {
        let mut read = false;
        unwrap::open(line.as_bytes())
            .messages
            .for_each(|message| read |= format.read(message).is_some());
        read
    };
    if let Some(sample) = matches.iter().find(|sample| !is_read(&sample.line)) {
        return Err(FormatProblem::SampleNotMatched { line: sample.line.clone() });
    }
    match rejects.iter().find(|line| is_read(line)) {
        Some(line) => Err(FormatProblem::RejectMatched { line: line.clone() }),
        None => Ok(()),
    }
}

/// Compiles a pattern that can match only a whole message. Bytes, not Unicode: a log may hold anything.
fn anchored(pattern: &str) -> Result<Regex, FormatProblem> {
    let inner = pattern
        .strip_prefix('^')
        .and_then(|rest| rest.strip_suffix('$'))
        .ok_or(FormatProblem::Unanchored)?;
    if inner.ends_with('\\') {
        return Err(FormatProblem::Unanchored);
    }
    // The group keeps an alternation within the anchors.
    RegexBuilder::new(&format!("^(?:{inner})$"))
        .unicode(false)
        .build()
        .map_err(|source| FormatProblem::Pattern { source: source.into() })
}

/// Finds each field of the evidence in the captures, or in what the row gives.
fn fields(
    kinds: &[&'static Kind],
    pattern: &Regex,
    with: &BTreeMap<String, String>,
    continues: bool,
) -> Result<Vec<(&'static str, FieldSource)>, FormatProblem> {
    let known =
        || list(kinds.iter().flat_map(|kind| kind.required.iter().chain(kind.optional)).copied());
    let known_field = |name: &str| kinds.iter().find_map(|kind| kind.field(name));
    let mut fields = Vec::new();
    let mut composed = HashSet::new();
    for (name, value) in with {
        let Some(field) = known_field(name) else {
            return Err(FormatProblem::UnknownField { name: name.clone(), known: known() });
        };
        let source = match compose(value, pattern) {
            Some((capture, source)) => {
                composed.insert(capture);
                source
            }
            None if yields::is_value(field, value) => FieldSource::Constant(value.as_str().into()),
            None => {
                return Err(FormatProblem::FieldValue {
                    field: name.clone(),
                    value: value.clone(),
                });
            }
        };
        fields.push((field, source));
    }
    for (capture, name) in
        pattern.capture_names().enumerate().filter_map(|(at, name)| Some((at, name?)))
    {
        if composed.contains(&capture) {
            continue;
        }
        let Some(field) = known_field(name) else {
            return Err(FormatProblem::UnknownField { name: name.to_owned(), known: known() });
        };
        if with.contains_key(name) {
            return Err(FormatProblem::FieldTwice { field: name.to_owned() });
        }
        fields.push((field, FieldSource::Capture(capture)));
    }
    // A line that continues another has its slot and task from that one.
    let has = |field: &str| {
        fields.iter().any(|(name, _)| *name == field) || continues && INHERITED.contains(&field)
    };
    match kinds.iter().flat_map(|kind| kind.required).find(|field| !has(field)) {
        Some(&field) => Err(FormatProblem::MissingField { field }),
        None => Ok(fields),
    }
}

/// The fields that a line has from the one it continues.
pub(super) const INHERITED: [&str; 2] = ["slot", "task"];

/// A value with a capture in it (`Vulkan{index}`), and the number of that capture.
fn compose(value: &str, pattern: &Regex) -> Option<(usize, FieldSource)> {
    let (before, rest) = value.split_once('{')?;
    let (name, after) = rest.split_once('}')?;
    let capture = pattern.capture_names().position(|known| known == Some(name))?;
    Some((capture, FieldSource::Composed { before: before.into(), capture, after: after.into() }))
}

fn list<'a>(names: impl Iterator<Item = &'a str>) -> String {
    names.collect::<Vec<_>>().join(", ")
}
