//! The reader of refusals: an operator's own rows, then the built-in ones.

use std::sync::Arc;

use super::built_in::table;
use crate::wire::{FoundRefusal, RefusalTable};

/// The rows by which refusals are read. Those of an operator come first: what one of them reads, no built-in row is asked.
///
/// The default has the built-in rows only. A copy shares the rows.
#[derive(Clone, Debug, Default)]
pub struct RefusalReader {
    own: Option<Arc<RefusalTable>>,
}

impl RefusalReader {
    /// Creates a reader with these rows of an operator.
    pub fn with_own(own: RefusalTable) -> Self {
        Self {
            own: (!own.rows().is_empty()).then(|| Arc::new(own)),
        }
    }

    /// Returns the operator's own rows. `None` if there is none.
    pub fn own(&self) -> Option<&RefusalTable> {
        self.own.as_deref()
    }

    /// Reads the body of a refusal, by built-in rows whatever its status. `None` if no row reads it.
    ///
    /// An operator's row with another status must not change how such errors count for other callers, so it is asked only
    /// with a status that it names. `None` for the error of a stream, which has none.
    pub fn read(&self, status: Option<u16>, body: &[u8]) -> Option<FoundRefusal<'_>> {
        let own = self.own().and_then(|own| match status {
            Some(status) => own.read_with_status(status, body),
            None => own.read(body),
        });
        own.or_else(|| table().read(body))
    }

    /// Reads the body of an answer with this status, by the rows that count with it. `None` if none of them reads it.
    pub fn read_with_status(&self, status: u16, body: &[u8]) -> Option<FoundRefusal<'_>> {
        let own = self.own().and_then(|own| own.read_with_status(status, body));
        own.or_else(|| table().read_with_status(status, body))
    }

    /// Returns `true` if a row counts with this status.
    pub fn has_status(&self, status: u16) -> bool {
        table().has_status(status) || self.own().is_some_and(|own| own.has_status(status))
    }

    /// Returns the masked text of an error that no row reads. `None` if it has no message.
    pub fn mask(&self, body: &[u8]) -> Option<String> {
        table().mask(body)
    }
}
