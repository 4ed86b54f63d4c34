//! The error for a command that gets no answer from a running proxy.

use std::io;

use crate::config::ConfigError;

/// Error for a command that gets no answer of an API.
#[derive(Debug, thiserror::Error)]
pub(in crate::cli) enum ClientError {
    /// An argument, a variable or a file cannot be used. The text never contains a secret.
    #[error("{0}")]
    Unusable(String),
    /// There is no token of this machine's proxy. The text says what to do.
    #[error("{0}")]
    NoLocalToken(String),
    /// The configuration, which is read for the address, has problems.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The proxy cannot be reached, or its answer broke off.
    #[error("{url}: {cause}")]
    Unreachable {
        /// URL of the proxy.
        url: String,
        /// Description of the failure.
        cause: String,
    },
    /// A success that the API cannot have given.
    #[error("{url}: the answer is not one of Antiphon's API; check the URL of the proxy")]
    Foreign {
        /// URL of the proxy.
        url: String,
    },
    /// The output cannot be written.
    #[error("cannot write the output")]
    Output(#[from] io::Error),
}
