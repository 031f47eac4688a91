//! Contenders of one question, measured in turns within one run, so that whatever the machine does meanwhile hits all
//! of them alike. Prints the median, the spread and the ratio to the first contender.
#![allow(
    dead_code,
    clippy::print_stdout,
    clippy::cast_precision_loss,
    reason = "a harness that prints ratios"
)]

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::{Duration, Instant};

use criterion::Criterion;

/// How often each contender has its turn.
const ROUNDS: usize = 7;

type Samples = Rc<RefCell<BTreeMap<&'static str, Vec<f64>>>>;

/// One question and what was measured for it.
pub(crate) struct Question<'a> {
    name: &'static str,
    contenders: Vec<Contender<'a>>,
}

struct Contender<'a> {
    name: &'static str,
    /// Does it so many times, and says how long that took.
    run: Box<dyn FnMut(u64) -> Duration + 'a>,
}

impl<'a> Question<'a> {
    pub(crate) fn new(name: &'static str) -> Self {
        Self { name, contenders: Vec::new() }
    }

    /// A contender: the first is what the others are compared with.
    pub(crate) fn contender(mut self, name: &'static str, mut once: impl FnMut() + 'a) -> Self {
        let run = Box::new(move |times| time(times, &mut once));
        self.contenders.push(Contender { name, run });
        self
    }

    /// A contender that measures its turn itself: it does it so many times, and says how long that took.
    pub(crate) fn timed(
        mut self,
        name: &'static str,
        run: impl FnMut(u64) -> Duration + 'a,
    ) -> Self {
        self.contenders.push(Contender { name, run: Box::new(run) });
        self
    }

    /// A contender that works on something made beforehand, which is not measured, and that leaves something to be
    /// done after each batch: `after` is measured too when `is_whole`.
    pub(crate) fn batched<T>(
        mut self,
        name: &'static str,
        is_whole: bool,
        mut prepare: impl FnMut() -> T + 'a,
        mut once: impl FnMut(&T) + 'a,
        mut after: impl FnMut() + 'a,
    ) -> Self {
        const BATCH: u64 = 512;
        let run = Box::new(move |times: u64| {
            let mut took = Duration::ZERO;
            let mut left = times;
            while left > 0 {
                let inputs: Vec<T> = (0..left.min(BATCH)).map(|_| prepare()).collect();
                let start = now();
                for input in &inputs {
                    once(input);
                }
                let without = start.elapsed();
                after();
                took += if is_whole { start.elapsed() } else { without };
                left -= inputs.len() as u64;
            }
            took
        });
        self.contenders.push(Contender { name, run });
        self
    }

    /// Gives each contender its turns, and prints what came of it.
    pub(crate) fn ask(mut self, criterion: &mut Criterion) {
        let samples = Samples::default();
        let mut group = criterion.benchmark_group(self.name);
        for round in 1..=ROUNDS {
            for contender in &mut self.contenders {
                let samples = samples.clone();
                group.bench_function(format!("{}/{round}", contender.name), |bencher| {
                    bencher.iter_custom(|times| {
                        let took = (contender.run)(times);
                        let each = took.as_secs_f64() * 1e9 / times as f64;
                        samples.borrow_mut().entry(contender.name).or_default().push(each);
                        took
                    });
                });
            }
        }
        group.finish();
        let samples = samples.borrow();
        let mut base = None;
        println!("\n{} (ns each: median, middle half; {ROUNDS} turns)", self.name);
        for contender in &self.contenders {
            let Some(given) = samples.get(contender.name) else { continue };
            let (low, median, high) = quartiles(given.clone());
            let base = *base.get_or_insert(median);
            println!(
                "  {:<40} {median:>10.2}   [{low:.2} .. {high:.2}]   {:>8.3} x   {:>+10.2}",
                contender.name,
                median / base,
                median - base
            );
        }
        println!();
    }
}

/// How long it takes to do `once` so many times.
pub(crate) fn time(times: u64, mut once: impl FnMut()) -> Duration {
    let start = now();
    for _ in 0..times {
        once();
    }
    start.elapsed()
}

fn quartiles(mut samples: Vec<f64>) -> (f64, f64, f64) {
    samples.sort_by(f64::total_cmp);
    let at = |share: usize| samples[(samples.len() - 1) * share / 4];
    (at(1), at(2), at(3))
}

#[expect(clippy::disallowed_methods, reason = "a bench reads the clock")]
fn now() -> Instant {
    Instant::now()
}

/// Short turns: there are many of them.
pub(crate) fn criterion() -> Criterion {
    Criterion::default()
        .warm_up_time(Duration::from_millis(100))
        .measurement_time(Duration::from_millis(400))
        .sample_size(20)
        .without_plots()
        .configure_from_args()
}
