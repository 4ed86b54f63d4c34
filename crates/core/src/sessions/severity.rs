//! The effect of each finding on each client, as measured: by damage, client and version.

use super::{
    client::{ClientVersion, SessionClient},
    damage::SessionCode,
};
use crate::labels::labelled_enum;

labelled_enum! {
    /// The weight of a finding for one client.
    pub enum Severity {
        /// This version of the client copes with it.
        Note = "note",
        /// The client leaves something out, and says nothing.
        Warning = "warning",
        /// The session is not loaded, or its next request is refused.
        Error = "error",
    }
}

/// The effect of one finding on some versions of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Measured {
    /// The finding.
    pub code: SessionCode,
    /// The client.
    pub client: SessionClient,
    /// The first version that does so. `None` for all before `until`.
    pub from: Option<ClientVersion>,
    /// The first version that no longer does so. `None` if the newest one does.
    pub until: Option<ClientVersion>,
    /// The weight.
    pub severity: Severity,
    /// The effect, as the end of a sentence: "the client skips both".
    pub effect: &'static str,
    /// Versions that were tried, and the month.
    pub measured: &'static str,
}

/// All that was measured. The first row that fits counts.
pub const MEASURED: &[Measured] = &[];

/// Returns the effect of a finding on a version of a client. `None` if nothing was measured: then it is a warning.
pub fn severity_of(
    code: SessionCode,
    client: SessionClient,
    version: Option<ClientVersion>,
) -> Option<&'static Measured> {
    let mut rows = MEASURED.iter().filter(|row| row.code == code && row.client == client);
    // Without a version the newest one is meant.
    rows.find(|row| match version {
        Some(version) => row.from.is_none_or(|from| version >= from) && row.until.is_none_or(|until| version < until),
        None => row.until.is_none(),
    })
}
