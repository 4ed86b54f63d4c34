//! A profile: one of the operator's credentials for one upstream, and the models that it may be used for.

use memchr::memmem;

use super::Secret;

/// One of the operator's credentials, under a public name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Profile {
    /// The name in logs, metrics and headers, unique within its upstream.
    pub label: String,
    /// The credential that is sent to the provider.
    pub credential: Credential,
    /// Share of the lanes, relative to the other profiles of the upstream.
    pub weight: u32,
    /// The account at the provider, if the operator configured it.
    pub organisation: Option<String>,
    /// Models that the profile may be used for, by name or prefix (`claude-*`). Empty for all models.
    pub models: Vec<String>,
    /// Most requests at once; `None` without a limit.
    pub max_concurrent: Option<u32>,
}

impl Profile {
    /// Returns `true` if the profile may be used for `model`.
    pub fn allows_model(&self, model: Option<&str>) -> bool {
        allows_model(&self.models, model)
    }
}

/// A credential in one of the forms that providers accept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Credential {
    /// An API key, sent in the header that the provider expects.
    Key(Secret),
    /// A token, always sent as `Authorization: Bearer`.
    Bearer(Secret),
    /// AWS keys that sign each request.
    Aws(AwsKeys),
    /// A credential that its source has yet to supply, or that has expired. Nothing is sent with it.
    Awaited {
        /// `true` if the source supplies AWS keys.
        signs: bool,
    },
}

impl Credential {
    /// Returns `true` if the credential signs requests, which requires the whole body.
    pub const fn signs_requests(&self) -> bool {
        matches!(self, Self::Aws(_) | Self::Awaited { signs: true })
    }

    /// Returns `text` with an asterisk for each byte of the credential; `None` if the text does not contain it.
    pub fn mask_in(&self, text: &[u8]) -> Option<Vec<u8>> {
        let secrets = match self {
            Self::Key(secret) | Self::Bearer(secret) => [Some(secret), None, None],
            Self::Aws(keys) => [
                Some(&keys.access_key_id),
                Some(&keys.secret_access_key),
                keys.session_token.as_ref(),
            ],
            Self::Awaited { .. } => [None, None, None],
        };
        // A shorter text may be any word.
        let secrets = secrets.into_iter().flatten().map(|secret| secret.reveal().as_bytes());
        let mut masked: Option<Vec<u8>> = None;
        for secret in secrets.filter(|secret| secret.len() >= SECRET_BYTES_MIN) {
            for at in memmem::find_iter(text, secret) {
                let copy = masked.get_or_insert_with(|| text.to_vec());
                if let Some(found) = copy.get_mut(at..at.saturating_add(secret.len())) {
                    found.fill(b'*');
                }
            }
        }
        masked
    }
}

/// Bytes that a credential has at least.
const SECRET_BYTES_MIN: usize = 8;

/// AWS keys and the scope of their signatures.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AwsKeys {
    /// The id of the key.
    pub access_key_id: Secret,
    /// The signing key.
    pub secret_access_key: Secret,
    /// The session token of temporary keys.
    pub session_token: Option<Secret>,
    /// The region of the endpoint.
    pub region: String,
    /// The name of the service in signatures.
    pub service: String,
}

/// Returns `true` if `models` allows `model`. A trailing `*` matches any ending, an empty list any model. Requests
/// without a model are always allowed.
pub fn allows_model(models: &[String], model: Option<&str>) -> bool {
    let Some(model) = model else { return true };
    let allows = |allowed: &String| match allowed.strip_suffix('*') {
        Some(beginning) => model.starts_with(beginning),
        None => allowed == model,
    };
    models.is_empty() || models.iter().any(allows)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn profile(models: &[&str]) -> Profile {
        Profile {
            label: "work".to_owned(),
            credential: Credential::Key(Secret::new("sk-canary".to_owned())),
            weight: 1,
            organisation: None,
            models: models.iter().map(ToString::to_string).collect(),
            max_concurrent: None,
        }
    }

    #[test]
    fn a_profile_serves_the_models_it_lists() {
        let rows: &[(&[&str], Option<&str>, bool)] = &[
            (&[], None, true),
            (&[], Some("m"), true),
            (&["m"], None, true),
            (&["m"], Some("m"), true),
            (&["m"], Some("m2"), false),
            (&["m", "n*"], Some("n2"), true),
            (&["n*"], Some("n"), true),
            (&["n*"], Some("m"), false),
            (&["*"], Some(""), true),
        ];
        for (models, model, serves) in rows {
            assert_eq!(
                allows_model(&profile(models).models, *model),
                *serves,
                "{models:?} {model:?}"
            );
        }
    }

    #[test]
    fn a_credential_in_a_text_is_masked() {
        let key = Credential::Key(Secret::new("sk-canary-1".to_owned()));
        let masked = key.mask_in(b"Incorrect API key: sk-canary-1, sk-canary-1.").unwrap();
        assert_eq!(masked, b"Incorrect API key: ***********, ***********.");
        assert_eq!(key.mask_in(b"Incorrect API key: sk-can***"), None);
        assert_eq!(
            Credential::Bearer(Secret::new("short".to_owned())).mask_in(b"a short text"),
            None
        );
    }

    #[test]
    fn no_credential_is_shown() {
        let canary = || Secret::new("canary".to_owned());
        let aws = Credential::Aws(AwsKeys {
            access_key_id: canary(),
            secret_access_key: canary(),
            session_token: Some(canary()),
            region: "us-east-1".to_owned(),
            service: "bedrock".to_owned(),
        });
        for credential in [Credential::Key(canary()), Credential::Bearer(canary()), aws] {
            let profile = Profile {
                credential,
                ..profile(&[])
            };
            let shown = format!("{profile:?}");
            assert!(!shown.contains("canary") && shown.contains("work"), "{shown}");
        }
    }
}
