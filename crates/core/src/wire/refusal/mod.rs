//! Reads refusals: error responses in which a provider objects to the history of a request.
//!
//! One table serves all formats: the caller of [`RefusalTable::compile`] has its rows. A place such as `messages.7` is
//! matched but never followed, since providers count after their own normalization; only ids are read. A text must
//! begin the message, apart from known leads, since an error may quote the user further on. What precedes it may be the
//! user's too, as the name of a member: so a place consists of numbers and known names. A text whose repair loses
//! something must be the whole message.

mod demand;
mod fault;
mod ids;
mod kind;
mod known_words;
mod masked_text;
mod meaning;
mod pattern;
mod read;
mod table;
mod trial;

pub use demand::{Demand, Learning, MendKind, MendReach, MendVariable, RowMend};
pub use fault::RowFault;
pub use kind::{Refusal, RefusalKind};
pub use masked_text::{MASKED_BYTES_MAX, names_history};
pub use meaning::{ErrorMeaning, TokenCounts};
pub use read::REFUSAL_BYTES_MAX;
pub use table::{FoundRefusal, RefusalRow, RefusalTable, RefusalTexts, RowTexts};
pub use trial::{RowTrial, TextTrial, TrialOutcome};
