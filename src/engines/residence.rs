//! Where a device or a buffer is, by the names an engine prints.

use regex::bytes::Regex;

use crate::evidence::Residence;

/// One engine's names.
#[derive(Clone, Debug, Default)]
pub(super) struct Residences {
    /// The rules; the first that fits a name wins.
    pub(super) rules: Vec<(Regex, Residence)>,
    /// Descriptions of devices that compute on the CPU although their name is an accelerator's.
    pub(super) software: Vec<Regex>,
}

impl Residences {
    /// Where a device or buffer of that name is.
    pub(super) fn of(&self, name: &str) -> Residence {
        let rule = self.rules.iter().find(|(names, _)| names.is_match(name.as_bytes()));
        rule.map_or(Residence::Unknown, |&(_, residence)| residence)
    }

    /// Whether a device of that description is a CPU in disguise.
    pub(super) fn is_software(&self, description: &str) -> bool {
        self.software.iter().any(|descriptions| descriptions.is_match(description.as_bytes()))
    }

    /// Asks `last`'s rules where these say nothing.
    pub(super) fn fall_back_to(&mut self, last: &Self) {
        self.rules.extend_from_slice(&last.rules);
        self.software.extend_from_slice(&last.software);
    }

    /// Puts `first`'s rules before these.
    pub(super) fn precede_with(&mut self, first: Self) {
        self.rules.splice(0..0, first.rules);
        self.software.extend(first.software);
    }
}
