//! Faults of the rows of a table.

/// The fault of a row, which names it or its text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RowFault {
    /// A variable that does not exist.
    #[error(
        "{0:?} has an unknown variable: use <ids>, <place>, <member>, <name>, <number>, <limit>, <prompt>, <output>, \
         <total>, <word> or <words>, and << for a <"
    )]
    UnknownVariable(String),
    /// Two variables without text between them.
    #[error("{0:?} has two variables without text between them")]
    JoinedVariables(String),
    /// More variables than are matched.
    #[error("{0:?} has more than 8 variables")]
    TooManyVariables(String),
    /// Too little text to be certain.
    #[error("{0:?} has less than 16 bytes of text besides its variables")]
    TooShort(String),
    /// A text with an open end, of a row whose text must be the whole message.
    #[error("{0:?} ends with <ids> or <words>, and it must be the whole message: write the whole text")]
    OpenEnd(String),
    /// Sentences that may follow, of a row whose text need not be the whole message: they would not be read.
    #[error("`then` is only for texts that must be the whole message")]
    UnusedSentences(String),
    /// A mend that does not exist in this version.
    #[error("unknown mend {text:?}")]
    UnknownMend {
        /// The name of the row.
        row: String,
        /// The name of the mend.
        text: String,
    },
    /// An argument of a mend, or words about one, that do not exist.
    #[error("unknown word {text:?} of a mend")]
    UnknownMendWord {
        /// The name of the row.
        row: String,
        /// The words.
        text: String,
    },
    /// A row whose fault is a demand, and that has no mend; or the reverse.
    #[error("a mend belongs to the fault \"demand\", and this fault needs one")]
    DemandWithoutMend(String),
    /// A lifetime that does not fit the mend or its places.
    #[error(
        "the mend cannot teach that: `fits = \"named\"` goes with `learn = \"block\"`, which is for quote_block, drop_reasoning \
         and drop_item_id; drop_beta teaches a rule"
    )]
    UnfitLearning(String),
    /// A text without the variable that the mend of its row needs.
    #[error("{text:?} lacks <{variable}>, which its mend needs")]
    LacksVariable {
        /// The text.
        text: String,
        /// The name of the variable.
        variable: &'static str,
    },
    /// A fault that does not exist.
    #[error("unknown fault {fault:?}")]
    UnknownFault {
        /// The name of the row.
        row: String,
        /// Its fault.
        fault: String,
    },
}
