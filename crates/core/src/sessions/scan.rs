//! The scan of a session file, and the plan of its edits.

use std::io::{self, Read, Seek};

use super::{
    client::{ClientVersion, SessionClient},
    edits::SessionEdit,
    finding::SessionFinding,
};

/// A session file, as it was read.
#[derive(Clone, Debug)]
pub struct SessionReport {
    /// The client that wrote it.
    pub client: SessionClient,
    /// The newest version that has written records.
    pub version: Option<ClientVersion>,
    /// The id of the session.
    pub session: Option<String>,
    /// Bytes of the file.
    pub bytes: u64,
    /// Line feeds, and a last line without one.
    pub lines: u64,
    /// Messages and items of the conversation in the file.
    pub messages: u64,
    /// Those of them that the client sends in its next request.
    pub reachable: u64,
    /// What was found, in the order of the file.
    pub findings: Vec<SessionFinding>,
}

/// The reason why nothing is known about a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotRead {
    /// No known client wrote it.
    #[error("no known client wrote this file")]
    UnknownClient,
    /// It has lines of a client, and none of them has content that can be read.
    #[error("its records have no content that can be read")]
    NoContent,
}

/// Reads a session file, whose client is known by its first records.
///
/// # Errors
///
/// Those of `input`.
pub fn scan_session(_input: &mut impl Read) -> io::Result<Result<SessionReport, NotRead>> {
    Ok(Err(NotRead::UnknownClient))
}

/// Plans the edits that mend everything that can be mended.
///
/// # Errors
///
/// Those of `file`.
pub fn plan_fix(_file: &mut (impl Read + Seek)) -> io::Result<Vec<SessionEdit>> {
    Ok(Vec::new())
}
