//! Antiphon is a reverse proxy in front of LLM provider APIs: it makes sure that every tool call in every request has
//! exactly one answer. Healthy requests go up byte for byte; answers come back untouched.
//!
//! > Bytes come in once, are *read* into a conversation of spans, *checked* into findings, *planned* into actions,
//! > *spliced* back over the same bytes, and *sent*; the answer is *relayed* untouched while a watcher *takes notes*.
//!
//! # The map, from the ground up
//!
//! | room | job |
//! |---|---|
//! | [`splice`] | spans, edits, and the segments that result |
//! | `clock` | the only source of time |
//! | `digest` | hashes over lists of texts |
//! | [`conversation`] | messages and parts with their byte ranges; turns; the pairing rules and the one pairing algorithm |
//! | [`wire`] | the formats: reads a body, writes one block; JSON; stream framing; facts about answers; refusals of providers |
//! | [`repair`](mod@repair) | findings → plan → edits, and every text that the proxy writes |
//! | `provider` | the table of providers: names, hosts and paths → upstream and format |
//! | `policy` | what an observation means and what may follow: classes, timeouts, retries, breakers |
//! | `auth` | the operator's credentials, client tokens, callers; selection of profiles and their cooldowns |
//! | `session` | identity of a client session, agent and lane, from headers and body |
//! | `session_table` | state of lanes in memory: profile, open calls, branches |
//! | `upstream` | the HTTP client: one send with its timeouts |
//! | `telemetry` | log lines, metrics, traces and the dashboard's data, all from events that other rooms report |
//! | `ledger` | the store that outlives a process: records of calls, results and pinned answers, each of one principal |
//! | `callers` | verified callers: only they store or read anything |
//! | `late` | recorded calls, and the results that tool services post for them |
//! | `recall` | pinned answers of a caller's calls, in memory and in the ledger |
//! | `profiles` | the locks around shared state of an upstream: rotation, retry budget, breakers |
//! | `server` | listeners, limits, owned tasks, drain |
//! | `ledger_api` | `/ledger/v1`: tool services post results, their owners read them |
//! | `proxy` | the life of one exchange, top to bottom |
//! | `admin` | the dashboard, `/admin/v1`, health, and changes by an operator at run time |
//! | `config` | file, variables and flags → settings of the rooms above |
//! | `app` | construction of the whole process |
//! | `demo` | five failures, played against a strict provider with and without the proxy |
//! | `cli` | one file a subcommand |
//!
//! `splice` to `repair`, without `clock`, are the core: they build alone with `--no-default-features`. The architecture
//! test (`tests/it/house`) compares this map with the imports: a room imports only rooms above it.
//!
//! # Invariants
//!
//! * A body is never serialized anew: edits are splices, bytes outside them are identical, and without findings the
//!   very same handle goes upstream.
//! * Reading cannot fail an exchange: what we cannot read passes through, with a counted reason.
//! * A plan is a function of body, rules, policy and known answers: no clock, counter, chance, host or lane.
//! * Repairing what was repaired adds no edit.
//! * The core and `provider` never open a socket or file, never log, and never panic on input.
//! * Imports go up the map only; no room but `app`, `demo` and `cli` knows `config`.
//! * Only what was seen on an exchange's own connection to the provider costs a profile or an endpoint anything, and only
//!   the six classes with a [`Reason`](policy::Reason) cost a profile something; each attempt is judged once.
//! * A path that asks no model changes no profile and no breaker. A text costs a profile something only as a whole
//!   sentence of the provider's: whatever else it holds, the client may have written.
//! * Time is a parameter: `policy` and `auth` never ask for it, `clock` alone does.
//! * After the first byte of an answer has gone down nothing is retried, and a broken stream never ends cleanly.
//! * A watcher sees an answer and never holds, changes or ends it; what it notes is the same however it was cut.
//! * A posted result reaches one principal: the one whose call it names, or nobody. The first posted stays.
//! * Content and secrets are in no log line, metric, span or error of ours; a secret is read through `auth::Secret::reveal`.
//!
//! The words with a special meaning are in `docs/glossary.md`; the way of one request is in `ARCHITECTURE.md`.
//!
//! # Where to start
//!
//! * Why was this body changed? [`conversation::pairing`], then [`repair::plan()`].
//! * What does a provider demand? `wire/*/mod.rs` and [`conversation::rules`].
//! * What does an answer contain? `wire/*/watch.rs` and [`wire::watch`]; streams for it are in `tests/streams`.
//! * Why was it sent twice? `wire/refusal`, then [`repair::RefusalReading`] and `proxy/attempt/resend.rs`.
//! * Why is a key in cooldown? [`policy::Verdict`] and [`policy::Class`], then `auth/rotation/windows.rs`. Why was another
//!   one taken? `auth/rotation/choice.rs`.
//! * Why did an answer end early? [`policy::course`] has the timeouts, `proxy/response/relay.rs` the end.
//! * What does a header or a status of the proxy mean? `proxy/error.rs`, `proxy/headers.rs`.
//! * Why does a call have this answer? `recall`, `proxy/request/call_lookup.rs`. Why was a late result put there?
//!   `proxy/late_results.rs`.
//! * What becomes of a content that a service has posted? `wire/content`, then `wire/*/content.rs`.
//! * Why was a call answered that no body shows? `repair/held.rs`, `proxy/provider_facts.rs`. Why did a result make way
//!   for a placeholder? `repair/bound_thinking.rs`.
//! * Why was a pin rolled back? `proxy/request/pending_pins.rs`. How long may the ledger take? `recall/patience.rs`.
//! * Who is the caller? `proxy/caller.rs`. Which credential is sent? `auth`, `proxy/credential.rs`, `proxy/signature.rs`.
//! * What does a commit of the ledger mean? `ledger/steps.rs`. Is it on the disk, and whose is the file? `ledger/sqlite`.
//! * What does a span contain? `telemetry/traces/names.rs`, then `telemetry/traces/spans.rs`.
//! * What does the dashboard show, and where does it come from? `admin/views`, `telemetry/dashboard`, `admin/page`.
//! * What does a reload change? `cli/reload.rs`, `config/changes.rs`, `proxy/service.rs`.
//! * A new provider: a row in `provider`. A new key: `config/file`, `config/lower.rs`. A new metric: `telemetry/metrics`.
//! * A bug: a folder in `tests/cases`.

#[cfg(feature = "server")]
pub mod admin;
#[cfg(feature = "server")]
pub mod app;
#[cfg(feature = "server")]
pub mod auth;
#[cfg(feature = "server")]
pub mod callers;
#[cfg(feature = "server")]
pub mod cli;
#[cfg(feature = "server")]
pub mod clock;
#[cfg(feature = "server")]
pub mod config;
pub mod conversation;
#[cfg(feature = "server")]
pub mod demo;
mod digest;
#[cfg(feature = "server")]
pub mod late;
#[cfg(feature = "server")]
pub mod ledger;
#[cfg(feature = "server")]
pub mod ledger_api;
#[cfg(feature = "server")]
pub mod policy;
#[cfg(feature = "server")]
pub mod profiles;
#[cfg(feature = "server")]
pub mod provider;
#[cfg(feature = "server")]
pub mod proxy;
#[cfg(feature = "server")]
pub mod recall;
pub mod repair;
#[cfg(feature = "server")]
pub mod server;
#[cfg(feature = "server")]
pub mod session;
#[cfg(feature = "server")]
pub mod session_table;
pub mod splice;
#[cfg(feature = "server")]
pub mod telemetry;
#[cfg(feature = "server")]
pub mod upstream;
pub mod wire;

pub use repair::{check, repair};

#[cfg(all(doctest, feature = "server"))]
#[doc = include_str!("../README.md")]
struct Readme;
