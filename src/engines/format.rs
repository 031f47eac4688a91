//! One format: the lines of one shape, and the evidence they yield.

use std::borrow::Cow;
use std::sync::Arc;

use regex::bytes::{Captures, Regex};

use crate::evidence::{Evidence, Residence};

use super::residence::Residences;
use super::yields::{Kind, NOTHING};

/// One format that a [`Matcher`](super::Matcher) knows.
#[derive(Clone, Debug)]
pub struct Format {
    pub(super) engine: Arc<str>,
    pub(super) id: Arc<str>,
    /// What it yields, in this order.
    pub(super) kinds: Vec<&'static Kind>,
    pub(super) literal: Box<str>,
    pub(super) pattern: Regex,
    pub(super) fields: Vec<(&'static str, FieldSource)>,
    pub(super) unless: Vec<String>,
    pub(super) raw: bool,
    pub(super) weak: bool,
    pub(super) continues: Option<Arc<str>>,
    pub(super) since: Option<Box<str>>,
    pub(super) until: Option<Box<str>>,
    pub(super) source: Box<str>,
}

impl Format {
    /// The engine that prints it.
    pub fn engine(&self) -> &str {
        &self.engine
    }

    /// Its name, unique within the engine's file.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The first version or date it is known from; `None` when that is not known.
    pub fn since(&self) -> Option<&str> {
        self.since.as_deref()
    }

    /// The last version or date it is known from; `None` when it is current, or not known.
    pub fn until(&self) -> Option<&str> {
        self.until.as_deref()
    }

    /// Where it was seen.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// Whether it only says which engine a line is of.
    pub(super) fn yields_nothing(&self) -> bool {
        self.kinds.iter().all(|kind| kind.name == NOTHING)
    }

    /// Whether evidence of that name is among what it yields.
    pub(super) fn yields(&self, name: &str) -> bool {
        self.kinds.iter().any(|kind| kind.name == name)
    }

    /// Reads a whole message; `None` when it is not of this format.
    pub(super) fn read<'m>(&self, message: &'m [u8]) -> Option<Captures<'m>> {
        let captures = self.pattern.captures(message)?;
        let excluded = self.unless.iter().any(|text| contains(message, text.as_bytes()));
        (!excluded).then_some(captures)
    }
}

fn contains(message: &[u8], text: &[u8]) -> bool {
    message.windows(text.len()).any(|window| window == text)
}

/// Where a field's text is from.
#[derive(Clone, Debug)]
pub(super) enum FieldSource {
    /// The capture of that number.
    Capture(usize),
    /// The same in every line.
    Constant(Box<str>),
    /// A capture between fixed text: `Vulkan{index}`.
    Composed {
        /// Before the capture.
        before: Box<str>,
        /// The capture's number.
        capture: usize,
        /// After the capture.
        after: Box<str>,
    },
}

/// One message that a format reads, with all that its fields can be taken from.
#[derive(Debug)]
pub(super) struct Reading<'a> {
    pub(super) format: &'a Format,
    pub(super) captures: &'a Captures<'a>,
    pub(super) message: &'a [u8],
    /// Fields of the line that this one continues.
    pub(super) inherited: &'a [(&'static str, String)],
    pub(super) residences: &'a Residences,
    /// Devices that were described as a CPU in disguise.
    pub(super) software_devices: &'a [String],
}

impl Reading<'_> {
    /// The evidence; nothing where the format yields none, or the text is no value of a field's type.
    pub(super) fn evidence(&self) -> Vec<Evidence> {
        self.format.kinds.iter().filter_map(|kind| (kind.make)(self)).collect()
    }

    /// A field's text; `None` when the line does not have it.
    pub(super) fn text(&self, field: &str) -> Option<Cow<'_, str>> {
        let source = self.format.fields.iter().find(|(name, _)| *name == field);
        let Some((_, source)) = source else {
            let inherited = self.inherited.iter().find(|(name, _)| *name == field);
            return inherited.map(|(_, text)| Cow::Borrowed(text.as_str()));
        };
        match source {
            FieldSource::Constant(text) => Some(Cow::Borrowed(text)),
            FieldSource::Capture(capture) => self.captured(*capture),
            FieldSource::Composed { before, capture, after } => {
                Some(Cow::Owned(format!("{before}{}{after}", self.captured(*capture)?)))
            }
        }
    }

    /// Where a device of that name is.
    pub(super) fn residence_of(&self, device: &str) -> Residence {
        if self.software_devices.iter().any(|name| name == device) {
            return Residence::Host;
        }
        self.residences.of(device)
    }

    /// Whether a device of that description is a CPU in disguise.
    pub(super) fn is_software(&self, description: &str) -> bool {
        self.residences.is_software(description)
    }

    fn captured(&self, capture: usize) -> Option<Cow<'_, str>> {
        self.captures.get(capture).map(|text| String::from_utf8_lossy(text.as_bytes()))
    }
}
