//! The texts with which providers refuse a history: the built-in rows of `rows.toml`, and an operator's own rows.

mod body_notes;
mod built_in;
mod example_checks;
mod offline_mend;
mod own_rule;
mod own_table;
mod reader;
mod row_checks;
mod rule_fault;
mod trial_text;

pub use body_notes::{BodyNote, body_notes};
pub use built_in::{built_in_name, table};
pub use offline_mend::{OfflineMend, mend_offline};
pub use own_rule::{OwnRule, RuleExample, RuleRepair};
pub use own_table::{CheckedRules, RULES_MAX, check_rules};
pub use reader::RefusalReader;
pub use rule_fault::RuleFault;
pub use trial_text::describe_outcome;
