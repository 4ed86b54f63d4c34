//! Session files of coding agents: what is damaged, what the client leaves out at its next start, and edits that mend a file
//! without moving a byte.
//!
//! A file is read as a stream of records ([`records`]), which the log of its client puts together ([`scan`]). Of a record
//! only its place, its links and the ids of its calls are kept, never a text. What a client does about a damage is data
//! ([`measured`]). An edit overwrites bytes with as many others, or appends a record ([`edits`]).
//! A plan is made over a view of the file after its edits, until nothing is left that can be mended ([`plan`]).
//! Sessions of some clients are only read: [`SessionClient::is_mended`].

mod call_pairs;
pub mod client;
pub mod damage;
pub mod edits;
mod file_edits;
pub mod finding;
pub mod holes;
pub mod link_id;
mod log;
mod marks;
pub mod measured;
mod members;
mod object_scan;
pub mod overlay;
mod paged_list;
pub mod plan;
pub mod records;
mod repeats;
pub mod scan;
pub mod severity;
mod splices;

mod claude_code;
mod codex;
mod copilot;
mod qwen_code;

#[cfg(test)]
mod stand_ins;

#[cfg(test)]
#[path = "../../../../tests/support/seed.rs"]
#[expect(dead_code, unreachable_pub, reason = "the tests of other rooms use more of it")]
mod seed;

pub use client::{ClientVersion, SessionClient};
pub use damage::{Damage, SessionCode};
pub use edits::{EditFault, EditedFile, SessionEdit};
pub use finding::{FixKind, RecordLoss, SessionFinding};
pub use holes::SkipHoles;
pub use measured::{MEASURED, Measured, Severity};
pub use overlay::{ByteRun, OverlaidFile};
pub use plan::{FixRefused, plan_fix};
pub use scan::{NotRead, SessionReport, scan_session, scan_session_of, scan_sparse_session};
pub use severity::{find_effect, severity_of};
