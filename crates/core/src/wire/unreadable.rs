//! The reasons for which a body is not read.

/// The reason for which a body is forwarded unread and unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Unreadable {
    /// Text that is not JSON: `serde_json` refuses it as a raw value.
    #[error("not JSON")]
    NotJson,
    /// Two occurrences of the key that contains the history at the top of the body.
    #[error("the history key occurs twice")]
    DuplicateHistory,
    /// JSON that does not have the format's shape in the part that is read.
    #[error("not of the format's shape")]
    Shape,
    /// A body of a format that shares its path or its keys with the expected one, and that is not read.
    #[error("a body of another format")]
    OtherFormat,
    /// A body larger than the inspection limit.
    #[error("larger than the inspection limit")]
    TooLarge,
    /// A content coding that the proxy does not decode, or a coded body that does not decode.
    #[error("unknown or broken content coding")]
    Coding,
    /// Overlapping edits: a bug in the proxy, never a fault of the body.
    #[error("edits overlapped: a bug in antiphon")]
    Overlap,
}

impl Unreadable {
    /// All reasons: the values of the metric label.
    pub const ALL: [Self; 7] = [
        Self::NotJson,
        Self::DuplicateHistory,
        Self::Shape,
        Self::OtherFormat,
        Self::TooLarge,
        Self::Coding,
        Self::Overlap,
    ];

    /// Returns the stable name in metrics and logs.
    pub const fn code(self) -> &'static str {
        match self {
            Self::NotJson => "not_json",
            Self::DuplicateHistory => "duplicate_history",
            Self::Shape => "shape",
            Self::OtherFormat => "other_format",
            Self::TooLarge => "too_large",
            Self::Coding => "coding",
            Self::Overlap => "overlap",
        }
    }
}
