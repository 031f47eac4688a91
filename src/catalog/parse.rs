//! Reads a catalogue's text, and says of what is wrong where it stands and what to do.

use std::fmt;
use std::num::NonZeroU32;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::{Glob, Row};
use crate::throughput::{Expectation, ExpectationError};

const ROWS: &str = "row";
const MODEL: &str = "model";
const QUANTISATION: &str = "quantisation";
const ACCELERATOR: &str = "accelerator";
const ENGINE: &str = "engine";
const CONCURRENCY: &str = "concurrency";
const RATE: &str = "tokens_per_second";
const SOURCE: &str = "source";

/// Every key of a row.
const ROW_KEYS: &[&str] = &[MODEL, QUANTISATION, ACCELERATOR, ENGINE, CONCURRENCY, RATE, SOURCE];

/// Every key beside the rows: there is none but theirs.
const FILE_KEYS: &[&str] = &[ROWS];

/// More slips make another word: `tokens_per_sec` is three away from its key.
const MAX_SLIPS: usize = 3;

/// Where in a catalogue something stands; displayed as `rates.toml:12, row 3`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Place {
    /// The file, as named by the caller.
    pub file: String,
    /// The line, from 1.
    pub line: usize,
    /// The row, from 1; `None` outside of rows.
    pub row: Option<usize>,
}

/// Why a text is no catalogue.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ParseCatalogError {
    /// The text is no TOML.
    #[error("{place}: not TOML: {reason}; a row is `[[row]]` and lines of `key = value`")]
    Syntax {
        /// Where.
        place: Place,
        /// The parser's words.
        reason: String,
    },
    /// A key that no catalogue has.
    #[error("{place}: unknown key `{key}`{}; known here: {}", hint(*suggestion), known.join(", "))]
    UnknownKey {
        /// Where.
        place: Place,
        /// The key.
        key: String,
        /// A known key much like it.
        suggestion: Option<&'static str>,
        /// The keys known at that place.
        known: &'static [&'static str],
    },
    /// A row without a key that each must have.
    #[error("{place}: the row has no `{key}`; add it")]
    MissingKey {
        /// Where the row starts.
        place: Place,
        /// The key.
        key: &'static str,
    },
    /// A value of another type.
    #[error("{place}: `{key}` is {found}; give {expected}")]
    WrongType {
        /// Where.
        place: Place,
        /// The key.
        key: &'static str,
        /// What it is.
        found: &'static str,
        /// What it should be.
        expected: &'static str,
    },
    /// A text that says nothing.
    #[error("{place}: `{key}` is empty; {advice}")]
    EmptyText {
        /// Where.
        place: Place,
        /// The key.
        key: &'static str,
        /// What to do.
        advice: &'static str,
    },
    /// A rate that is none.
    #[error("{place}: `{key}` is {given}, which is no rate; give tokens/s, a finite number above 0", key = RATE)]
    Rate {
        /// Where.
        place: Place,
        /// The value as written.
        given: String,
    },
    /// A concurrency that is none.
    #[error("{place}: `{key}` is {given}; give the requests in flight, a whole number from 1", key = CONCURRENCY)]
    Concurrency {
        /// Where.
        place: Place,
        /// The value as written.
        given: String,
    },
    /// Two rows for the same: one of them would never count.
    #[error(
        "{place}: the row is for the same as row {first}; remove one of them, or tell them apart by a key"
    )]
    DuplicateRow {
        /// Where the second row starts.
        place: Place,
        /// The first row, from 1.
        first: usize,
    },
}

/// Reads every row.
pub(super) fn rows(file: &str, text: &str) -> Result<Vec<Row>, ParseCatalogError> {
    let source = Source { file, text, row: None };
    let table = DeTable::parse(text).map_err(|error| ParseCatalogError::Syntax {
        place: source.place(error.span().map_or(0, |span| span.start)),
        reason: error.message().to_owned(),
    })?;
    source.known_only(table.get_ref(), FILE_KEYS)?;
    let Some(value) = table.get_ref().get(ROWS) else { return Ok(Vec::new()) };
    let DeValue::Array(tables) = value.get_ref() else {
        return Err(source.wrong_type(ROWS, value, "rows, each under its own `[[row]]`"));
    };
    let mut rows: Vec<Row> = Vec::with_capacity(tables.len());
    for (number, value) in (1..).zip(tables.iter()) {
        let source = Source { row: Some(number), ..source };
        let DeValue::Table(table) = value.get_ref() else {
            return Err(source.wrong_type(ROWS, value, "rows, each under its own `[[row]]`"));
        };
        let row = RowSource { source, start: value.span().start, table }.row()?;
        if let Some(first) = rows.iter().position(|earlier| earlier.is_for_same_as(&row)) {
            return Err(ParseCatalogError::DuplicateRow {
                place: source.place(value.span().start),
                first: first + 1,
            });
        }
        rows.push(row);
    }
    Ok(rows)
}

/// The text that is read, and how far the reading is.
#[derive(Clone, Copy)]
struct Source<'a> {
    file: &'a str,
    text: &'a str,
    row: Option<usize>,
}

/// One row's table.
struct RowSource<'a> {
    source: Source<'a>,
    start: usize,
    table: &'a DeTable<'a>,
}

// === impl Source ===

impl Source<'_> {
    /// The place at a byte offset.
    fn place(&self, offset: usize) -> Place {
        let before = self.text.as_bytes().iter().take(offset);
        let line = before.filter(|byte| **byte == b'\n').count() + 1;
        Place { file: self.file.to_owned(), line, row: self.row }
    }

    /// Refuses the first key in the text that is not among `known`.
    fn known_only(
        &self,
        table: &DeTable<'_>,
        known: &'static [&'static str],
    ) -> Result<(), ParseCatalogError> {
        let unknown = table.keys().filter(|key| !known.contains(&&**key.get_ref()));
        let Some(key) = unknown.min_by_key(|key| key.span().start) else { return Ok(()) };
        Err(ParseCatalogError::UnknownKey {
            place: self.place(key.span().start),
            key: key.get_ref().clone().into_owned(),
            suggestion: nearest(key.get_ref(), known),
            known,
        })
    }

    fn wrong_type(
        &self,
        key: &'static str,
        value: &Spanned<DeValue<'_>>,
        expected: &'static str,
    ) -> ParseCatalogError {
        let found = match value.get_ref() {
            DeValue::String(_) => "a text",
            DeValue::Integer(_) => "a whole number",
            DeValue::Float(_) => "a number",
            DeValue::Boolean(_) => "a boolean",
            DeValue::Datetime(_) => "a date",
            DeValue::Array(_) => "an array",
            DeValue::Table(_) => "a table",
        };
        ParseCatalogError::WrongType { place: self.place(value.span().start), key, found, expected }
    }
}

// === impl RowSource ===

impl<'a> RowSource<'a> {
    fn row(&self) -> Result<Row, ParseCatalogError> {
        self.source.known_only(self.table, ROW_KEYS)?;
        let owned = |text: Option<&str>| text.map(str::to_owned);
        Ok(Row {
            model: Glob::new(self.required(MODEL, self.text(MODEL)?)?),
            quantisation: owned(self.text(QUANTISATION)?),
            accelerator: owned(self.text(ACCELERATOR)?),
            engine: owned(self.text(ENGINE)?),
            concurrency: self.concurrency()?,
            expectation: self.expectation()?,
        })
    }

    fn expectation(&self) -> Result<Expectation, ParseCatalogError> {
        let value = self.required(RATE, self.value(RATE))?;
        let given = match value.get_ref() {
            DeValue::Integer(integer) => integer.to_string(),
            DeValue::Float(float) => float.as_str().to_owned(),
            _ => {
                return Err(self.source.wrong_type(
                    RATE,
                    value,
                    "tokens/s, a finite number above 0",
                ));
            }
        };
        let source = self.required(SOURCE, self.text(SOURCE)?)?;
        // A number in another base is no number here, and refused as such.
        let rate = given.parse().unwrap_or(f64::NAN);
        Expectation::new(rate, source).map_err(|error| match error {
            ExpectationError::Rate { .. } => {
                ParseCatalogError::Rate { place: self.place_of(value), given }
            }
            ExpectationError::Source => self.empty(SOURCE, value),
        })
    }

    fn concurrency(&self) -> Result<NonZeroU32, ParseCatalogError> {
        let Some(value) = self.value(CONCURRENCY) else { return Ok(NonZeroU32::MIN) };
        let DeValue::Integer(integer) = value.get_ref() else {
            return Err(self.source.wrong_type(
                CONCURRENCY,
                value,
                "the requests in flight, a whole number from 1",
            ));
        };
        integer.to_string().parse().map_err(|_| ParseCatalogError::Concurrency {
            place: self.place_of(value),
            given: integer.to_string(),
        })
    }

    /// A text that says something; `None` where the key is left out.
    fn text(&self, key: &'static str) -> Result<Option<&'a str>, ParseCatalogError> {
        let Some(value) = self.value(key) else { return Ok(None) };
        let DeValue::String(text) = value.get_ref() else {
            return Err(self.source.wrong_type(key, value, "a text in quotes"));
        };
        if text.trim().is_empty() {
            return Err(self.empty(key, value));
        }
        Ok(Some(text.trim()))
    }

    fn value(&self, key: &str) -> Option<&'a Spanned<DeValue<'a>>> {
        self.table.get(key)
    }

    fn required<T>(&self, key: &'static str, found: Option<T>) -> Result<T, ParseCatalogError> {
        found.ok_or_else(|| ParseCatalogError::MissingKey {
            place: self.source.place(self.start),
            key,
        })
    }

    fn empty(&self, key: &'static str, value: &Spanned<DeValue<'_>>) -> ParseCatalogError {
        let advice = match key {
            MODEL => "give the model's name, or a glob such as `gemma-3-*`",
            SOURCE => "say where the rate is from, such as `measured 2026-06, one stream`",
            _ => "name it, or leave the key out",
        };
        ParseCatalogError::EmptyText { place: self.place_of(value), key, advice }
    }

    fn place_of(&self, value: &Spanned<DeValue<'_>>) -> Place {
        self.source.place(value.span().start)
    }
}

// === impl Place ===

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file, self.line)?;
        self.row.map_or(Ok(()), |row| write!(f, ", row {row}"))
    }
}

fn hint(suggestion: Option<&str>) -> String {
    suggestion.map_or_else(String::new, |key| format!(", did you mean `{key}`?"))
}

/// The known key that is a slip of the pen away, if any.
fn nearest(key: &str, known: &[&'static str]) -> Option<&'static str> {
    let far = |known: &str| edits(key, known);
    let nearest = known.iter().copied().min_by_key(|known| far(known))?;
    (far(nearest) <= MAX_SLIPS && far(nearest) < nearest.len() / 2).then_some(nearest)
}

/// How many bytes to insert, remove or replace to make one word of the other.
fn edits(one: &str, other: &str) -> usize {
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (i, from) in one.bytes().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, to) in other.bytes().enumerate() {
            let replaced = diagonal + usize::from(from != to);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[other.len()]
}

#[cfg(test)]
mod tests;
