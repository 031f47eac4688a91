//! What the integration tests share: stacks whose exports can be looked at, and recordings of real engines.

#![allow(dead_code, unreachable_pub, reason = "every test file uses its own part of it")]

pub mod memory;

/// The lines of a recording under `tests/fixtures/recordings`.
pub fn recording(name: &str) -> Vec<Vec<u8>> {
    let path = format!("{}/tests/fixtures/recordings/{name}", env!("CARGO_MANIFEST_DIR"));
    let bytes = std::fs::read(&path).unwrap_or_else(|error| {
        panic!("{path}: {error}; recordings are part of the repository, and not of the packaged crate")
    });
    bytes.split(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect()
}
