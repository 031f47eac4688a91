//! The endpoints that are asked, and the engines that have them.

/// One of an engine's own endpoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Endpoint {
    /// Ollama's loaded models: the one that tells placement.
    Models,
    /// llama-server's description of itself, which changes with a load alone.
    Properties,
    /// llama-server's slots.
    Slots,
    /// The counters of llama-server (with `--metrics`) and vLLM.
    Counters,
}

impl Endpoint {
    /// All of them, in the order in which they are asked.
    pub(super) const ALL: [Self; 4] = [Self::Models, Self::Properties, Self::Slots, Self::Counters];

    /// The engines that are known to have some of them.
    const ENGINES: [(&'static str, &'static [Self]); 3] = [
        ("ollama", &[Self::Models]),
        ("llama.cpp", &[Self::Properties, Self::Slots, Self::Counters]),
        ("vllm", &[Self::Counters]),
    ];

    pub(super) const fn path(self) -> &'static str {
        match self {
            Self::Models => "/api/ps",
            Self::Properties => "/props",
            Self::Slots => "/slots",
            Self::Counters => "/metrics",
        }
    }

    /// Those that this engine is known to have; `None` when nothing is known of it.
    pub(super) fn of(engine: &str) -> Option<&'static [Self]> {
        Self::ENGINES.iter().find(|(name, _)| *name == engine).map(|(_, endpoints)| *endpoints)
    }

    /// Those worth a try. Of an engine that is not known here, those of its kin: llama-server has many forks. Its
    /// `/api/ps` is another matter: engines that imitate Ollama answer it with made-up sizes.
    pub(super) fn worth_asking(engine: Option<&str>) -> &'static [Self] {
        match engine {
            None => &Self::ALL,
            Some(engine) => Self::of(engine).unwrap_or(&Self::ALL[1..]),
        }
    }
}
