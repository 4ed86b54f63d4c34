//! Rows of refusals that an operator has written: in the configuration, and in a file of their own.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::refusals::{OwnRule, RuleExample, RuleRepair};

section! {
    /// A file of rows, such as `repair.rules_file` names.
    RulesFile {
        /// The rows.
        #[schemars(length(max = 200))]
        pub row: Vec<RuleSection> = Vec::new();
    }
}

section! {
    /// `[[repair.rules]]`: a text with which a server refuses a history, and what is done then.
    RuleSection {
        /// Name of the row: lower-case letters, digits, `_` and `-`.
        pub name: String = String::new();
        /// Known fault that the text is about. Default: `demand`, which `mend` meets.
        pub fault: Option<String> = None;
        /// Statuses with which the texts count. Default: 400.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        #[schemars(length(max = 16))]
        pub status: Vec<u64> = Vec::new();
        /// Beginnings of the message, as patterns: `<ids>`, `<place>`, `<member>`, `<name>`, `<number>`, `<word>` and
        /// `<words>` stand for what differs.
        #[schemars(length(max = 16))]
        pub text: Vec<String> = Vec::new();
        /// Sentences that may follow the text, as patterns. Only for mends that lose something.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        #[schemars(length(max = 16))]
        pub then: Vec<String> = Vec::new();
        /// Change that meets the demand, with its argument: `drop_member <member>`.
        pub mend: Option<String> = None;
        /// Places at which the mend acts: `all` that it fits, or the one that is `named`. Default: that of the mend.
        pub fits: Option<String> = None;
        /// The lesson of an accepted resend: the `rule`, the `block`, or nothing (`once`). Default: `rule`.
        pub learn: Option<String> = None;
        /// `antiphon check --rules` notes bodies that the mend would change.
        pub note: bool = false;
        /// Source of the text, for people.
        pub seen: Option<String> = None;
        /// Messages as the server sent them. Each must be read by this row.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        #[schemars(length(max = 16))]
        pub example: Vec<RuleExampleSection> = Vec::new();
        /// A body that the server refuses with the first example, and what is sent then.
        pub repair: Option<RuleRepairSection> = None;
    }
}

section! {
    /// A message as a server sent it.
    RuleExampleSection {
        /// The message, or the whole body of the error.
        pub text: String = String::new();
        /// The ids that are read from it. Default: not checked.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        #[schemars(length(max = 64))]
        pub ids: Vec<String> = Vec::new();
    }
}

section! {
    /// A body that a server refuses, and what is sent then.
    RuleRepairSection {
        /// Format and dialect of the server, as `antiphon check --wire` takes it.
        pub wire: String = String::new();
        /// The body that is refused.
        pub before: String = String::new();
        /// The body that is sent then, byte for byte.
        pub after: String = String::new();
    }
}

impl RuleSection {
    /// Returns the row.
    pub fn to_rule(&self) -> OwnRule {
        let example = |example: &RuleExampleSection| RuleExample {
            text: example.text.clone(),
            ids: example.ids.clone(),
        };
        OwnRule {
            name: self.name.clone(),
            fault: self.fault.clone(),
            // A number that is no status stays one that is none.
            statuses: self
                .status
                .iter()
                .map(|status| u16::try_from(*status).unwrap_or_default())
                .collect(),
            texts: self.text.clone(),
            then: self.then.clone(),
            mend: self.mend.clone(),
            fits: self.fits.clone(),
            learn: self.learn.clone(),
            is_noted: self.note,
            examples: self.example.iter().map(example).collect(),
            repair: self.repair.as_ref().map(|repair| RuleRepair {
                wire: repair.wire.clone(),
                before: repair.before.clone(),
                after: repair.after.clone(),
            }),
        }
    }
}
