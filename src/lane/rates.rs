//! Requests and rates: whose rate is whose, what is made of it, and what can explain a slow one.

use std::time::{Duration, Instant};

use crate::evidence::Cause;
use crate::placement::{PlacementVerdict, Plan};
use crate::throughput::{
    RateJudgement, RateVerdict, TimingSource, Timings, TokensPerSecond, compare, judge,
};

use super::state::{LaneState, Process};
use super::{AlarmKind, Facts, Finding, Recorded, RequestId, SpanEvent, Subject};

impl LaneState {
    /// So long after a context shift a slow request may be slow because of it.
    const SHIFT_EXPLAINS: Duration = Duration::from_secs(60);

    /// A request of ours is sent to the lane.
    pub fn request_started(&mut self, now: Instant) -> RequestId {
        self.request_count += 1;
        let request = RequestId(self.request_count);
        self.requests.begin(request, now);
        request
    }

    /// A piece of the answer came: the request makes progress.
    pub fn request_progress(&mut self, request: RequestId, now: Instant) {
        self.requests.progress(request, true, now);
    }

    /// A request of ours is over, with or without timings.
    pub fn request_ended(&mut self, request: RequestId, now: Instant, out: &mut Vec<Finding>) {
        self.requests.end(request);
        self.watch_for_wedges(now, out);
    }

    /// Judges one request. `timings` is `None` when its response told none; the engine's log may have.
    pub fn record(
        &mut self,
        request: Option<RequestId>,
        timings: Option<&Timings>,
        now: Instant,
        out: &mut Vec<Finding>,
    ) -> Recorded {
        // Who answers is ready, whatever its lines said: then the verdict is due. Where nothing was planned, a program
        // may want rates alone.
        let is_judged = self.placement().is_some() || self.has_failed();
        let is_planned = self.config.plan() != Plan::Unknown;
        if timings.is_some() && is_planned && !is_judged && !matches!(self.hearing, Process::Ended)
        {
            self.ready(now, out);
        }
        let from_log;
        let timings = match timings {
            Some(told) if told.decode_rate.is_some() => {
                self.logged.tell(told, now);
                Some(told)
            }
            told => {
                let begun = request.and_then(|request| self.requests.begun(request));
                let tokens = told.and_then(|told| told.decode_tokens);
                from_log = self.logged.claim(tokens, begun).map(|logged| merge(told, logged));
                // Its line may still be on its way: then it is of this request, which is counted now.
                if let Some(told) =
                    told.filter(|told| from_log.is_none() && told.decode_tokens.is_some())
                {
                    self.logged.tell(told, now);
                }
                from_log.as_ref().or(told)
            }
        };
        self.told_since_interval |= timings.is_some_and(|told| told.decode_rate.is_some());
        self.judge_rate(request.map(Subject::Request), timings, now, out)
    }

    pub(super) fn log_rate(
        &mut self,
        tokens: u64,
        milliseconds: Option<f64>,
        rate: Option<f64>,
        now: Instant,
    ) {
        let computed = || {
            let time = Duration::try_from_secs_f64(milliseconds? / 1000.0).ok()?;
            TokensPerSecond::from_steps(tokens, time)
        };
        let mut timings = Timings::new(TimingSource::EngineLog);
        timings.decode_tokens = Some(tokens);
        timings.decode_rate = rate.and_then(TokensPerSecond::new).or_else(computed);
        if let Some((tokens, rate)) = self.prefill.take() {
            timings.prefill_tokens = Some(tokens);
            timings.prefill_rate = rate;
        }
        self.told_since_interval |= timings.decode_rate.is_some();
        self.logged.log(timings, now);
    }

    /// Counts what the engine logged and no request of ours claimed.
    pub(super) fn count_logged_rates(&mut self, all: bool, now: Instant, out: &mut Vec<Finding>) {
        let due = if all { self.logged.drain() } else { self.logged.due(now) };
        for timings in due {
            let recorded = self.judge_rate(None, Some(&timings), now, out);
            out.push(Finding::LoggedRate {
                timings: Box::new(timings),
                judgement: recorded.judgement,
                facts: Box::new(recorded.facts),
            });
        }
    }

    /// An engine logged what all its requests decoded in an interval. A request's share of it is judged like a request,
    /// but no interval proves much alone: prefill that ran in it counts as time.
    pub(super) fn take_interval(
        &mut self,
        rate: f64,
        running: u32,
        rank: Option<u32>,
        now: Instant,
        out: &mut Vec<Finding>,
    ) {
        let share = self.intervals.observe(rate, running, rank);
        self.readback.interval_logged();
        self.tell_interval(rate, share, running, now, out);
    }

    /// An interval's rate, and what one request decoded of it; `None` where that cannot be judged.
    pub(super) fn tell_interval(
        &mut self,
        rate: f64,
        share: Option<TokensPerSecond>,
        running: u32,
        now: Instant,
        out: &mut Vec<Finding>,
    ) {
        let has_better = std::mem::take(&mut self.told_since_interval) || self.in_flight() > 0;
        self.last_rate = share.map(TokensPerSecond::get).or(self.last_rate);
        let judged = share
            .filter(|_| !has_better && self.expectation().is_some())
            .map(|share| (share, compare(share, self.expectation(), &self.policy.throughput)));
        if let Some((share, judgement)) = judged {
            let facts = Facts {
                decode_rate: Some(share.get()),
                timing_source: Some(TimingSource::Interval),
                in_flight: Some(running),
                ..self.rate_facts(&judgement)
            };
            if judgement.verdict == RateVerdict::Degraded {
                self.slow_intervals = self.slow_intervals.saturating_add(1);
                let is_enough =
                    self.slow_intervals >= self.policy.throughput.consecutive_intervals();
                if is_enough || self.is_standing(AlarmKind::Degraded) {
                    let suspects = self.suspects(running, now);
                    let advice = Some(slow_advice(&suspects));
                    let facts = Facts { advice, suspects, ..facts };
                    self.observe_alarm(AlarmKind::Degraded, true, None, facts, now, out);
                }
            } else {
                self.slow_intervals = 0;
                if self.is_standing(AlarmKind::Degraded) {
                    self.observe_alarm(AlarmKind::Degraded, false, None, facts, now, out);
                }
            }
        }
        let Some(rate) = TokensPerSecond::new(rate) else { return };
        let judgement = judged.map(|(_, judgement)| judgement);
        let facts = Box::new(self.base_facts());
        out.push(Finding::IntervalRate { rate, running, judgement, facts });
    }

    /// The facts of a rate that was judged: its lane's placement, and what was expected.
    pub(super) fn rate_facts(&self, judgement: &RateJudgement) -> Facts {
        let mut facts = self.placement_facts();
        facts.ratio = judgement.ratio;
        if let Some(expectation) = self.expectation() {
            facts.expected_rate = Some(expectation.rate().get());
            facts.expectation_source = Some(expectation.source().clone());
        }
        facts
    }

    pub(super) fn judge_rate(
        &mut self,
        on: Option<Subject>,
        timings: Option<&Timings>,
        now: Instant,
        out: &mut Vec<Finding>,
    ) -> Recorded {
        let judgement = judge(timings, self.expectation(), &self.policy.throughput);
        let in_flight = self.in_flight();
        let rate = timings.and_then(|it| it.decode_rate).map(TokensPerSecond::get);
        self.last_rate = rate.or(self.last_rate);

        let mut facts = self.rate_facts(&judgement);
        let advice = facts.advice.take();
        facts.decode_rate = rate;
        facts.tokens = timings.and_then(|it| it.decode_tokens);
        facts.timing_source = timings.map(|it| it.source);
        facts.in_flight = Some(in_flight);

        let mut events = Vec::new();
        if self.is_standing(AlarmKind::CpuFallback) {
            let facts = Facts { advice, ..facts.clone() };
            events.push((SpanEvent::Fault(AlarmKind::CpuFallback), facts));
        }
        match judgement.verdict {
            RateVerdict::Degraded => {
                self.breaches = self.breaches.saturating_add(1);
                let mut degraded = facts.clone();
                degraded.suspects = self.suspects(in_flight, now);
                degraded.advice = Some(slow_advice(&degraded.suspects));
                events.push((SpanEvent::Fault(AlarmKind::Degraded), degraded.clone()));
                let is_enough = self.breaches >= self.policy.throughput.consecutive(in_flight);
                if is_enough || self.is_standing(AlarmKind::Degraded) {
                    self.observe_alarm(AlarmKind::Degraded, true, on, degraded, now, out);
                }
            }
            RateVerdict::OnPar | RateVerdict::AbovePar => {
                if self.breaches > 0 {
                    events.push((SpanEvent::ThroughputRecovered, facts.clone()));
                }
                self.breaches = 0;
                if self.is_standing(AlarmKind::Degraded) {
                    self.observe_alarm(AlarmKind::Degraded, false, on, facts.clone(), now, out);
                }
            }
            RateVerdict::SmallSample | RateVerdict::NoExpectation | RateVerdict::NoTimings => {}
        }
        Recorded { judgement, events, facts, timings: timings.cloned() }
    }

    /// The standing facts that can explain a slow request, most likely first.
    pub(super) fn suspects(&self, in_flight: u32, now: Instant) -> Vec<&'static str> {
        let mut suspects = Vec::new();
        if in_flight > 1 {
            suspects.push(Cause::Contention.as_str());
        }
        if let Some(placement) = self.placement() {
            if matches!(
                placement.verdict,
                PlacementVerdict::CpuFallback | PlacementVerdict::Partial
            ) {
                suspects.push(placement.verdict.as_str());
            }
            suspects.extend(placement.causes.iter().map(|cause| cause.as_str()));
        }
        if self.shifted.is_some_and(|at| now.saturating_duration_since(at) < Self::SHIFT_EXPLAINS) {
            suspects.push(Cause::ContextShift.as_str());
        }
        if self.debug_build.is_some() {
            suspects.push(Cause::DebugBuild.as_str());
        }
        suspects
    }
}

/// What a response told, completed by what the log did.
fn merge(told: Option<&Timings>, logged: Timings) -> Timings {
    let Some(told) = told else { return logged };
    Timings {
        source: logged.source,
        decode_tokens: logged.decode_tokens.or(told.decode_tokens),
        decode_rate: logged.decode_rate,
        prefill_tokens: told.prefill_tokens.or(logged.prefill_tokens),
        prefill_rate: told.prefill_rate.or(logged.prefill_rate),
        ..told.clone()
    }
}

fn slow_advice(suspects: &[&str]) -> String {
    match suspects.first() {
        Some(&"contention") => "other requests shared the engine: compare with a single request, or expect a rate for \
             this concurrency",
        Some(&("cpu_fallback" | "partial")) => "the model is not where it was planned: mend its placement first",
        Some(_) => "mend what is suspected first, then compare again",
        None => "look for what else uses the device and its host: other processes, heat and power limits, swapping",
    }
    .to_owned()
}
