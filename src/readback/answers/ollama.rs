//! Ollama's `/api/ps`: the models that are loaded, and how much of each is in device memory.
//!
//! The sizes are estimates up to 0.24. Since 0.30 they are summed up from its runner's lines, and where that banner says
//! that all layers are offloaded, or where it read no line at all, they say `all`. So they never outrank buffers.

use super::{LoadedModel, UnreadableError, count, json, words};

/// More models than a process ever has loaded.
const MOST_MODELS: usize = 256;

pub(in super::super) fn read_models(body: &[u8]) -> Result<Vec<LoadedModel>, UnreadableError> {
    let body = json(body)?;
    let models = body.pointer("/models").and_then(|models| models.as_array());
    let models = models.ok_or(UnreadableError::Form { missing: "`models`" })?;
    let model = |entry| {
        Some(LoadedModel {
            name: words(entry, "/name").or_else(|| words(entry, "/model"))?,
            bytes: count(entry, "/size"),
            accelerator_bytes: count(entry, "/size_vram"),
            context_tokens: count(entry, "/context_length"),
            expires: words(entry, "/expires_at"),
        })
    };
    Ok(models.iter().filter_map(model).take(MOST_MODELS).collect())
}
