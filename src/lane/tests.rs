//! What a lane finds, from evidence in order and time that passes.
#![expect(clippy::disallowed_methods, reason = "a test needs some instant to count from")]

use std::time::{Duration, Instant};

use super::*;
use crate::alarm::Transition::{self, Cleared, Expired, Raised, Renewed, Replaced};
use crate::evidence::{BufferKind, Cause, Evidence, Residence, Role};
use crate::placement::PlacementVerdict;
use crate::throughput::{RateVerdict, TimingSource, Timings, TokensPerSecond};

/// A lane and its clock.
struct Bench {
    lane: LaneState,
    start: Instant,
    now: Instant,
}

impl Bench {
    fn new(config: LaneConfig) -> Self {
        let start = Instant::now();
        Self { lane: LaneState::new(config, Policy::default()), start, now: start }
    }

    fn gpu() -> Self {
        Self::new(
            LaneConfig::new("chat-0")
                .with_plan(Plan::GPU)
                .with_expected_rate(100.0, "a test")
                .unwrap(),
        )
    }

    fn at(&mut self, seconds: u64) -> &mut Self {
        self.now = self.start + Duration::from_secs(seconds);
        self
    }

    fn act(
        &mut self,
        act: impl FnOnce(&mut LaneState, Instant, &mut Vec<Finding>),
    ) -> Vec<Finding> {
        let mut out = Vec::new();
        act(&mut self.lane, self.now, &mut out);
        out
    }

    fn take(&mut self, evidence: impl IntoIterator<Item = Evidence>) -> Vec<Finding> {
        self.act(|lane, now, out| {
            for one in evidence {
                lane.line(Some(&"llama.cpp".into()), now, out);
                lane.take(one, now, out);
            }
        })
    }

    fn tick(&mut self) -> Vec<Finding> {
        self.act(LaneState::tick)
    }

    fn record(&mut self, timings: &Timings) -> (Recorded, Vec<Finding>) {
        let mut out = Vec::new();
        let recorded = self.lane.record(None, Some(timings), self.now, &mut out);
        (recorded, out)
    }

    fn verdict(&self) -> Option<PlacementVerdict> {
        self.lane.placement().map(|placement| placement.verdict)
    }
}

fn begins(role: Role) -> Evidence {
    Evidence::LoadBegins { role, model: None }
}

fn weights(device: &str, residence: Residence, mib: u64) -> Evidence {
    Evidence::Buffer {
        kind: BufferKind::Model,
        device: device.to_owned(),
        residence,
        bytes: mib << 20,
    }
}

fn banner(offloaded: u32, total: u32) -> Evidence {
    Evidence::Banner { offloaded, total }
}

fn on_gpu() -> Vec<Evidence> {
    vec![
        begins(Role::Main),
        Evidence::BlockBegins,
        banner(33, 33),
        weights("CUDA0", Residence::Accelerator, 4171),
        Evidence::BlockEnds,
        Evidence::Settled,
    ]
}

fn on_cpu() -> Vec<Evidence> {
    vec![
        begins(Role::Main),
        Evidence::BlockBegins,
        banner(33, 33),
        weights("CPU", Residence::Host, 4171),
        Evidence::BlockEnds,
        Evidence::Settled,
    ]
}

fn alarms(findings: &[Finding]) -> Vec<(AlarmKind, Transition)> {
    findings
        .iter()
        .filter_map(|finding| match finding {
            Finding::Alarm { kind, transition, .. } => Some((*kind, *transition)),
            _ => None,
        })
        .collect()
}

fn verdicts(findings: &[Finding]) -> Vec<(LoadId, bool, Option<SpanEvent>)> {
    findings
        .iter()
        .filter_map(|finding| match finding {
            Finding::Judged { load, again, event, .. } => Some((*load, *again, *event)),
            _ => None,
        })
        .collect()
}

fn timings(tokens: u64, rate: f64) -> Timings {
    Timings {
        decode_tokens: Some(tokens),
        decode_rate: TokensPerSecond::new(rate),
        ..Timings::new(TimingSource::EngineResponse)
    }
}

fn logged(tokens: u64, rate: f64) -> Evidence {
    Evidence::Decode { tokens, milliseconds: None, rate: Some(rate), slot: Some(0), task: Some(0) }
}

#[test]
fn a_reload_that_lost_its_gpu_is_a_new_load_with_a_new_verdict_and_so_is_its_recovery() {
    let mut bench = Bench::gpu();
    let first = bench.take(on_gpu());
    assert_eq!(verdicts(&first), [(LoadId(1), false, None)]);
    assert!(alarms(&first).is_empty());
    let lost = bench.take(on_cpu());
    assert_eq!(
        verdicts(&lost),
        [(LoadId(2), false, Some(SpanEvent::Fault(AlarmKind::CpuFallback)))]
    );
    assert_eq!(alarms(&lost), [(AlarmKind::CpuFallback, Raised)]);
    let again = bench.take(on_cpu());
    assert_eq!(verdicts(&again).len(), 1, "each load has its own verdict");
    assert!(alarms(&again).is_empty(), "the alarm stands already");
    let back = bench.take(on_gpu());
    assert_eq!(verdicts(&back), [(LoadId(4), false, Some(SpanEvent::PlacementRecovered))]);
    assert_eq!(alarms(&back), [(AlarmKind::CpuFallback, Cleared)]);
}

#[test]
fn one_fault_that_takes_anothers_place_is_no_recovery() {
    let mut bench = Bench::gpu();
    bench.take(on_cpu());
    let silent = bench.take([begins(Role::Main), Evidence::Settled]);
    assert_eq!(
        alarms(&silent),
        [(AlarmKind::CpuFallback, Replaced), (AlarmKind::Unreported, Raised)]
    );
    let failed = bench.take([
        begins(Role::Main),
        Evidence::LoadFailed { cause: None, detail: "no such file".to_owned() },
    ]);
    assert_eq!(
        alarms(&failed),
        [(AlarmKind::Unreported, Replaced), (AlarmKind::LoadFailed, Raised)]
    );
    assert_eq!(bench.verdict(), None, "nothing is placed");
    let repeated = bench
        .take([Evidence::LoadFailed { cause: None, detail: "failed to load model".to_owned() }]);
    assert!(repeated.is_empty(), "engines say it more than once: {repeated:?}");
    let back = bench.take(on_gpu());
    assert_eq!(alarms(&back), [(AlarmKind::LoadFailed, Cleared)]);
}

#[test]
fn a_helper_model_and_a_dry_run_never_mask_the_main_model() {
    let rows: [(&str, Vec<Evidence>); 3] = [
        (
            "a draft on the CPU after the main model",
            vec![
                begins(Role::Draft),
                Evidence::BlockBegins,
                banner(0, 19),
                weights("CPU", Residence::Host, 235),
                Evidence::BlockEnds,
            ],
        ),
        (
            "a projector on the CPU",
            vec![begins(Role::Projector), weights("CPU", Residence::Host, 800)],
        ),
        ("a banner in a chat template", vec![banner(0, 33), weights("CPU", Residence::Host, 9999)]),
    ];
    for (case, after) in rows {
        let mut evidence = on_gpu();
        let settled = evidence.pop();
        evidence.extend(after);
        evidence.extend(settled);
        let mut bench = Bench::gpu();
        let findings = bench.take(evidence);
        assert_eq!(verdicts(&findings), [(LoadId(1), false, None)], "{case}");
        assert_eq!(bench.verdict(), Some(PlacementVerdict::Gpu), "{case}");
    }
    let mut bench = Bench::gpu();
    let mut dry_run = vec![begins(Role::Main), Evidence::BlockBegins, banner(19, 19)];
    dry_run
        .extend([weights("CPU", Residence::Host, 0), weights("CUDA0", Residence::Accelerator, 0)]);
    dry_run.push(Evidence::BlockEnds);
    dry_run.extend(on_cpu());
    let findings = bench.take(dry_run);
    assert_eq!(verdicts(&findings).len(), 1, "a dry run is no load: {findings:?}");
    assert_eq!(bench.verdict(), Some(PlacementVerdict::CpuFallback));
}

#[test]
fn a_load_that_no_line_opens_is_opened_by_its_first_loader_line() {
    let mut bench = Bench::gpu();
    let first = bench.take([
        banner(33, 33),
        weights("CUDA0", Residence::Accelerator, 4171),
        Evidence::Settled,
    ]);
    assert_eq!(verdicts(&first).len(), 1);
    let second =
        bench.take([banner(0, 33), weights("CPU", Residence::Host, 4171), Evidence::Settled]);
    assert_eq!(
        verdicts(&second),
        [(LoadId(2), false, Some(SpanEvent::Fault(AlarmKind::CpuFallback)))]
    );
}

#[test]
fn a_device_chosen_before_the_line_that_opens_a_load_is_of_that_load() {
    let chosen =
        Evidence::DeviceChosen { device: "CUDA0".to_owned(), residence: Residence::Accelerator };
    let seen =
        Evidence::DeviceSeen { device: "CUDA0".to_owned(), residence: Residence::Accelerator };
    let mut bench = Bench::gpu();
    bench.take([seen, chosen.clone()]);
    bench.take(on_gpu());
    bench.take([chosen]);
    let reload = bench.take(on_cpu());
    assert_eq!(verdicts(&reload).first().map(|(load, ..)| *load), Some(LoadId(2)));
    let causes = &bench.lane.placement().unwrap().causes;
    assert_eq!(causes, &[], "the device was not disabled: it was chosen");
}

#[test]
fn an_engine_that_works_and_whose_load_was_never_seen_is_unreported() {
    let mut bench = Bench::gpu();
    let joined = bench.take([logged(48, 83.75)]);
    assert_eq!(alarms(&joined), [(AlarmKind::Unreported, Raised)]);
    bench.act(|lane, now, out| lane.ended("exit status: 0", now, out));
    let left_over = bench.take([logged(48, 83.75)]);
    assert_eq!(verdicts(&left_over), [], "what is left in the pipe tells of no load");
}

#[test]
fn the_callers_word_waits_for_lines_that_are_on_their_way() {
    let mut bench = Bench::gpu();
    bench.take([begins(Role::Main)]);
    assert!(verdicts(&bench.act(LaneState::ready)).is_empty());
    bench.take([Evidence::BlockBegins, weights("CUDA0", Residence::Accelerator, 4171)]);
    assert_eq!(verdicts(&bench.at(1).tick()), [(LoadId(1), false, None)]);

    let mut silent = Bench::gpu();
    silent.act(LaneState::ready);
    let found = silent.at(1).tick();
    assert_eq!(alarms(&found), [(AlarmKind::Unreported, Raised), (AlarmKind::Blind, Raised)]);
    assert_eq!(silent.lane.blind_causes().collect::<Vec<_>>(), [BlindCause::NoOutput]);
    let seen = silent.take([Evidence::Verbosity { level: 3 }]);
    assert_eq!(alarms(&seen), [(AlarmKind::Blind, Cleared)]);
}

#[test]
fn late_evidence_is_judged_once_it_has_gone_quiet_and_only_when_it_differs() {
    let mut bench = Bench::gpu();
    let silent = bench.take([begins(Role::Main), Evidence::Settled]);
    assert_eq!(alarms(&silent), [(AlarmKind::Unreported, Raised)]);
    let late = bench.take([
        weights("CPU_Mapped", Residence::Host, 281),
        weights("CUDA0", Residence::Accelerator, 4171),
    ]);
    assert!(late.is_empty(), "half a block is no verdict: {late:?}");
    let judged = bench.at(1).tick();
    assert_eq!(verdicts(&judged), [(LoadId(1), true, Some(SpanEvent::PlacementRecovered))]);
    assert_eq!(alarms(&judged), [(AlarmKind::Unreported, Cleared)]);
    bench.take([Evidence::Estimate {
        device: "Host".to_owned(),
        residence: Residence::Host,
        bytes: 292 << 20,
    }]);
    assert!(bench.at(3).tick().is_empty(), "the table at the exit changes nothing");
}

#[test]
fn an_engine_that_ends_before_it_is_ready_has_failed_to_load() {
    let mut bench = Bench::gpu();
    bench.take([begins(Role::Main)]);
    let ended = bench.act(|lane, now, out| lane.ended("exit status: 1", now, out));
    assert!(matches!(ended.first(), Some(Finding::LoadFailed { load: LoadId(1), facts })
        if facts.cause_detail.as_deref().is_some_and(|detail| detail.contains("exit status: 1"))));
    let mut silent = Bench::gpu();
    let ended = silent.act(|lane, now, out| lane.ended("exit status: 1", now, out));
    assert_eq!(alarms(&ended), [(AlarmKind::LoadFailed, Raised)], "not one line, and gone");
    let again = silent.act(|lane, now, out| lane.ended("exit status: 1", now, out));
    assert_eq!(again, [], "an end told twice is one end");
    let mut ready = Bench::gpu();
    ready.take(on_cpu());
    let ended = ready.act(|lane, now, out| lane.ended("exit status: 0", now, out));
    assert_eq!(alarms(&ended), [(AlarmKind::CpuFallback, Expired)], "its end is no recovery");
    assert_eq!((ready.verdict(), ready.lane.buffers().count()), (None, 0));
}

#[test]
fn a_router_that_ends_has_not_failed_to_load() {
    let mut router = Bench::gpu();
    router.take([Evidence::Listening]);
    let ended = router.act(|lane, now, out| lane.ended("exit status: 0", now, out));
    assert_eq!(ended, []);
    let mut wrong = Bench::gpu();
    wrong.take([Evidence::Verbosity { level: 3 }]);
    let ended = wrong.act(|lane, now, out| lane.ended("exit status: 1", now, out));
    assert_eq!(alarms(&ended), [(AlarmKind::LoadFailed, Raised)], "it never came so far");
}

#[test]
fn memory_is_the_cause_of_a_load_that_failed_for_it() {
    let mut bench = Bench::gpu();
    let detail = "cudaMalloc failed: out of memory\n\u{1b}[0m".to_owned();
    let findings = bench.take([
        begins(Role::Main),
        Evidence::Fault { cause: Cause::OutOfMemory, decides: false, detail },
        Evidence::LoadFailed { cause: None, detail: "failed to load model".to_owned() },
    ]);
    let Some(Finding::LoadFailed { facts, .. }) =
        findings.iter().find(|it| matches!(it, Finding::LoadFailed { .. }))
    else {
        panic!("no failed load in {findings:?}")
    };
    assert_eq!(facts.causes, [Cause::OutOfMemory]);
    assert_eq!(
        facts.cause_detail.as_deref(),
        Some("cudaMalloc failed: out of memory\\n\\u{1b}[0m")
    );
}

#[test]
fn a_standing_fault_is_told_on_each_request_and_its_alarm_by_thirds() {
    let mut bench = Bench::gpu();
    bench.take(on_cpu());
    for _ in 0..3 {
        let (recorded, findings) = bench.record(&timings(48, 95.0));
        let events: Vec<_> = recorded.events.iter().map(|(event, _)| *event).collect();
        assert_eq!(events, [SpanEvent::Fault(AlarmKind::CpuFallback)]);
        assert_eq!(recorded.judgement.verdict, RateVerdict::OnPar, "the rate alone would not tell");
        assert!(findings.is_empty());
    }
    assert!(bench.at(299).tick().is_empty());
    let renewed = bench.at(300).tick();
    let Some(Finding::Alarm { kind: AlarmKind::CpuFallback, transition: Renewed, facts, .. }) =
        renewed.first()
    else {
        panic!("not renewed: {renewed:?}")
    };
    assert_eq!(facts.contradicted.as_deref(), Some("banner 33/33"), "renewed in the same words");
}

#[test]
fn a_collapse_is_told_on_each_breaching_request_and_raised_once() {
    let mut bench = Bench::gpu();
    bench.take(on_gpu());
    let rows = [
        (85.0, vec![], vec![]),
        (4.9, vec![SpanEvent::Fault(AlarmKind::Degraded)], vec![(AlarmKind::Degraded, Raised)]),
        (4.9, vec![SpanEvent::Fault(AlarmKind::Degraded)], vec![]),
        (84.0, vec![SpanEvent::ThroughputRecovered], vec![(AlarmKind::Degraded, Cleared)]),
        (85.0, vec![], vec![]),
    ];
    for (index, (rate, events, transitions)) in rows.into_iter().enumerate() {
        let (recorded, findings) = bench.record(&timings(48, rate));
        let told: Vec<_> = recorded.events.iter().map(|(event, _)| *event).collect();
        assert_eq!(told, events, "request {index}");
        assert_eq!(alarms(&findings), transitions, "request {index}");
    }
    bench.record(&timings(48, 4.9));
    assert_eq!(
        alarms(&bench.at(900).tick()),
        [(AlarmKind::Degraded, Expired)],
        "no request, no rate, no recovery"
    );
}

#[test]
fn contention_is_suspected_first_and_takes_three_in_a_row() {
    let mut bench = Bench::gpu();
    bench.take(on_gpu());
    bench.act(|lane, now, _| {
        lane.request_started(now);
        lane.request_started(now);
    });
    for (index, raised) in [false, false, true, false].into_iter().enumerate() {
        let (recorded, findings) = bench.record(&timings(48, 20.0));
        let (event, facts) = &recorded.events[0];
        assert_eq!(
            *event,
            SpanEvent::Fault(AlarmKind::Degraded),
            "concurrency never silences a verdict"
        );
        assert_eq!((facts.suspects.first(), facts.in_flight), (Some(&"contention"), Some(2)));
        assert_eq!(!alarms(&findings).is_empty(), raised, "request {index}");
    }
}

fn platform(device: &str, residence: Residence) -> Evidence {
    Evidence::Platform { device: device.to_owned(), residence }
}

fn interval(rate: f64, running: u32) -> Evidence {
    Evidence::Interval { rate, running, rank: None }
}

/// The interval rates that were found, and their verdicts.
fn intervals(findings: &[Finding]) -> Vec<(f64, Option<RateVerdict>)> {
    findings
        .iter()
        .filter_map(|finding| match finding {
            Finding::IntervalRate { rate, judgement, .. } => {
                Some((rate.get(), judgement.map(|it| it.verdict)))
            }
            _ => None,
        })
        .collect()
}

#[test]
fn a_platform_is_the_processs_and_other_words_are_its_next_start() {
    let cuda = || platform("cuda", Residence::Accelerator);
    let mut bench = Bench::gpu();
    // Each of its processes says so, and one of them after the verdict.
    let start = bench.take([cuda(), cuda(), begins(Role::Main), Evidence::Settled, cuda()]);
    assert_eq!(start.iter().filter(|it| matches!(it, Finding::LoadStarted { .. })).count(), 1);
    assert_eq!(
        (bench.verdict(), bench.lane.load()),
        (Some(PlacementVerdict::Gpu), Some(LoadId(1)))
    );

    bench.take([begins(Role::Main), Evidence::Settled]);
    assert_eq!(
        (bench.verdict(), bench.lane.load()),
        (Some(PlacementVerdict::Gpu), Some(LoadId(2)))
    );

    let fallen = bench.take([platform("cpu", Residence::Host), Evidence::Settled]);
    assert_eq!(bench.lane.load(), Some(LoadId(3)));
    assert_eq!(alarms(&fallen), [(AlarmKind::CpuFallback, Raised)]);

    let better = bench.take([
        begins(Role::Main),
        weights("CUDA0", Residence::Accelerator, 4171),
        Evidence::Settled,
    ]);
    assert_eq!(bench.verdict(), Some(PlacementVerdict::Gpu), "buffers know better");
    assert_eq!(alarms(&better), [(AlarmKind::CpuFallback, Cleared)]);
}

#[test]
fn a_platform_that_is_told_late_is_news_for_the_load_that_had_none() {
    let mut bench = Bench::gpu();
    bench.take([begins(Role::Main), Evidence::Settled]);
    assert_eq!(bench.verdict(), Some(PlacementVerdict::Unreported));
    bench.take([platform("cuda", Residence::Accelerator)]);
    bench.at(5).tick();
    assert_eq!(
        (bench.verdict(), bench.lane.load()),
        (Some(PlacementVerdict::Gpu), Some(LoadId(1)))
    );
}

#[test]
fn a_load_that_fails_for_a_stated_cause_tells_it() {
    let mut bench = Bench::gpu();
    let failed = bench.take([
        platform("cuda", Residence::Accelerator),
        Evidence::LoadFailed { cause: Some(Cause::OutOfMemory), detail: "no memory".to_owned() },
        Evidence::LoadFailed { cause: None, detail: "see above".to_owned() },
    ]);
    let told: Vec<_> = failed
        .iter()
        .filter_map(|finding| match finding {
            Finding::LoadFailed { facts, .. } => {
                Some((&facts.causes[..], facts.cause_detail.as_deref()))
            }
            _ => None,
        })
        .collect();
    assert_eq!(told, [(&[Cause::OutOfMemory][..], Some("no memory"))]);
}

#[test]
fn three_slow_intervals_in_a_row_are_a_collapse_and_idle_ones_are_none() {
    let mut bench = Bench::gpu();
    bench.take([platform("cuda", Residence::Accelerator), begins(Role::Main)]);
    let idle = bench.take([interval(0.0, 0), interval(0.0, 0), interval(0.0, 0)]);
    assert_eq!(
        bench.verdict(),
        Some(PlacementVerdict::Gpu),
        "an engine that tells a rate is ready"
    );
    assert!(intervals(&idle).is_empty());

    let first = bench.take([interval(5.0, 1)]);
    assert_eq!(intervals(&first), [(5.0, None)], "the first after idle is listed, and no more");
    let shared = bench.take([interval(160.0, 4)]);
    assert_eq!(intervals(&shared), [(160.0, Some(RateVerdict::OnPar))], "a request's share counts");

    let slow = bench.take([interval(40.0, 2), interval(41.0, 2)]);
    assert!(alarms(&slow).is_empty(), "one interval proves little");
    let third = bench.take([interval(42.0, 2)]);
    assert_eq!(alarms(&third), [(AlarmKind::Degraded, Raised)]);
    let Some(Finding::Alarm { facts, .. }) =
        third.iter().find(|it| matches!(it, Finding::Alarm { .. }))
    else {
        panic!("no alarm in {third:?}");
    };
    assert_eq!((facts.decode_rate, facts.ratio), (Some(21.0), Some(0.21)));
    assert_eq!((facts.in_flight, facts.timing_source), (Some(2), Some(TimingSource::Interval)));
    assert_eq!(facts.suspects, ["contention"]);

    let recovered = bench.take([interval(200.0, 2)]);
    assert_eq!(alarms(&recovered), [(AlarmKind::Degraded, Cleared)]);
}

#[test]
fn an_interval_in_which_a_request_of_ours_told_its_rate_is_not_judged() {
    let mut bench = Bench::gpu();
    bench.take([platform("cuda", Residence::Accelerator), interval(90.0, 1)]);
    bench.record(&timings(48, 90.0));
    assert_eq!(intervals(&bench.take([interval(2.0, 1)])), [(2.0, None)]);
    assert_eq!(intervals(&bench.take([interval(2.0, 1)])), [(2.0, Some(RateVerdict::Degraded))]);
    bench.act(|lane, now, _| {
        lane.request_started(now);
    });
    assert_eq!(intervals(&bench.take([interval(2.0, 1)])), [(2.0, None)], "one is on its way");
}

#[test]
fn a_request_counts_once_from_its_best_source() {
    let rate_of = |findings: &[Finding]| {
        findings.iter().filter(|it| matches!(it, Finding::LoggedRate { .. })).count()
    };
    let mut bench = Bench::gpu();
    bench.take(on_gpu());
    bench.take([logged(48, 83.75)]);
    bench.record(&timings(48, 83.754_332));
    bench.record(&timings(40, 84.0));
    bench.take([logged(40, 84.0)]);
    assert_eq!(
        rate_of(&bench.at(60).tick()),
        0,
        "log and response in either order are one request"
    );

    bench.take([logged(48, 83.75)]);
    let mut out = Vec::new();
    let silent = bench.lane.record(None, None, bench.now, &mut out);
    assert_eq!(
        silent.judgement.verdict,
        RateVerdict::OnPar,
        "the log tells what the response did not"
    );
    assert_eq!(silent.facts.timing_source, Some(TimingSource::EngineLog));
    let blind = bench.lane.record(None, None, bench.now, &mut out);
    assert_eq!(blind.judgement.verdict, RateVerdict::NoTimings);

    bench.take([logged(48, 83.75)]);
    let mut one_token = timings(1, 1.0);
    one_token.decode_rate = None;
    let (short, _) = bench.record(&one_token);
    assert_eq!(short.facts.decode_rate, None, "a line of another count is of another request");
    bench.at(61);
    let later = bench.lane.request_started(bench.now);
    let cut = bench.lane.record(Some(later), None, bench.now, &mut out);
    assert_eq!(cut.facts.decode_rate, None, "a line from before is of another request");
    bench.record(&timings(48, 83.754_332));
    assert_eq!(rate_of(&bench.at(67).tick()), 0, "it was left for the request that it is of");

    bench.take([logged(32, 4.0)]);
    let foreign = bench.at(80).tick();
    assert_eq!(rate_of(&foreign), 1, "a request that is not ours");
    assert_eq!(alarms(&foreign), [(AlarmKind::Degraded, Raised)]);
}

#[test]
fn absurd_log_lines_are_no_verdict() {
    for (tokens, milliseconds, rate) in [
        (0, Some(0.0), Some(0.0)),
        (1, Some(0.0), Some(f64::INFINITY)),
        (48, Some(-1.0), Some(-5.0)),
        (48, Some(f64::NAN), Some(f64::NAN)),
        (48, Some(f64::INFINITY), None),
        (48, Some(1e300), None),
        (u64::MAX, None, None),
    ] {
        let mut bench = Bench::gpu();
        bench.take(on_gpu());
        bench.take([Evidence::Decode { tokens, milliseconds, rate, slot: None, task: None }]);
        let findings = bench.at(60).tick();
        assert!(alarms(&findings).is_empty(), "{tokens} {milliseconds:?} {rate:?}");
    }
}

#[test]
fn a_wedge_is_told_once_on_what_stands_still_and_cleared_when_it_moves() {
    let wedged = SpanEvent::Fault(AlarmKind::Wedged);
    let mut bench = Bench::gpu();
    bench.take(on_gpu());
    let request = bench.lane.request_started(bench.now);
    assert!(bench.at(299).tick().is_empty());
    let stalled = bench.at(300).tick();
    assert!(
        matches!(stalled.first(), Some(Finding::Noted { on: Subject::Request(on), event, .. })
        if *on == request && *event == wedged),
        "{stalled:?}"
    );
    assert_eq!(alarms(&stalled), [(AlarmKind::Wedged, Raised)]);
    assert!(bench.at(301).tick().is_empty(), "told once");
    bench.lane.request_progress(request, bench.now);
    assert_eq!(alarms(&bench.at(302).tick()), [(AlarmKind::Wedged, Cleared)]);

    bench.act(|lane, now, out| lane.request_ended(request, now, out));
    let progress = |share| Evidence::PrefillProgress { slot: 2, task: 7, share };
    let impossible = bench.take([1.1, 1.2, 1.3, 1.4].map(progress));
    assert!(
        matches!(impossible.first(), Some(Finding::Noted { on: Subject::Load(LoadId(1)), facts, .. })
        if facts.slot == Some(2)),
        "{impossible:?}"
    );
    assert!(alarms(&bench.take([progress(0.5)])).is_empty(), "latched");
    let reloaded = bench.take(on_gpu());
    assert!(alarms(&reloaded).is_empty());
    assert_eq!(alarms(&bench.tick()), [(AlarmKind::Wedged, Cleared)], "until the next load");

    bench.take([Evidence::TaskLaunched { slot: 1, task: 9 }]);
    assert_eq!(
        alarms(&bench.at(602).tick()),
        [(AlarmKind::Wedged, Raised)],
        "launched and never released"
    );
    assert_eq!(
        alarms(&bench.take([Evidence::TaskReleased { slot: 1, task: 9 }])),
        [(AlarmKind::Wedged, Cleared)]
    );
}

#[test]
fn a_debug_build_and_an_unknown_engine_are_said() {
    let mut bench = Bench::gpu();
    let findings =
        bench.take([begins(Role::Main), Evidence::DebugBuild { detail: "debug build".to_owned() }]);
    assert_eq!(alarms(&findings), [(AlarmKind::DebugBuild, Raised)]);

    let mut unknown = Bench::gpu();
    unknown.act(|lane, now, out| {
        lane.line(None, now, out);
        lane.ready(now, out);
    });
    let found = unknown.at(1).tick();
    assert!(alarms(&found).contains(&(AlarmKind::Blind, Raised)));
    assert_eq!(unknown.lane.blind_causes().collect::<Vec<_>>(), [BlindCause::UnknownEngine]);
}

#[test]
fn closed_output_is_blindness_only_if_the_engine_lives_on() {
    let closed = |lane: &mut LaneState, now, _: &mut Vec<Finding>| lane.output_closed(now);
    let ended =
        |lane: &mut LaneState, now, out: &mut Vec<Finding>| lane.ended("exit status: 0", now, out);

    let mut lives = Bench::gpu();
    lives.take(on_gpu());
    lives.act(closed);
    assert!(alarms(&lives.at(4).tick()).is_empty());
    assert_eq!(alarms(&lives.at(5).tick()), [(AlarmKind::Blind, Raised)]);
    assert_eq!(lives.lane.blind_causes().collect::<Vec<_>>(), [BlindCause::OutputClosed]);
    assert_eq!(
        alarms(&lives.take([Evidence::Listening])),
        [(AlarmKind::Blind, Cleared)],
        "heard again"
    );
    lives.act(closed);
    assert_eq!(alarms(&lives.at(10).tick()), [(AlarmKind::Blind, Raised)]);
    assert_eq!(alarms(&lives.act(ended)), [(AlarmKind::Blind, Expired)]);
    assert!(alarms(&lives.at(60).tick()).is_empty(), "blindness of an engine that has ended");

    let mut ends = Bench::gpu();
    ends.act(closed);
    ends.at(1).act(ended);
    assert!(alarms(&ends.at(60).tick()).is_empty());

    let mut ended_first = Bench::gpu();
    ended_first.act(ended);
    ended_first.act(closed);
    assert!(alarms(&ended_first.at(60).tick()).is_empty());
}

#[test]
fn a_timed_answer_proves_readiness() {
    let mut bench = Bench::gpu();
    bench.take([begins(Role::Main)]);
    bench.record(&timings(48, 95.0));
    assert_eq!(
        alarms(&bench.at(1).tick()),
        [(AlarmKind::Unreported, Raised)],
        "its lines never said that it is ready"
    );
    let mut fronted = Bench::gpu();
    fronted.record(&timings(48, 95.0));
    let found = fronted.at(1).tick();
    assert_eq!(
        alarms(&found),
        [(AlarmKind::Unreported, Raised), (AlarmKind::Blind, Raised)],
        "nobody gave its output"
    );
    let mut rates_alone = Bench::new(LaneConfig::new("chat-0"));
    rates_alone.record(&timings(48, 95.0));
    assert!(alarms(&rates_alone.at(1).tick()).is_empty(), "nothing was planned");
    assert_eq!(rates_alone.verdict(), None);
}

#[test]
fn an_engine_that_is_stopped_while_it_loads_has_not_failed() {
    let mut bench = Bench::gpu();
    bench.take([begins(Role::Main)]);
    bench.act(|lane, _, _| lane.stopping());
    assert!(bench.act(|lane, now, out| lane.ended("signal: 15 (SIGTERM)", now, out)).is_empty());
    bench.take([begins(Role::Main)]);
    let ended = bench.act(|lane, now, out| lane.ended("exit status: 1", now, out));
    assert_eq!(
        alarms(&ended),
        [(AlarmKind::LoadFailed, Raised)],
        "its next start is another matter"
    );
}

#[test]
fn a_load_that_is_silent_past_its_budget_is_wedged() {
    let mut bench = Bench::gpu();
    bench.take([begins(Role::Main)]);
    assert!(bench.at(1799).tick().is_empty());
    let wedged = bench.at(1800).tick();
    assert!(
        matches!(wedged.first(), Some(Finding::Noted { on: Subject::Load(LoadId(1)), .. })),
        "{wedged:?}"
    );
    assert_eq!(alarms(&wedged), [(AlarmKind::Wedged, Raised)]);
    bench.take([Evidence::Verbosity { level: 4 }]);
    assert_eq!(alarms(&bench.tick()), [(AlarmKind::Wedged, Cleared)], "it speaks again");
}

#[test]
fn an_answer_whose_log_line_comes_late_counts_once() {
    let usage_alone = Timings { decode_rate: None, ..timings(48, 1.0) };
    let mut bench = Bench::gpu();
    bench.take(on_gpu());
    let (recorded, _) = bench.record(&usage_alone);
    assert_eq!(recorded.judgement.verdict, RateVerdict::NoTimings);
    bench.take([logged(48, 83.75), logged(40, 84.0)]);
    let counted = bench.at(60).tick();
    let tokens: Vec<_> = counted
        .iter()
        .filter_map(|finding| match finding {
            Finding::LoggedRate { timings, .. } => Some(timings.decode_tokens),
            _ => None,
        })
        .collect();
    assert_eq!(tokens, [Some(40)], "the other line is of another request");
}
