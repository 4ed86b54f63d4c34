//! Broken histories that show a repair by themselves, one request each.

use super::{
    agents::{Agent, CODEX, COMPANY_AGENT, DEEPSEEK_MESSAGES, GEMINI, MISTRAL, NIGHTLY, OPENCODE},
    history::HistoryEntry::{self, CallThenText, Calls, EmptyCall, Model, Results, User},
};

/// A history, and the client that sends it.
pub(super) struct Scene {
    pub(super) agent: &'static Agent,
    pub(super) history: &'static [HistoryEntry],
    /// Strictness that the client asks for.
    pub(super) mode: Option<&'static str>,
}

const fn scene(agent: &'static Agent, history: &'static [HistoryEntry]) -> Scene {
    Scene {
        agent,
        history,
        mode: None,
    }
}

/// A call without a result.
const OPEN: &[HistoryEntry] = &[User("Run the tests."), Calls(&[(0, "bash")]), User("Are you there?")];

/// Healthy turns. One in two is a call with its result.
pub(super) const HEALTHY: [&[HistoryEntry]; 2] = [
    &[
        User("Look at the README."),
        Calls(&[(0, "read_file")]),
        Results(&[(0, "# Antiphon")]),
    ],
    &[
        User("Look at the README."),
        Calls(&[(0, "read_file"), (1, "grep")]),
        Results(&[(0, "# Antiphon"), (1, "3 matches")]),
        Model("It is short."),
        User("And now?"),
    ],
];

/// The repairs, in the order of the table in the documentation.
pub(super) const SCENES: &[Scene] = &[
    // moved
    scene(
        &COMPANY_AGENT,
        &[
            User("Read the log."),
            Calls(&[(0, "read_file")]),
            User("Hurry, please."),
            Results(&[(0, "2 errors")]),
        ],
    ),
    // placeholder, in each format
    scene(&NIGHTLY, OPEN),
    scene(&OPENCODE, OPEN),
    scene(&CODEX, OPEN),
    scene(&GEMINI, OPEN),
    // merged
    scene(
        &DEEPSEEK_MESSAGES,
        &[
            User("Read both."),
            Calls(&[(0, "read_file"), (1, "grep")]),
            Results(&[(0, "one")]),
            Results(&[(1, "two")]),
        ],
    ),
    // rearranged
    scene(
        &DEEPSEEK_MESSAGES,
        &[
            User("Read it."),
            CallThenText((0, "read_file"), "I read it now."),
            Results(&[(0, "one")]),
        ],
    ),
    // quoted
    scene(
        &CODEX,
        &[User("Go on."), Results(&[(7, "exit status 0")]), User("And now?")],
    ),
    // dropped
    scene(
        &OPENCODE,
        &[
            User("Read it."),
            Calls(&[(0, "read_file")]),
            Results(&[(0, "one")]),
            Results(&[(0, "one")]),
            User("And now?"),
        ],
    ),
    // renamed: Mistral's ids have nine letters
    scene(
        &MISTRAL,
        &[
            User("Translate it."),
            Calls(&[(0, "read_file")]),
            Results(&[(0, "Guten Tag")]),
        ],
    ),
    // opened
    scene(&NIGHTLY, &[Model("As I said, three tests fail."), User("Which ones?")]),
    // fixed
    scene(
        &COMPANY_AGENT,
        &[
            User("List the files."),
            EmptyCall((0, "list_files")),
            Results(&[(0, "README.md")]),
        ],
    ),
    // rejected
    Scene {
        mode: Some("strict"),
        ..scene(&OPENCODE, OPEN)
    },
    // observed: the provider refuses it
    Scene {
        mode: Some("observe"),
        ..scene(&CODEX, OPEN)
    },
];
