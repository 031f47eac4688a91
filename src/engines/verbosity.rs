//! Whether a llama-server that is about to be started must be told to say where it puts the model.
//!
//! Since 2026-05 the library's lines, placement among them, are hidden by default, and a log without them can only be
//! judged `unreported`. Older builds print them unasked, and some of those take the same number for "debug".

/// The environment variable that sets llama-server's verbosity. It is read before any argument, so that it also
/// shows the lines printed while arguments are parsed (`load_backend: ..`).
pub const VERBOSITY_VARIABLE: &str = "LLAMA_ARG_LOG_VERBOSITY";

/// The least verbosity at which a build that hides placement prints it.
pub const PLACEMENT_VERBOSITY: &str = "4";

/// The last release seen to print placement unasked is b9150 and the first seen to hide it b9181. In between it is
/// hidden from some build on, and being seen is worth some noise.
const FIRST_THAT_MAY_HIDE: u32 = 9150;

/// A clone without history numbers every build so: the number then says nothing.
const SHALLOW_CLONE: u32 = 1;

/// Options that set the verbosity, in all spellings of all versions.
const OPTIONS: [&str; 6] =
    ["-lv", "--verbosity", "--log-verbosity", "-v", "--verbose", "--log-verbose"];

/// Variables that set the verbosity: today's, and the one before 2026.
const VARIABLES: [&str; 2] = [VERBOSITY_VARIABLE, "LLAMA_LOG_VERBOSITY"];

/// What to do about the verbosity of an engine that is about to be started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum VerbosityDecision {
    /// Set [`VERBOSITY_VARIABLE`] to [`PLACEMENT_VERBOSITY`]: this build says nothing about placement without it.
    Raise,
    /// Leave it: the user chose a verbosity.
    UserChose,
    /// Leave it: this build prints placement by default.
    PrintsByDefault,
    /// Leave it: the answer to `--version` names no build that is known to need it.
    UnknownBuild,
    /// Leave it: the program is not one of llama.cpp's, and was not asked for its version.
    OtherProgram,
}

/// Whether the user chose a verbosity, by an argument or by a variable (`is_set` says which are set). A choice is
/// left alone, also one at which nothing is printed.
pub fn is_chosen<'a>(
    arguments: impl IntoIterator<Item = &'a str>,
    is_set: impl Fn(&str) -> bool,
) -> bool {
    VARIABLES.into_iter().any(is_set)
        || arguments.into_iter().any(|argument| {
            let name = argument.split_once('=').map_or(argument, |(name, _)| name);
            OPTIONS.contains(&name)
        })
}

/// Whether a program of that file name is one of llama.cpp's, which answer `--version` at once and do nothing else.
pub fn is_llama_program(file_name: &str) -> bool {
    let name = file_name.to_ascii_lowercase();
    let name = name.strip_suffix(".exe").unwrap_or(&name);
    // `llama-server`, `llama` (the program that holds all tools), `llama-server-cuda` and the like of packagers.
    name == "llama" || name.starts_with("llama-")
}

/// Decides by what the engine printed, on either stream, when asked for its `--version`.
pub fn decide(version_text: &str) -> VerbosityDecision {
    match version_text.lines().find_map(parse_build) {
        Some(Build::Dotted | Build::Numbered(FIRST_THAT_MAY_HIDE..)) => VerbosityDecision::Raise,
        Some(Build::Numbered(..=SHALLOW_CLONE)) | None => VerbosityDecision::UnknownBuild,
        Some(Build::Numbered(_)) => VerbosityDecision::PrintsByDefault,
    }
}

/// A build, as its version line names it.
enum Build {
    /// `version: 6448 (24a6734d)`: counts commits, and names releases (`b6448`).
    Numbered(u32),
    /// `version: 0.5.0-dev (build 1, commit 0c1e570)`: newer than every release known by its number alone.
    Dotted,
}

fn parse_build(line: &str) -> Option<Build> {
    let version = line.trim_start().strip_prefix("version:")?.split_whitespace().next()?;
    let version = version.trim_start_matches(['b', 'v']);
    let (number, rest) =
        version.split_at(version.find(|c: char| !c.is_ascii_digit()).unwrap_or(version.len()));
    let number = number.parse().ok()?;
    Some(if rest.starts_with('.') { Build::Dotted } else { Build::Numbered(number) })
}

#[cfg(test)]
mod tests {
    use super::{VerbosityDecision, decide, is_chosen, is_llama_program};

    #[test]
    fn decisions_by_version() {
        use VerbosityDecision::{PrintsByDefault, Raise, UnknownBuild};
        const ROWS: [(&str, &str, VerbosityDecision); 15] = [
            (
                "a numbered build",
                "version: 6448 (24a6734d)\nbuilt with cc 13.2 for x86_64-linux-gnu",
                PrintsByDefault,
            ),
            ("the last before", "version: 9149 (0123456)", PrintsByDefault),
            ("the first that may hide", "version: 9150 (0123456)", Raise),
            ("the first known to hide", "version: 9181 (0123456)", Raise),
            ("a release's name", "version: b9181 (0123456)", Raise),
            ("an old release's name", "version: b3000 (0123456)", PrintsByDefault),
            ("a local change", "version: 9200-dirty (0123456)", Raise),
            ("a dotted version", "version: 0.5.0-dev (build 1, commit 0c1e570)", Raise),
            ("a dotted version with v", "version: v1.0.2 (build 12000, commit 0c1e570)", Raise),
            (
                "after lines of a backend",
                "ggml_cuda_init: found 1 CUDA devices:\r\nversion: 9181 (0123456)\r\n",
                Raise,
            ),
            ("a clone without history", "version: 1 (0123456)", UnknownBuild),
            ("a build from an archive", "version: 0 (unknown)", UnknownBuild),
            ("another program", "ollama version is 0.20.0", UnknownBuild),
            ("a word", "version: unknown", UnknownBuild),
            ("nothing", "", UnknownBuild),
        ];
        for (case, text, expected) in ROWS {
            assert_eq!(decide(text), expected, "{case}");
        }
    }

    #[test]
    fn the_users_choice() {
        const ROWS: [(&str, &[&str], &[&str], bool); 9] = [
            ("nothing said", &["-m", "model.gguf", "-ngl", "99"], &["PATH"], false),
            ("short option", &["-m", "model.gguf", "-lv", "4"], &[], true),
            ("long option", &["--verbosity", "1"], &[], true),
            ("long option in one word", &["--log-verbosity=4"], &[], true),
            ("the most of it", &["-v"], &[], true),
            ("the most of it, long", &["--log-verbose"], &[], true),
            ("an option that begins alike", &["--verbose-prompt", "-lvx"], &[], false),
            ("variable", &[], &["LLAMA_ARG_LOG_VERBOSITY"], true),
            ("variable of older builds", &[], &["LLAMA_LOG_VERBOSITY"], true),
        ];
        for (case, arguments, set, expected) in ROWS {
            assert_eq!(
                is_chosen(arguments.iter().copied(), |name| set.contains(&name)),
                expected,
                "{case}"
            );
        }
    }

    #[test]
    fn programs() {
        for name in
            ["llama-server", "llama-server.exe", "Llama-Server.EXE", "llama", "llama-server-cuda"]
        {
            assert!(is_llama_program(name), "{name}");
        }
        for name in ["ollama", "llamafile", "server", "docker", "sh", "", "vllm"] {
            assert!(!is_llama_program(name), "{name}");
        }
    }
}
