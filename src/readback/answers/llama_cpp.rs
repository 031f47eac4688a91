//! llama-server's `/props` and `/slots`: what it is, and what it works on. Neither tells where the model is.

use serde_json::Value;

use super::{EngineProperties, SlotReading, UnreadableError, count, json, small_count, words};
use crate::evidence::SlotWork;

/// More slots than a server ever has.
const MOST_SLOTS: usize = 4096;

pub(in super::super) fn read_properties(body: &[u8]) -> Result<EngineProperties, UnreadableError> {
    let body = json(body)?;
    let properties = EngineProperties {
        build: words(&body, "/build_info"),
        model: words(&body, "/model_path"),
        slots: small_count(&body, "/total_slots"),
        context_tokens: count(&body, "/default_generation_settings/n_ctx"),
    };
    // Every build since 2024 tells its slots; other servers answer `/props`, too, with other things.
    if properties.slots.is_none() {
        return Err(UnreadableError::Form { missing: "`total_slots`" });
    }
    Ok(properties)
}

pub(in super::super) fn read_slots(body: &[u8]) -> Result<Vec<SlotReading>, UnreadableError> {
    const MISSING: UnreadableError =
        UnreadableError::Form { missing: "slots with `id` and `is_processing`" };
    let body = json(body)?;
    let slots = body.as_array().filter(|slots| slots.len() <= MOST_SLOTS).ok_or(MISSING)?;
    slots.iter().map(|slot| read_slot(slot).ok_or(MISSING)).collect()
}

fn read_slot(slot: &Value) -> Option<SlotReading> {
    let is_busy = slot.get("is_processing")?.as_bool()?;
    let work = if is_busy { Some(read_work(slot)?) } else { None };
    Some(SlotReading { slot: small_count(slot, "/id")?, work })
}

/// `next_token` is a list in current builds, and one object in those before.
fn read_work(slot: &Value) -> Option<SlotWork> {
    Some(SlotWork {
        task: count(slot, "/id_task")?,
        prefilled: count(slot, "/n_prompt_tokens_processed").unwrap_or(0),
        decoded: count(slot, "/next_token/0/n_decoded")
            .or_else(|| count(slot, "/next_token/n_decoded"))?,
    })
}
