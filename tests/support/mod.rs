//! What the integration tests share: stacks whose exports can be looked at, and recordings of real engines.

#![allow(
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    reason = "every test file uses its own part of it"
)]

pub mod memory;

use serving_sentinel::layer::Lane;

/// The lines of a recording under `tests/fixtures/recordings`.
pub fn recording(name: &str) -> Vec<Vec<u8>> {
    let path = format!("{}/tests/fixtures/recordings/{name}", env!("CARGO_MANIFEST_DIR"));
    let bytes = std::fs::read(&path)
        .unwrap_or_else(|error| panic!("{path}: {error}; recordings are part of the repository"));
    bytes.split(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect()
}

/// The lines of a recording until the engine answers: without the requests it then served.
pub fn load_of(name: &str) -> Vec<Vec<u8>> {
    let lines = recording(name);
    let ready = lines.iter().position(|line| line.windows(12).any(|part| part == b"listening on"));
    let ready = ready.unwrap_or_else(|| panic!("{name} holds no line `listening on`"));
    lines.into_iter().take(ready + 1).collect()
}

/// Hands a lane lines of its engine.
pub fn feed(lane: &Lane, lines: &[Vec<u8>]) {
    for line in lines {
        lane.observe_line(line);
    }
}
