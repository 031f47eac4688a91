//! One load of a lane: which account its lines go to, and when it is due to be judged.

use std::time::{Duration, Instant};

use crate::evidence::{BufferKind, Evidence, Residence, Role};
use crate::lane::LoadId;
use crate::placement::{
    Account, Basis, Placement, PlacementPolicy, Plan, ProcessFacts, Shared, StatedFault, judge,
};

/// How far the loader has come, as far as its lines tell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Block {
    /// No line said where it begins: older builds, and streams joined midway.
    #[default]
    Unmarked,
    /// Tensors are being placed.
    Open,
    /// Tensors are placed. What now looks like placement is text from elsewhere.
    Closed,
}

/// What has become of a load.
#[derive(Clone, Debug)]
pub(super) enum Outcome {
    Loading,
    Judged(Box<Placement>),
    Failed,
}

/// An account and how far its loader has come.
#[derive(Clone, Debug, Default)]
struct Ledger {
    account: Account,
    block: Block,
}

/// One load of one model, with the models that help it.
#[derive(Clone, Debug)]
pub(super) struct Load {
    pub(super) id: LoadId,
    pub(super) outcome: Outcome,
    main: Ledger,
    /// The model that a scheduler started this load's runner for.
    runner_model: Option<String>,
    /// How and when that runner ended before it was ready.
    runner_end: Option<(String, Instant)>,
    /// The helper model being loaded now, with an account of its own that masks nothing of the main model's.
    side: Option<(Role, Ledger)>,
    /// When evidence arrived that no verdict holds yet.
    unjudged_since: Option<Instant>,
    /// When the caller or the engine said that it answers.
    answers_since: Option<Instant>,
    /// Whether the engine's own line said so, so that lines of a next load are not of this one.
    says_ready: bool,
    /// Whether the readback has told what it can of this load.
    is_read_back: bool,
}

impl Load {
    /// Lines arrive one by one: a verdict in the middle of a block of them would flicker.
    const QUIET: Duration = Duration::from_secs(1);

    pub(super) fn new(id: LoadId) -> Self {
        Self {
            id,
            outcome: Outcome::Loading,
            main: Ledger::default(),
            runner_model: None,
            runner_end: None,
            side: None,
            unjudged_since: None,
            answers_since: None,
            says_ready: false,
            is_read_back: false,
        }
    }

    pub(super) const fn account(&self) -> &Account {
        &self.main.account
    }

    pub(super) const fn is_loading(&self) -> bool {
        matches!(self.outcome, Outcome::Loading)
    }

    pub(super) fn placement(&self) -> Option<&Placement> {
        match &self.outcome {
            Outcome::Judged(placement) => Some(placement),
            Outcome::Loading | Outcome::Failed => None,
        }
    }

    /// A model of this load begins.
    pub(super) fn begin(&mut self, role: Role) {
        self.side = match role {
            Role::Main => None,
            Role::Draft | Role::Projector | Role::Auxiliary => Some((role, Ledger::default())),
        };
    }

    /// Whether a loader has told where tensors are, rather than a scheduler.
    pub(super) fn is_told_by_loader(&self) -> bool {
        self.account().is_told_by_loader()
    }

    /// Whether this load was told of and is not of that model, as far as both are known.
    pub(super) fn is_of_another(&self, model: Option<&str>) -> bool {
        let differs = match (self.runner_model.as_deref(), model) {
            (Some(known), Some(given)) => known != given,
            (None, _) | (_, None) => true,
        };
        differs && self.is_told_by_loader()
    }

    /// A runner starts for this load: what an earlier attempt told of placement is void.
    pub(super) fn retry(&mut self, model: Option<String>) {
        self.main.account.reset_attempt();
        self.main.block = Block::Unmarked;
        self.runner_model = model;
        self.runner_end = None;
    }

    /// The runner of this load ended before it was ready.
    pub(super) fn runner_ended(&mut self, detail: String, now: Instant) {
        self.runner_end.get_or_insert((detail, now));
    }

    /// How this load's runner ended, where it did and nothing was tried again.
    pub(super) fn take_end(&mut self) -> Option<String> {
        self.runner_end.take().map(|(detail, _)| detail)
    }

    /// Whether the loader's next block is of this load: it is loading, or was ready before it loaded (lazily).
    pub(super) fn takes_block(&self) -> bool {
        match &self.outcome {
            Outcome::Loading => true,
            Outcome::Judged(_) => {
                self.unjudged_since.is_some() || !self.account().tells_placement()
            }
            Outcome::Failed => false,
        }
    }

    /// Whether it is judged and its block was told to its end: the loader has nothing to add.
    pub(super) fn is_done(&self) -> bool {
        !self.takes_block() && self.takes_loader_lines()
    }

    /// Whether a line of a block is of this load, and not of the next, which nothing announced.
    pub(super) fn takes_loader_lines(&self) -> bool {
        self.takes_block()
            || !matches!(self.outcome, Outcome::Failed) && self.main.block == Block::Closed
    }

    fn ledger(&mut self) -> &mut Ledger {
        match &mut self.side {
            Some((_, ledger)) => ledger,
            None => &mut self.main,
        }
    }

    /// Takes what a loader tells of one model. Evidence of other kinds changes nothing here.
    pub(super) fn take(&mut self, evidence: Evidence, now: Instant) {
        let is_side = self.side.is_some();
        let ledger = self.ledger();
        let closed = ledger.block == Block::Closed;
        let account = &mut ledger.account;
        match evidence {
            // A dry run tells sizes of zero and may be followed by the real block. Once that was told to its end, only
            // text that a model brought along can say that it begins again.
            Evidence::BlockBegins if closed && !account.weights().is_empty() => return,
            Evidence::BlockBegins => {
                account.reset_block();
                ledger.block = Block::Open;
                return;
            }
            Evidence::BlockEnds => {
                ledger.block = Block::Closed;
                return;
            }
            Evidence::Banner { .. }
            | Evidence::Layer { .. }
            | Evidence::LayerRange { .. }
            | Evidence::Buffer { kind: BufferKind::Model, .. }
                if closed =>
            {
                return;
            }
            Evidence::Banner { offloaded, total } => account.banner = Some((offloaded, total)),
            Evidence::Buffer { kind, device, residence, bytes } => {
                account.add_buffer(kind, device, residence, bytes);
            }
            Evidence::Allotted { kind, device, residence, bytes } => {
                account.allot(kind, device, residence, bytes);
            }
            Evidence::Planned(plan) => account.add_plan(plan),
            Evidence::Layer { index, residence, .. } => account.add_layer(index, residence),
            Evidence::LayerRange { first, last, residence, .. } => {
                account.add_layers(first, last, residence);
            }
            // Kept for the whole process; here it is news for the verdict.
            Evidence::Platform { .. } => {}
            Evidence::Estimate { device, residence, bytes } => {
                account.add_estimate(device, residence, bytes);
            }
            Evidence::Overflow { layers } => account.overflow = (layers > 0).then_some(layers),
            Evidence::HostOverride { detail } => account.host_override = Some(detail),
            Evidence::DeviceChosen { residence, .. } => {
                account.device_chosen |= residence == Residence::Accelerator;
            }
            Evidence::Metadata { key, value } => {
                account.add_metadata(key, value);
                return;
            }
            Evidence::Fault { cause, decides, detail } => {
                Account::add_fault(&mut account.faults, StatedFault { cause, decides, detail });
            }
            _ => return,
        }
        if !is_side {
            self.unjudged_since = Some(now);
        }
    }

    /// The caller says that the engine answers.
    pub(super) fn answers(&mut self, now: Instant) {
        self.answers_since.get_or_insert(now);
    }

    /// The engine says that it answers.
    pub(super) fn says_ready(&mut self, now: Instant) {
        self.says_ready = true;
        self.answers(now);
    }

    /// Whether it is ready by its own word, and its verdict waits.
    pub(super) fn is_held(&self) -> bool {
        self.is_loading() && self.says_ready
    }

    /// Whether the engine can be asked of it: it is judged, or said to answer.
    pub(super) fn can_be_asked(&self) -> bool {
        match self.outcome {
            Outcome::Loading => self.answers_since.is_some(),
            Outcome::Judged(_) => true,
            Outcome::Failed => false,
        }
    }

    /// What the engine answered of this load's memory; `None` when it had nothing to say that helps.
    pub(super) fn read_back(&mut self, shared: Option<Shared>, now: Instant) {
        self.is_read_back = true;
        if let Some(shared) = shared {
            self.main.account.read_back = Some(shared);
            self.unjudged_since = Some(now);
        }
    }

    /// Whether its first verdict may wait for the engine's answer, which outranks all that its lines told.
    pub(super) fn awaits_readback(
        &self,
        patience: Duration,
        now: Instant,
        process: &ProcessFacts,
        plan: Plan,
        policy: PlacementPolicy,
    ) -> bool {
        let waited = self.answers_since.map(|at| now.saturating_duration_since(at));
        self.is_loading()
            && !self.is_read_back
            && self.runner_end.is_none()
            && waited.is_some_and(|waited| waited < patience)
            && judge(self.account(), process, plan, policy).basis > Basis::Readback
    }

    /// Whether the lines have told all they will: a block was told to its end.
    pub(super) fn is_told(&self) -> bool {
        self.main.block == Block::Closed && self.account().tells_placement()
    }

    /// Whether a verdict is due by the passing of time alone: the engine answers and its lines have had time to
    /// arrive, or late evidence has gone quiet.
    pub(super) fn is_due(&self, now: Instant) -> bool {
        let quiet = |since: Option<Instant>| {
            since.is_some_and(|at| now.saturating_duration_since(at) >= Self::QUIET)
        };
        match self.outcome {
            Outcome::Loading => {
                quiet(self.answers_since) || quiet(self.runner_end.as_ref().map(|(_, at)| *at))
            }
            Outcome::Judged(_) => quiet(self.unjudged_since),
            Outcome::Failed => false,
        }
    }

    /// Judges by all that is known, and keeps the verdict. `None` when the load has this verdict already.
    pub(super) fn judge(
        &mut self,
        process: &ProcessFacts,
        plan: Plan,
        policy: PlacementPolicy,
    ) -> Option<&Placement> {
        let placement = judge(self.account(), process, plan, policy);
        self.unjudged_since = None;
        self.side = None;
        if self.placement().is_some_and(|known| known.verdict == placement.verdict) {
            return None;
        }
        self.outcome = Outcome::Judged(Box::new(placement));
        self.placement()
    }
}
