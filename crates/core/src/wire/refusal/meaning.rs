//! The meaning of errors beyond the history: numbers of tokens, and the tool that is at fault.

/// The numbers of tokens that an error names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TokenCounts {
    /// The largest number that the model takes.
    pub limit: Option<u64>,
    /// Those of the prompt.
    pub prompt: Option<u64>,
    /// Those that the answer may have.
    pub output: Option<u64>,
    /// Those of prompt and answer together.
    pub total: Option<u64>,
}

/// One of the numbers in [`TokenCounts`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TokenCount {
    Limit,
    Prompt,
    Output,
    Total,
}

impl TokenCounts {
    /// Sets a number, unless the text has named it before.
    pub(super) fn set(&mut self, count: TokenCount, number: u64) {
        let slot = match count {
            TokenCount::Limit => &mut self.limit,
            TokenCount::Prompt => &mut self.prompt,
            TokenCount::Output => &mut self.output,
            TokenCount::Total => &mut self.total,
        };
        slot.get_or_insert(number);
    }

    /// Returns the counts with what follows from the others: a total has two parts.
    #[must_use]
    pub fn completed(self) -> Self {
        let sum = || self.prompt?.checked_add(self.output?);
        let rest = |part: Option<u64>| self.total?.checked_sub(part?);
        Self {
            limit: self.limit,
            prompt: self.prompt.or_else(|| rest(self.output)),
            output: self.output.or_else(|| rest(self.prompt)),
            total: self.total.or_else(sum),
        }
    }
}

/// The meaning of an error, on which a client of the format could act.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorMeaning {
    /// The prompt is longer than the model's context, alone or with the answer.
    Overflow(TokenCounts),
    /// The tool with this index is rejected.
    BadTool(usize),
}
