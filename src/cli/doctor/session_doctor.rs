//! The reader and the planner of session files, as the rest of the command meets them.

use std::{
    fs::File,
    io::{self, Read},
};

use super::progress::ProgressReader;
use crate::sessions::{NotRead, SessionClient, SessionEdit, SessionReport, plan_fix, scan_session, scan_session_of};

/// Reads session files, and plans how they are mended. Tests put another one in its place, which fails midway.
pub(super) trait SessionDoctor {
    /// Reads a file from its begin on. `place` is the client in whose folder it is.
    fn scan_file(
        &self,
        place: Option<SessionClient>,
        input: &mut dyn Read,
    ) -> io::Result<Result<SessionReport, NotRead>>;

    /// Plans the edits of a file.
    fn plan_edits(&self, file: &mut ProgressReader<&File>) -> io::Result<Vec<SessionEdit>>;
}

/// The doctor of the core.
#[derive(Clone, Copy, Debug)]
pub(super) struct CoreDoctor;

impl SessionDoctor for CoreDoctor {
    fn scan_file(
        &self,
        place: Option<SessionClient>,
        mut input: &mut dyn Read,
    ) -> io::Result<Result<SessionReport, NotRead>> {
        match place {
            Some(client) => scan_session_of(client, &mut input),
            None => scan_session(&mut input),
        }
    }

    fn plan_edits(&self, file: &mut ProgressReader<&File>) -> io::Result<Vec<SessionEdit>> {
        plan_fix(file)
    }
}
