//! Secrets for requests: from a file or a variable, never from an argument.

use std::{fs::File, io::Read as _, path::Path};

use http::HeaderValue;

use super::{api_url::ApiUrl, error::ClientError};
use crate::{
    auth::Secret,
    config::{default_token_path, process_environment},
    local_token::read_local_token,
};

/// Longest credential in bytes.
const SECRET_BYTES_MAX: usize = 16 * 1024;

/// A place of credentials.
pub(in crate::cli) struct SecretPlace {
    /// Description of the credential.
    pub(in crate::cli) noun: &'static str,
    pub(in crate::cli) variable: &'static str,
    pub(in crate::cli) flag: &'static str,
}

impl SecretPlace {
    /// Reads the credential from `file`, else from the variable.
    pub(in crate::cli) fn read_secret(&self, file: Option<&Path>) -> Result<Secret, ClientError> {
        self.read_optional(file)?.ok_or_else(|| {
            ClientError::Unusable(format!(
                "{} is missing: set {}, or name a file that contains it with {}",
                self.noun, self.variable, self.flag
            ))
        })
    }

    /// Reads the credential from `file`, else from the variable. `None` if neither is given.
    pub(in crate::cli) fn read_optional(&self, file: Option<&Path>) -> Result<Option<Secret>, ClientError> {
        let (origin, text) = match (file, process_environment(self.variable)) {
            (Some(path), _) => (self.flag, self.read_file(path)?),
            (None, Some(text)) => (self.variable, text),
            (None, None) => return Ok(None),
        };
        // Files and shells add a line break, which is not part of the secret.
        let secret = text.trim();
        if secret.is_empty() {
            return Err(ClientError::Unusable(format!("{origin}: {} is empty", self.noun)));
        }
        Ok(Some(Secret::new(secret.to_owned())))
    }

    /// Reads the credential from `file`, else from the variable, else takes the token of this machine's proxy. `wanted` is
    /// the credential that a proxy elsewhere needs.
    pub(in crate::cli) fn read_or_local(
        &self,
        file: Option<&Path>,
        url: &ApiUrl,
        wanted: &str,
    ) -> Result<Secret, ClientError> {
        if let Some(secret) = self.read_optional(file)? {
            return Ok(secret);
        }
        // The token of this machine is sent to no other one.
        if !url.is_loopback() {
            return Err(ClientError::Unusable(format!(
                "the proxy is on another machine: put {wanted} into {}, or name its file with {}",
                self.variable, self.flag
            )));
        }
        let missing = || {
            ClientError::NoLocalToken(format!(
                "there is no token of this machine's proxy: start `antiphon` as the same user, with its ledger on the \
                 disk, or put {wanted} into {}",
                self.variable
            ))
        };
        let path = default_token_path(&process_environment).ok_or_else(missing)?;
        match read_local_token(&path) {
            Ok(token) => token.ok_or_else(missing),
            Err(error) => Err(ClientError::Unusable(error.to_string())),
        }
    }

    fn read_file(&self, path: &Path) -> Result<String, ClientError> {
        // The path is not repeated: it may be a secret that was given by mistake.
        read_short_file(path)
            .map_err(|cause| ClientError::Unusable(format!("{}: cannot read the file: {cause}", self.flag)))
    }

    /// Returns the value of an `Authorization` header with the credential.
    pub(in crate::cli) fn bearer_value(&self, secret: &Secret) -> Result<HeaderValue, ClientError> {
        self.header_value(&Secret::new(format!("Bearer {}", secret.reveal())))
    }

    /// Returns the value of a header that HTTP/2 does not store in its table.
    pub(in crate::cli) fn header_value(&self, secret: &Secret) -> Result<HeaderValue, ClientError> {
        let mut value = HeaderValue::from_str(secret.reveal()).map_err(|_| {
            ClientError::Unusable(format!("{} contains characters that no header can contain", self.noun))
        })?;
        value.set_sensitive(true);
        Ok(value)
    }
}

/// Reads a file of limited size as text.
fn read_short_file(path: &Path) -> std::io::Result<String> {
    let mut text = String::new();
    let limit = u64::try_from(SECRET_BYTES_MAX).unwrap_or(u64::MAX);
    File::open(path)?
        .take(limit.saturating_add(1))
        .read_to_string(&mut text)?;
    if text.len() > SECRET_BYTES_MAX {
        return Err(std::io::Error::other("it is longer than 16 KiB"));
    }
    Ok(text)
}
