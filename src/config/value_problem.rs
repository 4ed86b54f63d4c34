//! A problem with one value, before its key and place are known.

/// Problem with one value: a message and an optional hint.
#[derive(Debug)]
pub(super) struct ValueProblem {
    pub(super) message: String,
    pub(super) hint: Option<String>,
}

impl ValueProblem {
    pub(super) fn new(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            hint: None,
        }
    }

    pub(super) fn with_hint(self, hint: impl Into<String>) -> Self {
        Self {
            hint: Some(hint.into()),
            ..self
        }
    }

    /// Removes the value that the message repeats, since it may be a secret.
    pub(super) fn without_value(self) -> Self {
        // The hint goes too: it may repeat the value or name the word that is nearest to it.
        let message = self.message.split("; found").next().unwrap_or_default();
        Self::new(message)
    }
}
