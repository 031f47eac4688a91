//! Answers in order and time that passes, and what a lane makes of them.
#![expect(clippy::disallowed_methods, reason = "a test needs some instant to count from")]

use std::time::{Duration, Instant};

use super::*;
use crate::alarm::Transition::{self, Cleared, Raised};
use crate::evidence::{BufferKind, Residence};
use crate::lane::{AlarmKind, LaneConfig, Policy};
use crate::placement::{Basis, PlacementVerdict, Plan};
use PlacementVerdict::{CpuFallback, Gpu, Partial, Unreported};

const MODEL: &str = "gemma3:4b";
const PATIENCE: Duration = Duration::from_secs(7);

/// A lane of Ollama that is asked, its clock, and what was found since it was last looked at.
struct Bench {
    lane: LaneState,
    start: Instant,
    now: Instant,
    found: Vec<Finding>,
}

impl Bench {
    fn new() -> Self {
        let config = LaneConfig::new("chat-0").with_model(MODEL).with_plan(Plan::ALL_ON_GPU);
        Self::of(config)
    }

    fn of(config: LaneConfig) -> Self {
        let start = Instant::now();
        let mut lane = LaneState::new(config, Policy::default());
        lane.await_readback(Some(PATIENCE));
        Self { lane, start, now: start, found: Vec::new() }
    }

    fn llama() -> Self {
        let config = LaneConfig::new("chat-0").with_expected_rate(100.0, "a test").unwrap();
        let mut bench = Self::of(config);
        bench.lane.await_readback(None);
        bench.say(Evidence::Settled);
        bench
    }

    /// Time passes, a tick each second.
    fn at(&mut self, seconds: u64) -> &mut Self {
        while self.now < self.start + Duration::from_secs(seconds) {
            self.now += Duration::from_secs(1);
            self.lane.tick(self.now, &mut self.found);
        }
        self
    }

    fn say(&mut self, evidence: Evidence) -> &mut Self {
        self.lane.line(Some(&"ollama".into()), self.now, &mut self.found);
        self.lane.take(evidence, self.now, &mut self.found);
        self
    }

    fn ready(&mut self) -> &mut Self {
        self.lane.ready(self.now, &mut self.found);
        self
    }

    fn answer(&mut self, models: &[LoadedModel]) -> Sought {
        self.lane.read_models(models, None, self.now, &mut self.found)
    }

    fn slots(&mut self, slots: &[SlotReading]) {
        self.lane.read_slots(slots, self.now, self.now, &mut self.found);
    }

    fn counts(&mut self, decoded: Decoded, running: u32) -> &mut Self {
        let counters = Counters { running: Some(running), waiting: None, decoded: Some(decoded) };
        self.lane.read_counters(&counters, self.now, &mut self.found);
        self
    }

    fn verdict(&self) -> Option<(PlacementVerdict, Basis)> {
        self.lane.placement().map(|placement| (placement.verdict, placement.basis))
    }

    /// The verdicts since the last look: of which load, and whether for the second time.
    fn verdicts(&mut self) -> Vec<(u64, bool)> {
        let judged = |finding| match finding {
            Finding::Judged { load, again, .. } => Some((load.0, again)),
            _ => None,
        };
        std::mem::take(&mut self.found).into_iter().filter_map(judged).collect()
    }

    fn alarms(&mut self) -> Vec<(AlarmKind, Transition)> {
        let alarm = |finding| match finding {
            Finding::Alarm { kind, transition, .. } => Some((kind, transition)),
            _ => None,
        };
        std::mem::take(&mut self.found).into_iter().filter_map(alarm).collect()
    }

    /// The rates of intervals since the last look, and their verdicts.
    fn rates(&mut self) -> Vec<(f64, Option<RateVerdict>)> {
        let rate = |finding| match finding {
            Finding::IntervalRate { rate, judgement, .. } => {
                Some((rate.get(), judgement.map(|it| it.verdict)))
            }
            _ => None,
        };
        std::mem::take(&mut self.found).into_iter().filter_map(rate).collect()
    }
}

fn loaded(name: &str, accelerator_bytes: u64, bytes: u64) -> LoadedModel {
    LoadedModel {
        name: name.to_owned(),
        bytes: Some(bytes),
        accelerator_bytes: Some(accelerator_bytes),
        ..LoadedModel::default()
    }
}

fn weights(device: &str, residence: Residence) -> Evidence {
    Evidence::Buffer {
        kind: BufferKind::Model,
        device: device.to_owned(),
        residence,
        bytes: 4 << 30,
    }
}

// === placement ===

#[test]
fn a_silent_log_is_judged_by_the_answer_and_by_nothing_before() {
    for (accelerator, expected) in [(0, CpuFallback), (3, Partial), (5, Gpu)] {
        let mut bench = Bench::new();
        bench.ready().at(3);
        assert_eq!(bench.verdict(), None, "it waits");
        assert_eq!(bench.answer(&[loaded(MODEL, accelerator, 5)]), Sought::Found);
        assert_eq!(bench.verdict(), Some((expected, Basis::Readback)));
        let blind: Vec<_> = bench.lane.blind_causes().collect();
        assert_eq!(blind, [], "who reads back can see");
        bench.at(60).answer(&[loaded(MODEL, accelerator, 5)]);
        assert_eq!(bench.at(70).verdicts(), [(1, false)], "the same answer again is no news");
    }
}

#[test]
fn an_answer_that_never_comes_is_waited_for_no_longer_than_patience() {
    let mut bench = Bench::new();
    bench.ready().at(6);
    assert_eq!(bench.verdict(), None);
    assert_eq!(bench.at(8).verdict(), Some((Unreported, Basis::None)));
    let raised = [(AlarmKind::Unreported, Raised), (AlarmKind::Blind, Raised)];
    assert_eq!(bench.alarms(), raised);
    bench.answer(&[loaded(MODEL, 5, 5)]);
    assert_eq!(bench.at(10).verdict(), Some((Gpu, Basis::Readback)));
    assert_eq!(bench.lane.load(), Some(LoadId(1)));
    assert_eq!(bench.alarms(), [(AlarmKind::Unreported, Cleared), (AlarmKind::Blind, Cleared)]);
}

#[test]
fn a_model_that_is_not_loaded_says_nothing() {
    for others in [vec![], vec![loaded("qwen3:8b", 9, 9)]] {
        let mut bench = Bench::new();
        assert_eq!(bench.ready().answer(&others), Sought::NotLoaded);
        assert_eq!(bench.verdict(), Some((Unreported, Basis::None)), "and is not waited for");
    }
}

#[test]
fn sizes_that_cannot_be_say_nothing() {
    let absent = LoadedModel { accelerator_bytes: None, ..loaded(MODEL, 0, 5) };
    for model in [loaded(MODEL, 0, 0), loaded(MODEL, 6, 5), absent] {
        let mut bench = Bench::new();
        bench.ready().answer(std::slice::from_ref(&model));
        assert_eq!(bench.verdict(), Some((Unreported, Basis::None)), "{model:?}");
    }
}

#[test]
fn a_lanes_model_is_told_from_others() {
    let named = |name: &str| LaneConfig::new("chat-0").with_model(name);
    let nameless = || LaneConfig::new("chat-0");
    let (two, one) = (["gemma3:4b", "qwen3:latest"], ["qwen3:latest"]);
    let rows: [(_, &[&str], _); 9] = [
        (named("gemma3:4b"), &two, Sought::Found),
        (named("Gemma3:4B"), &two, Sought::Found),
        (named("qwen3"), &two, Sought::Found),
        (named("qwen3:latest"), &one, Sought::Found),
        (named("gemma3"), &two, Sought::NotLoaded),
        (nameless(), &two, Sought::Unnamed),
        (nameless(), &[], Sought::NotLoaded),
        (nameless().with_engine("ollama"), &one, Sought::Found),
        // It may be an engine that imitates the answer.
        (nameless(), &one, Sought::Unnamed),
    ];
    for (config, models, expected) in rows {
        let shown = format!("{config:?} among {models:?}");
        let models: Vec<_> = models.iter().map(|name| loaded(name, 1, 1)).collect();
        assert_eq!(Bench::of(config).ready().answer(&models), expected, "{shown}");
    }
}

#[test]
fn what_the_log_tells_of_buffers_waits_for_no_answer_and_yields_to_none() {
    let mut bench = Bench::new();
    bench.say(Evidence::Banner { offloaded: 33, total: 33 });
    bench.say(weights("CPU_Mapped", Residence::Host)).say(Evidence::Settled);
    assert_eq!(bench.verdict(), Some((CpuFallback, Basis::Buffers)));
    bench.answer(&[loaded(MODEL, 5, 5)]);
    assert_eq!(bench.at(5).verdict(), Some((CpuFallback, Basis::Buffers)));
}

#[test]
fn a_banner_waits_for_the_answer_that_refutes_it() {
    let mut bench = Bench::new();
    bench.say(Evidence::Banner { offloaded: 33, total: 33 }).say(Evidence::Settled);
    assert_eq!(bench.verdict(), None);
    bench.answer(&[loaded(MODEL, 0, 5)]);
    assert_eq!(bench.verdict(), Some((CpuFallback, Basis::Readback)));
    let contradicted = bench.lane.placement().and_then(|it| it.contradicted.clone());
    assert_eq!(contradicted.as_deref(), Some("banner 33/33"));
    assert_eq!(bench.verdicts(), [(1, false)]);
}

#[test]
fn a_load_that_waits_is_judged_when_the_next_begins_and_when_its_engine_ends() {
    let begin = || Evidence::RunnerBegins { model: Some("/models/b".into()) };
    let banner = || Evidence::Banner { offloaded: 33, total: 33 };
    let mut bench = Bench::new();
    bench.say(banner()).say(Evidence::Settled).say(begin());
    assert_eq!(bench.lane.load(), Some(LoadId(2)));
    assert_eq!(bench.verdicts(), [(1, false)]);

    let mut bench = Bench::new();
    bench.say(banner()).say(Evidence::Settled);
    bench.lane.ended("exit status: 0", bench.now, &mut bench.found);
    assert_eq!(bench.verdicts(), [(1, false)], "it was ready, so that no load has failed");

    let mut bench = Bench::new();
    bench.say(banner()).say(Evidence::Settled);
    bench.lane.conclude(bench.now, &mut bench.found);
    assert_eq!(bench.verdicts(), [(1, false)], "no answer comes after the fact");
}

#[test]
fn a_reload_that_nobody_told_of_is_a_load_of_its_own() {
    type Between = fn(&mut Bench);
    /// Of which load, and whether for the second time.
    type Verdicts = &'static [(u64, bool)];
    let rows: [(&str, Between, Verdicts); 4] = [
        ("other numbers", |_| {}, &[(2, false)]),
        (
            "gone and back with the same ones",
            |bench| {
                bench.answer(&[loaded(MODEL, 5, 5)]);
                bench.answer(&[]);
                bench.answer(&[]);
                bench.answer(&[loaded(MODEL, 5, 5)]);
            },
            &[(2, false), (3, false)],
        ),
        (
            "told of by the log",
            |bench| {
                bench.say(Evidence::RunnerBegins { model: None });
                bench.say(Evidence::Settled);
            },
            &[(2, false)],
        ),
        (
            "the engine started anew",
            |bench| {
                bench.lane.ended("exit status: 0", bench.now, &mut bench.found);
                bench.ready();
            },
            &[(2, false)],
        ),
    ];
    for (case, between, expected) in rows {
        let mut bench = Bench::new();
        bench.ready().answer(&[loaded(MODEL, 5, 5)]);
        assert_eq!(bench.verdicts(), [(1, false)], "{case}");
        between(&mut bench);
        bench.answer(&[loaded(MODEL, 1, 5)]);
        assert_eq!(bench.at(20).verdicts(), expected, "{case}");
        assert_eq!(bench.verdict(), Some((Partial, Basis::Readback)), "{case}");
    }
}

#[test]
fn an_engine_is_asked_when_it_is_ready_alone() {
    let mut bench = Bench::new();
    assert_eq!(bench.lane.can_be_asked(), None, "nothing is known of it");
    bench.say(Evidence::Listening);
    assert_eq!(bench.lane.can_be_asked(), Some(0), "it answers, and has loaded nothing");
    bench.say(Evidence::RunnerBegins { model: None });
    assert_eq!(bench.lane.can_be_asked(), None, "it loads");
    bench.say(Evidence::Settled);
    assert_eq!(bench.lane.can_be_asked(), Some(1));
    bench.say(Evidence::RunnerBegins { model: Some("/models/b".into()) });
    assert_eq!(bench.lane.can_be_asked(), None, "it loads again");
    bench.say(Evidence::LoadFailed { cause: None, detail: "no".into() });
    assert_eq!(bench.lane.can_be_asked(), None, "that failed");
    bench.say(Evidence::RunnerBegins { model: None }).say(Evidence::Settled);
    assert_eq!(bench.lane.can_be_asked(), Some(3));
    bench.lane.stopping();
    assert_eq!(bench.lane.can_be_asked(), None, "it is told to end");
    bench.lane.ended("exit status: 0", bench.now, &mut bench.found);
    assert_eq!(bench.lane.can_be_asked(), None);
    bench.say(Evidence::Routes);
    assert_eq!((bench.lane.can_be_asked(), bench.lane.is_router()), (None, true));
}

#[test]
fn blindness_says_what_cannot_be_read() {
    let mut bench = Bench::new();
    bench.lane.readback_fails(Some("`/api/ps`: it answers 401"), bench.now, &mut bench.found);
    let told = bench.found.iter().find_map(|finding| match finding {
        Finding::Alarm { facts, .. } => facts.advice.clone(),
        _ => None,
    });
    assert!(told.is_some_and(|advice| advice.ends_with("(`/api/ps`: it answers 401)")));
    bench.at(5);
    bench.lane.readback_fails(None, bench.now, &mut bench.found);
    assert_eq!(bench.alarms(), [(AlarmKind::Blind, Raised), (AlarmKind::Blind, Cleared)]);
}

#[test]
fn what_was_told_is_kept_for_a_status_page() {
    let mut bench = Bench::new();
    assert_eq!(bench.lane.read_back_facts(), None);
    let expires = Some("2026-01-01T00:00:00Z".to_owned());
    let own = LoadedModel { expires: expires.clone(), ..loaded(MODEL, 3, 5) };
    bench.ready().answer(&[loaded("qwen3:8b", 1, 1), own]);
    let facts = ReadBackFacts {
        loaded: vec!["qwen3:8b".into(), MODEL.into()],
        bytes: Some(5),
        accelerator_bytes: Some(3),
        expires,
        ..ReadBackFacts::default()
    };
    assert_eq!(bench.lane.read_back_facts(), Some(&facts));
    bench.lane.ended("exit status: 0", bench.now, &mut bench.found);
    assert_eq!(bench.lane.read_back_facts(), None);
}

// === progress ===

fn idle(slot: u32) -> SlotReading {
    SlotReading { slot, work: None }
}

fn busy(slot: u32, task: u64, prefilled: u64, decoded: u64) -> SlotReading {
    SlotReading { slot, work: Some(SlotWork { task, prefilled, decoded }) }
}

#[test]
fn a_slot_that_stands_still_is_wedged_past_the_budget_of_what_it_does() {
    type Watch = fn(&mut Bench);
    let rows: [(&str, Watch, Option<u64>); 10] = [
        (
            "it decodes no further",
            |bench| {
                bench.slots(&[busy(0, 7, 20, 3)]);
                bench.at(10).slots(&[busy(0, 7, 20, 9)]);
                bench.at(25).slots(&[busy(0, 7, 20, 9)]);
            },
            Some(40),
        ),
        (
            "it decodes on",
            |bench| {
                for second in 0..200 {
                    bench.at(second).slots(&[busy(0, 7, 20, second)]);
                }
                bench.slots(&[idle(0)]);
            },
            None,
        ),
        ("it reads its prompt", |bench| bench.slots(&[busy(0, 7, 20, 0)]), Some(300)),
        (
            "it reads on",
            |bench| {
                bench.slots(&[busy(0, 7, 20, 0)]);
                bench.at(100).slots(&[busy(0, 7, 40, 0)]);
            },
            Some(400),
        ),
        (
            "it is done",
            |bench| {
                bench.slots(&[busy(0, 7, 20, 9)]);
                bench.slots(&[idle(0)]);
            },
            None,
        ),
        (
            "its next task decodes from the start",
            |bench| {
                bench.slots(&[busy(0, 7, 20, 90)]);
                bench.at(20).slots(&[busy(0, 8, 20, 1)]);
            },
            Some(50),
        ),
        (
            "the engine hangs: the large budget",
            |bench| {
                bench.slots(&[busy(0, 7, 20, 3)]);
                bench.lane.slots_unread(true);
            },
            Some(300),
        ),
        (
            "it hangs, and answers again",
            |bench| {
                bench.slots(&[busy(0, 7, 20, 3)]);
                bench.lane.slots_unread(true);
                bench.at(10).slots(&[busy(0, 7, 20, 3)]);
            },
            Some(30),
        ),
        (
            "it is out of sight",
            |bench| {
                bench.slots(&[busy(0, 7, 20, 3)]);
                bench.lane.slots_unread(false);
            },
            None,
        ),
        (
            "out of sight, yet its log told of it",
            |bench| {
                bench.say(Evidence::TaskLaunched { slot: 0, task: 7 });
                bench.slots(&[busy(0, 7, 20, 3)]);
                bench.lane.slots_unread(false);
            },
            Some(30),
        ),
    ];
    for (case, watch, expected) in rows {
        let mut bench = Bench::llama();
        watch(&mut bench);
        let wedged = (0..1000)
            .find(|second| bench.at(*second).lane.alarms().any(|kind| kind == AlarmKind::Wedged));
        assert_eq!(wedged, expected, "{case}");
    }
}

#[test]
fn work_that_the_log_told_of_since_the_question_is_not_ended_by_the_answer() {
    let mut bench = Bench::llama();
    bench.slots(&[busy(0, 7, 20, 3)]);
    let asked = bench.now;
    bench.at(1).say(Evidence::TaskReleased { slot: 0, task: 7 });
    bench.say(Evidence::TaskLaunched { slot: 0, task: 8 });
    bench.lane.read_slots(&[idle(0)], asked, bench.now, &mut bench.found);
    assert!(bench.at(400).lane.alarms().any(|kind| kind == AlarmKind::Wedged));
}

// === rates ===

fn ended(tokens: f64, seconds: f64) -> Decoded {
    Decoded::Ended { tokens, seconds }
}

fn running(tokens: f64) -> Decoded {
    Decoded::Running { tokens }
}

fn rounded(rates: Vec<(f64, Option<RateVerdict>)>) -> Vec<(f64, Option<RateVerdict>)> {
    rates.into_iter().map(|(rate, verdict)| (rate.round(), verdict)).collect()
}

#[test]
fn the_mean_of_requests_that_ended_is_a_rate() {
    use RateVerdict::{Degraded, OnPar};
    let mut bench = Bench::llama();
    bench.counts(ended(1000.0, 10.0), 0);
    assert_eq!(rounded(bench.rates()), [], "an average since the start is no rate of now");
    bench.at(5).counts(ended(1000.0, 10.0), 1);
    assert_eq!(rounded(bench.rates()), [], "nothing ended");
    bench.at(10).counts(ended(1300.0, 13.0), 1);
    assert_eq!(rounded(bench.rates()), [(100.0, Some(OnPar))]);
    bench.at(15).counts(ended(1310.0, 15.0), 0);
    assert_eq!(rounded(bench.rates()), [(5.0, None)], "too few tokens to judge");
    for round in 0_u32..3 {
        let round = f64::from(round);
        bench.at(20).counts(ended(1330.0 + round * 20.0, 18.0 + round * 3.0), 0);
    }
    assert_eq!(rounded(bench.rates()), [(7.0, Some(Degraded)); 3]);
    assert!(bench.lane.alarms().any(|kind| kind == AlarmKind::Degraded), "three in a row");
    bench.at(25).counts(ended(10.0, 1.0), 0);
    assert_eq!(rounded(bench.rates()), [], "the engine counts from 0 again");
    bench.at(30).counts(ended(110.0, 2.0), 0);
    assert_eq!(rounded(bench.rates()), [(100.0, Some(OnPar))]);
}

#[test]
fn requests_that_told_their_own_rate_are_not_told_again() {
    let mut bench = Bench::llama();
    bench.counts(ended(1000.0, 10.0), 0);
    bench.say(Evidence::Decode {
        tokens: 300,
        milliseconds: Some(3000.0),
        rate: Some(100.0),
        slot: None,
        task: None,
    });
    bench.counts(ended(1300.0, 13.0), 0);
    assert_eq!(rounded(bench.rates()), []);
    bench.counts(ended(1600.0, 16.0), 0);
    assert_eq!(rounded(bench.rates()), [(100.0, Some(RateVerdict::OnPar))]);
}

#[test]
fn counters_of_six_digits_are_read_when_their_difference_is_exact() {
    let mut bench = Bench::llama();
    bench.counts(ended(1_234_560.0, 12_345.6), 0);
    bench.counts(ended(1_234_660.0, 12_346.6), 0);
    assert_eq!(rounded(bench.rates()), [], "100 tokens, give or take 10");
    bench.counts(ended(1_234_960.0, 12_349.6), 0);
    assert_eq!(rounded(bench.rates()), [(100.0, Some(RateVerdict::OnPar))]);
}

#[test]
fn all_that_runs_is_a_rate_of_the_interval() {
    use RateVerdict::OnPar;
    let mut bench = Bench::llama();
    bench.counts(running(0.0), 0);
    bench.at(5).counts(running(100.0), 2);
    assert_eq!(rounded(bench.rates()), [(20.0, None)], "it began idle");
    bench.at(10).counts(running(1100.0), 2);
    assert_eq!(rounded(bench.rates()), [(200.0, Some(OnPar))], "each of two at 100");
    bench.say(Evidence::Interval { rate: 190.0, running: 2, rank: None });
    bench.at(15).counts(running(2100.0), 2);
    assert_eq!(rounded(bench.rates()), [(190.0, None)], "the log tells the same interval");
    bench.at(20).counts(running(3100.0), 2);
    assert_eq!(rounded(bench.rates()), [(200.0, Some(OnPar))]);
    bench.at(25).counts(running(5.0), 2);
    assert_eq!(rounded(bench.rates()), [], "the engine counts from 0 again");
}

#[test]
fn a_printed_number_has_six_digits() {
    let rows =
        [(0.0, 0.0), (3.4219, 0.00001), (100.0, 0.001), (12_345.7, 0.1), (1_234_570.0, 10.0)];
    for (number, expected) in rows {
        assert!((printed_step(number) - expected).abs() < 1e-9, "{number}");
    }
}
