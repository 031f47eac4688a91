//! Runs the recognisers over lines, and remembers of a stream what decides whether a line counts.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use aho_corasick::{AhoCorasick, AhoCorasickKind};

use crate::evidence::{Evidence, Residence};

use super::error::LoadFormatsError;
use super::file::{self, EngineFile, INHERITED, Samples};
use super::format::{Format, Reading};
use super::residence::Residences;
use super::unwrap;
use super::{Recognised, Service};

/// The files that come with the crate.
const BUILTIN: &[(&str, &str)] = &[
    ("ik_llama_cpp.toml", include_str!("ik_llama_cpp.toml")),
    ("jan.toml", include_str!("jan.toml")),
    ("koboldcpp.toml", include_str!("koboldcpp.toml")),
    ("llama_box.toml", include_str!("llama_box.toml")),
    ("llama_cpp.toml", include_str!("llama_cpp.toml")),
    ("llama_cpp_python.toml", include_str!("llama_cpp_python.toml")),
    ("llama_swap.toml", include_str!("llama_swap.toml")),
    ("llamafile.toml", include_str!("llamafile.toml")),
    ("lmstudio.toml", include_str!("lmstudio.toml")),
    ("localai.toml", include_str!("localai.toml")),
    ("mistral_rs.toml", include_str!("mistral_rs.toml")),
    ("mlx_lm.toml", include_str!("mlx_lm.toml")),
    ("ollama.toml", include_str!("ollama.toml")),
    ("onnx_runtime.toml", include_str!("onnx_runtime.toml")),
    ("python.toml", include_str!("python.toml")),
    ("sglang.toml", include_str!("sglang.toml")),
    ("stable_diffusion_cpp.toml", include_str!("stable_diffusion_cpp.toml")),
    ("tabby_api.toml", include_str!("tabby_api.toml")),
    ("tgi.toml", include_str!("tgi.toml")),
    ("vllm.toml", include_str!("vllm.toml")),
    ("whisper_cpp.toml", include_str!("whisper_cpp.toml")),
];

/// Recognises engine lines. Made once, shared by all streams.
#[derive(Debug)]
pub struct Matcher {
    engines: Vec<Engine>,
    /// In the order in which they are tried: formats that yield nothing last.
    formats: Vec<Format>,
    /// For each format, whether another continues it.
    is_head: Vec<bool>,
    literals: AhoCorasick,
    /// For each literal, the formats that have it.
    formats_of_literal: Vec<Vec<usize>>,
}

/// One engine, as its files tell.
#[derive(Debug)]
struct Engine {
    name: Arc<str>,
    embeds: Vec<Arc<str>>,
    own: Residences,
    /// Its own rules, then those of the engines it embeds: they speak of the same devices.
    residences: Residences,
}

/// What the matcher remembers of one output stream, and of each service within it.
#[derive(Debug, Default)]
pub struct StreamState {
    /// Lines so far.
    lines: u64,
    /// The last line that was only a head of lines to come.
    block_head: Option<u64>,
    /// Whether the engine's own prefix was seen with nothing around it: such a stream is not wrapped later on, so
    /// what looks wrapped is text.
    unwrapped: bool,
    plain: ServiceState,
    services: HashMap<Service, ServiceState>,
    /// One bit per format whose literal is in the present line; kept for its memory alone.
    candidates: Vec<u64>,
}

/// What is remembered of one service.
#[derive(Debug, Default)]
struct ServiceState {
    /// Whether the engine's own prefix was seen: from then on a line without it is no line of the engine's logger.
    framed: bool,
    /// Kinds of evidence that a format which is not weak has yielded.
    strong: Vec<&'static str>,
    /// Devices that were described as a CPU in disguise.
    software_devices: Vec<String>,
    head: Option<Head>,
}

/// A line that others may continue.
#[derive(Debug)]
struct Head {
    id: Arc<str>,
    /// The line that last belonged to it.
    line: u64,
    fields: Vec<(&'static str, String)>,
    /// Formats that have continued it: each does so once.
    used: Vec<usize>,
}

/// Lines of other services can come between a line and its continuation, but not many.
const CONTINUATION_LINES: u64 = 16;

/// A router's children come and go under new ports, and text can look like a service's name.
const MOST_SERVICES: usize = 256;

// === impl Matcher ===

impl Matcher {
    /// The recognisers that come with the crate.
    #[expect(
        clippy::missing_panics_doc,
        clippy::expect_used,
        reason = "the files are fixed, and a test loads them"
    )]
    pub fn builtin() -> Arc<Self> {
        static BUILTIN_MATCHER: OnceLock<Arc<Matcher>> = OnceLock::new();
        let load = || {
            let load = |&(name, text)| {
                file::load(name, text, Samples::Trust).expect("this is a bug: a test loads it")
            };
            Arc::new(Self::new(BUILTIN.iter().map(load)))
        };
        BUILTIN_MATCHER.get_or_init(load).clone()
    }

    /// These recognisers and those of a file's `text`; `file` is its name in errors.
    ///
    /// A format with the id of one that is known for the same engine takes its place, others are added and tried
    /// first. Residence rules are asked before the known ones. The file's own samples are run.
    ///
    /// A format's pattern meets the bare message, all of it. What it captures, and what `with` gives, are the fields of
    /// the evidence. The keys are explained at the head of `src/engines/llama_cpp.toml`.
    ///
    /// ```
    /// use serving_sentinel::engines::{Matcher, StreamState};
    /// use serving_sentinel::evidence::Evidence;
    ///
    /// let matcher = Matcher::builtin().with_file("fork.toml", r#"
    ///     engine = "llama.cpp"
    ///
    ///     [[format]]
    ///     id = "fork_banner"
    ///     yields = "banner"
    ///     literal = "layers on the device"
    ///     pattern = '^fork: (?<offloaded>\d+) of (?<total>\d+) layers on the device$'
    ///     source = "our fork, 2026-10"
    ///     rejects = ["3 of 4 layers on the device"]
    ///     [[format.matches]]
    ///     line = "fork: 3 of 4 layers on the device"
    /// "#)?;
    /// let line = b"Jun 18 08:57:40 host1 fork[7]: fork: 30 of 33 layers on the device";
    /// let recognised = matcher.recognise(line, &mut StreamState::default());
    /// assert_eq!(recognised.evidence, [Evidence::Banner { offloaded: 30, total: 33 }]);
    /// # Ok::<(), serving_sentinel::engines::LoadFormatsError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`LoadFormatsError`] with place and id, for a file that is not of the form or not true to its own samples.
    pub fn with_file(&self, file: &str, text: &str) -> Result<Self, LoadFormatsError> {
        let added = file::load(file, text, Samples::Run)?;
        let known = self.engines.iter().map(|engine| EngineFile {
            engine: engine.name.clone(),
            embeds: engine.embeds.clone(),
            residences: engine.own.clone(),
            formats: self
                .formats
                .iter()
                .filter(|format| format.engine == engine.name)
                .cloned()
                .collect(),
        });
        Ok(Self::new(known.chain([added])))
    }

    /// The formats that are known.
    pub fn formats(&self) -> impl Iterator<Item = &Format> {
        self.formats.iter()
    }

    /// Puts files together; of two formats with one id the later file's stays.
    fn new(files: impl Iterator<Item = EngineFile>) -> Self {
        let mut engines: Vec<Engine> = Vec::new();
        let mut formats: Vec<Format> = Vec::new();
        for file in files {
            let replaced = |known: &Format| {
                known.engine == file.engine
                    && file.formats.iter().any(|format| format.id == known.id)
            };
            formats.retain(|known| !replaced(known));
            formats.splice(0..0, file.formats);
            match engines.iter_mut().find(|engine| engine.name == file.engine) {
                Some(engine) => {
                    engine.own.precede_with(file.residences);
                    engine.embeds.extend(file.embeds);
                }
                None => engines.push(Engine {
                    name: file.engine,
                    embeds: file.embeds,
                    own: file.residences,
                    residences: Residences::default(),
                }),
            }
        }
        for index in 0..engines.len() {
            let embedded = engines.iter().filter(|it| engines[index].embeds.contains(&it.name));
            let mut residences = engines[index].own.clone();
            embedded.for_each(|engine| residences.fall_back_to(&engine.own));
            engines[index].residences = residences;
        }
        formats.sort_by_key(Format::yields_nothing);

        let mut literals: Vec<&str> = Vec::new();
        let mut formats_of_literal: Vec<Vec<usize>> = Vec::new();
        for (index, format) in formats.iter().enumerate() {
            if let Some(known) = literals.iter().position(|literal| **literal == *format.literal) {
                formats_of_literal[known].push(index);
            } else {
                literals.push(&format.literal);
                formats_of_literal.push(vec![index]);
            }
        }
        let continues = |other: &Format, head: &Format| {
            other.engine == head.engine && other.continues.as_ref() == Some(&head.id)
        };
        let is_head =
            formats.iter().map(|head| formats.iter().any(|other| continues(other, head))).collect();
        let literals = build_literals(&literals);
        Self { engines, formats, is_head, literals, formats_of_literal }
    }

    /// Whether lines of the engine `inner` stand among those of `outer`, by `outer`'s file: then the whole is `outer`.
    pub fn embeds(&self, outer: &str, inner: &str) -> bool {
        self.engine(outer).is_some_and(|engine| engine.embeds.iter().any(|it| **it == *inner))
    }

    fn engine(&self, name: &str) -> Option<&Engine> {
        self.engines.iter().find(|engine| *engine.name == *name)
    }

    /// Recognises one line, without its line end.
    pub fn recognise(&self, line: &[u8], stream: &mut StreamState) -> Recognised {
        stream.lines += 1;
        if !self.find_candidates(line, &mut stream.candidates) {
            return Recognised::default();
        }
        // LM Studio puts a time before a block of lines, and a space before the first of them.
        let line = match line.strip_prefix(b" ") {
            Some(rest) if stream.block_head == Some(stream.lines - 1) => rest,
            _ => line,
        };
        let mut opened = unwrap::open(line);
        if stream.unwrapped && opened.wrapped {
            opened = unwrap::closed(line);
        }
        stream.unwrapped |= opened.framed && !opened.wrapped;

        let now = stream.lines;
        let opens_block = opened.opens_block();
        let mut recognised = Recognised { service: opened.service, ..Recognised::default() };
        let (service, candidates) = stream.service(recognised.service.as_ref());
        service.framed |= opened.framed;
        opened.messages.for_each(|message| {
            let read = candidates_in(candidates)
                .find_map(|index| self.read(index, message, opened.framed, now, service));
            if let Some((engine, evidence)) = read {
                recognised.engine = Some(engine);
                recognised.evidence.extend(evidence);
            }
        });
        if let Some(program) = opened.program {
            let is_within = |engine: &Arc<str>| self.embeds(program, engine);
            if recognised.engine.as_ref().is_some_and(is_within) {
                recognised.engine = self.engine(program).map(|engine| engine.name.clone());
            }
            if opens_block {
                stream.block_head = Some(now);
            }
        }
        recognised
    }

    /// Marks the formats whose literal is in `line`; `false` when there is none.
    fn find_candidates(&self, line: &[u8], candidates: &mut Vec<u64>) -> bool {
        let mut hits = self.literals.find_overlapping_iter(line).peekable();
        if hits.peek().is_none() {
            return false;
        }
        candidates.clear();
        candidates.resize(self.formats.len().div_ceil(64), 0);
        for hit in hits {
            for &index in &self.formats_of_literal[hit.pattern().as_usize()] {
                candidates[index / 64] |= 1 << (index % 64);
            }
        }
        true
    }

    /// Reads a message by one format. `None` when it is not of that format, or must not count.
    fn read(
        &self,
        index: usize,
        message: &[u8],
        framed: bool,
        now: u64,
        service: &mut ServiceState,
    ) -> Option<(Arc<str>, Vec<Evidence>)> {
        let format = &self.formats[index];
        if !service.admits(format, index, framed, now) {
            return None;
        }
        let captures = format.read(message)?;
        let engine = self.engine(&format.engine)?;
        let residences = &engine.residences;
        let inherited = match (&format.continues, &service.head) {
            (Some(_), Some(head)) => head.fields.as_slice(),
            _ => &[],
        };
        let software_devices = &service.software_devices;
        let reading = Reading {
            format,
            captures: &captures,
            message,
            inherited,
            residences,
            software_devices,
        };
        let evidence = reading.evidence();
        let own_fields = || {
            INHERITED
                .into_iter()
                .filter_map(|field| Some((field, reading.text(field)?.into_owned())))
        };
        let head_fields = self.is_head[index].then(|| own_fields().collect::<Vec<_>>());
        let disguised = evidence.iter().find_map(|evidence| match evidence {
            Evidence::DeviceSeen { device, residence }
            | Evidence::DeviceChosen { device, residence } => (*residence == Residence::Host
                && residences.of(device) == Residence::Accelerator)
                .then(|| device.clone()),
            _ => None,
        });
        service.remember(format, index, now, head_fields, disguised);
        // A new process of an embedded engine may print without the prefix that the last one had.
        if !engine.embeds.is_empty() && format.yields("load_begins") {
            service.framed = false;
        }
        Some((format.engine.clone(), evidence))
    }
}

fn candidates_in(bits: &[u64]) -> impl Iterator<Item = usize> + '_ {
    bits.iter().enumerate().flat_map(|(word, &bits)| {
        (0..64).filter(move |bit| bits & (1 << bit) != 0).map(move |bit| word * 64 + bit)
    })
}

#[expect(
    clippy::expect_used,
    reason = "a few hundred short literals are far from any limit of the automaton"
)]
fn build_literals(literals: &[&str]) -> AhoCorasick {
    AhoCorasick::builder()
        .kind(Some(AhoCorasickKind::DFA))
        .build(literals)
        .expect("this is a bug: literals are short")
}

// === impl StreamState ===

impl StreamState {
    /// The memory of that service, and the present line's candidates.
    fn service(&mut self, service: Option<&Service>) -> (&mut ServiceState, &[u64]) {
        let Some(service) = service else { return (&mut self.plain, &self.candidates) };
        if self.services.len() >= MOST_SERVICES && !self.services.contains_key(service) {
            self.services.clear();
        }
        (self.services.entry(service.clone()).or_default(), &self.candidates)
    }
}

// === impl ServiceState ===

impl ServiceState {
    /// Whether a line may be of that format at all, here and now.
    fn admits(&self, format: &Format, index: usize, framed: bool, now: u64) -> bool {
        let in_frame = framed || format.raw || !self.framed;
        let no_stronger =
            !format.weak || !format.kinds.iter().any(|kind| self.strong.contains(&kind.name));
        let continues = format.continues.as_ref().is_none_or(|id| {
            self.head.as_ref().is_some_and(|head| {
                head.id == *id
                    && now - head.line <= CONTINUATION_LINES
                    && !head.used.contains(&index)
            })
        });
        in_frame && no_stronger && continues
    }

    fn remember(
        &mut self,
        format: &Format,
        index: usize,
        now: u64,
        head_fields: Option<Vec<(&'static str, String)>>,
        disguised: Option<String>,
    ) {
        for kind in format.kinds.iter().filter(|_| !format.weak) {
            if !self.strong.contains(&kind.name) {
                self.strong.push(kind.name);
            }
        }
        if let Some(head) = self.head.as_mut().filter(|_| format.continues.is_some()) {
            head.line = now;
            head.used.push(index);
        }
        if let Some(fields) = head_fields {
            self.head = Some(Head { id: format.id.clone(), line: now, fields, used: Vec::new() });
        }
        if let Some(device) = disguised.filter(|device| !self.software_devices.contains(device)) {
            self.software_devices.push(device);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;

    #[derive(Deserialize)]
    struct File {
        engine: String,
        #[serde(default)]
        format: Vec<Row>,
    }

    #[derive(Deserialize)]
    struct Row {
        id: String,
        rejects: Vec<String>,
        matches: Vec<Sample>,
    }

    #[derive(Deserialize)]
    struct Sample {
        line: String,
    }

    /// The formats that read one of a line's messages, those that yield nothing left out.
    fn readers(matcher: &Matcher, line: &str) -> Vec<String> {
        let opened = unwrap::open(line.as_bytes());
        let reads = |format: &&Format| {
            let mut reads = false;
            opened.messages.for_each(|message| reads |= format.read(message).is_some());
            reads
        };
        let telling = matcher.formats().filter(|format| !format.yields_nothing());
        telling.filter(reads).map(|format| format.id().to_owned()).collect()
    }

    #[test]
    fn every_sample_is_recognised_by_its_row_alone_and_no_reject_is() {
        let matcher = Matcher::builtin();
        for (name, text) in BUILTIN {
            let file: File = toml::from_str(text).unwrap();
            for row in &file.format {
                let is_row = |it: &&Format| it.engine() == file.engine && it.id() == row.id;
                let format = matcher.formats().find(is_row).unwrap();
                for sample in &row.matches {
                    let alone = if format.yields_nothing() { vec![] } else { vec![row.id.clone()] };
                    assert_eq!(
                        readers(&matcher, &sample.line),
                        alone,
                        "{name}, {}: {}",
                        row.id,
                        sample.line
                    );
                }
                for reject in &row.rejects {
                    assert!(
                        !readers(&matcher, reject).contains(&row.id),
                        "{name}, {}: {reject}",
                        row.id
                    );
                }
            }
        }
    }

    #[test]
    fn a_line_of_no_interest_leaves_no_trace() {
        let mut stream = StreamState::default();
        let recognised = Matcher::builtin()
            .recognise(b"main: binding port with default address family", &mut stream);
        assert!(
            recognised.engine.is_none()
                && recognised.evidence.is_empty()
                && recognised.service.is_none()
        );
        assert_eq!((stream.candidates.capacity(), stream.services.len(), stream.lines), (0, 0, 1));
    }

    #[test]
    fn what_is_remembered_of_services_is_bounded() {
        let mut stream = StreamState::default();
        for number in 0..MOST_SERVICES + 2 {
            let line = format!("name-{number}  | main: model loaded");
            assert_eq!(
                Matcher::builtin().recognise(line.as_bytes(), &mut stream).evidence.len(),
                1
            );
        }
        assert_eq!(stream.services.len(), 2);
    }
}
