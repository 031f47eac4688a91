//! Reads variables, and keeps account of those that cannot be understood.
//!
//! The OpenTelemetry specification's rules hold: an empty value is no value, and one that cannot be
//! understood is reported and ignored.

use std::ffi::OsString;
use std::fmt;

use super::signal::Signal;
use super::values::Value;

/// A variable whose value could not be understood, and was ignored as the OpenTelemetry
/// specification asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IgnoredSetting {
    /// The variable.
    pub variable: String,
    /// Its value; `None` where the value can hold a secret.
    pub value: Option<String>,
    /// What would have been understood.
    pub expected: &'static str,
}

impl fmt::Display for IgnoredSetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { variable, value, expected } = self;
        match value {
            Some(value) => write!(f, "`{value}` in {variable} is ignored; expected {expected}"),
            None => write!(f, "the value of {variable} is ignored; expected {expected}"),
        }
    }
}

/// The variables, and what was found wrong with them.
pub(super) struct Variables<'a> {
    lookup: &'a dyn Fn(&str) -> Option<OsString>,
    ignored: Vec<IgnoredSetting>,
}

impl<'a> Variables<'a> {
    pub(super) fn new(lookup: &'a dyn Fn(&str) -> Option<OsString>) -> Self {
        Self { lookup, ignored: Vec::new() }
    }

    /// What was ignored on the way.
    pub(super) fn into_ignored(self) -> Vec<IgnoredSetting> {
        self.ignored
    }

    /// A variable's text; an empty one is as good as none.
    pub(super) fn text(&mut self, variable: &str) -> Option<String> {
        match (self.lookup)(variable)?.into_string() {
            Ok(text) => Some(text.trim().to_owned()).filter(|text| !text.is_empty()),
            Err(bytes) => {
                self.ignore(variable, Some(bytes.to_string_lossy().into_owned()), "text in UTF-8");
                None
            }
        }
    }

    /// A variable's value.
    pub(super) fn read<T: Value>(&mut self, variable: &str) -> Option<T> {
        let text = self.text(variable)?;
        let value = T::parse(&text);
        if value.is_none() {
            self.ignore(variable, Some(text), T::EXPECTED);
        }
        value
    }

    /// The value for one signal: of its own variable, else of the general one.
    pub(super) fn read_for<T: Value>(&mut self, signal: Signal, what: &str) -> Option<T> {
        names(signal, what).iter().find_map(|name| self.read(name))
    }

    /// The same for text, with the name of the variable that it is from.
    pub(super) fn text_for(&mut self, signal: Signal, what: &str) -> Option<(String, String)> {
        names(signal, what).into_iter().find_map(|name| {
            let text = self.text(&name)?;
            Some((name, text))
        })
    }

    /// A general variable is read once for each signal, and told of once.
    pub(super) fn ignore(&mut self, variable: &str, value: Option<String>, expected: &'static str) {
        let setting = IgnoredSetting { variable: variable.to_owned(), value, expected };
        if !self.ignored.contains(&setting) {
            self.ignored.push(setting);
        }
    }
}

/// The variables of one signal's setting: its own, and the general one.
pub(super) fn names(signal: Signal, what: &str) -> [String; 2] {
    let infix = signal.infix();
    [format!("OTEL_EXPORTER_OTLP_{infix}_{what}"), format!("OTEL_EXPORTER_OTLP_{what}")]
}
