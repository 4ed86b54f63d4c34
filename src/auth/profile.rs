//! A profile: one credential of the operator's at one upstream, and what it may be used for.

use super::Secret;

/// A credential of the operator's, under a name that may be shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Profile {
    /// The name: the label in logs, metrics and headers; the only one of its upstream.
    pub label: String,
    /// What goes up.
    pub credential: Credential,
    /// Its share of the requests, beside the others of its upstream.
    pub weight: u32,
    /// Whose account it is at the provider, where the operator said so.
    pub organisation: Option<String>,
    /// Models that it may be used for, by name or by beginning (`claude-*`); empty for all.
    pub models: Vec<String>,
}

/// What a provider takes for permission.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Credential {
    /// An API key, in the header that the provider wants it in.
    Key(Secret),
    /// A token, always as `Authorization: Bearer`.
    Bearer(Secret),
    /// Keys of AWS: each request is signed with them.
    Aws(AwsKeys),
}

/// Keys of AWS, and what their signatures are for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AwsKeys {
    /// Which key it is.
    pub access_key_id: Secret,
    /// What signs.
    pub secret_access_key: Secret,
    /// What goes with temporary keys.
    pub session_token: Option<Secret>,
    /// The region of the endpoint.
    pub region: String,
    /// The name of the service in signatures.
    pub service: String,
}

impl Profile {
    /// Whether it may be used for `model`; a request that names none may use any profile.
    pub fn serves(&self, model: Option<&str>) -> bool {
        serves(&self.models, model)
    }
}

/// Whether `model` is one of `models`, where a trailing `*` stands for any ending and no model for all of them; a request
/// that names none may be for any.
pub(super) fn serves(models: &[String], model: Option<&str>) -> bool {
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
            assert_eq!(profile(models).serves(*model), *serves, "{models:?} {model:?}");
        }
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
