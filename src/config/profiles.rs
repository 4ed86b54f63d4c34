//! Builds profiles, and checks that profiles are not open to other machines.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    time::Duration,
};

use super::{
    ReadFile,
    credentials::{self, ContainerEnvironment},
    file::{CredentialsName, ProfileSection, UpstreamSection, Word, Written, join_key, values::check_label},
    lowering::Lowering,
    problem::ConfigProblem,
    upstreams::credentials_or_default,
};
use crate::{
    auth::{AwsKeys, Credential, Profile, Secret, SecretFlaw},
    keys::{credential_source::AwsScope, credential_source::CredentialSource, credential_source::CredentialSources},
    provider::{self, ProviderKind},
    server::ServerSettings,
};

/// Hint that lists the kinds of credentials.
const ONE_CREDENTIAL: &str = "write one of api_key, api_key_file, bearer, bearer_file, token_command, \
                              aws_credential_process, aws_container_credentials, or aws_access_key_id and \
                              aws_secret_access_key";

/// Secret that the file may set.
enum SecretSetting {
    /// The file does not set it.
    Unset,
    /// It is set but unusable, and already has its own problem.
    Unusable,
    /// It is set and usable.
    Usable(Secret),
}

impl SecretSetting {
    /// Returns `true` if the file sets the secret, usable or not.
    const fn is_set(&self) -> bool {
        !matches!(self, Self::Unset)
    }

    /// Returns the secret if it is usable.
    fn into_secret(self) -> Option<Secret> {
        match self {
            Self::Usable(secret) => Some(secret),
            Self::Unset | Self::Unusable => None,
        }
    }
}

impl From<Option<Secret>> for SecretSetting {
    fn from(usable: Option<Secret>) -> Self {
        usable.map_or(Self::Unusable, Self::Usable)
    }
}

/// Credential of a profile: as far as it is known now, and the source that changes it.
type SourcedCredential = (Credential, Option<CredentialSource>);

/// Profiles of all upstreams, and the sources of their credentials.
#[derive(Debug, Default)]
pub(super) struct LoweredProfiles {
    pub(super) profiles: BTreeMap<String, Vec<Profile>>,
    pub(super) sources: CredentialSources,
}

/// Context in which a profile is checked.
struct ProfileContext<'a> {
    /// Key of the profile: `upstreams.NAME.profiles[0]`.
    key: String,
    kind: ProviderKind,
    host: &'a str,
    read_file: &'a ReadFile<'a>,
    container: &'a ContainerEnvironment,
    /// Interval at which files are read again. `None` if they are not.
    poll: Option<Duration>,
}

impl ProfileContext<'_> {
    /// Returns the full key of a field of the profile.
    fn field_key(&self, name: &str) -> String {
        join_key(&self.key, name)
    }
}

/// Builds the profiles of every upstream that has some.
pub(super) fn lower_profiles(
    lowering: &mut Lowering,
    read_file: &ReadFile<'_>,
    container: &ContainerEnvironment,
) -> LoweredProfiles {
    let mut all = LoweredProfiles::default();
    let poll = credentials::secret_poll(&lowering.file.server);
    for (name, section) in lowering.file.upstreams.clone() {
        let key = join_key("upstreams", &name);
        check_credentials(lowering, &key, &section);
        // A bad URL or kind is reported with the upstream. Here it only decides which checks apply.
        let url = section.url.as_ref().and_then(Written::value);
        let host = url.as_ref().map_or("", |url| url.authority.host());
        let kind = section
            .kind
            .map_or_else(|| ProviderKind::infer_kind(&name, host), |Word(kind)| kind);
        let mut names = BTreeSet::new();
        let mut profiles = Vec::new();
        for (i, profile) in section.profiles.iter().enumerate() {
            let key = format!("{key}.profiles[{i}]");
            let at = ProfileContext {
                key,
                kind,
                host,
                read_file,
                container,
                poll,
            };
            // The name is the label in metrics, so two profiles would share their series.
            if !names.insert(profile.name.as_str()) && !profile.name.is_empty() {
                let flaw = ConfigProblem::of_value("two profiles of this upstream have this name");
                lowering.report_problem(&at.field_key("name"), flaw.with_hint("choose another name"));
            }
            let Some((profile, source)) = lower_profile(lowering, &at, profile) else {
                continue;
            };
            if let Some(source) = source {
                let sources = all.sources.entry(name.clone()).or_default();
                sources.insert(profile.label.clone(), source);
            }
            profiles.push(profile);
        }
        if !profiles.is_empty() {
            all.profiles.insert(name, profiles);
        }
    }
    all
}

/// Reports `credentials` that contradict the list of profiles.
fn check_credentials(lowering: &mut Lowering, key: &str, section: &UpstreamSection) {
    let key = join_key(key, "credentials");
    // The reader removed an unusable word, so the default would be compared instead.
    let unusable = lowering.places.contains_key(&key) && section.credentials.is_none();
    match (credentials_or_default(section), section.profiles.is_empty()) {
        _ if unusable => {}
        (CredentialsName::Passthrough, false) => {
            let flaw =
                ConfigProblem::of_value("profiles are configured, but clients' own credentials are passed through");
            lowering.report_problem(&key, flaw.with_hint("write \"profiles\", or remove the profiles"));
        }
        (CredentialsName::Profiles, true) => {
            let flaw = ConfigProblem::of_value("no profile is given");
            lowering.report_problem(
                &key,
                flaw.with_hint("add a table [[upstreams.NAME.profiles]], or write \"passthrough\""),
            );
        }
        _ => {}
    }
}

/// Builds one profile. `None` if it has a problem.
fn lower_profile(
    lowering: &mut Lowering,
    at: &ProfileContext<'_>,
    section: &ProfileSection,
) -> Option<(Profile, Option<CredentialSource>)> {
    let name_key = at.field_key("name");
    let named = if section.name.is_empty() && !lowering.places.contains_key(&name_key) {
        lowering.report_problem(
            &at.key,
            ConfigProblem::of_value("has no name").with_hint("write name = \"…\": a label for logs and metrics"),
        );
        None
    } else {
        lowering.value_or_report(&name_key, check_label(&section.name))
    };
    // The credential is checked even if the name is unusable, so that all problems are reported at once.
    let credential = lower_credential(lowering, at, section);
    named?;
    let (credential, source) = credential?;
    let profile = Profile {
        label: section.name.clone(),
        credential,
        weight: u32::try_from(section.weight).ok()?,
        organisation: section.organisation.as_ref().and_then(Written::value),
        models: section.models.iter().filter_map(Written::value).collect(),
        max_concurrent: section.max_concurrent.and_then(|most| u32::try_from(most).ok()),
    };
    Some((profile, source))
}

/// Builds the credential of a profile. Reports a profile with none or with several.
fn lower_credential(
    lowering: &mut Lowering,
    at: &ProfileContext<'_>,
    section: &ProfileSection,
) -> Option<SourcedCredential> {
    let mut read = |name: &str, path: &Option<String>| lower_secret(lowering, at, name, path.as_deref());
    let key = read("api_key", &section.api_key_file);
    let bearer = read("bearer", &section.bearer_file);
    let id = read("aws_access_key_id", &section.aws_access_key_id_file);
    let secret = read("aws_secret_access_key", &section.aws_secret_access_key_file);
    let session = read("aws_session_token", &section.aws_session_token_file);
    let refresh_key = at.field_key("token_refresh");
    let refresh = credentials::lower_token_refresh(lowering, &refresh_key, section);
    let process = lowering.places.contains_key(&at.field_key("aws_credential_process"));
    let command = lowering.places.contains_key(&at.field_key("token_command"));
    let container = section.aws_container_credentials;
    // A region alone counts as AWS keys, so that the problem names the missing keys.
    let lone_region = section.aws_region.is_some() && !process && !container;
    let aws = id.is_set() || secret.is_set() || session.is_set() || lone_region;
    let kinds = [key.is_set(), bearer.is_set(), command, aws, process, container];
    let flaw = match kinds.into_iter().filter(|is_set| *is_set).count() {
        0 => Some("has no credential"),
        1 => None,
        _ => Some("has several credentials"),
    };
    if let Some(flaw) = flaw {
        lowering.report_problem(&at.key, ConfigProblem::of_value(flaw).with_hint(ONE_CREDENTIAL));
    }
    if aws || process || container {
        let scope = lower_aws_scope(lowering, at, section);
        if aws {
            let keys = lower_aws_keys(lowering, at, id, secret, scope)?;
            let session_token = session.into_secret();
            let keys = Credential::Aws(AwsKeys { session_token, ..keys });
            return Some((keys, credentials::file_source(section, at.poll)));
        }
        let source = credentials::lower_aws_source(lowering, &at.key, section, scope?, at.container)?;
        return Some((Credential::Awaited { signs: true }, Some(source)));
    }
    if let Some(words) = &section.token_command {
        let command = credentials::lower_command(lowering, &at.field_key("token_command"), words)?;
        let source = CredentialSource::Token { command, refresh };
        return Some((Credential::Awaited { signs: false }, Some(source)));
    }
    let key = key.into_secret().map(Credential::Key);
    let credential = key.or_else(|| bearer.into_secret().map(Credential::Bearer))?;
    Some((credential, credentials::file_source(section, at.poll)))
}

/// Returns the scope of a profile's AWS signatures. Reports an upstream that accepts none.
fn lower_aws_scope(lowering: &mut Lowering, at: &ProfileContext<'_>, section: &ProfileSection) -> Option<AwsScope> {
    if at.kind != ProviderKind::Bedrock {
        let flaw = ConfigProblem::of_value("AWS keys can be used only for upstreams of kind bedrock");
        lowering.report_problem(
            &at.key,
            flaw.with_hint("write kind = \"bedrock\" for the upstream, or give an api_key"),
        );
    }
    let own = section.aws_region.as_ref().map(Written::text);
    let region = own.or_else(|| provider::aws_region(at.host));
    if region.is_none() && at.kind == ProviderKind::Bedrock {
        let flaw = ConfigProblem::of_value("has no aws_region, and the upstream's host names none");
        lowering.report_problem(&at.key, flaw.with_hint("write aws_region = \"us-east-1\""));
    }
    Some(AwsScope {
        region: region?.to_owned(),
        service: provider::aws_service(at.host).to_owned(),
    })
}

/// Builds the AWS keys of a profile, without a session token.
fn lower_aws_keys(
    lowering: &mut Lowering,
    at: &ProfileContext<'_>,
    id: SecretSetting,
    secret: SecretSetting,
    scope: Option<AwsScope>,
) -> Option<AwsKeys> {
    for (given, name) in [(&id, "aws_access_key_id"), (&secret, "aws_secret_access_key")] {
        if !given.is_set() {
            lowering.report_problem(
                &at.key,
                ConfigProblem::of_value(format!("has no {name}")).with_hint("AWS keys come in pairs"),
            );
        }
    }
    let AwsScope { region, service } = scope?;
    Some(AwsKeys {
        access_key_id: id.into_secret()?,
        secret_access_key: secret.into_secret()?,
        session_token: None,
        region,
        service,
    })
}

/// Returns a secret that is written as a value or in a file of its own.
fn lower_secret(lowering: &mut Lowering, at: &ProfileContext<'_>, name: &str, path: Option<&str>) -> SecretSetting {
    let (key, file_key) = (at.field_key(name), at.field_key(&format!("{name}_file")));
    match (lowering.places.contains_key(&key), path) {
        (true, Some(_)) => {
            let flaw = ConfigProblem::of_value(format!("both {name} and {name}_file are given"));
            lowering.report_problem(&file_key, flaw.with_hint("keep one of them"));
            SecretSetting::Unusable
        }
        (true, None) => {
            // A value that is not a usable text already has its own problem.
            let secret = lowering.secrets.get(&key).cloned();
            let checked = |secret: Secret| Secret::check_text(secret.reveal().to_owned()).map_err(secret_problem);
            secret
                .and_then(|secret| lowering.value_or_report(&key, checked(secret)))
                .into()
        }
        (false, Some(path)) => {
            let read = (at.read_file)(Path::new(path)).map_err(|error| {
                // A long path without a dot or slash may be a secret at the wrong key.
                let shown = if path.contains(['/', '.']) || path.len() < 30 {
                    path
                } else {
                    "the file"
                };
                ConfigProblem::of_value(format!("cannot read {shown}: {error}"))
                    .with_hint("name a readable file that contains only the secret")
            });
            let secret = read.and_then(|text| Secret::check_file(text).map_err(secret_problem));
            lowering.value_or_report(&file_key, secret).into()
        }
        // A path of the wrong type was removed by the reader, which reported it.
        (false, None) if lowering.places.contains_key(&file_key) => SecretSetting::Unusable,
        (false, None) => SecretSetting::Unset,
    }
}

/// Reports profiles that any client on another machine could use at the operator's expense.
pub(super) fn check_exposure(
    lowering: &mut Lowering,
    server: &ServerSettings,
    profiles: &BTreeMap<String, Vec<Profile>>,
) {
    let has_clients = !lowering.file.client_tokens.is_empty() || !lowering.file.client_certificates.is_empty();
    // A client without a certificate does not get as far as a request.
    let is_guarded = has_clients
        || server
            .tls
            .as_ref()
            .is_some_and(|tls| tls.files().requires_client_certificate);
    let open = !is_guarded && !server.listen.ip().is_loopback();
    if open && !profiles.is_empty() {
        let flaw = ConfigProblem::of_value(format!(
            "{} is reachable from other machines, and any client could use your profiles",
            server.listen
        ));
        let hint = "add a client token (`antiphon config token NAME` makes one), or listen on 127.0.0.1";
        lowering.report_problem("server.listen", flaw.with_hint(hint));
    }
}

/// Returns the problem of a secret that no header can contain. It repeats no part of it.
fn secret_problem(flaw: SecretFlaw) -> ConfigProblem {
    match flaw {
        SecretFlaw::Empty => ConfigProblem::of_value("the secret is empty"),
        SecretFlaw::Unprintable => {
            ConfigProblem::of_value("the secret contains spaces, line breaks or other characters that no key has")
                .with_hint("give the secret alone, without quotes or comments")
        }
    }
}
