//! Why a file of recognisers is refused.

/// What foreign parsers say of a file.
type Source = Box<dyn std::error::Error + Send + Sync>;

/// Why a file of recognisers is refused: where, and what is wrong there.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadFormatsError {
    /// The text is no TOML, has a key that is not known, or lacks one that is needed.
    #[error("{file}: not a file of recognisers")]
    Syntax {
        /// The file, as the caller named it.
        file: String,
        /// What the TOML reader says, with line and column.
        #[source]
        source: Source,
    },
    /// A rule that says where buffers are cannot be used.
    #[error("{file}:{line}: the names pattern of a residence rule cannot be used")]
    Residence {
        /// The file, as the caller named it.
        file: String,
        /// The rule's line, from 1.
        line: usize,
        /// What is wrong with it.
        #[source]
        problem: FormatProblem,
    },
    /// A format cannot be used.
    #[error("{file}:{line}: format `{id}` cannot be used")]
    Format {
        /// The file, as the caller named it.
        file: String,
        /// The format's line, from 1.
        line: usize,
        /// The format's id.
        id: String,
        /// What is wrong with it.
        #[source]
        problem: FormatProblem,
    },
}

/// What is wrong with one format.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FormatProblem {
    /// Two formats of one file share an id.
    #[error("its id is taken by an earlier format of this file; ids are unique")]
    DuplicateId,
    /// No kind of evidence has that name.
    #[error("nothing is called `{given}` in `yields`; known: {known}")]
    UnknownYields {
        /// What was given.
        given: String,
        /// The names there are.
        known: String,
    },
    /// A pattern could match in the middle of a message.
    #[error(
        "the pattern must start with `^` and end with `$`: text within a message must not count"
    )]
    Unanchored,
    /// The pattern is no regular expression.
    #[error("the pattern is not a regular expression")]
    Pattern {
        /// What the regular expression reader says.
        #[source]
        source: Source,
    },
    /// The evidence needs a field that the format neither captures nor gives.
    #[error("`{field}` is missing: capture it as `(?<{field}>..)` or give it in `with`")]
    MissingField {
        /// The field.
        field: &'static str,
    },
    /// A capture or a key of `with` is no field of the evidence.
    #[error("`{name}` is no field of this evidence; known: {known}")]
    UnknownField {
        /// What was given.
        name: String,
        /// The fields there are.
        known: String,
    },
    /// A field is both captured and given.
    #[error("`{field}` is both captured and given in `with`; keep one")]
    FieldTwice {
        /// The field.
        field: String,
    },
    /// A field's fixed value is of the wrong kind.
    #[error("`{value}` cannot be the value of `{field}`")]
    FieldValue {
        /// The field.
        field: String,
        /// What was given.
        value: String,
    },
    /// The literal could be spelled otherwise in a JSON line.
    #[error(
        "the literal must be printable ASCII without any of `\"`, `\\`, `/`, `<`, `>`, `&`: JSON may escape those"
    )]
    Literal,
    /// There is no line that shows the format.
    #[error("it has no `matches`; give at least one real line")]
    NoSample,
    /// The literal is not in a line that shows the format.
    #[error("the literal is not in its own sample `{line}`")]
    LiteralNotInSample {
        /// The sample.
        line: String,
    },
    /// The pattern does not match a line that shows the format.
    #[error("the pattern does not match its own sample `{line}`")]
    SampleNotMatched {
        /// The sample.
        line: String,
    },
    /// The pattern matches a line that it must reject.
    #[error("the pattern matches `{line}`, which it must reject")]
    RejectMatched {
        /// The line.
        line: String,
    },
    /// The format continues one that is not there.
    #[error("it continues `{head}`, and no format of this file has that id")]
    UnknownHead {
        /// The id that was given.
        head: String,
    },
}
