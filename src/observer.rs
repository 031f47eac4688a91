//! One engine's output, line by line: recognises each, hands its facts to the lane they are of, gives findings.
//!
//! The pure heart that a layer, a scan and a test all drive.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use crate::engines::{Matcher, Service, StreamState};
use crate::evidence::Evidence;
use crate::lane::{BlindCause, Finding, LaneConfig, LaneState, Policy};

/// Watches one engine's output.
#[derive(Debug)]
pub struct Observer {
    matcher: Arc<Matcher>,
    policy: Policy,
    stream: StreamState,
    lane: LaneState,
    /// The service that the lane itself is: the first that a prefix named.
    named: Option<Service>,
    /// Lanes found within the stream: a router's children, further services of one log.
    within: HashMap<Service, LaneState>,
}

/// Whether a line told anything: `serving.line.kind`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LineKind {
    /// It holds evidence.
    Evidence,
    /// It does not.
    Other,
}

/// A finding and the lane it is of.
pub type LaneFinding = (Arc<str>, Finding);

impl Observer {
    /// Prefixes come from foreign text: so many lanes within one stream are watched, and no more.
    const MAX_WITHIN: usize = 64;

    /// An observer of a lane's engine.
    pub fn new(config: LaneConfig, policy: Policy, matcher: Arc<Matcher>) -> Self {
        Self {
            matcher,
            policy,
            stream: StreamState::default(),
            lane: LaneState::new(config, policy),
            named: None,
            within: HashMap::new(),
        }
    }

    /// Takes one line, without its line end.
    pub fn line(&mut self, bytes: &[u8], now: Instant, out: &mut Vec<LaneFinding>) -> LineKind {
        let read = self.matcher.recognise(bytes, &mut self.stream);
        let says_something = !read.evidence.is_empty();
        let matcher = read.engine.is_some().then(|| self.matcher.clone());
        for evidence in &read.evidence {
            self.follow_router(evidence, now, out);
        }
        match self.lane_of(read.service, says_something) {
            Some(lane) => Self::act(lane, out, |lane, findings| {
                if let (Some(matcher), Some(engine), Some(known)) =
                    (matcher, &read.engine, lane.engine())
                    && matcher.embeds(engine, known)
                {
                    lane.is_rather(engine);
                }
                lane.line(read.engine.as_ref(), now, findings);
                for evidence in read.evidence {
                    lane.take(evidence, now, findings);
                }
            }),
            None => self.with_lane(out, |lane, findings| {
                lane.blind(BlindCause::TooManyLanes, true, now, findings);
            }),
        }
        if says_something { LineKind::Evidence } else { LineKind::Other }
    }

    /// The lane a line is of. A service gets a lane of its own with its first evidence; `None` when there is no room
    /// for it, as its facts would be taken for another's.
    fn lane_of(
        &mut self,
        service: Option<Service>,
        says_something: bool,
    ) -> Option<&mut LaneState> {
        let Some(service) = service else { return Some(&mut self.lane) };
        if !self.within.contains_key(&service) {
            let is_lane_itself = match &service {
                Service::RouterChild(_) => false,
                Service::Named(_) if says_something => {
                    *self.named.get_or_insert_with(|| service.clone()) == service
                }
                Service::Named(_) => true,
            };
            if is_lane_itself || !says_something {
                return Some(&mut self.lane);
            }
            let (Service::RouterChild(name) | Service::Named(name)) = &service;
            let config = self.named(name);
            self.open_within(service.clone(), config);
        }
        self.within.get_mut(&service)
    }

    /// A lane of that name within this one.
    fn named(&self, name: &str) -> LaneConfig {
        let config = self.lane.config();
        config.named(format!("{}/{name}", config.name()))
    }

    fn open_within(&mut self, service: Service, config: LaneConfig) {
        if self.within.len() < Self::MAX_WITHIN {
            self.within.insert(service, LaneState::new(config, self.policy));
        }
    }

    /// Knows a router's children by their models: a model that is loaded anew, under another port, is the same lane.
    fn follow_router(&mut self, evidence: &Evidence, now: Instant, out: &mut Vec<LaneFinding>) {
        match evidence {
            Evidence::ChildBegins { model, port } => {
                let service = Service::RouterChild(port.as_str().into());
                // Whoever had the port before is gone, whether its end was seen or not.
                for old in [self.child_of(model), Some(service.clone())].into_iter().flatten() {
                    let Some(mut lane) = self.within.remove(&old) else { continue };
                    if lane.config().model().is_some_and(|known| **known == **model) {
                        Self::act(&mut lane, out, |lane, findings| lane.end(now, findings));
                        self.within.insert(service.clone(), lane);
                    } else {
                        Self::act(&mut lane, out, |lane, findings| lane.close(now, findings));
                    }
                }
                if !self.within.contains_key(&service) {
                    let config = self.named(model).with_model(model.as_str());
                    self.open_within(service, config);
                }
            }
            Evidence::ChildEnds { model, status } => {
                let Some(service) = self.child_of(model) else { return };
                let Some(lane) = self.within.get_mut(&service) else { return };
                let how = format!("exit status: {status}");
                Self::act(lane, out, |lane, findings| lane.ended(&how, now, findings));
                // A load that failed stands until a later one does not.
                if lane.alarms().next().is_none() {
                    self.within.remove(&service);
                }
                self.with_lane(out, |lane, findings| {
                    lane.blind(BlindCause::TooManyLanes, false, now, findings);
                });
            }
            _ => {}
        }
    }

    /// The router's child that serves that model.
    fn child_of(&self, model: &str) -> Option<Service> {
        let serves = |(service, lane): &(&Service, &LaneState)| {
            matches!(service, Service::RouterChild(_))
                && lane.config().model().is_some_and(|known| **known == *model)
        };
        self.within.iter().find(serves).map(|(service, _)| service.clone())
    }

    /// Hands the lane the time, a request or a word of the caller; findings go to `out` under its name.
    pub fn with_lane<R>(
        &mut self,
        out: &mut Vec<LaneFinding>,
        act: impl FnOnce(&mut LaneState, &mut Vec<Finding>) -> R,
    ) -> R {
        Self::act(&mut self.lane, out, act)
    }

    /// Time passes, for this lane and every lane found within its stream.
    pub fn tick(&mut self, now: Instant, out: &mut Vec<LaneFinding>) {
        self.each(out, |lane, findings| lane.tick(now, findings));
    }

    /// No line will come any more: what is open is judged as it stands, in this lane and those within its stream.
    pub fn conclude(&mut self, now: Instant, out: &mut Vec<LaneFinding>) {
        self.each(out, |lane, findings| lane.conclude(now, findings));
    }

    /// The engine's process ended, and all within it. What it is started as again may have another log, and other
    /// devices under the same names.
    pub fn ended(&mut self, how: &str, now: Instant, out: &mut Vec<LaneFinding>) {
        self.each(out, |lane, findings| lane.ended(how, now, findings));
        self.within.clear();
        self.stream = StreamState::default();
    }

    /// The lane is no longer watched, nor those within its stream.
    pub fn close(&mut self, now: Instant, out: &mut Vec<LaneFinding>) {
        self.each(out, |lane, findings| lane.close(now, findings));
        self.within.clear();
    }

    /// The lane itself.
    pub const fn lane(&self) -> &LaneState {
        &self.lane
    }

    /// The lane first, and those found within its stream: a router's children, services of one log.
    pub fn lanes(&self) -> impl Iterator<Item = &LaneState> {
        std::iter::once(&self.lane).chain(self.within.values())
    }

    fn each(
        &mut self,
        out: &mut Vec<LaneFinding>,
        mut act: impl FnMut(&mut LaneState, &mut Vec<Finding>),
    ) {
        for lane in std::iter::once(&mut self.lane).chain(self.within.values_mut()) {
            Self::act(lane, out, &mut act);
        }
    }

    fn act<R>(
        lane: &mut LaneState,
        out: &mut Vec<LaneFinding>,
        act: impl FnOnce(&mut LaneState, &mut Vec<Finding>) -> R,
    ) -> R {
        let mut findings = Vec::new();
        let result = act(lane, &mut findings);
        if !findings.is_empty() {
            let name = lane.config().name().clone();
            out.extend(findings.into_iter().map(|finding| (name.clone(), finding)));
        }
        result
    }
}
