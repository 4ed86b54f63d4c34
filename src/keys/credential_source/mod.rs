//! Sources of credentials that change while the process runs: programs, an endpoint of AWS, and files.
//!
//! Everything here is a function of values: what a source printed, when it is asked again, and which change counts.

mod container;
mod file_watch;
mod outputs;
mod schedule;

use std::{collections::BTreeMap, fmt, path::PathBuf, time::Duration};

pub use container::{ContainerEndpoint, ContainerEndpointError, ContainerToken};
pub use file_watch::{FileFlaw, FileProblem, FileStep, FileWatch};
pub use outputs::{parse_container_answer, parse_process_output, parse_token_output};
pub use schedule::{RefreshClock, TOKEN_REFRESH};

use crate::auth::{AwsKeys, Credential, Secret};

/// Longest output of a program, or answer of an endpoint, in bytes.
pub const OUTPUT_BYTES_MAX: usize = 64 * 1024;
/// Timeout of a program, and of a request to an endpoint.
pub const SOURCE_TIMEOUT: Duration = Duration::from_secs(30);

/// The sources of an upstream's profiles, by upstream and profile.
pub type CredentialSources = BTreeMap<String, BTreeMap<String, CredentialSource>>;

/// The origin of a credential that changes while the process runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CredentialSource {
    /// A program that prints a bearer token.
    Token {
        /// The program.
        command: CommandLine,
        /// Interval for tokens without an expiry.
        refresh: Duration,
    },
    /// A program that prints AWS keys, as `credential_process` of the AWS tools.
    AwsProcess {
        /// The program.
        command: CommandLine,
        /// The scope of the signatures.
        scope: AwsScope,
    },
    /// The credentials endpoint of a container.
    AwsContainer {
        /// The endpoint.
        endpoint: ContainerEndpoint,
        /// The scope of the signatures.
        scope: AwsScope,
    },
    /// Files that contain the credential, or parts of it.
    Files {
        /// The files.
        files: Vec<SecretFile>,
        /// Interval at which they are read.
        poll: Duration,
    },
}

impl CredentialSource {
    /// Returns the configuration key of the source, for logs and errors.
    pub const fn label(&self) -> &'static str {
        match self {
            Self::Token { .. } => "token_command",
            Self::AwsProcess { .. } => "aws_credential_process",
            Self::AwsContainer { .. } => "aws_container_credentials",
            Self::Files { .. } => "file",
        }
    }

    /// Returns `true` if the profile has no credential before the source has supplied one.
    pub const fn is_awaited(&self) -> bool {
        !matches!(self, Self::Files { .. })
    }

    /// Returns the refresh interval of credentials without an expiry.
    pub const fn refresh_interval(&self) -> Duration {
        match self {
            Self::Token { refresh, .. } => *refresh,
            Self::AwsProcess { .. } | Self::AwsContainer { .. } | Self::Files { .. } => TOKEN_REFRESH,
        }
    }
}

/// A program and its arguments. They are never shown, since an argument may contain a secret.
#[derive(Clone, PartialEq, Eq)]
pub struct CommandLine {
    /// The program, looked up in `PATH` unless it contains a slash.
    pub program: String,
    /// The arguments.
    pub arguments: Vec<String>,
}

impl fmt::Debug for CommandLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CommandLine(*** and {} arguments)", self.arguments.len())
    }
}

/// The scope of AWS signatures.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AwsScope {
    /// The region of the endpoint.
    pub region: String,
    /// The name of the service.
    pub service: String,
}

/// A file that contains one part of a credential.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SecretFile {
    /// The path.
    pub path: PathBuf,
    /// The part.
    pub part: SecretPart,
}

/// One part of a credential.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SecretPart {
    /// The API key or bearer token: the whole credential.
    Whole,
    /// The ID of the AWS key.
    AwsKeyId,
    /// The secret AWS key.
    AwsSecretKey,
    /// The session token of temporary AWS keys.
    AwsSessionToken,
}

impl SecretPart {
    /// Replaces this part of `credential`. A part that the credential does not have is left out.
    pub fn replace_in(self, credential: &mut Credential, secret: Secret) {
        match (self, credential) {
            (Self::Whole, Credential::Key(part) | Credential::Bearer(part)) => *part = secret,
            (Self::AwsKeyId, Credential::Aws(keys)) => keys.access_key_id = secret,
            (Self::AwsSecretKey, Credential::Aws(keys)) => keys.secret_access_key = secret,
            (Self::AwsSessionToken, Credential::Aws(keys)) => keys.session_token = Some(secret),
            _ => {}
        }
    }
}

/// A credential from a source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SuppliedCredential {
    /// The credential.
    pub credential: Credential,
    /// Its end, since 1970; `None` if the source names none.
    pub expires_at: Option<Duration>,
}

/// AWS keys from a source, without their scope.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SuppliedKeys {
    /// The ID of the key.
    pub access_key_id: Secret,
    /// The signing key.
    pub secret_access_key: Secret,
    /// The session token of temporary keys.
    pub session_token: Option<Secret>,
    /// Their end, since 1970; `None` if the source names none.
    pub expires_at: Option<Duration>,
}

impl SuppliedKeys {
    /// Combines the keys with the scope of their signatures.
    pub fn with_scope(self, scope: &AwsScope) -> SuppliedCredential {
        SuppliedCredential {
            credential: Credential::Aws(AwsKeys {
                access_key_id: self.access_key_id,
                secret_access_key: self.secret_access_key,
                session_token: self.session_token,
                region: scope.region.clone(),
                service: scope.service.clone(),
            }),
            expires_at: self.expires_at,
        }
    }
}

/// The failure of a source. It never contains any of its output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SourceFailure {
    /// The program does not exist or cannot be executed.
    #[error("could not be started")]
    NotStarted,
    /// The program ended with this exit status.
    #[error("failed with exit status {0}")]
    ExitStatus(i32),
    /// A signal ended the program.
    #[error("was ended by a signal")]
    Signalled,
    /// The source did not finish in time.
    #[error("did not finish within {} s", SOURCE_TIMEOUT.as_secs())]
    TimedOut,
    /// The source supplied too much.
    #[error("supplied more than {OUTPUT_BYTES_MAX} bytes")]
    TooLong,
    /// The source supplied something else than a credential.
    #[error("supplied no credential in a known format")]
    Unreadable,
    /// The source supplied a credential that had expired.
    #[error("supplied a credential that had already expired")]
    Expired,
    /// The endpoint could not be reached.
    #[error("could not reach its endpoint")]
    Unreachable,
    /// The endpoint answered with this status.
    #[error("got status {0} from its endpoint")]
    HttpStatus(u16),
    /// The authorization token of the endpoint, or its file, cannot be used.
    #[error("could not use the authorization token of its endpoint")]
    EndpointToken,
}

impl SourceFailure {
    /// Returns the stable name of the failure.
    pub const fn label(self) -> &'static str {
        match self {
            Self::NotStarted => "not_started",
            Self::ExitStatus(_) => "exit_status",
            Self::Signalled => "signal",
            Self::TimedOut => "timeout",
            Self::TooLong => "too_long",
            Self::Unreadable => "unreadable",
            Self::Expired => "expired",
            Self::Unreachable => "unreachable",
            Self::HttpStatus(_) => "http_status",
            Self::EndpointToken => "endpoint_token",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_argument_of_a_command_is_shown() {
        let source = CredentialSource::Token {
            command: CommandLine {
                program: "canary".to_owned(),
                arguments: vec!["canary".to_owned()],
            },
            refresh: TOKEN_REFRESH,
        };
        let shown = format!("{source:?} {source:#?}");
        assert!(!shown.contains("canary"), "{shown}");
    }

    #[test]
    fn a_part_replaces_only_its_own_place() {
        let secret = |text: &str| Secret::new(text.to_owned());
        let keys = || AwsKeys {
            access_key_id: secret("id"),
            secret_access_key: secret("key"),
            session_token: None,
            region: "r".to_owned(),
            service: "s".to_owned(),
        };
        for (part, wanted) in [
            (
                SecretPart::AwsKeyId,
                AwsKeys {
                    access_key_id: secret("new"),
                    ..keys()
                },
            ),
            (
                SecretPart::AwsSecretKey,
                AwsKeys {
                    secret_access_key: secret("new"),
                    ..keys()
                },
            ),
            (
                SecretPart::AwsSessionToken,
                AwsKeys {
                    session_token: Some(secret("new")),
                    ..keys()
                },
            ),
            (SecretPart::Whole, keys()),
        ] {
            let mut credential = Credential::Aws(keys());
            part.replace_in(&mut credential, secret("new"));
            assert_eq!(credential, Credential::Aws(wanted), "{part:?}");
        }
        let mut credential = Credential::Bearer(secret("old"));
        SecretPart::Whole.replace_in(&mut credential, secret("new"));
        assert_eq!(credential, Credential::Bearer(secret("new")));
    }
}
