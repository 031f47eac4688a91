//! The loop: looks how the lane is, asks the engine when it may, and hands on what it answers.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use std::time::{Duration, Instant};

use http::StatusCode;
use tokio::time::{Instant as Tick, sleep, sleep_until};

use super::answers::{self, Answer, UnreadableError};
use super::client::{AskError, Client};
use super::endpoint::Endpoint;
use super::schedule::{Outcome, Schedule};
use super::{ReadBack, ReadBackSummary};
use crate::lane::{Finding, LaneState, Sought};
use crate::layer::{Lane, WeakLane, now};

/// How often it looks whether the engine is ready, and whether somebody still holds the lane.
const LOOK: Duration = Duration::from_secs(1);

/// The blindness of a router, whose children have the endpoints.
const ROUTER: &str =
    "a router serves no model itself; read its children back, each on a lane of its own";

/// The blindness of a lane that names no model.
const UNNAMED: &str =
    "models are loaded and the lane names none; name its own by `LaneConfig::with_model`";

/// Asks the engine of a lane as long as somebody holds the lane.
pub(super) struct Reader {
    lane: WeakLane,
    client: Client,
    schedule: Schedule,
    summary: ReadBackSummary,
}

/// What is asked, and of which load.
#[derive(Clone, Copy, Debug)]
struct Question {
    endpoint: Endpoint,
    load: u64,
    /// When it was sent.
    asked: Instant,
}

impl Reader {
    /// From now on verdicts wait for answers, whenever it is first polled.
    pub(super) fn new(lane: &Lane, settings: ReadBack) -> Self {
        let reader = Self {
            lane: lane.downgrade(),
            schedule: Schedule::without(settings.without),
            client: Client::new(settings),
            summary: ReadBackSummary::default(),
        };
        lane.act(|state, _| reader.announce(state));
        reader
    }

    /// Tells the lane whether an answer may come that its verdict is worth waiting for.
    fn announce(&self, state: &mut LaneState) -> bool {
        // An answer takes its time, and so does the look that finds the engine ready.
        let patience = self.client.settings().timeout + 2 * LOOK;
        let engine = state.engine().cloned();
        let may_tell = self.schedule.may_tell_placement(engine.as_deref());
        state.await_readback(may_tell.then_some(patience));
        may_tell
    }

    pub(super) async fn run(mut self) -> ReadBackSummary {
        let interval = self.client.settings().interval;
        let look = LOOK.min(interval);
        let mut due = Tick::now();
        while self.lane.is_watched() {
            if Tick::now() >= due
                && let Some(question) = self.question()
            {
                due = Tick::now() + interval;
                let answer = self.client.ask(question.endpoint);
                let Some(answer) = while_held(&self.lane, look, answer).await else { break };
                self.answered(question, answer);
            }
            let at = Tick::now();
            let next_look = at + look;
            sleep_until(if due > at { due.min(next_look) } else { next_look }).await;
        }
        std::mem::take(&mut self.summary)
    }

    /// What to ask now; `None` while the engine loads, and when nothing is left to ask.
    fn question(&mut self) -> Option<Question> {
        let lane = self.lane.upgrade()?;
        lane.act(|state, findings| {
            if state.is_router() {
                state.readback_fails(Some(ROUTER), now(), findings);
                return None;
            }
            let load = state.can_be_asked();
            if let Some(load) = load {
                self.schedule.follow(load);
            }
            let may_tell = self.announce(state);
            let load = load?;
            if !may_tell {
                state.read_nothing(now(), findings);
            }
            let engine = state.engine().cloned();
            let endpoint = self.schedule.next(engine.as_deref())?;
            Some(Question { endpoint, load, asked: now() })
        })
        .flatten()
    }

    /// Hands on what became of a question. That of a load that is over meanwhile says nothing of the present one.
    fn answered(&mut self, question: Question, answer: Result<Vec<u8>, AskError>) {
        let Some(lane) = self.lane.upgrade() else { return };
        let is_hang = answer.as_ref().is_err_and(AskError::is_hang);
        let answer = answer.map(|body| read(question.endpoint, &body));
        let schedule = &mut self.schedule;
        let called = self.client.settings().model.as_deref();
        let error = lane
            .act(|state, findings| {
                if state.can_be_asked() != Some(question.load) {
                    return None;
                }
                let outcome = match answer {
                    Ok(Ok(answer)) => hand_on(answer, state, question, called, findings),
                    Ok(Err(unreadable)) => Outcome::Unreadable(unreadable.to_string()),
                    Err(error) => outcome(&error),
                };
                let error = outcome.trouble().map(|how| {
                    missed(question.endpoint, is_hang, state, findings);
                    format!("`{}`: {how}", question.endpoint.path())
                });
                let engine = state.engine().cloned();
                schedule.note(question.endpoint, outcome, engine.as_deref());
                let blind = schedule.blindness(engine.as_deref());
                state.readback_fails(blind.as_deref(), now(), findings);
                Some(error)
            })
            .flatten();
        let Some(error) = error else { return };
        self.summary.asked += 1;
        match error {
            None => {
                self.summary.answered += 1;
                lane.lives();
            }
            Some(error) => self.summary.last_error = Some(error),
        }
    }
}

impl Drop for Reader {
    /// Nobody asks any more: no verdict waits for it, and nothing is missed.
    fn drop(&mut self) {
        let Some(lane) = self.lane.upgrade() else { return };
        lane.act(|state, findings| {
            state.await_readback(None);
            state.readback_fails(None, now(), findings);
        });
    }
}

/// What becomes of `answer`; `None` when nobody holds the lane any more before it does.
async fn while_held<T>(
    lane: &WeakLane,
    look: Duration,
    answer: impl Future<Output = T>,
) -> Option<T> {
    let released = async {
        while lane.is_watched() {
            sleep(look).await;
        }
    };
    let (mut answer, mut released) = (pin!(answer), pin!(released));
    poll_fn(|context| match answer.as_mut().poll(context) {
        Poll::Ready(answer) => Poll::Ready(Some(answer)),
        Poll::Pending => released.as_mut().poll(context).map(|()| None),
    })
    .await
}

fn read(endpoint: Endpoint, body: &[u8]) -> Result<Answer, UnreadableError> {
    Ok(match endpoint {
        Endpoint::Models => Answer::Models(answers::read_models(body)?),
        Endpoint::Properties => Answer::Properties(answers::read_properties(body)?),
        Endpoint::Slots => Answer::Slots(answers::read_slots(body)?),
        Endpoint::Counters => {
            let (engine, counters) = answers::read_counters(body)?;
            Answer::Counters(engine, counters)
        }
    })
}

/// Hands an answer to the lane.
fn hand_on(
    answer: Answer,
    state: &mut LaneState,
    question: Question,
    called: Option<&str>,
    findings: &mut Vec<Finding>,
) -> Outcome {
    let at = now();
    match answer {
        Answer::Models(models) => match state.read_models(&models, called, at, findings) {
            Sought::Found => state.answered_as("ollama"),
            Sought::NotLoaded => {}
            Sought::Unnamed => return Outcome::Useless(UNNAMED.to_owned()),
        },
        Answer::Properties(properties) => {
            state.read_properties(properties);
            state.answered_as("llama.cpp");
        }
        Answer::Slots(slots) => {
            state.read_slots(&slots, question.asked, at, findings);
            state.answered_as("llama.cpp");
        }
        Answer::Counters(engine, counters) => {
            state.read_counters(&counters, at, findings);
            state.answered_as(engine);
        }
    }
    Outcome::Answered
}

/// What no answer means for the lane.
fn missed(endpoint: Endpoint, is_hang: bool, state: &mut LaneState, findings: &mut Vec<Finding>) {
    match endpoint {
        Endpoint::Models => state.read_nothing(now(), findings),
        Endpoint::Slots => state.slots_unread(is_hang),
        Endpoint::Properties | Endpoint::Counters => {}
    }
}

fn outcome(error: &AskError) -> Outcome {
    let how = error.to_string();
    match error {
        AskError::Status { status } => match *status {
            // llama-server answers 501 for what it was not started with, and did 404 before.
            StatusCode::NOT_FOUND
            | StatusCode::METHOD_NOT_ALLOWED
            | StatusCode::GONE
            | StatusCode::NOT_IMPLEMENTED => Outcome::Absent(how),
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Outcome::Refused(how),
            _ => Outcome::Failed(how),
        },
        AskError::Connect { .. }
        | AskError::Timeout { .. }
        | AskError::Broken { .. }
        | AskError::TooLarge { .. } => Outcome::Failed(how),
    }
}
