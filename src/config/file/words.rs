//! Closed lists of words in the file, and their conversion to and from the enums of the rooms below.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    late::IntentUse,
    ledger::DatabaseTls,
    policy::OnOrganisationChange,
    provider::ProviderKind,
    proxy::{OnBindingError, OnOutage},
    repair::{Applicability, Mode, OnLate, Tier},
    telemetry::LogFormat,
};

/// Defines a closed list of words: an enum of the file and its conversion to and from an enum of another room.
macro_rules! words {
    ($(#[$doc:meta])* $name:ident => $twin:ident { $($(#[$variant_doc:meta])* $variant:ident = $word:literal),+ $(,)? }) => {
        // The other rooms know neither serde names nor the schema, so the file has enums of its own.
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
            /// Words with their values, in the order of the documentation.
            pub const WORDS: &'static [(&'static str, Self)] = &[$(($word, Self::$variant)),+];

            /// Returns the value that a word stands for.
            pub fn from_word(word: &str) -> Option<Self> {
                Self::WORDS.iter().find(|(known, _)| *known == word).map(|(_, value)| *value)
            }
        }
    };
}

words! {
    /// Reaction of a route to findings.
    ModeName => Mode {
        /// Repair the body as far as possible and forward it.
        Repair = "repair",
        /// Answer 400 in the provider's format, with every finding.
        Strict = "strict",
        /// Forward the body unchanged and count the findings.
        Observe = "observe",
    }
}

words! {
    /// Class of repair actions, from the least safe to the safest.
    LeastName => Applicability {
        /// Also remove redundant bytes, such as an equal duplicate.
        Lossy = "lossy",
        /// At most write a marked placeholder for a missing result.
        Inventive = "inventive",
        /// At most keep a result as marked text.
        Salvage = "salvage",
        /// Only move real results to their calls.
        Lossless = "lossless",
    }
}

words! {
    /// Reaction if the provider rejects thinking as bound to another prefix.
    OnBindingErrorName => OnBindingError {
        /// Resend and ask the provider to drop the thinking block.
        DropBlock = "drop_block",
        /// Return the refusal to the client.
        Surface = "surface",
    }
}

words! {
    /// Encryption of connections to a database on another machine.
    LedgerTlsName => DatabaseTls {
        /// TLS, with a certificate that is valid for the host.
        Verify = "verify",
        /// TLS if the database offers it, with any certificate.
        Insecure = "insecure",
    }
}

words! {
    /// Reaction to a ledger that does not answer.
    OnOutageName => OnOutage {
        /// Wait up to 5 seconds, then send a placeholder that is not stored.
        Wait = "wait",
        /// Wait up to 5 seconds, then refuse the request with 503.
        Refuse = "refuse",
        /// Wait up to 250 ms, then send a placeholder that is not stored.
        Degrade = "degrade",
    }
}

words! {
    /// Handling of a real result elsewhere in the body if its call already has a placeholder.
    LateName => OnLate {
        /// Keep the placeholder and quote the result in place.
        Keep = "keep",
        /// Move the result to its call.
        Move = "move",
    }
}

words! {
    /// Degree to which the effect of a tool can be undone.
    TierName => Tier {
        /// Reads only, safe to run again.
        Read = "read",
        /// Can be undone.
        Revertible = "revertible",
        /// Permanent.
        Durable = "durable",
        /// Cannot be undone.
        OneWay = "one_way",
    }
}

words! {
    /// Calls that get the result of an earlier call with the same input.
    IntentName => IntentUse {
        /// No calls: only services that claim an intent share its result.
        Off = "off",
        /// Those of the same session.
        Session = "session",
        /// Those of the same user, also in another conversation.
        User = "user",
    }
}

impl Default for IntentName {
    fn default() -> Self {
        IntentUse::default().into()
    }
}

impl Default for TierName {
    fn default() -> Self {
        Tier::default().into()
    }
}

words! {
    /// Provider whose API an upstream speaks.
    KindName => ProviderKind {
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
    /// Format of a log line.
    LogFormatName => LogFormat {
        /// Text on a terminal, else JSON.
        Auto = "auto",
        /// One JSON object per line.
        Json = "json",
        /// Text for people.
        Text = "text",
    }
}

words! {
    /// Reaction if only a profile of another organisation is left.
    OnOrganisationChangeName => OnOrganisationChange {
        /// Return the refusal to the client.
        Surface = "surface",
        /// Move to it with the unchanged history.
        Move = "move",
    }
}

/// Credential that the proxy sends upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CredentialsName {
    /// The client's own credential, unchanged.
    Passthrough,
    /// The credential of one of your profiles.
    Profiles,
}
