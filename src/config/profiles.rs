//! Profiles and client tokens of a configuration, and whether the door is shut that they need.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use super::{
    ReadFile,
    file::{self, CredentialsName},
    flaw::Flaw,
    lowering::Lowering,
    read,
    upstreams::credentials_of,
    values,
};
use crate::{
    auth::{AwsKeys, ClientTokens, Credential, Profile, Secret, TokenHash},
    provider::{self, Kind},
    server::ServerSettings,
};

/// What a profile may weigh.
const WEIGHTS: std::ops::RangeInclusive<u32> = 1..=1000;
/// What one of which must be given.
const ONE_CREDENTIAL: &str =
    "write one of api_key, api_key_file, bearer, bearer_file, or aws_access_key_id and aws_secret_access_key";

/// A secret that may be given.
enum Given {
    Not,
    /// It is, and has its problem already.
    Unusable,
    Is(Secret),
}

impl Given {
    const fn is_given(&self) -> bool {
        !matches!(self, Self::Not)
    }

    fn secret(self) -> Option<Secret> {
        match self {
            Self::Is(secret) => Some(secret),
            Self::Not | Self::Unusable => None,
        }
    }
}

impl From<Option<Secret>> for Given {
    fn from(usable: Option<Secret>) -> Self {
        usable.map_or(Self::Unusable, Self::Is)
    }
}

/// What a profile's secrets are checked against.
struct At<'a> {
    /// The key of the profile.
    key: String,
    kind: Kind,
    host: &'a str,
    read_file: &'a ReadFile<'a>,
}

impl At<'_> {
    fn of(&self, name: &str) -> String {
        read::join(&self.key, name)
    }
}

/// The profiles of every upstream that has some.
pub(super) fn lower_profiles(lowering: &mut Lowering, read_file: &ReadFile<'_>) -> BTreeMap<String, Vec<Profile>> {
    let mut all = BTreeMap::new();
    for (name, said) in lowering.file.upstreams.clone() {
        let key = read::join("upstreams", &name);
        check_credentials(lowering, &key, &said);
        let url = said.url.as_deref().and_then(|url| values::url(url).ok());
        let host = url.as_ref().map_or("", |url| url.authority.host());
        let kind = said.kind.map_or_else(|| Kind::of(&name, host), Kind::from);
        let mut names = BTreeSet::new();
        let mut profiles = Vec::new();
        for (i, profile) in said.profiles.iter().enumerate() {
            let key = format!("{key}.profiles[{i}]");
            let at = At {
                key,
                kind,
                host,
                read_file,
            };
            if !names.insert(profile.name.as_str()) && !profile.name.is_empty() {
                let flaw = Flaw::new("two profiles of this upstream have this name");
                lowering.report(&at.of("name"), flaw.hint("choose another"));
            }
            profiles.extend(lower_profile(lowering, &at, profile));
        }
        if !profiles.is_empty() {
            all.insert(name, profiles);
        }
    }
    all
}

fn check_credentials(lowering: &mut Lowering, key: &str, said: &file::Upstream) {
    let key = read::join(key, "credentials");
    let unusable = lowering.places.contains_key(&key) && said.credentials.is_none();
    match (credentials_of(said), said.profiles.is_empty()) {
        _ if unusable => {}
        (CredentialsName::Passthrough, false) => {
            let flaw = Flaw::new("profiles are given, but the clients' own credentials are passed through");
            lowering.report(&key, flaw.hint("write \"profiles\", or remove them"));
        }
        (CredentialsName::Profiles, true) => {
            let flaw = Flaw::new("no profile is given");
            lowering.report(
                &key,
                flaw.hint("add a table [[upstreams.NAME.profiles]], or write \"passthrough\""),
            );
        }
        _ => {}
    }
}

fn lower_profile(lowering: &mut Lowering, at: &At<'_>, said: &file::Profile) -> Option<Profile> {
    let name_key = at.of("name");
    let named = if said.name.is_empty() && !lowering.places.contains_key(&name_key) {
        lowering.report(
            &at.key,
            Flaw::new("has no name").hint("write name = \"…\": a label that may be shown"),
        );
        None
    } else {
        lowering.take(&name_key, values::label(&said.name))
    };
    let weight = u32::try_from(said.weight)
        .ok()
        .filter(|weight| WEIGHTS.contains(weight));
    if weight.is_none() {
        let flaw = Flaw::new(format!(
            "expected a weight from {} to {}",
            WEIGHTS.start(),
            WEIGHTS.end()
        ));
        lowering.report(&at.of("weight"), flaw);
    }
    if let Some(text) = &said.organisation {
        lowering.take(&at.of("organisation"), word(text));
    }
    for (i, model) in said.models.iter().enumerate() {
        let key = format!("{}[{i}]", at.of("models"));
        let usable = word(model).is_ok() && !model.trim_end_matches('*').contains('*') && !model.ends_with("**");
        // An item that was no string has its problem already; an empty text stands in for it.
        if !usable && !lowering.has_problem(&key) {
            let flaw = Flaw::new("expected the name of a model, or its beginning and one `*` at the end");
            lowering.report(&key, flaw);
        }
    }
    let credential = lower_credential(lowering, at, said);
    named?;
    Some(Profile {
        label: said.name.clone(),
        credential: credential?,
        weight: weight?,
        organisation: said.organisation.clone(),
        models: said.models.clone(),
    })
}

/// The one credential of a profile.
fn lower_credential(lowering: &mut Lowering, at: &At<'_>, said: &file::Profile) -> Option<Credential> {
    let key = lower_secret(lowering, at, "api_key", said.api_key_file.as_deref());
    let bearer = lower_secret(lowering, at, "bearer", said.bearer_file.as_deref());
    let id = lower_secret(
        lowering,
        at,
        "aws_access_key_id",
        said.aws_access_key_id_file.as_deref(),
    );
    let secret = lower_secret(
        lowering,
        at,
        "aws_secret_access_key",
        said.aws_secret_access_key_file.as_deref(),
    );
    let session = lower_secret(
        lowering,
        at,
        "aws_session_token",
        said.aws_session_token_file.as_deref(),
    );
    let aws = id.is_given() || secret.is_given() || session.is_given() || said.aws_region.is_some();
    match [key.is_given(), bearer.is_given(), aws]
        .iter()
        .filter(|given| **given)
        .count()
    {
        0 => lowering.report(&at.key, Flaw::new("has no credential").hint(ONE_CREDENTIAL)),
        1 => {}
        _ => lowering.report(&at.key, Flaw::new("has several credentials").hint(ONE_CREDENTIAL)),
    }
    if aws {
        let keys = lower_aws_keys(lowering, at, said, id, secret)?;
        let session_token = session.secret();
        return Some(Credential::Aws(AwsKeys { session_token, ..keys }));
    }
    let key = key.secret().map(Credential::Key);
    key.or_else(|| bearer.secret().map(Credential::Bearer))
}

fn lower_aws_keys(
    lowering: &mut Lowering,
    at: &At<'_>,
    said: &file::Profile,
    id: Given,
    secret: Given,
) -> Option<AwsKeys> {
    if at.kind != Kind::Bedrock {
        let flaw = Flaw::new("keys of AWS can be used for upstreams of the kind bedrock only");
        lowering.report(
            &at.key,
            flaw.hint("write kind = \"bedrock\" for the upstream, or give an api_key"),
        );
    }
    for (given, name) in [(&id, "aws_access_key_id"), (&secret, "aws_secret_access_key")] {
        if !given.is_given() {
            lowering.report(
                &at.key,
                Flaw::new(format!("has no {name}")).hint("keys of AWS come in pairs"),
            );
        }
    }
    let region = said.aws_region.as_deref().or_else(|| provider::aws_region(at.host));
    let is_region = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
    if said.aws_region.as_deref().is_some_and(|region| !is_region(region)) {
        lowering.report(
            &at.of("aws_region"),
            Flaw::new("expected the name of a region, as \"us-east-1\""),
        );
    } else if region.is_none() && at.kind == Kind::Bedrock {
        let flaw = Flaw::new("has no aws_region, and the host of the upstream's url names none");
        lowering.report(&at.key, flaw.hint("write aws_region = \"us-east-1\""));
    }
    Some(AwsKeys {
        access_key_id: id.secret()?,
        secret_access_key: secret.secret()?,
        session_token: None,
        region: region?.to_owned(),
        service: provider::aws_service(at.host).to_owned(),
    })
}

/// A secret by itself or by its file.
fn lower_secret(lowering: &mut Lowering, at: &At<'_>, name: &str, path: Option<&str>) -> Given {
    let (key, file_key) = (at.of(name), at.of(&format!("{name}_file")));
    match (lowering.places.contains_key(&key), path) {
        (true, Some(_)) => {
            let flaw = Flaw::new(format!("{name} and {name}_file are given"));
            lowering.report(&file_key, flaw.hint("keep one of them"));
            Given::Unusable
        }
        (true, None) => {
            // A value that was no usable text has its problem already.
            let secret = lowering.hidden.get(&key).cloned();
            secret.and_then(|secret| lowering.take(&key, usable(secret))).into()
        }
        (false, Some(path)) => {
            let read = (at.read_file)(Path::new(path)).map_err(|error| {
                // A long name without a dot or slash may be a secret in the wrong place.
                let shown = if path.contains(['/', '.']) || path.len() < 30 {
                    path
                } else {
                    "the file"
                };
                Flaw::new(format!("cannot read {shown}: {error}"))
                    .hint("name a readable file that holds the secret alone")
            });
            let secret = read.map(|text| Secret::new(without_line_break(text)));
            lowering.take(&file_key, secret.and_then(usable)).into()
        }
        (false, None) if lowering.places.contains_key(&file_key) => Given::Unusable,
        (false, None) => Given::Not,
    }
}

/// The client tokens, by name.
pub(super) fn lower_client_tokens(lowering: &mut Lowering) -> ClientTokens {
    let mut entries: Vec<(String, TokenHash)> = Vec::new();
    for (name, said) in lowering.file.client_tokens.clone() {
        let key = read::join("client_tokens", &name);
        let named = lowering.take(&key, values::label(&name));
        let hash = said.0.parse().map_err(|error: crate::auth::NotAHash| {
            Flaw::new(error.to_string()).hint("`antiphon config token NAME` makes a token and prints this line")
        });
        let Some(hash) = lowering.take(&key, hash) else {
            continue;
        };
        if let Some((other, _)) = entries.iter().find(|(_, known)| *known == hash) {
            let flaw = Flaw::new(format!("is the token of {other:?} too"));
            lowering.report(&key, flaw.hint("make each client a token of its own"));
        }
        if named.is_some() {
            entries.push((name, hash));
        }
    }
    ClientTokens::new(entries)
}

/// Whoever reaches the proxy could spend the operator's credit.
pub(super) fn check_door(lowering: &mut Lowering, server: &ServerSettings, profiles: &BTreeMap<String, Vec<Profile>>) {
    let open = lowering.file.client_tokens.is_empty() && !server.listen.ip().is_loopback();
    if open && !profiles.is_empty() {
        let flaw = Flaw::new(format!(
            "{} can be reached from other machines, and whoever reaches it could use your profiles",
            server.listen
        ));
        let hint = "add a client token (`antiphon config token NAME` makes one), or listen on 127.0.0.1";
        lowering.report("server.listen", flaw.hint(hint));
    }
}

/// Text that may stand in a log and in a header.
fn word(text: &str) -> Result<String, Flaw> {
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Ok(text.to_owned());
    }
    Err(Flaw::new(
        "expected a word: printable characters without spaces, at least one",
    ))
}

/// A secret that a header can carry. The message tells nothing of it.
fn usable(secret: Secret) -> Result<Secret, Flaw> {
    if secret.reveal().is_empty() {
        return Err(Flaw::new("the secret is empty"));
    }
    if secret.reveal().bytes().all(|byte| byte.is_ascii_graphic()) {
        return Ok(secret);
    }
    Err(
        Flaw::new("the secret holds spaces, line breaks or other characters that no key has")
            .hint("give the secret alone, without quotes and comments"),
    )
}

fn without_line_break(mut text: String) -> String {
    for end in ['\n', '\r'] {
        if text.ends_with(end) {
            text.pop();
        }
    }
    text
}
