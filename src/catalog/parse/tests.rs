//! A row for each thing that can be wrong with a catalogue.

use proptest::prelude::*;

use super::rows as parse;

const GOOD: &str = "[[row]]\nmodel = \"a\"\ntokens_per_second = 50\nsource = \"s\"\n\n";

#[test]
fn what_is_wrong_is_told_with_its_place_and_what_to_do() {
    let second = |row: &str| format!("{GOOD}[[row]]\n{row}\n");
    let rows = [
        (
            "an unknown key with a likely one",
            second("model = \"b\"\nquantization = \"Q4\"\ntokens_per_second = 1\nsource = \"s\""),
            "rates.toml:8, row 2: unknown key `quantization`, did you mean `quantisation`?; known here: model, quantisation, accelerator, engine, concurrency, tokens_per_second, source",
        ),
        (
            "a key cut short",
            second("model = \"b\"\ntokens_per_sec = 1\nsource = \"s\""),
            "rates.toml:8, row 2: unknown key `tokens_per_sec`, did you mean `tokens_per_second`?; known here: model, quantisation, accelerator, engine, concurrency, tokens_per_second, source",
        ),
        (
            "the first of two unknown keys",
            second("zebra = 1\nape = 2"),
            "rates.toml:7, row 2: unknown key `zebra`; known here: model, quantisation, accelerator, engine, concurrency, tokens_per_second, source",
        ),
        (
            "an unknown table",
            format!("{GOOD}[[rows]]\n"),
            "rates.toml:6: unknown key `rows`; known here: row",
        ),
        (
            "one table",
            "[row]\nmodel = \"a\"\n".to_owned(),
            "rates.toml:1: `row` is a table; give rows, each under its own `[[row]]`",
        ),
        (
            "no tables",
            "row = [1]\n".to_owned(),
            "rates.toml:1, row 1: `row` is a whole number; give rows, each under its own `[[row]]`",
        ),
        (
            "no model",
            second("tokens_per_second = 1\nsource = \"s\""),
            "rates.toml:6, row 2: the row has no `model`; add it",
        ),
        (
            "no rate",
            second("model = \"b\"\nsource = \"s\""),
            "rates.toml:6, row 2: the row has no `tokens_per_second`; add it",
        ),
        (
            "no source",
            second("model = \"b\"\ntokens_per_second = 1"),
            "rates.toml:6, row 2: the row has no `source`; add it",
        ),
        (
            "an empty model",
            second("model = \" \""),
            "rates.toml:7, row 2: `model` is empty; give the model's name, or a glob such as `gemma-3-*`",
        ),
        (
            "an empty source",
            second("model = \"b\"\ntokens_per_second = 1\nsource = \"\""),
            "rates.toml:9, row 2: `source` is empty; say where the rate is from, such as `measured 2026-06, one stream`",
        ),
        (
            "an empty engine",
            second("model = \"b\"\nengine = \"\""),
            "rates.toml:8, row 2: `engine` is empty; name it, or leave the key out",
        ),
        (
            "a number for a name",
            second("model = 7"),
            "rates.toml:7, row 2: `model` is a whole number; give a text in quotes",
        ),
        (
            "a text for a rate",
            second("model = \"b\"\ntokens_per_second = \"50\"\nsource = \"s\""),
            "rates.toml:8, row 2: `tokens_per_second` is a text; give tokens/s, a finite number above 0",
        ),
        (
            "several at once, none",
            second("model = \"b\"\nconcurrency = 0"),
            "rates.toml:8, row 2: `concurrency` is 0; give the requests in flight, a whole number from 1",
        ),
        (
            "several at once, negative",
            second("model = \"b\"\nconcurrency = -4"),
            "rates.toml:8, row 2: `concurrency` is -4; give the requests in flight, a whole number from 1",
        ),
        (
            "several at once, no whole number",
            second("model = \"b\"\nconcurrency = 1.5"),
            "rates.toml:8, row 2: `concurrency` is a number; give the requests in flight, a whole number from 1",
        ),
        (
            "the same again, in another case",
            second("model = \"A\"\nconcurrency = 1\ntokens_per_second = 60\nsource = \"s\""),
            "rates.toml:6, row 2: the row is for the same as row 1; remove one of them, or tell them apart by a key",
        ),
    ];
    for (case, text, expected) in rows {
        let error = parse("rates.toml", &text).unwrap_err();
        assert_eq!(error.to_string(), expected, "{case}");
    }
}

#[test]
fn what_is_no_toml_is_told_with_its_line() {
    let error = parse("rates.toml", "[[row]]\nmodel = gemma\n").unwrap_err().to_string();
    assert!(error.starts_with("rates.toml:2: not TOML: "), "{error}");
    assert!(error.ends_with("; a row is `[[row]]` and lines of `key = value`"), "{error}");
}

#[test]
fn a_rate_that_is_none_is_refused_as_written() {
    for given in ["0", "0.0", "-5", "-0.5", "inf", "-inf", "nan"] {
        let text = format!("[[row]]\nmodel = \"a\"\ntokens_per_second = {given}\nsource = \"s\"\n");
        let expected = format!(
            "rates.toml:3, row 1: `tokens_per_second` is {given}, which is no rate; give tokens/s, a finite number above 0"
        );
        assert_eq!(parse("rates.toml", &text).unwrap_err().to_string(), expected);
    }
}

#[test]
fn rows_that_differ_in_one_key_stand_side_by_side() {
    let keys =
        ["", "quantisation = \"Q4\"", "accelerator = \"A\"", "engine = \"e\"", "concurrency = 2"];
    let text = keys
        .map(|key| {
            format!("[[row]]\nmodel = \"a\"\n{key}\ntokens_per_second = 1\nsource = \"s\"\n")
        })
        .concat();
    assert_eq!(parse("rates.toml", &text).unwrap().len(), keys.len());
}

#[test]
fn numbers_are_read_in_any_form_that_toml_has() {
    for (given, expected) in
        [("50", 50.0), ("50.5", 50.5), ("1_000", 1000.0), ("5e1", 50.0), ("+50", 50.0)]
    {
        let text = format!(
            "row = [{{ model = \"a\", tokens_per_second = {given}, source = \" s \" }}]\r\n"
        );
        let row = parse("rates.toml", &text).unwrap().remove(0);
        assert_eq!(
            (row.expectation.rate().get(), &**row.expectation.source()),
            (expected, "s"),
            "{given}"
        );
    }
}

/// Parts that catalogues are made of, in any order.
const PARTS: [&str; 12] = [
    "[[row]]\n",
    "[row]\n",
    "model = \"a\"\n",
    "model = 7\n",
    "tokens_per_second = 50\n",
    "tokens_per_second = nan\n",
    "source = \"\u{e9}\"\n",
    "source = ''\n",
    "concurrency = 0x7f\n",
    "\u{1f600} = 1\n",
    "\r",
    "\"",
];

proptest! {
    #[test]
    fn any_text_is_read_or_refused(parts in prop::collection::vec(prop::sample::select(&PARTS), 0..12), rest in ".{0,20}") {
        let text = parts.concat() + &rest;
        if let Err(error) = parse("rates.toml", &text) {
            prop_assert!(error.to_string().starts_with("rates.toml:"), "{error}");
        }
    }
}
