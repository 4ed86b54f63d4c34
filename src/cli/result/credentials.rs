//! Credentials of requests: from a file or a variable, never from an argument.

use std::{fs::File, io::Read as _, path::Path};

use http::{HeaderMap, HeaderName, HeaderValue, header::AUTHORIZATION};

use super::{
    arguments::{CallerAccess, KeyHeader, ServiceAccess},
    error::ResultError,
};
use crate::{auth::Secret, config::process_environment};

/// Longest credential in bytes.
const SECRET_BYTES_MAX: usize = 16 * 1024;

/// A place of credentials.
struct SecretPlace {
    /// Description of the credential.
    noun: &'static str,
    variable: &'static str,
    flag: &'static str,
}

const SERVICE_TOKEN: SecretPlace = SecretPlace {
    noun: "the token of the service",
    variable: "ANTIPHON_SERVICE_TOKEN",
    flag: "--token-file",
};

const CALLER_KEY: SecretPlace = SecretPlace {
    noun: "the caller's API key or client token",
    variable: "ANTIPHON_API_KEY",
    flag: "--key-file",
};

/// Returns the headers that authenticate a tool service.
pub(super) fn service_headers(access: &ServiceAccess) -> Result<HeaderMap, ResultError> {
    let token = SERVICE_TOKEN.read_secret(access.token_file.as_deref())?;
    let bearer = Secret::new(format!("Bearer {}", token.reveal()));
    Ok(HeaderMap::from_iter([(
        AUTHORIZATION,
        SERVICE_TOKEN.header_value(&bearer)?,
    )]))
}

/// Returns the headers that identify a caller.
pub(super) fn caller_headers(access: &CallerAccess) -> Result<HeaderMap, ResultError> {
    let key = CALLER_KEY.read_secret(access.key_file.as_deref())?;
    let (name, value) = match access.key_header {
        KeyHeader::Authorization => (AUTHORIZATION, Secret::new(format!("Bearer {}", key.reveal()))),
        KeyHeader::XApiKey => (HeaderName::from_static("x-api-key"), key),
        KeyHeader::XGoogApiKey => (HeaderName::from_static("x-goog-api-key"), key),
        KeyHeader::ApiKey => (HeaderName::from_static("api-key"), key),
        KeyHeader::XAntiphonClientToken => (HeaderName::from_static("x-antiphon-client-token"), key),
    };
    let user = access.user.iter().map(|user| (user.name.clone(), user.value.clone()));
    let mut headers: HeaderMap = user.collect();
    headers.insert(name, CALLER_KEY.header_value(&value)?);
    Ok(headers)
}

impl SecretPlace {
    /// Reads the credential from `file`, else from the variable.
    fn read_secret(&self, file: Option<&Path>) -> Result<Secret, ResultError> {
        let (origin, text) = match file {
            Some(path) => (self.flag, self.read_file(path)?),
            None => (self.variable, self.read_variable()?),
        };
        // Files and shells add a line break, which is not part of the secret.
        let secret = text.trim();
        if secret.is_empty() {
            return Err(ResultError::Unusable(format!("{origin}: {} is empty", self.noun)));
        }
        Ok(Secret::new(secret.to_owned()))
    }

    fn read_variable(&self) -> Result<String, ResultError> {
        process_environment(self.variable).ok_or_else(|| {
            ResultError::Unusable(format!(
                "{} is missing: set {}, or name a file that contains it with {}",
                self.noun, self.variable, self.flag
            ))
        })
    }

    fn read_file(&self, path: &Path) -> Result<String, ResultError> {
        // The path is not repeated: it may be a secret that was given by mistake.
        read_short_file(path)
            .map_err(|cause| ResultError::Unusable(format!("{}: cannot read the file: {cause}", self.flag)))
    }

    /// Returns the value of a header that HTTP/2 does not store in its table.
    fn header_value(&self, secret: &Secret) -> Result<HeaderValue, ResultError> {
        let mut value = HeaderValue::from_str(secret.reveal()).map_err(|_| {
            ResultError::Unusable(format!("{} contains characters that no header can contain", self.noun))
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
