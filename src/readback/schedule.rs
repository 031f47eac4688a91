//! What is asked next, what is not asked again, and when that amounts to blindness. Pure: no clock, no connection.

use super::endpoint::Endpoint;

/// How one endpoint stands, since the present load began.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum Standing {
    /// It was not asked.
    #[default]
    Untried,
    /// It answers.
    Answers,
    /// It answers, and nobody can tell what that means for the lane. Why.
    Useless(String),
    /// It told all that it will tell of this load.
    Told,
    /// It is not there, and is not asked again. How it says so.
    Absent(String),
    /// It wants to know who asks, and is not asked again. How it says so.
    Refuses(String),
    /// It did not answer as it should, so many times in a row. How, the last time.
    Fails(u32, String),
}

/// What became of a question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// It was answered.
    Answered,
    /// It was answered, and nobody can tell what that means for the lane. Why.
    Useless(String),
    /// There is no such endpoint, or it is switched off. How it says so.
    Absent(String),
    /// It wants to know who asks. How it says so.
    Refused(String),
    /// The answer is none of that endpoint. Why.
    Unreadable(String),
    /// There was no answer, or that of an error. How.
    Failed(String),
}

// === impl Outcome ===

impl Outcome {
    /// Why the answer tells nothing; `None` when it does.
    pub(super) fn trouble(&self) -> Option<&str> {
        match self {
            Self::Answered => None,
            Self::Useless(how)
            | Self::Absent(how)
            | Self::Refused(how)
            | Self::Unreadable(how)
            | Self::Failed(how) => Some(how),
        }
    }
}

/// The order of questions to one engine.
#[derive(Debug, Default)]
pub(super) struct Schedule {
    load: Option<u64>,
    standings: [Standing; Endpoint::ALL.len()],
    last: Option<Endpoint>,
    /// Never asked.
    without: Option<Endpoint>,
}

// === impl Schedule ===

impl Schedule {
    /// So many failures in a row are no accident: an engine that is busy with a long batch misses one or two.
    pub(super) const FAILURES_UNTIL_BLIND: u32 = 3;

    /// An order that leaves one endpoint out.
    pub(super) fn without(endpoint: Option<Endpoint>) -> Self {
        Self { without: endpoint, ..Self::default() }
    }

    /// The load that is on. With the next one everything is asked anew.
    pub(super) fn follow(&mut self, load: u64) {
        if self.load != Some(load) {
            *self = Self { load: Some(load), without: self.without, ..Self::default() };
        }
    }

    /// What to ask next: each endpoint in its turn. `None` when nothing is left to ask of this load.
    pub(super) fn next(&mut self, engine: Option<&str>) -> Option<Endpoint> {
        let endpoints: Vec<_> = self.endpoints(engine).collect();
        let behind = |last| endpoints.iter().position(|it| *it == last).map_or(0, |at| at + 1);
        let start = self.last.map_or(0, behind);
        let mut turns = endpoints.iter().copied().cycle().skip(start).take(endpoints.len());
        self.last = Some(turns.find(|endpoint| self.is_asked(*endpoint))?);
        self.last
    }

    /// Whether an answer may still tell where the model is.
    pub(super) fn may_tell_placement(&self, engine: Option<&str>) -> bool {
        self.endpoints(engine).any(|it| it == Endpoint::Models) && self.is_asked(Endpoint::Models)
    }

    fn endpoints(&self, engine: Option<&str>) -> impl Iterator<Item = Endpoint> + use<> {
        let without = self.without;
        Endpoint::worth_asking(engine).iter().copied().filter(move |it| Some(*it) != without)
    }

    fn is_asked(&self, endpoint: Endpoint) -> bool {
        match self.standing(endpoint) {
            Standing::Untried | Standing::Answers | Standing::Useless(_) | Standing::Fails(..) => {
                true
            }
            Standing::Told | Standing::Absent(_) | Standing::Refuses(_) => false,
        }
    }

    /// Takes what became of a question.
    pub(super) fn note(&mut self, endpoint: Endpoint, outcome: Outcome, engine: Option<&str>) {
        let is_known = engine.and_then(Endpoint::of).is_some_and(|all| all.contains(&endpoint));
        let failures = match self.standing(endpoint) {
            Standing::Fails(times, _) => *times,
            _ => 0,
        };
        self.standings[endpoint as usize] = match outcome {
            // What an engine says of itself holds until it loads again.
            Outcome::Answered if endpoint == Endpoint::Properties => Standing::Told,
            Outcome::Answered => Standing::Answers,
            Outcome::Useless(why) => Standing::Useless(why),
            Outcome::Absent(how) => Standing::Absent(how),
            Outcome::Refused(how) => Standing::Refuses(how),
            // Another engine's answer at the same path, where nobody knows which engine it is.
            Outcome::Unreadable(why) if !is_known => Standing::Absent(why),
            Outcome::Unreadable(why) | Outcome::Failed(why) => {
                Standing::Fails(failures.saturating_add(1), why)
            }
        };
    }

    /// Why the engine cannot be read, as far as it was asked; `None` when it can.
    pub(super) fn blindness(&self, engine: Option<&str>) -> Option<String> {
        let told = |endpoint: Endpoint, how: &str| format!("`{}`: {how}", endpoint.path());
        let fault = self.endpoints(engine).find_map(|endpoint| match self.standing(endpoint) {
            Standing::Useless(how) | Standing::Refuses(how) => Some(told(endpoint, how)),
            Standing::Fails(times, how) if *times >= Self::FAILURES_UNTIL_BLIND => {
                Some(told(endpoint, how))
            }
            _ => None,
        });
        fault.or_else(|| {
            let absent = self.endpoints(engine).map(|endpoint| match self.standing(endpoint) {
                Standing::Absent(how) => Some(told(endpoint, how)),
                _ => None,
            });
            absent.collect::<Option<Vec<_>>>().map(|all| all.join(", "))
        })
    }

    const fn standing(&self, endpoint: Endpoint) -> &Standing {
        &self.standings[endpoint as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LLAMA: Option<&str> = Some("llama.cpp");

    fn answered(schedule: &mut Schedule, engine: Option<&str>) -> Option<Endpoint> {
        let endpoint = schedule.next(engine)?;
        schedule.note(endpoint, Outcome::Answered, engine);
        Some(endpoint)
    }

    fn fails(how: &str) -> Outcome {
        Outcome::Failed(how.to_owned())
    }

    #[test]
    fn endpoints_take_turns_and_properties_are_told_once_a_load() {
        use Endpoint::{Counters, Properties, Slots};
        let mut schedule = Schedule::default();
        for load in [1, 2] {
            schedule.follow(load);
            schedule.follow(load);
            let asked: Vec<_> = (0..5).map(|_| answered(&mut schedule, LLAMA)).collect();
            let expected = [Properties, Slots, Counters, Slots, Counters].map(Some);
            assert_eq!(asked, expected, "load {load}");
        }
    }

    #[test]
    fn who_is_asked_what() {
        use Endpoint::{Counters, Models, Properties, Slots};
        let rows: [(_, &[Endpoint], bool); 5] = [
            (None, &[Models, Properties, Slots, Counters], true),
            (Some("ollama"), &[Models], true),
            (LLAMA, &[Properties, Slots, Counters], false),
            (Some("vllm"), &[Counters], false),
            // It imitates Ollama.
            (Some("koboldcpp"), &[Properties, Slots, Counters], false),
        ];
        for (engine, expected, tells_placement) in rows {
            let mut schedule = Schedule::default();
            assert_eq!(schedule.may_tell_placement(engine), tells_placement, "{engine:?}");
            let asked: Vec<_> =
                expected.iter().filter_map(|_| answered(&mut schedule, engine)).collect();
            assert_eq!(asked, expected, "{engine:?}");
        }
    }

    #[test]
    fn what_is_absent_is_not_asked_again_before_the_next_load() {
        let mut schedule = Schedule::default();
        schedule.follow(1);
        for (endpoint, how) in
            [(Endpoint::Properties, "404"), (Endpoint::Slots, "501"), (Endpoint::Counters, "501")]
        {
            assert_eq!(schedule.blindness(LLAMA), None);
            assert_eq!(schedule.next(LLAMA), Some(endpoint));
            schedule.note(endpoint, Outcome::Absent(how.to_owned()), LLAMA);
        }
        assert_eq!(schedule.next(LLAMA), None);
        let blind = schedule.blindness(LLAMA);
        assert_eq!(blind.as_deref(), Some("`/props`: 404, `/slots`: 501, `/metrics`: 501"));
        schedule.follow(2);
        assert_eq!(
            (schedule.next(LLAMA), schedule.blindness(LLAMA)),
            (Some(Endpoint::Properties), None)
        );
    }

    #[test]
    fn one_endpoint_that_is_absent_is_no_blindness() {
        let mut schedule = Schedule::default();
        schedule.note(Endpoint::Counters, Outcome::Absent("501".into()), LLAMA);
        schedule.note(Endpoint::Properties, Outcome::Answered, LLAMA);
        assert_eq!(schedule.blindness(LLAMA), None);
        assert_eq!(schedule.next(LLAMA), Some(Endpoint::Slots));
        assert_eq!(schedule.next(LLAMA), Some(Endpoint::Slots), "the only one left");
    }

    #[test]
    fn failures_in_a_row_are_blindness_and_an_answer_ends_it() {
        let mut schedule = Schedule::default();
        for _ in 1..Schedule::FAILURES_UNTIL_BLIND {
            schedule.note(Endpoint::Slots, fails("no answer"), LLAMA);
            assert_eq!(schedule.blindness(LLAMA), None);
        }
        schedule.note(Endpoint::Slots, fails("reset"), LLAMA);
        schedule.note(Endpoint::Counters, Outcome::Answered, LLAMA);
        assert_eq!(schedule.blindness(LLAMA).as_deref(), Some("`/slots`: reset"));
        schedule.note(Endpoint::Slots, Outcome::Answered, LLAMA);
        assert_eq!(schedule.blindness(LLAMA), None);
        schedule.note(Endpoint::Slots, fails("reset"), LLAMA);
        assert_eq!(schedule.blindness(LLAMA), None, "counted from the last answer on");
    }

    #[test]
    fn who_wants_a_key_is_not_asked_again_and_that_is_said_at_once() {
        let mut schedule = Schedule::default();
        schedule.note(Endpoint::Models, Outcome::Refused("401".into()), Some("ollama"));
        assert_eq!(schedule.blindness(Some("ollama")).as_deref(), Some("`/api/ps`: 401"));
        assert_eq!(schedule.next(Some("ollama")), None);
        assert!(!schedule.may_tell_placement(Some("ollama")));
    }

    #[test]
    fn an_answer_that_tells_nothing_is_blindness_and_asked_for_again() {
        let mut schedule = Schedule::default();
        schedule.note(Endpoint::Models, Outcome::Useless("whose?".into()), Some("ollama"));
        assert_eq!(schedule.blindness(Some("ollama")).as_deref(), Some("`/api/ps`: whose?"));
        assert_eq!(schedule.next(Some("ollama")), Some(Endpoint::Models));
    }

    #[test]
    fn an_endpoint_that_is_left_out_is_neither_asked_nor_missed() {
        let mut schedule = Schedule::without(Some(Endpoint::Slots));
        schedule.follow(1);
        for endpoint in [Endpoint::Properties, Endpoint::Counters] {
            assert_eq!(schedule.next(LLAMA), Some(endpoint));
            schedule.note(endpoint, Outcome::Absent("404".into()), LLAMA);
        }
        assert_eq!(schedule.blindness(LLAMA).as_deref(), Some("`/props`: 404, `/metrics`: 404"));
    }

    #[test]
    fn anothers_answer_is_a_failure_of_that_engine_alone() {
        for (engine, is_asked_again) in [(None, false), (Some("koboldcpp"), false), (LLAMA, true)] {
            let mut schedule = Schedule::default();
            schedule.note(Endpoint::Properties, Outcome::Unreadable("a page".into()), engine);
            assert_eq!(schedule.is_asked(Endpoint::Properties), is_asked_again, "{engine:?}");
        }
    }

    #[test]
    fn an_engine_that_becomes_known_narrows_what_is_asked() {
        let mut schedule = Schedule::default();
        assert_eq!(schedule.next(None), Some(Endpoint::Models));
        schedule.note(Endpoint::Models, Outcome::Absent("404".into()), None);
        assert_eq!(answered(&mut schedule, None), Some(Endpoint::Properties));
        assert_eq!(answered(&mut schedule, LLAMA), Some(Endpoint::Slots));
        assert_eq!(schedule.blindness(LLAMA), None);
    }
}
