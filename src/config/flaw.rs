//! A problem with one value, before its place is known.

/// A problem with one value.
#[derive(Debug)]
pub(super) struct Flaw {
    pub(super) message: String,
    pub(super) hint: Option<String>,
}

impl Flaw {
    pub(super) fn new(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            hint: None,
        }
    }

    pub(super) fn hint(self, hint: impl Into<String>) -> Self {
        Self {
            hint: Some(hint.into()),
            ..self
        }
    }

    /// Removes what was found: it may be a secret.
    pub(super) fn quiet(self) -> Self {
        let message = self.message.split("; found").next().unwrap_or_default();
        Self::new(message)
    }
}
