//! What the engines of the run were recorded to print and to answer.

use serde_json::Value;

use crate::Lane;

/// A recorded run, as far as the lane plays it.
pub(crate) struct Recording {
    pub(crate) lines: Vec<String>,
    /// The last chunk of each response: usage and timings.
    pub(crate) ends: Vec<Value>,
    pub(crate) completions: Vec<String>,
}

impl Lane {
    pub(crate) fn recording(&self) -> Recording {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/recordings");
        let text = std::fs::read_to_string(format!("{folder}/{}.jsonl", self.run)).unwrap();
        let mut recording =
            Recording { lines: Vec::new(), ends: Vec::new(), completions: Vec::new() };
        let mut request = None;
        for row in text.lines() {
            let row: Value = serde_json::from_str(row).unwrap();
            let data = row["data"].as_str().unwrap_or_default();
            let is_exit = data.ends_with("cleaning up before exit...");
            match row["kind"].as_str().unwrap() {
                "request" => {
                    request = row["id"].as_u64();
                    recording.completions.push(String::new());
                }
                // What is printed on the way out belongs to no request.
                "stderr" if is_exit => request = None,
                _ => {}
            }
            let is_played =
                request.is_none_or(|id| self.requests.contains(&usize::try_from(id).unwrap()));
            match row["kind"].as_str().unwrap() {
                "stderr" if is_played => recording.lines.push(data.to_owned()),
                "sse" if is_played => recording.hear(data),
                _ => {}
            }
        }
        recording.completions.retain(|completion| !completion.is_empty());
        assert_eq!(recording.ends.len(), self.requests.len(), "{}", self.name);
        recording
    }

    /// The same number of each request's timings, added up.
    pub(crate) fn sum(&self, timing: &str) -> f64 {
        self.recording().ends.iter().map(|end| end["timings"][timing].as_f64().unwrap()).sum()
    }
}

impl Recording {
    fn hear(&mut self, data: &str) {
        let Some(Ok(chunk)) = data.strip_prefix("data: ").map(serde_json::from_str::<Value>) else {
            return;
        };
        let piece = chunk["choices"][0]["delta"]["content"].as_str().unwrap_or_default();
        self.completions.last_mut().unwrap().push_str(piece);
        if chunk["timings"].is_object() {
            self.ends.push(chunk);
        }
    }
}
