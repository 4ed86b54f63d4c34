//! Antiphon is a reverse proxy in front of LLM provider APIs: it makes sure that every tool call in every request has
//! exactly one answer. Healthy requests are sent byte for byte, and answers are relayed unchanged.
//!
//! > The bytes of a body are *read* into a conversation of spans, *checked* for findings, *planned* into actions,
//! > *spliced* over the same bytes, and *sent*. The answer is *relayed* unchanged while a watcher collects facts.
//!
//! # The map, from the ground up
//!
//! | room | job |
//! |---|---|
//! | `printable` | names of clients, models and providers, escaped and shortened for operators |
//! | `refusals` | the texts with which providers refuse a history: built-in rows in a file, and an operator's own rows, checked |
//! | `provider` | the table of providers: names, hosts and paths → upstream and format |
//! | `policy` | the meaning of an observation and its consequences: classes, timeouts, retries, breakers |
//! | `auth` | the operator's credentials, client tokens, callers |
//! | `session` | identity of a client session, agent and lane, from headers and body |
//! | `session_table` | state of lanes in memory: profile, open calls, branches |
//! | `upstream` | the HTTP client: one send with its timeouts; file descriptors and their limit |
//! | `telemetry` | log lines, metrics, traces and the dashboard's data, from events that other rooms report; the watch over the ledger's health |
//! | `recall` | pinned results, appended late results, client results, carried values and owners of objects, in memory and in the ledger |
//! | `late` | recorded calls, the results that tool services post for them, the intents of side effects, and messages to services and webhooks |
//! | `server` | listeners, owned tasks, drain; limits of processor time and memory, shared fairly by clients; files that an operator has named |
//! | `keys` | the choice among profiles and their cooldowns, retry budgets and breakers; the tasks that keep credentials fresh |
//! | `api` | `/ledger/v1`, `/admin/v1` and the dashboard, with one table of operations, queries, events, problem documents |
//! | `proxy` | the life of one exchange, top to bottom |
//! | `local_token` | the token file for commands of the proxy's own user |
//! | `config` | file, variables and flags → settings of the rooms above |
//! | `app` | construction of the whole process |
//! | `demo` | reported failures, played against a strict provider with and without the proxy |
//! | `cli` | one file or folder per subcommand |
//!
//! Before them come two packages with maps of their own: the core, [`antiphon_core`], with [`work`], [`splice`], `digest`,
//! [`labels`], [`conversation`], [`wire`] and [`repair`](mod@repair); and [`antiphon_ledger`], with [`clock`],
//! `digest_cache` and [`ledger`]. The architecture test (`tests/it/house`) compares the maps with the imports: a room
//! imports only rooms that come before it.
//!
//! # Invariants
//!
//! * A body is never serialized again: edits are splices, and bytes outside them are identical. Without findings the
//!   very same handle goes upstream.
//! * A body that cannot be read never fails an exchange: it passes through, with a counted reason. The exception is a
//!   body above the inspection limit in strict mode.
//! * A plan is a function of body, rules, policy and known results: not of a clock, counter, random number or host.
//! * Repairing a repaired body adds no edit.
//! * The core and `provider` never open a socket or file, never log, and never panic on input.
//! * Imports go up the map only; no room but `app`, `demo` and `cli` imports `config`.
//! * Only an observation on an exchange's own connection to the provider affects a profile or an endpoint. Only the six
//!   classes with a [`CooldownReason`](policy::CooldownReason) put a profile into cooldown. Each attempt is reported once.
//! * A profile without a valid credential is not chosen. That is no cooldown, and an expired credential is never sent.
//! * A path that uses no model changes no profile and no breaker. A text affects a profile only as one of the
//!   provider's whole sentences: the client may have written any other text.
//! * Time is a parameter: `policy`, `auth`, `keys/rotation` and `keys/credential_source` never read it. Only `clock` reads
//!   the system's clocks.
//! * After the first byte of an answer was sent to the client, nothing is retried. A broken stream never ends cleanly.
//! * A watcher never holds, changes or ends an answer. Its facts do not depend on how the answer is cut into chunks.
//! * A posted result reaches only the principal whose call it names. The first posted result stays.
//! * No log line, metric, span or error of the proxy contains content or secrets. `auth::Secret::reveal` is the only
//!   access to a secret.
//!
//! `docs/glossary.md` defines the words with a special meaning. `ARCHITECTURE.md` follows one request through the
//! files, and lists the files for each kind of change.
//!
//! # Where to start
//!
//! * Why was this body changed? [`conversation::pairing`], then [`repair::plan()`].
//! * What does a provider demand? `wire/*/mod.rs` and [`conversation::rules`].
//! * What does an answer contain? `wire/*/watch.rs`, `wire/facts` and [`wire::watch`]; recorded streams are in
//!   `tests/streams`.
//! * What depends on the format? `wire/format.rs` and `wire/mod.rs`.
//! * Why was it sent twice? `refusals`, `wire/refusal`, then [`repair::RefusalReading`] and `proxy/attempt/recovery`.
//! * Why is a key in cooldown? [`policy::Verdict`] and [`policy::Class`], then `keys/rotation/cooldowns.rs`. Why was
//!   another one used? `keys/rotation/choice.rs`.
//! * Why did an answer end early? [`policy::stream_timeouts`], then `proxy/response/relay.rs`.
//! * What does a header or a status of the proxy mean? `proxy/headers.rs`, `proxy/error.rs`, `proxy/send_failure.rs`,
//!   `wire/error_shape.rs`.
//! * What does an exchange do about late results? `proxy/late_results`, at two hooks: before a send, after an answer.
//! * Why does a call have this result? `repair/call_results.rs`, `proxy/request/call_lookup.rs`, `recall`. Why was a late
//!   result appended there? `proxy/late_results/text_insertion.rs` (where) and `proxy/late_results/lacking_results.rs` (which).
//! * How does the content of a posted result become a block? `wire/content`, then `wire/*/content.rs`.
//! * Why was a call answered that no body contains? `repair/remote_calls.rs`, `proxy/fact_memory.rs`. Why did a
//!   placeholder replace a result? `repair/bound_thinking.rs`.
//! * Why was a pin rolled back? `proxy/request/pending_pins.rs`. How long may a request wait for the ledger?
//!   `recall/ledger_budget.rs`.
//! * Why was reasoning or a signature put back? `proxy/continuity.rs`, `repair/continuity.rs`, `recall/continuity.rs`.
//! * Why did a request lose its `previous_response_id`? `proxy/response_chain.rs`, `wire/item_chain.rs`.
//! * Who is the caller? `proxy/caller.rs`. Which credential is sent? `auth`, `proxy/credential.rs`,
//!   `proxy/signature.rs`.
//! * Who may connect? `server/tls`. For which client does a certificate stand? `auth/certificate_names.rs`.
//! * When is a credential renewed? `keys/credential_source`, then `keys/credentials`. Which one is in use?
//!   `keys/profiles/credential_cell.rs`.
//! * What does a commit of the ledger guarantee? [`ledger::Ledger`] and `ledger/steps.rs`. Which file is it?
//!   `ledger/sqlite`. Which tables are they? `ledger/postgres/schema.rs`. When is it degraded? `ledger/health.rs`.
//!   What waits while it is checked? `ledger/sqlite/first_check.rs`. Which background write is lost first?
//!   `writer/loss_order.rs`.
//! * Why does a body wait, or get 503? `server/budget`. Which thread runs it? `server/runtimes.rs`.
//! * What does a span contain? `telemetry/traces/names.rs`, then `telemetry/traces/spans.rs`.
//! * What does the dashboard show? `api/admin/views`, `telemetry/dashboard`, `api/admin/page`.
//! * What does a reload change? `cli/reload.rs`, `config/changes.rs`, `proxy/service.rs`. Which thread reads the files?
//!   `cli/file_work.rs`.
//! * A bug becomes a folder in `tests/cases`.

pub mod api;
pub mod app;
pub mod auth;
pub mod cli;
pub mod config;
pub mod demo;
pub mod keys;
pub mod late;
pub mod local_token;
pub mod policy;
mod printable;
pub mod provider;
pub mod proxy;
pub mod recall;
pub mod refusals;
pub mod server;
pub mod session;
pub mod session_table;
pub mod telemetry;
pub mod upstream;

use antiphon_core::digest;
pub use antiphon_core::{check, conversation, explain, labels, mend, repair, sessions, splice, wire, work};
use antiphon_ledger::digest_cache;
pub use antiphon_ledger::{clock, ledger, table, writer};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

#[cfg(doctest)]
#[doc = include_str!("../docs/agents.md")]
struct AgentsGuide;
