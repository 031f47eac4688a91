//! Globs over model names: `*` for any characters, `?` for one, letters in any case.

/// A glob; two that differ only in case are the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Glob(Vec<char>);

impl Glob {
    pub(super) fn new(pattern: &str) -> Self {
        Self(lower(pattern))
    }

    /// Whether it fits the whole of `name`.
    ///
    /// On a mismatch only the last `*` takes one character more, so the work is at most pattern times name.
    pub(super) fn matches(&self, name: &str) -> bool {
        let (pattern, name) = (self.0.as_slice(), lower(name));
        let (mut p, mut n) = (0, 0);
        let mut star: Option<(usize, usize)> = None;
        while n < name.len() {
            match pattern.get(p) {
                Some('*') => {
                    star = Some((p, n));
                    p += 1;
                }
                Some(expected) if *expected == '?' || *expected == name[n] => {
                    p += 1;
                    n += 1;
                }
                _ => {
                    let Some((star_at, taken_to)) = star else { return false };
                    star = Some((star_at, taken_to + 1));
                    p = star_at + 1;
                    n = taken_to + 1;
                }
            }
        }
        pattern[p..].iter().all(|rest| *rest == '*')
    }

    /// How many characters it states.
    pub(super) fn literals(&self) -> usize {
        self.0.iter().filter(|character| !matches!(character, '*' | '?')).count()
    }
}

fn lower(text: &str) -> Vec<char> {
    text.chars().flat_map(char::to_lowercase).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_glob_fits_the_whole_name() {
        let rows = [
            ("", "", true),
            ("", "a", false),
            ("*", "", true),
            ("*", "anything", true),
            ("?", "", false),
            ("?", "a", true),
            ("?", "\u{e9}", true),
            ("?", "ab", false),
            ("gemma", "gemma", true),
            ("gemma", "GEMMA", true),
            ("GEMMA*", "gemma-3", true),
            ("gemma", "gemma-3", false),
            ("gemma", "my-gemma", false),
            ("*gemma*", "my-gemma-3", true),
            ("g*a", "gemma", true),
            ("g*a*a", "gemma", false),
            ("*-q?_*", "gemma-3-270m-q4_k_m.gguf", true),
            ("*-q?_*", "gemma-3-270m-q10_k", false),
            ("a*b*c", "a-b-b-c", true),
            ("**", "x", true),
            ("a**", "a", true),
            ("[ab]", "a", false),
            ("[ab]", "[ab]", true),
        ];
        for (pattern, name, expected) in rows {
            assert_eq!(Glob::new(pattern).matches(name), expected, "{pattern} on {name}");
        }
    }

    #[test]
    fn many_stars_take_no_long_time() {
        assert!(!Glob::new(&"*a".repeat(500)).matches(&"a".repeat(499)));
    }

    #[test]
    fn only_literals_are_counted() {
        let rows = [("*", 0), ("gemma*", 5), ("g?mma*", 4), ("", 0)];
        for (pattern, expected) in rows {
            assert_eq!(Glob::new(pattern).literals(), expected, "{pattern}");
        }
    }
}
