//! The credentials endpoint of a container on ECS or EKS, as its environment variables name it.

use std::{fmt, path::PathBuf};

use http::{Uri, uri::Scheme};

use crate::{auth::Secret, provider};

/// Host of relative addresses: the agent of ECS.
const ECS_HOST: &str = "169.254.170.2";
/// Hosts besides loopback that may be asked without TLS: the agents of ECS and EKS.
const PLAIN_HOSTS: [&str; 4] = [ECS_HOST, "169.254.170.23", "[fd00:ec2::23]", "fd00:ec2::23"];

/// The address of the endpoint, and its authorization token. The address is not shown: on ECS it gives access.
#[derive(Clone, PartialEq, Eq)]
pub struct ContainerEndpoint {
    /// The address.
    pub uri: Uri,
    /// The token; `None` if the endpoint wants none.
    pub token: Option<ContainerToken>,
}

impl fmt::Debug for ContainerEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ContainerEndpoint(***, {:?})", self.token)
    }
}

/// The authorization token of the endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ContainerToken {
    /// The token itself.
    Text(Secret),
    /// A file that contains it. It is read for each request, since EKS replaces it.
    File(PathBuf),
}

/// The reason why an address is not asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ContainerEndpointError {
    /// It is no address.
    #[error("is no valid URL")]
    Invalid,
    /// It is neither encrypted nor on this machine.
    #[error("must be https, or http on loopback, {ECS_HOST}, 169.254.170.23 or [fd00:ec2::23]")]
    Unsafe,
}

impl ContainerEndpoint {
    /// Parses the address: a path on the agent of ECS, or else a whole URL.
    pub fn parse_uri(relative: Option<&str>, full: &str) -> Result<Uri, ContainerEndpointError> {
        let invalid = |_| ContainerEndpointError::Invalid;
        if let Some(path) = relative {
            if !path.starts_with('/') {
                return Err(ContainerEndpointError::Invalid);
            }
            return format!("http://{ECS_HOST}{path}").parse().map_err(invalid);
        }
        let uri: Uri = full.parse().map_err(invalid)?;
        let host = uri.host().ok_or(ContainerEndpointError::Invalid)?;
        let is_plain = uri.scheme() == Some(&Scheme::HTTP);
        // A user name before the host could disguise another host.
        if uri
            .authority()
            .is_some_and(|authority| authority.as_str().contains('@'))
        {
            return Err(ContainerEndpointError::Invalid);
        }
        if uri.scheme() == Some(&Scheme::HTTPS)
            || (is_plain && (provider::is_loopback(host) || PLAIN_HOSTS.contains(&host)))
        {
            return Ok(uri);
        }
        Err(if is_plain {
            ContainerEndpointError::Unsafe
        } else {
            ContainerEndpointError::Invalid
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_agents_loopback_and_https_are_asked() {
        use ContainerEndpointError::{Invalid, Unsafe};
        for (relative, full, wanted) in [
            (
                Some("/v2/credentials/1?id=2"),
                "",
                Ok("http://169.254.170.2/v2/credentials/1?id=2"),
            ),
            // The relative address takes precedence.
            (Some("/v2"), "http://evil.example/", Ok("http://169.254.170.2/v2")),
            (Some("v2"), "", Err(Invalid)),
            (Some("@evil.example/"), "", Err(Invalid)),
            (
                None,
                "http://169.254.170.23/v1/credentials",
                Ok("http://169.254.170.23/v1/credentials"),
            ),
            (None, "http://[fd00:ec2::23]/v1", Ok("http://[fd00:ec2::23]/v1")),
            (None, "http://127.0.0.1:81/v1", Ok("http://127.0.0.1:81/v1")),
            (None, "http://[::1]:81/v1", Ok("http://[::1]:81/v1")),
            (None, "http://localhost/v1", Ok("http://localhost/v1")),
            (None, "https://keys.example/v1", Ok("https://keys.example/v1")),
            (None, "http://keys.example/v1", Err(Unsafe)),
            (None, "http://169.254.170.2.evil.example/", Err(Unsafe)),
            (None, "http://169.254.169.254/latest", Err(Unsafe)),
            (None, "http://127.0.0.1@evil.example/", Err(Invalid)),
            (None, "ftp://127.0.0.1/", Err(Invalid)),
            (None, "/v1", Err(Invalid)),
            (None, "", Err(Invalid)),
        ] {
            let parsed = ContainerEndpoint::parse_uri(relative, full).map(|uri| uri.to_string());
            assert_eq!(parsed, wanted.map(ToOwned::to_owned), "{relative:?} {full}");
        }
    }
}
