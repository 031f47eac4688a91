//! What the engine answers when it is asked: what becomes of it in the lane.
//!
//! Asking is somebody else's business. Here an answer becomes evidence of a load, progress of a slot, or a rate; and a
//! first verdict waits for the answer that may outrank what the engine printed.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::evidence::{
    Counters, Decoded, EngineProperties, Evidence, LoadedModel, Role, SlotReading, SlotWork,
};
use crate::placement::Shared;
use crate::throughput::{RateVerdict, TimingSource, Timings, TokensPerSecond, judge};

use super::interval::Intervals;
use super::load::Load;
use super::state::{LaneState, Process, Serving};
use super::telling::one_line;
use super::{BlindCause, Finding, LoadId};

/// What an engine's endpoints told last. Every field is `None`, or empty, when none told it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReadBackFacts {
    /// The build, in the engine's words.
    pub build: Option<String>,
    /// The model's file or name, in the engine's words.
    pub model: Option<String>,
    /// How many requests it serves at a time.
    pub slots: Option<u32>,
    /// The context of one request, in tokens.
    pub context_tokens: Option<u64>,
    /// Requests that ran when it was asked.
    pub running: Option<u32>,
    /// Requests that waited when it was asked.
    pub waiting: Option<u32>,
    /// The names of all models that are loaded, as the engine writes them (Ollama).
    pub loaded: Vec<String>,
    /// What the lane's model takes of all memory, in bytes: weights, cache and scratch space, estimated or not.
    pub bytes: Option<u64>,
    /// What of that is in device memory, in bytes.
    pub accelerator_bytes: Option<u64>,
    /// When the lane's model is unloaded if nobody asks it anything, as the engine writes it.
    pub expires: Option<String>,
}

/// Whether the lane's model is among those that are loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sought {
    /// It is.
    Found,
    /// It is not: that says nothing of where it will be.
    NotLoaded,
    /// Models are loaded, and nobody said which is the lane's.
    Unnamed,
}

/// What is remembered from one answer to the next.
#[derive(Debug, Default)]
pub(super) struct Readback {
    /// How long a first verdict waits for an answer; `None` when nobody asks.
    patience: Option<Duration>,
    facts: Option<ReadBackFacts>,
    found: Option<Found>,
    slots: BTreeMap<u32, SeenSlot>,
    counted: Option<(Decoded, Instant)>,
    intervals: Intervals,
    is_interval_logged: bool,
}

/// The lane's model as it was last found among those that are loaded.
#[derive(Clone, Copy, Debug)]
struct Found {
    load: LoadId,
    memory: (Option<u64>, Option<u64>, Option<u64>),
    /// It was not among them since.
    is_gone: bool,
}

/// A slot that was busy when the engine was last asked.
#[derive(Clone, Copy, Debug)]
struct SeenSlot {
    work: SlotWork,
    /// Whether nothing but an answer told that its work began.
    is_unlogged: bool,
}

// === impl Readback ===

impl Readback {
    pub(super) fn begin_load(&mut self) {
        self.slots.clear();
        self.counted = None;
        self.intervals.clear();
    }

    /// The engine is gone; whoever asks it stays.
    pub(super) fn end(&mut self) {
        *self = Self { patience: self.patience, ..Self::default() };
    }

    /// The log tells intervals: those of the counters would be the same ones again.
    pub(super) const fn interval_logged(&mut self) {
        self.is_interval_logged = true;
    }

    fn facts(&mut self) -> &mut ReadBackFacts {
        self.facts.get_or_insert_default()
    }
}

// === who asks, and when ===

impl LaneState {
    /// Somebody asks the engine's endpoints where the model is: a first verdict that rests on less waits for the answer,
    /// at most for `patience`. `None`: nobody does, or those endpoints do not tell.
    pub const fn await_readback(&mut self, patience: Option<Duration>) {
        self.readback.patience = patience;
    }

    /// Whether the engine can be asked now: it is ready, and no load is on. Gives the number of loads so far, so that
    /// whoever asks knows the next one; `None` when it must not be asked.
    pub fn can_be_asked(&self) -> Option<u64> {
        let is_ready = match &self.load {
            Some(load) => load.can_be_asked(),
            None => self.serving == Serving::Listens,
        };
        let is_leaving = self.is_stopping || matches!(self.hearing, Process::Ended);
        (is_ready && !is_leaving).then_some(self.loads)
    }

    /// Whether the engine is a router: each of its children has endpoints of its own.
    pub fn is_router(&self) -> bool {
        self.serving == Serving::Routes
    }

    /// What the engine's endpoints told last; `None` before the first answer.
    pub const fn read_back_facts(&self) -> Option<&ReadBackFacts> {
        self.readback.facts.as_ref()
    }

    /// Says that the engine's endpoints cannot be read, and why; `None` when they can again.
    pub fn readback_fails(&mut self, why: Option<&str>, now: Instant, out: &mut Vec<Finding>) {
        if let Some(why) = why {
            let kept = self.blind.entry(BlindCause::ReadbackFailed).or_default();
            kept.detail = Some(one_line(why));
        }
        self.blind(BlindCause::ReadbackFailed, why.is_some(), now, out);
    }

    pub(super) fn awaits_readback(&self, now: Instant) -> bool {
        let (plan, policy) = (self.config.plan(), self.policy.placement);
        self.readback.patience.zip(self.load.as_ref()).is_some_and(|(patience, load)| {
            load.awaits_readback(patience, now, &self.process, plan, policy)
        })
    }

    /// A load that waits for an answer is judged without it when the next one begins.
    pub(super) fn judge_held(&mut self, evidence: &Evidence, now: Instant, out: &mut Vec<Finding>) {
        let is_next = matches!(
            evidence,
            Evidence::LoadBegins { role: Role::Main, .. }
                | Evidence::RunnerBegins { .. }
                | Evidence::Planned(_)
                | Evidence::ProcessBegins
        );
        if is_next && self.load.as_ref().is_some_and(Load::is_held) {
            self.settle_loading(now, out);
        }
    }
}

// === placement ===

impl LaneState {
    /// Takes the models that a process has loaded. The lane's own is the one `called` so, else by its configured name;
    /// without any name, the only one of an engine that is known: others imitate the answer.
    pub fn read_models(
        &mut self,
        models: &[LoadedModel],
        called: Option<&str>,
        now: Instant,
        out: &mut Vec<Finding>,
    ) -> Sought {
        self.readback.facts().loaded = models.iter().map(|model| model.name.clone()).collect();
        let configured = self.config.model().cloned();
        let name = called.or(configured.as_deref());
        let found = match (name, models) {
            (Some(name), _) => models.iter().find(|model| is_called(&model.name, name)),
            (None, [only]) if self.engine.is_some() => Some(only),
            (None, _) => None,
        };
        if let Some(model) = found {
            self.read_model(model, now, out);
            return Sought::Found;
        }
        if let Some(found) = &mut self.readback.found {
            found.is_gone = true;
        }
        self.read_nothing(now, out);
        if name.is_some() || models.is_empty() { Sought::NotLoaded } else { Sought::Unnamed }
    }

    /// The answers tell nothing of the present load's placement, and will not.
    pub fn read_nothing(&mut self, now: Instant, out: &mut Vec<Finding>) {
        self.read_memory(None, now, out);
    }

    fn read_model(&mut self, model: &LoadedModel, now: Instant, out: &mut Vec<Finding>) {
        let facts = self.readback.facts();
        facts.bytes = model.bytes;
        facts.accelerator_bytes = model.accelerator_bytes;
        facts.context_tokens = model.context_tokens.or(facts.context_tokens);
        facts.expires.clone_from(&model.expires);

        // What a runner takes is fixed when it starts: other numbers are those of another runner, and so are those of a
        // model that was gone meanwhile. Mostly the log has told of it, and the lane has begun a load.
        let memory = (model.bytes, model.accelerator_bytes, model.context_tokens);
        let is_reloaded = self.readback.found.is_some_and(|found| {
            Some(found.load) == self.load() && (found.is_gone || found.memory != memory)
        });
        if is_reloaded || self.load.is_none() {
            self.begin_load(now, out);
            if let Some(load) = &mut self.load {
                load.answers(now);
            }
        }
        let Some(load) = self.load() else { return };
        let is_known =
            self.readback.found.is_some_and(|found| found.load == load && found.memory == memory);
        self.readback.found = Some(Found { load, memory, is_gone: false });
        if !is_known {
            let shared =
                model.accelerator_bytes.zip(model.bytes).and_then(|(on, all)| Shared::new(on, all));
            self.read_memory(shared, now, out);
        }
    }

    fn read_memory(&mut self, shared: Option<Shared>, now: Instant, out: &mut Vec<Finding>) {
        let Some(load) = &mut self.load else { return };
        load.read_back(shared, now);
        // One that is judged already is judged again when its lines, too, have gone quiet.
        if load.can_be_asked() {
            self.settle_loading(now, out);
        }
    }
}

/// Whether Ollama's full name of a model is what somebody calls it: the tag `latest` goes without saying.
fn is_called(full: &str, name: &str) -> bool {
    let without_tag =
        |name: &str| name.strip_suffix(":latest").unwrap_or(name).to_ascii_lowercase();
    without_tag(full) == without_tag(name)
}

// === the engine itself ===

impl LaneState {
    /// An answer shows which engine it is. One that is known already stays.
    pub fn answered_as(&mut self, engine: &str) {
        self.engine.get_or_insert_with(|| engine.into());
    }

    /// Takes what the engine says of itself.
    pub fn read_properties(&mut self, properties: EngineProperties) {
        let EngineProperties { build, model, slots, context_tokens } = properties;
        let facts = self.readback.facts();
        facts.build = build;
        facts.model = model;
        facts.slots = slots;
        facts.context_tokens = context_tokens;
    }
}

// === progress ===

impl LaneState {
    /// Takes what the slots did when the engine was asked: progress, or none, for the watch on wedges. `asked` is when
    /// the question was sent.
    pub fn read_slots(
        &mut self,
        slots: &[SlotReading],
        asked: Instant,
        now: Instant,
        out: &mut Vec<Finding>,
    ) {
        for SlotReading { slot, work } in slots {
            match work {
                Some(work) => self.read_work(*slot, *work, now),
                // Work that the log has told of since is younger than the answer.
                None if self.readback.slots.remove(slot).is_some() => {
                    self.slots.end_before(*slot, asked);
                }
                None => {}
            }
        }
        self.watch_for_wedges(now, out);
    }

    fn read_work(&mut self, slot: u32, work: SlotWork, now: Instant) {
        let seen = self.readback.slots.get(&slot).copied();
        let same = seen.filter(|seen| seen.work.task == work.task);
        let is_unlogged = match same {
            Some(same) => same.is_unlogged,
            None => seen.is_some_and(|seen| seen.is_unlogged) || self.slots.begun(slot).is_none(),
        };
        if same.is_none() && is_unlogged {
            self.slots.begin(slot, now);
        }
        let (decoded, prefilled) =
            same.map_or((0, 0), |same| (same.work.decoded, same.work.prefilled));
        if work.decoded > decoded || work.prefilled > prefilled {
            self.slots.progress(slot, work.decoded > 0, now);
        }
        self.slots.set_decoding(slot, work.decoded > 0);
        self.readback.slots.insert(slot, SeenSlot { work, is_unlogged });
    }

    /// The slots could not be asked. An engine that takes the question and does not answer (`hangs`) may be busy with a
    /// long batch or wedged: what it worked on has the large budget from now on. Otherwise nothing is known of it.
    pub fn slots_unread(&mut self, hangs: bool) {
        for (slot, seen) in &self.readback.slots {
            if hangs {
                self.slots.set_decoding(*slot, false);
            } else if seen.is_unlogged {
                self.slots.end(*slot);
            }
        }
        if !hangs {
            self.readback.slots.clear();
        }
    }
}

// === rates ===

impl LaneState {
    /// Takes the engine's counters: what was decoded since they were last read is a rate of the lane.
    pub fn read_counters(&mut self, counters: &Counters, now: Instant, out: &mut Vec<Finding>) {
        let facts = self.readback.facts();
        facts.running = counters.running;
        facts.waiting = counters.waiting;
        let Some(decoded) = counters.decoded else { return };
        let running = counters.running.unwrap_or(0);
        let (before, since) = *self.readback.counted.get_or_insert((decoded, now));
        match (before, decoded) {
            (Decoded::Running { tokens: before }, Decoded::Running { tokens }) => {
                self.readback.counted = Some((decoded, now));
                let seconds = now.saturating_duration_since(since).as_secs_f64();
                self.read_interval((tokens - before) / seconds, running, now, out);
            }
            (
                Decoded::Ended { tokens: tokens_before, seconds: seconds_before },
                Decoded::Ended { tokens, seconds },
            ) => {
                let (new_tokens, new_seconds) = (tokens - tokens_before, seconds - seconds_before);
                let is_reset = new_tokens < 0.0 || new_seconds < 0.0;
                let is_exact = new_tokens > 0.0
                    && new_tokens >= Self::EXACT * printed_step(tokens)
                    && new_seconds >= Self::EXACT * printed_step(seconds);
                if is_reset || is_exact {
                    self.readback.counted = Some((decoded, now));
                }
                if is_exact {
                    self.read_mean(new_tokens, new_seconds, running, now, out);
                }
            }
            _ => self.readback.counted = Some((decoded, now)),
        }
    }

    /// A difference of so many printed steps is exact to a twentieth.
    const EXACT: f64 = 20.0;

    /// What all requests decoded since the last question, as the log of an engine would tell it.
    fn read_interval(&mut self, rate: f64, running: u32, now: Instant, out: &mut Vec<Finding>) {
        let share = self.readback.intervals.observe(rate, running, None);
        if !std::mem::take(&mut self.readback.is_interval_logged) {
            self.tell_interval(rate, share, running, now, out);
        }
    }

    /// The mean of the requests that ended since the last question: of others than ours alone, as those told their own.
    fn read_mean(
        &mut self,
        tokens: f64,
        seconds: f64,
        running: u32,
        now: Instant,
        out: &mut Vec<Finding>,
    ) {
        if std::mem::take(&mut self.told_since_interval) {
            return;
        }
        let rate = tokens / seconds;
        let mut timings = Timings::new(TimingSource::Interval);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a count; it saturates"
        )]
        {
            timings.decode_tokens = Some(tokens as u64);
        }
        timings.decode_rate = TokensPerSecond::new(rate);
        let judgement = judge(Some(&timings), self.expectation(), &self.policy.throughput);
        let is_large = judgement.verdict != RateVerdict::SmallSample;
        let share = timings.decode_rate.filter(|_| is_large);
        self.tell_interval(rate, share, running, now, out);
    }
}

/// The least difference between two numbers of this size as llama-server prints them: six digits.
fn printed_step(number: f64) -> f64 {
    const DIGITS: f64 = 6.0;
    if number > 0.0 { 10_f64.powf(number.log10().floor() + 1.0 - DIGITS) } else { 0.0 }
}
