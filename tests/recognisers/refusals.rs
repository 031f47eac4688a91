//! A file that is not of the form is refused with its place and what to do; one that is extends what is known.

use std::error::Error as _;

use serving_sentinel::engines::{FormatProblem, LoadFormatsError, Matcher, StreamState};
use serving_sentinel::evidence::{BufferKind, Evidence, Residence};

const GOOD: &str = r#"
engine = "llama.cpp"

[[residence]]
is = "accelerator"
names = '^NPU\d+$'

[[format]]
id = "banner"
yields = "banner"
literal = "blocks to NPU"
pattern = '^fork: moved (?<offloaded>\d+) of (?<total>\d+) blocks to NPU$'
source = "a fork"
rejects = ["moved 1 of 2 blocks to NPU"]
[[format.matches]]
line = "fork: moved 3 of 4 blocks to NPU"
"#;

fn load(text: &str) -> Result<Matcher, LoadFormatsError> {
    Matcher::builtin().with_file("mine.toml", text)
}

#[test]
fn a_users_file_adds_and_overrides() {
    let matcher = load(GOOD).unwrap();
    let mut stream = StreamState::default();
    let mut evidence = |line: &str| matcher.recognise(line.as_bytes(), &mut stream).evidence;
    assert_eq!(
        evidence("fork: moved 3 of 4 blocks to NPU"),
        [Evidence::Banner { offloaded: 3, total: 4 }]
    );
    assert_eq!(evidence("load_tensors: offloaded 3/4 layers to GPU"), [], "its id is taken over");
    let buffer = |device: &str, residence| Evidence::Buffer {
        kind: BufferKind::Model,
        device: device.to_owned(),
        residence,
        bytes: 1_048_576,
    };
    let npu = evidence("load_tensors:         NPU7 model buffer size =     1.00 MiB");
    assert_eq!(npu, [buffer("NPU7", Residence::Accelerator)], "its rule serves the known formats");
    let cuda = evidence("load_tensors:        CUDA0 model buffer size =     1.00 MiB");
    assert_eq!(cuda, [buffer("CUDA0", Residence::Accelerator)], "the known rules stay");
    assert_eq!(matcher.formats().count(), Matcher::builtin().formats().count());
}

#[test]
fn another_engine_is_a_file_and_no_code() {
    let text = GOOD.replace("llama.cpp", "forked");
    let matcher = load(&text).unwrap();
    let mut stream = StreamState::default();
    let engine = |recognised: serving_sentinel::engines::Recognised| {
        recognised.engine.as_deref().map(str::to_owned)
    };
    let forked = matcher.recognise(b"fork: moved 3 of 4 blocks to NPU", &mut stream);
    assert_eq!(engine(forked).as_deref(), Some("forked"));
    let known = matcher.recognise(b"load_tensors: offloaded 3/4 layers to GPU", &mut stream);
    assert_eq!(engine(known).as_deref(), Some("llama.cpp"));
}

/// What is replaced in the good file, by what, and what the refusal says.
const BAD: &[(&str, &str, &str)] = &[
    (
        "yields = \"banner\"",
        "yields = \"flag\"",
        "nothing is called `flag` in `yields`; known: nothing, build",
    ),
    ("pattern = '^fork", "pattern = 'fork", "must start with `^`"),
    ("NPU$'\nsource", "NPU'\nsource", "must start with `^` and end with `$`"),
    ("NPU$'\nsource", "NPU\\$'\nsource", "must start with `^` and end with `$`"),
    ("(?<total>", "(", "`total` is missing: capture it as `(?<total>..)` or give it in `with`"),
    ("(?<total>", "(?<totals>", "`totals` is no field of this evidence; known: offloaded, total"),
    ("(?<total>", "(?<total", "not a regular expression"),
    (
        "source =",
        "with = { total = \"4\" }\nsource =",
        "`total` is both captured and given in `with`",
    ),
    ("source =", "with = { totals = \"4\" }\nsource =", "`totals` is no field of this evidence"),
    ("(?<total>\\d+)", "4", "`total` is missing"),
    ("source =", "continues = \"nowhere\"\nsource =", "it continues `nowhere`"),
    (
        "literal = \"blocks to NPU\"",
        "literal = \"blocks to GPU\"",
        "the literal is not in its own sample",
    ),
    (
        "literal = \"blocks to NPU\"",
        "literal = \"a/b\"",
        "the literal must be printable ASCII without",
    ),
    ("literal = \"blocks to NPU\"", "literal = \"\"", "the literal must be printable ASCII"),
    (
        "line = \"fork: moved 3 of",
        "line = \"fork: moved x of",
        "the pattern does not match its own sample",
    ),
    ("rejects = [\"moved", "rejects = [\"fork: moved", "which it must reject"),
    ("[[format.matches]]\nline = \"fork: moved 3 of 4 blocks to NPU\"", "", "it has no `matches`"),
];

#[test]
fn a_bad_format_is_refused_with_file_line_and_id() {
    for (from, to, expected) in BAD {
        assert!(GOOD.contains(from), "{from:?}");
        let refused = load(&GOOD.replace(from, to)).expect_err(to);
        assert_eq!(refused.to_string(), "mine.toml:9: format `banner` cannot be used", "{to}");
        let LoadFormatsError::Format { problem, .. } = refused else { panic!("{to}: {refused}") };
        assert!(problem.to_string().contains(expected), "{to}: {problem}");
    }
}

#[test]
fn a_wrong_value_is_refused() {
    let fault = GOOD
        .replace("yields = \"banner\"", "yields = \"fault\"\nwith = { cause = \"bad_luck\" }")
        .replace("(?<offloaded>", "(")
        .replace("(?<total>", "(");
    let Err(LoadFormatsError::Format { problem, .. }) = load(&fault) else {
        panic!("it was loaded")
    };
    assert_eq!(problem.to_string(), "`bad_luck` cannot be the value of `cause`");
}

#[test]
fn an_id_twice_is_refused_at_its_second_place() {
    let format = &GOOD[GOOD.find("[[format]]").unwrap()..];
    let refused = load(&format!("{GOOD}{format}")).expect_err("an id twice");
    assert!(
        matches!(
            refused,
            LoadFormatsError::Format { line: 18, problem: FormatProblem::DuplicateId, .. }
        ),
        "{refused:?}"
    );
}

#[test]
fn a_bad_rule_is_refused() {
    for (from, to) in [
        ("is = \"accelerator\"", "is = \"moon\""),
        ("'^NPU\\d+$'", "'NPU'"),
        ("'^NPU\\d+$'", "'^NPU($'"),
    ] {
        let refused = load(&GOOD.replace(from, to)).expect_err(to);
        assert!(matches!(refused, LoadFormatsError::Residence { line: 6, .. }), "{refused:?}");
    }
}

#[test]
fn what_is_no_file_of_recognisers_is_refused_with_the_known_keys() {
    for (text, expected) in [
        ("not toml", "expected"),
        ("[[format]]\nid = \"x\"", "missing field"),
        (
            &GOOD.replace("source =", "sauce ="),
            "unknown field `sauce`, expected one of `id`, `yields`",
        ),
    ] {
        let refused = load(text).expect_err(text);
        assert!(matches!(refused, LoadFormatsError::Syntax { .. }), "{refused:?}");
        let source = refused.source().map(ToString::to_string).unwrap_or_default();
        assert!(source.contains(expected), "{source}");
    }
}
