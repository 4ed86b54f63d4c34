//! `[[upstreams.NAME.profiles]]`, `[client_limits.NAME]`, `[client_tokens]` and `[client_certificates]` of the file.
//! Secrets never reach these types.
//!
//! The reader stores the value of a key with `writeOnly` elsewhere. Here it leaves text that may be shown: the
//! reference `${NAME}` as it was written, or `***`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    FileValue, Written,
    values::{AwsRegion, CertifiedName, HashedClientToken, Interval, ModelPattern, PrintableWord, check_number},
};
use crate::config::problem::ConfigProblem;

section! {
    /// One of your credentials at an upstream: an API key, a bearer token, AWS keys, or a source of them; exactly one.
    ProfileSection {
        /// Label in logs, metrics and headers. Unique within its upstream.
        pub name: String = String::new();
        /// API key, written as `${NAME}`. The proxy sends it in the header that the provider expects.
        #[schemars(extend("writeOnly" = true))]
        pub api_key: Option<String> = None;
        /// File that contains only the API key, and at most one line break at its end. The proxy uses its new content
        /// when it changes (see `server.secret_poll`), and at each reload.
        pub api_key_file: Option<String> = None;
        /// Token, written as `${NAME}`. The proxy sends it as `Authorization: Bearer`. For tokens that expire, write
        /// `token_command`.
        #[schemars(extend("writeOnly" = true))]
        pub bearer: Option<String> = None;
        /// File that contains only the token.
        pub bearer_file: Option<String> = None;
        /// Program and arguments that print a bearer token, alone or as JSON with its expiry. They run without a shell,
        /// at the start and before the token expires.
        pub token_command: Option<Vec<CommandWord>> = None;
        /// Interval at which `token_command` runs if its output has no expiry. Default: `45m`.
        pub token_refresh: Option<Written<Interval>> = None;
        /// ID of the AWS key that signs requests, written as `${NAME}`. Only for upstreams of kind `bedrock`.
        #[schemars(extend("writeOnly" = true))]
        pub aws_access_key_id: Option<String> = None;
        /// File that contains only the ID of the AWS key.
        pub aws_access_key_id_file: Option<String> = None;
        /// Secret AWS key, written as `${NAME}`.
        #[schemars(extend("writeOnly" = true))]
        pub aws_secret_access_key: Option<String> = None;
        /// File that contains only the secret AWS key.
        pub aws_secret_access_key_file: Option<String> = None;
        /// Session token of temporary AWS keys, written as `${NAME}`.
        #[schemars(extend("writeOnly" = true))]
        pub aws_session_token: Option<String> = None;
        /// File that contains only the AWS session token.
        pub aws_session_token_file: Option<String> = None;
        /// Program and arguments that print AWS keys as JSON, as `credential_process` of the AWS tools. They run without a
        /// shell, at the start and before the keys expire.
        pub aws_credential_process: Option<Vec<CommandWord>> = None;
        /// Uses the AWS keys of the container's role, on ECS or with EKS Pod Identity.
        pub aws_container_credentials: bool = false;
        /// AWS region. Default: derived from the host of the upstream's URL.
        pub aws_region: Option<Written<AwsRegion>> = None;
        /// Share of requests relative to the other profiles of its upstream, from 1 to 1000.
        pub weight: u64 = 1,
            check(|weight| check_number(*weight, 1..=1000, "a weight from 1 to 1000", None));
        /// Organisation that owns the account. Default: learned from the provider's answers.
        pub organisation: Option<Written<PrintableWord>> = None;
        /// Models that it may be used for, by name or prefix (`claude-*`). Empty: all models.
        pub models: Vec<Written<ModelPattern>> = Vec::new();
        /// Number of its requests at the same time. More wait up to `rotation.wait`, then get 429. Default: any number.
        pub max_concurrent: Option<u64> = None,
            check(|most| {
                let numbers = 1..=u64::from(u32::MAX);
                check_number(*most, numbers, "a number from 1 to 4294967295", Some("remove it for any number"))
            });
    }
}

/// Word of a command. It is shown as it was written, with `${NAME}` in place of the variable's value.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
#[schemars(extend("x-shown-as-written" = true))]
pub struct CommandWord(pub String);

impl FileValue for CommandWord {}

section! {
    /// `[client_limits.NAME]`: limits of a client token.
    ClientLimitsSection {
        /// Names of the upstreams that it may use. Empty: all upstreams.
        pub upstreams: Vec<String> = Vec::new();
        /// Number of its exchanges at the same time. More wait up to `rotation.wait`, then get 429. Default: any number.
        pub max_concurrent: Option<usize> = None,
            // Zero would mean a token that is never served.
            check(|most| check_number(*most, 1.., "at least 1", Some("remove the token to refuse its client")));
        /// Part of the retry budget of each upstream that it may use, in percent from 0 to 100. Default: 12.5 percent.
        pub retry_percent: Option<u64> = None,
            check(|percent| check_number(*percent, 0..=100, "a whole number of percent from 0 to 100", None));
    }
}

/// A client's token: its hash alone, or with more.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum ClientTokenEntry {
    /// Hash of the token.
    Hash(Written<HashedClientToken>),
    /// Table with the hash of the token.
    Table(ClientTokenSection),
}

impl ClientTokenEntry {
    /// Returns the hash.
    pub const fn hash(&self) -> &Written<HashedClientToken> {
        match self {
            Self::Hash(hash) => hash,
            Self::Table(table) => &table.token,
        }
    }

    /// Returns the hash.
    pub const fn hash_mut(&mut self) -> &mut Written<HashedClientToken> {
        match self {
            Self::Hash(hash) => hash,
            Self::Table(table) => &mut table.token,
        }
    }
}

impl FileValue for ClientTokenEntry {
    fn check(&self, key: &str, report: &mut dyn FnMut(&str, ConfigProblem)) {
        match self {
            Self::Hash(hash) => hash.check(key, report),
            Self::Table(table) => table.check(key, report),
        }
    }
}

section! {
    /// `[client_tokens.NAME]`: a client's token with its properties.
    ClientTokenSection {
        /// Hash of the token, as `antiphon config token NAME` prints it.
        pub token: Written<HashedClientToken> = Written::default();
        /// One person uses the token, so that an effect of one of its conversations is not repeated in another.
        pub personal: bool = false;
    }
}

/// Names of certificates, as these contain them: DNS names, URIs or email addresses.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct CertificateNameList(pub Vec<Written<CertifiedName>>);

impl FileValue for CertificateNameList {
    fn check(&self, key: &str, report: &mut dyn FnMut(&str, ConfigProblem)) {
        self.0.check(key, report);
    }
}
