//! Where the real engine is.

use std::path::PathBuf;

/// The model beside it.
pub(crate) const MODEL: &str = "gemma-3-270m-q4_k_m.gguf";

/// The folder that `.ci/engine` prints.
pub(crate) fn home() -> PathBuf {
    let home = std::env::var_os("SENTINEL_ENGINE_HOME");
    PathBuf::from(home.unwrap_or_else(|| {
        panic!("SENTINEL_ENGINE_HOME is not set: build a real engine with `.ci/engine` and give the folder it prints")
    }))
}
