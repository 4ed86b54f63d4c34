//! Session files of coding agents: what is damaged, what the client leaves out at its next start, and edits that mend a file
//! without moving a byte.
//!
//! A file is read as a stream of records ([`records`]), which the log of its client puts together ([`log`]). Of a record
//! only its place, its links and the ids of its calls are kept, never a text. What a client does about a damage is data
//! ([`severity`]). An edit overwrites bytes by as many others, or appends a record ([`edits`]).

pub mod client;
pub mod damage;
pub mod edits;
pub mod finding;
mod log;
pub mod records;
pub mod scan;
pub mod severity;

mod claude_code;
mod codex;

pub use client::{ClientVersion, SessionClient};
pub use damage::{Damage, SessionCode};
pub use edits::{EditedFile, SessionEdit};
pub use finding::{FixKind, SessionFinding};
pub use scan::{NotRead, SessionReport, plan_fix, scan_session};
pub use severity::{MEASURED, Measured, Severity, severity_of};
