//! Asks the engine's own endpoints, where the gateway was built with the feature for it.

use std::time::Duration;

use serving_sentinel::lane::ReadBackFacts;
use serving_sentinel::layer::Lane;
use tokio::time::sleep;

use crate::http::Origin;

/// How often it looks whether the engine has answered.
const LOOK: Duration = Duration::from_millis(200);

/// Starts to ask, for as long as the lane is open.
#[cfg(feature = "readback")]
pub(crate) fn start(lane: &Lane, origin: &Origin) -> anyhow::Result<()> {
    let ask = serving_sentinel::ReadBack::new(&origin.to_string())?;
    tokio::spawn(lane.read_back(ask));
    Ok(())
}

/// Says what to do instead.
#[cfg(not(feature = "readback"))]
pub(crate) fn start(_: &Lane, _: &Origin) -> anyhow::Result<()> {
    anyhow::bail!(
        "--read-back needs the feature `readback`: cargo run --features readback --example gateway -- --read-back .."
    )
}

/// Waits until the engine has said what it is, and gives that in words.
pub(crate) async fn description(lane: &Lane) -> String {
    loop {
        if let Some(words) = lane.snapshot().and_then(|lane| describe(lane.read_back?)) {
            return words;
        }
        sleep(LOOK).await;
    }
}

fn describe(facts: ReadBackFacts) -> Option<String> {
    let words = [
        facts.build.map(|build| format!("build {build}")),
        facts.model.map(|model| format!("model {model}")),
        facts.slots.map(|slots| format!("{slots} slot{}", if slots == 1 { "" } else { "s" })),
        facts.context_tokens.map(|tokens| format!("{tokens} tokens of context")),
    ];
    let words: Vec<_> = words.into_iter().flatten().collect();
    (!words.is_empty()).then(|| words.join(", "))
}
