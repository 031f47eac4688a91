//! Whatever bytes come, nothing panics; and how a line is wrapped changes nothing of what it states.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use serving_sentinel::engines::{Matcher, StreamState};

use crate::{COLOURED, OWN, container, facts, jsonl};

/// Lines and pieces of lines that lead deep into the recognisers.
const SEEDS: &[&str] = &[
    "load_tensors: offloaded 19/19 layers to GPU",
    "load_tensors:   CPU_Mapped model buffer size =   170.00 MiB",
    "slot print_timing: id  3 | task 0 |        eval time =     356.59 ms /    32 tokens (   11.50 ms per token,    86.93 tokens per second)",
    "srv    load_model: loading model '/models/a.gguf'",
    "warning: no usable GPU found, --gpu-layers option will be ignored",
    "llama_perf_context_print:        eval time =    3821.40 ms /   255 runs   (   14.99 ms per token,    66.73 tokens per second)",
    "common_memory_breakdown_print: |   - Host                   |                   176 =   170 +       0 +       6                |",
    "[loggers.py:118] Engine 000: Avg prompt throughput: 12.7 tokens/s, Avg generation throughput: 41.2 tokens/s, Running: 1 reqs, Waiting: 0 reqs",
    "Decode batch, #running-req: 2, #token: 192, cuda graph: True, gen throughput (token/s): 54.21, #queue-req: 0",
    "[__init__.py:244] Automatically detected platform cuda.",
    "mistralrs_core::device_map: Layers 0-31: cuda[0] (24 GB)",
    "\"msg\":\"model loaded",
    "{\"type\":\"log\",\"level\":\"none\",\"msg\":\"[1] ",
    "{\"log\":\"",
    "[42977] ",
    "llama-1  | ",
    "Jun 18 08:57:40 host1 x[1]: ",
    "2026-05-31T16:41:57Z ",
    "0.00.000.001 I ",
    "INFO 06-13 11:36:10 ",
    "(EngineCore_0 pid=7) ",
    "[2026-05-01 12:00:00 TP0] ",
    "2026-08-22T10:38:13.123456Z  INFO ",
    "[INFO ] ",
    "\x1b[34m",
    "\u{7530}",
];

/// Wrappings from the outermost in, each at most once, in the order in which they come.
fn stacks() -> impl Strategy<Value = Vec<fn(String) -> String>> {
    type Wrap = fn(String) -> String;
    const NONE: Wrap = |line| line;
    let own: Vec<Wrap> = vec![
        NONE,
        |line| format!("{OWN}{line}"),
        |line| format!("{COLOURED}{line}"),
        |line| jsonl(&line),
        |line| format!("(EngineCore_0 pid=7) INFO 06-13 11:36:10 {line}"),
        |line| format!("[2026-05-01 12:00:00 TP0] {line}"),
    ];
    let router: Vec<Wrap> =
        vec![NONE, |line| format!("[42977] {line}"), |line| format!("[ 8080] {line}")];
    let time: Vec<Wrap> = vec![NONE, |line| format!("2026-05-31T16:41:57.826321631Z {line}")];
    let name: Vec<Wrap> = vec![NONE, |line| format!("llama-1  | {line}"), |line| {
        format!("\x1b[36mb_2 | \x1b[0m{line}")
    }];
    let host: Vec<Wrap> =
        vec![NONE, |line| format!("Jun 18 08:57:40 host1 docker[1351]: {line}"), |line| {
            format!("9月 02 14:46:54 host1 :[1756]: {line}")
        }];
    let outer: Vec<Wrap> =
        vec![NONE, |line| container(&line), |line| format!("{line}\r"), |line| format!("\r{line}")];
    (select(own), select(router), select(time), select(name), select(host), select(outer)).prop_map(
        |(own, router, time, name, host, outer)| vec![own, router, time, name, host, outer],
    )
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes_are_survived(lines in vec(vec(any::<u8>(), 0..200), 0..8)) {
        let mut stream = StreamState::default();
        for line in lines {
            Matcher::builtin().recognise(&line, &mut stream);
        }
    }

    #[test]
    fn any_mixture_of_pieces_is_survived(
        pieces in vec(prop_oneof![
            select(SEEDS).prop_map(|seed| seed.as_bytes().to_vec()),
            vec(any::<u8>(), 0..6),
        ], 0..8),
        cut in any::<prop::sample::Index>(),
    ) {
        let line = pieces.concat();
        let mut stream = StreamState::default();
        Matcher::builtin().recognise(&line, &mut stream);
        let (front, back) = line.split_at(cut.index(line.len() + 1));
        Matcher::builtin().recognise(front, &mut stream);
        Matcher::builtin().recognise(back, &mut stream);
    }

    #[test]
    fn a_wrapped_line_states_what_the_bare_line_states(line in select(&SEEDS[..11]), stack in stacks()) {
        let wrapped = stack.into_iter().fold(line.to_owned(), |line, wrap| wrap(line));
        let bare = facts(line, &mut StreamState::default());
        prop_assert_eq!(bare.len(), 1);
        prop_assert_eq!(facts(&wrapped, &mut StreamState::default()), bare, "{:?}", wrapped);
    }

    #[test]
    fn numbers_of_any_size_are_survived(offloaded in "[0-9]{1,30}", size in "[0-9.,]{1,30}") {
        let mut stream = StreamState::default();
        let banner = format!("load_tensors: offloaded {offloaded}/{offloaded} layers to GPU");
        let found = facts(&banner, &mut stream);
        prop_assert_eq!(found.len(), usize::from(offloaded.parse::<u32>().is_ok()));
        facts(&format!("load_tensors: CUDA0 model buffer size = {size} MiB"), &mut stream);
    }
}
