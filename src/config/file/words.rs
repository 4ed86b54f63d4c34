//! The closed lists of words in the file, and the way to their twins in the code.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    policy::OnOrganisationChange,
    provider::Kind,
    proxy::OnBindingError,
    repair::{Applicability, Mode, OnLate, Tier},
    telemetry::LogFormat,
};

/// A closed list of words: the enum of the file, its twin in the code, and the way between them.
macro_rules! words {
    ($(#[$doc:meta])* $name:ident => $twin:ident { $($(#[$variant_doc:meta])* $variant:ident = $word:literal),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
        pub enum $name { $($(#[$variant_doc])* #[serde(rename = $word)] $variant),+ }

        impl From<$name> for $twin {
            fn from(name: $name) -> Self {
                match name { $($name::$variant => Self::$variant),+ }
            }
        }

        impl From<$twin> for $name {
            fn from(value: $twin) -> Self {
                match value { $($twin::$variant => Self::$variant),+ }
            }
        }

        impl $name {
            /// The words, in the order of the documentation.
            pub const WORDS: &'static [(&'static str, Self)] = &[$(($word, Self::$variant)),+];
        }
    };
}

words! {
    /// What a route does about findings.
    ModeName => Mode {
        /// Mend what can be mended and forward.
        Repair = "repair",
        /// Answer 400 in the provider's own shape, naming every finding.
        Strict = "strict",
        /// Forward unchanged and count.
        Observe = "observe",
    }
}

words! {
    /// A class of repair, from the least safe to the safest.
    LeastName => Applicability {
        /// Also remove bytes that said nothing of their own.
        Lossy = "lossy",
        /// At most write a result, marked as such, where nobody gave one.
        Inventive = "inventive",
        /// At most keep a result as marked text.
        Salvage = "salvage",
        /// Only put real results where they belong.
        Lossless = "lossless",
    }
}

words! {
    /// What to do about thinking that the provider has bound to another prefix.
    OnBindingErrorName => OnBindingError {
        /// Ask the provider to drop it.
        DropBlock = "drop_block",
        /// Hand the refusal to the client.
        Surface = "surface",
    }
}

words! {
    /// What to do about a real result that stands elsewhere, where its call was given a placeholder before.
    LateName => OnLate {
        /// The placeholder stays.
        Keep = "keep",
        /// The result goes to its call.
        Move = "move",
    }
}

words! {
    /// How far a tool's effect can be taken back.
    TierName => Tier {
        /// Reads only: safe to run again.
        Read = "read",
        /// Can be undone.
        Revertible = "revertible",
        /// Stays.
        Durable = "durable",
        /// Cannot be undone.
        OneWay = "one_way",
    }
}

impl Default for TierName {
    fn default() -> Self {
        Tier::default().into()
    }
}

words! {
    /// Whose API an upstream speaks.
    KindName => Kind {
        /// Anthropic.
        Anthropic = "anthropic",
        /// OpenAI.
        OpenAi = "openai",
        /// Google Gemini.
        Gemini = "gemini",
        /// Amazon Bedrock.
        Bedrock = "bedrock",
        /// Azure.
        Azure = "azure",
        /// Google Vertex AI.
        Vertex = "vertex",
        /// DeepSeek.
        DeepSeek = "deepseek",
        /// Mistral.
        Mistral = "mistral",
        /// xAI.
        Xai = "xai",
        /// MiniMax.
        MiniMax = "minimax",
        /// Any other server that speaks one of the formats.
        Compatible = "compatible",
    }
}

words! {
    /// How a log line looks.
    LogFormatName => LogFormat {
        /// Text on a terminal, else JSON.
        Auto = "auto",
        /// One JSON object a line.
        Json = "json",
        /// Text for people.
        Text = "text",
    }
}

words! {
    /// What to do where only a profile of another organisation is left.
    OnOrganisationChangeName => OnOrganisationChange {
        /// Hand the refusal to the client.
        Surface = "surface",
        /// Move with the history as it is.
        Move = "move",
    }
}

/// Whose credential goes up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum CredentialsName {
    /// The client's own.
    #[serde(rename = "passthrough")]
    Passthrough,
    /// That of a profile.
    #[serde(rename = "profiles")]
    Profiles,
}
