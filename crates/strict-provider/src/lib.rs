//! A scripted LLM provider that judges tool-call histories as strictly as the real providers do.
//!
//! It refuses a broken history in the real provider's words, and otherwise returns a scripted or plausible answer, as JSON
//! or as a stream. The crate does not depend on Antiphon, so that Antiphon never judges itself: its demonstration, tests
//! and fuzz targets all use this one judge.

#[cfg(feature = "server")]
mod answer;
#[cfg(feature = "server")]
pub mod binding;
pub mod frames;
pub mod judge;
pub mod kept;
#[cfg(feature = "server")]
mod model;
#[cfg(feature = "server")]
mod paths;
#[cfg(feature = "server")]
mod provider;
pub mod refusal_rule;
#[cfg(feature = "server")]
mod reply;
#[cfg(feature = "server")]
mod thought;

#[cfg(feature = "server")]
pub use provider::{Provider, ReceivedRequest, Recording, ResponseBody, Settings};
#[cfg(feature = "server")]
pub use reply::{Reply, ToolCall};

/// A request format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Anthropic Messages.
    Messages,
    /// OpenAI Chat Completions.
    Chat,
    /// OpenAI Responses.
    Responses,
    /// Gemini `generateContent`.
    Gemini,
}

#[cfg(feature = "server")]
impl Format {
    /// Returns `true` if answers are stored, and requests may continue from them by their id.
    const fn continues_by_id(self) -> bool {
        match self {
            Self::Responses => true,
            Self::Messages | Self::Chat | Self::Gemini => false,
        }
    }
}

/// The provider whose reading of a format is judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// The author of the format.
    Author,
    /// Amazon Bedrock.
    Bedrock,
    /// DeepSeek.
    DeepSeek,
    /// MiniMax.
    MiniMax,
    /// Mistral.
    Mistral,
    /// xAI.
    Xai,
    /// Any other server that speaks the format.
    Compatible,
}
