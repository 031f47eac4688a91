//! The catalogue: which decode rate to expect of which model, where, and who says so.
//!
//! A catalogue is a TOML file of rows. Reading the file is the caller's; this is handed its text.
//!
//! ```toml
//! [[row]]
//! model = "gemma-3-270m*"                  # `*` any characters, `?` one; in any case
//! quantisation = "Q4_K_M"                  # optional, and so are the next two
//! accelerator = "RTX 4090"
//! engine = "llama.cpp"
//! concurrency = 4                          # requests in flight; 1 where it is left out
//! tokens_per_second = 220                  # of each request, decode only
//! source = "measured 2026-06, build b9181" # never empty: it is told with every verdict
//! ```

mod glob;
mod parse;

use std::num::NonZeroU32;

use crate::throughput::Expectation;

use glob::Glob;

pub use parse::{ParseCatalogError, Place};

/// Expected decode rates, by model and where it runs.
///
/// ```
/// use serving_sentinel::catalog::{Catalog, Query};
///
/// let text = r#"
/// [[row]]
/// model = "gemma-3-*"
/// tokens_per_second = 220
/// source = "measured 2026-06, one stream"
/// "#;
/// let catalog = Catalog::parse("rates.toml", text)?;
/// let expected = catalog.lookup(&Query::new("gemma-3-270m")).unwrap();
/// assert_eq!(expected.rate().get(), 220.0);
/// assert_eq!(catalog.lookup(&Query::new("llama-3")), None);
/// # Ok::<(), serving_sentinel::catalog::ParseCatalogError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Catalog {
    rows: Vec<Row>,
}

/// One row of a catalogue.
#[derive(Clone, Debug, PartialEq)]
struct Row {
    model: Glob,
    quantisation: Option<String>,
    accelerator: Option<String>,
    engine: Option<String>,
    concurrency: NonZeroU32,
    expectation: Expectation,
}

/// What is known of a lane whose rate is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Query<'a> {
    /// The model's name.
    pub model: &'a str,
    /// Its quantisation (`Q4_K_M`); `None` when not known.
    pub quantisation: Option<&'a str>,
    /// What it runs on (`RTX 4090`); `None` when not known.
    pub accelerator: Option<&'a str>,
    /// The engine's name (`llama.cpp`); `None` when not known.
    pub engine: Option<&'a str>,
    /// Requests in flight, the one that is judged among them.
    pub concurrency: NonZeroU32,
}

// === impl Catalog ===

impl Catalog {
    /// Reads a catalogue from the `text` of a file. `name` is the file's name, for error texts alone.
    ///
    /// # Errors
    ///
    /// [`ParseCatalogError`], at the first thing that is wrong: no TOML, an unknown key, a value that is missing or of
    /// the wrong type, a rate that is none, an empty source, a second row for the same.
    pub fn parse(name: &str, text: &str) -> Result<Self, ParseCatalogError> {
        parse::rows(name, text).map(|rows| Self { rows })
    }

    /// The rate to expect, from the most specific row that matches; `None` when none does.
    ///
    /// A row matches when its glob fits the model and each of `quantisation`, `accelerator` and `engine` that it names
    /// is known and the same; letters' case does not matter. Its `concurrency` must be the same too: a rate of one
    /// request alone says little of four together. A caller with no row for four asks again for one, and knows then
    /// that the expectation is of a single stream.
    ///
    /// Of several, the row with more literal characters in its glob wins, then the one that names more keys, then the
    /// one that stands first.
    pub fn lookup(&self, query: &Query<'_>) -> Option<Expectation> {
        // The last of equals is the maximum, so the first of the file comes last.
        let matching = self.rows.iter().rev().filter(|row| row.matches(query));
        matching.max_by_key(|row| row.specificity()).map(|row| row.expectation.clone())
    }

    /// How many rows there are.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether there is no row at all.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }
}

// === impl Row ===

impl Row {
    fn matches(&self, query: &Query<'_>) -> bool {
        self.concurrency == query.concurrency
            && self.keys().into_iter().zip(query.keys()).all(|(named, known)| {
                match (named, known) {
                    (Some(named), Some(known)) => named.eq_ignore_ascii_case(known),
                    (Some(_), None) => false,
                    (None, _) => true,
                }
            })
            && self.model.matches(query.model)
    }

    fn specificity(&self) -> (usize, usize) {
        (self.model.literals(), self.keys().into_iter().flatten().count())
    }

    /// Whether both are for exactly the same.
    fn is_for_same_as(&self, other: &Self) -> bool {
        let same = |(one, two): (Option<&str>, Option<&str>)| match (one, two) {
            (Some(one), Some(two)) => one.eq_ignore_ascii_case(two),
            (None, None) => true,
            (Some(_), None) | (None, Some(_)) => false,
        };
        self.model == other.model
            && self.concurrency == other.concurrency
            && self.keys().into_iter().zip(other.keys()).all(same)
    }

    fn keys(&self) -> [Option<&str>; 3] {
        [self.quantisation.as_deref(), self.accelerator.as_deref(), self.engine.as_deref()]
    }
}

// === impl Query ===

impl<'a> Query<'a> {
    /// A query for one request alone, of which nothing but the model is known.
    pub const fn new(model: &'a str) -> Self {
        Self {
            model,
            quantisation: None,
            accelerator: None,
            engine: None,
            concurrency: NonZeroU32::MIN,
        }
    }

    fn keys(&self) -> [Option<&'a str>; 3] {
        [self.quantisation, self.accelerator, self.engine]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CATALOG: &str = r#"
[[row]]
model = "*"
tokens_per_second = 1
source = "anything"

[[row]]
model = "gemma-3-*"
tokens_per_second = 50.5
source = "gemma"

[[row]]
model = "gemma-3-270m*"
tokens_per_second = 200
source = "small gemma"

[[row]]
model = "gemma-3-270m*"
quantisation = "Q4_K_M"
tokens_per_second = 220
source = "small gemma, quantised"

[[row]]
model = "gemma-3-270m*"
quantisation = "Q4_K_M"
accelerator = "RTX 4090"
engine = "llama.cpp"
tokens_per_second = 400
source = "small gemma, all known"

[[row]]
model = "gemma-3-270m*"
concurrency = 4
tokens_per_second = 90
source = "small gemma, four"

[[row]]
model = "?wen*"
tokens_per_second = 30
source = "first of equals"

[[row]]
model = "q?en*"
tokens_per_second = 31
source = "second of equals"
"#;

    #[test]
    fn the_most_specific_row_wins() {
        let catalog = Catalog::parse("rates.toml", CATALOG).unwrap();
        assert_eq!(catalog.len(), 8);
        let gemma = Query::new("Gemma-3-270M-it");
        let four = NonZeroU32::new(4).unwrap();
        let all = Query {
            quantisation: Some("q4_k_m"),
            accelerator: Some("rtx 4090"),
            engine: Some("llama.cpp"),
            ..gemma
        };
        let rows = [
            ("anything", Query::new("llama-3"), Some("anything")),
            ("a longer glob", Query::new("gemma-3-4b"), Some("gemma")),
            ("the longest glob, in any case", gemma, Some("small gemma")),
            (
                "one key",
                Query { quantisation: Some("q4_k_m"), ..gemma },
                Some("small gemma, quantised"),
            ),
            ("all keys", all, Some("small gemma, all known")),
            ("one key of three", Query { engine: None, ..all }, Some("small gemma, quantised")),
            (
                "another quantisation",
                Query { quantisation: Some("Q8_0"), ..gemma },
                Some("small gemma"),
            ),
            ("four at once", Query { concurrency: four, ..gemma }, Some("small gemma, four")),
            (
                "four at once, more known",
                Query { concurrency: four, ..all },
                Some("small gemma, four"),
            ),
            ("no row for four", Query { concurrency: four, ..Query::new("llama-3") }, None),
            ("equals", Query::new("qwen3"), Some("first of equals")),
            ("no name at all", Query::new(""), Some("anything")),
        ];
        for (case, query, expected) in rows {
            let found = catalog.lookup(&query);
            assert_eq!(found.as_ref().map(|found| &**found.source()), expected, "{case}");
        }
        assert_eq!(
            catalog.lookup(&Query::new("gemma-3-4b")).unwrap().rate().get().to_string(),
            "50.5"
        );
    }

    #[test]
    fn an_empty_catalogue_expects_nothing() {
        let catalog = Catalog::parse("rates.toml", "# no rows yet\n").unwrap();
        assert!(catalog.is_empty());
        assert_eq!(catalog.lookup(&Query::new("gemma")), None);
    }
}
