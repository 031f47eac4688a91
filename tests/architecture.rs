//! Who may use what: the core is a function of its arguments, and modules lean one way.
#![allow(clippy::expect_used, reason = "a test says what must be")]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Module, the modules of ours it may use, the crates it may use (`thiserror` and `std` are free to all).
const TABLE: &[(&str, &[&str], &[&str])] = &[
    ("evidence", &[], &[]),
    ("alarm", &[], &[]),
    ("throughput", &[], &[]),
    ("placement", &["evidence"], &[]),
    ("wedge", &["evidence"], &[]),
    ("catalog", &["throughput"], &["serde", "toml"]),
    ("lane", &["alarm", "evidence", "placement", "throughput", "wedge"], &[]),
    ("engines", &["evidence"], &["regex", "aho_corasick", "serde", "serde_json", "toml"]),
    ("timings", &["throughput"], &["serde", "serde_json"]),
    ("observer", &["engines", "evidence", "lane"], &[]),
    // The pure half of an edge: bytes in, evidence out, and what to ask next.
    ("readback/answers", &["evidence"], &["serde_json"]),
    ("readback/endpoint", &[], &[]),
    ("readback/schedule", &[], &[]),
];

/// What reads the world: no module of the table may.
const EDGES: &[&str] =
    &["std::fs", "std::net", "std::process", "std::env", "std::thread", "std::io", "tokio::"];

fn sources(module: &str) -> Vec<PathBuf> {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    let mut folders = vec![src.join(module)];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|it| it == "rs") {
                files.push(path);
            }
        }
    }
    let file = src.join(module).with_extension("rs");
    files.extend(file.exists().then_some(file));
    files
}

/// The code of a file without its comments and its tests.
fn code(path: &Path) -> String {
    let is_tests = path.file_stem().is_some_and(|stem| stem == "tests");
    let text = std::fs::read_to_string(path).expect("a readable source file");
    if is_tests {
        return String::new();
    }
    let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    let text = text.split("#[cfg(test)]\n#[expect").next().unwrap_or_default();
    text.lines().filter(|line| !line.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n")
}

/// First segments of paths that begin with `prefix`, such as the modules in `crate::lane::Facts`.
fn named_after<'a>(code: &'a str, prefix: &str) -> BTreeSet<&'a str> {
    code.match_indices(prefix)
        .map(|(at, _)| {
            let rest = &code[at + prefix.len()..];
            rest.split(|character: char| !character.is_alphanumeric() && character != '_')
                .next()
                .unwrap_or_default()
        })
        .filter(|name| !name.is_empty())
        .collect()
}

#[test]
fn modules_use_what_the_map_allows() {
    let mut broken = Vec::new();
    for (module, ours, foreign) in TABLE {
        let files = sources(module);
        assert!(!files.is_empty(), "module `{module}` is gone: correct the table");
        for file in files {
            let code = code(&file);
            let shown = file
                .strip_prefix(env!("CARGO_MANIFEST_DIR"))
                .unwrap_or(&file)
                .display()
                .to_string();
            for used in named_after(&code, "crate::") {
                if used != *module && !ours.contains(&used) {
                    broken.push(format!("{shown} uses crate::{used}"));
                }
            }
            for edge in EDGES {
                if code.contains(edge) {
                    broken.push(format!("{shown} uses {edge}"));
                }
            }
            for line in code.lines().filter_map(|line| line.trim_start().strip_prefix("use ")) {
                let root = line.split("::").next().unwrap_or_default();
                let is_free = ["std", "crate", "super", "self", "thiserror"].contains(&root);
                // Paths that begin with a module or an enum of the same file.
                let is_local =
                    root.starts_with(char::is_uppercase) || code.contains(&format!("mod {root};"));
                if !is_free && !is_local && !foreign.contains(&root) {
                    broken.push(format!("{shown} uses {root}"));
                }
            }
            for clock in ["Instant::now", "SystemTime::now"] {
                if code.contains(clock) {
                    broken.push(format!("{shown} reads a clock"));
                }
            }
        }
    }
    assert!(broken.is_empty(), "the module map is broken:\n{}", broken.join("\n"));
}

#[test]
fn a_broken_map_is_seen() {
    assert_eq!(
        named_after("use crate::lane::Facts;\ncrate::evidence::X", "crate::"),
        ["evidence", "lane"].into()
    );
    assert!(sources("no_such_module").is_empty());
}
