//! Pools of profiles for still worlds: the profiles used, their cooldowns, and the breakers.

use std::time::Duration;

use antiphon::{
    auth::{Credential, Profile, Secret},
    keys::rotation::ProfileStatus,
    provider::{ProviderKind, Upstream},
    repair::Mode,
};
use tokio::time::Instant;

use super::{
    app::{Builder, post_with},
    still::{Request, Step, World, error, json},
    wire::Message,
};

/// Prefix of every key. Nothing that the proxy writes may contain it.
pub const CANARY: &str = "sk-canary-";

/// Returns a profile whose key ends with its label. Higher weights are preferred.
pub fn profile(label: &str, organisation: Option<&str>, weight: u32) -> Profile {
    Profile {
        label: label.to_owned(),
        credential: Credential::Key(Secret::new(format!("{CANARY}{label}"))),
        weight,
        organisation: organisation.map(ToOwned::to_owned),
        models: Vec::new(),
        max_concurrent: None,
    }
}

/// Returns `a` before `b` before `c`, of unknown organisations.
pub fn strangers(labels: &str) -> Vec<Profile> {
    let weights = [1_000_000_000, 10_000, 1];
    let labels = labels.split_inclusive(|_| true).zip(weights);
    labels.map(|(label, weight)| profile(label, None, weight)).collect()
}

/// Returns `a`, which is preferred, and `b` of one organisation, and `c` of another.
pub fn family() -> Vec<Profile> {
    let mut profiles = strangers("abc");
    for (profile, organisation) in profiles.iter_mut().zip(["org-x", "org-x", "org-y"]) {
        profile.organisation = Some(organisation.to_owned());
    }
    profiles
}

/// Sets the profiles of every upstream, and adds a Bedrock upstream.
pub fn pooled(builder: &mut Builder, profiles: &[Profile]) {
    let authority = builder.upstreams[0].authority.clone();
    builder.upstreams.push(Upstream {
        name: "bedrock".to_owned(),
        kind: ProviderKind::Bedrock,
        scheme: "http".parse().unwrap(),
        authority,
        base_path: String::new(),
        mode: Mode::Repair,
    });
    for upstream in &builder.upstreams {
        builder.profiles.insert(upstream.name.clone(), profiles.to_vec());
    }
}

/// Returns a still world in which every upstream has these profiles.
pub fn world(profiles: &[Profile]) -> World {
    World::with(|builder| pooled(builder, profiles))
}

/// Returns the label of the profile of a request. Empty for the client's own credential.
pub fn key(message: &Message) -> String {
    let sent = ["x-api-key", "authorization", "x-goog-api-key"];
    let value = sent.iter().find_map(|name| message.header(name)).unwrap_or_default();
    let label = value.trim_start_matches("Bearer ").strip_prefix(CANARY);
    label.unwrap_or_default().to_owned()
}

/// Returns the labels of requests in order, one letter each.
pub fn keys(requests: &[Request]) -> String {
    requests.iter().map(|request| key(&request.message)).collect()
}

/// Returns the status of a profile of an upstream.
pub fn view(world: &World, upstream: &str, label: &str) -> ProfileStatus {
    let all = world.shared.profiles.profile_statuses(Instant::now().into_std());
    let (_, views) = all.into_iter().find(|(name, _)| *name == upstream).unwrap();
    views.into_iter().find(|view| &*view.label == label).unwrap()
}

/// A cooldown: recorded reason, model, whether it disables, whether another profile caused it, and the seconds left.
pub type Rest = (&'static str, Option<String>, bool, bool, u64);

/// Returns the cooldowns of a profile.
pub fn cooldowns(world: &World, upstream: &str, label: &str) -> Vec<Rest> {
    let now = Instant::now().into_std();
    let rests = view(world, upstream, label).cooldowns.into_iter();
    rests
        .map(|rest| {
            let left = rest.until.saturating_duration_since(now).as_secs();
            let model = rest.model.map(String::from);
            (rest.reason.label(), model, rest.disables, rest.of_other_profile, left)
        })
        .collect()
}

/// Reports whether no profile of any upstream cools down.
pub fn untouched(world: &World) -> bool {
    let all = world.shared.profiles.profile_statuses(Instant::now().into_std());
    all.iter()
        .flat_map(|(_, views)| views)
        .all(|view| view.cooldowns.is_empty())
}

/// Returns the consecutive failures in the breakers of an upstream, over all models.
pub fn failures(world: &World, upstream: &str) -> u32 {
    let all = world.shared.profiles.breaker_statuses(Instant::now().into_std());
    let (_, views) = all.into_iter().find(|(name, _)| *name == upstream).unwrap();
    views.iter().map(|view| view.failures).sum()
}

/// Returns a POST of a session.
pub fn of_session(session: &str, path: &str, fields: &[(&str, &str)], body: &str) -> Vec<u8> {
    let session = [("x-antiphon-session", session)];
    let session = session.iter().filter(|(_, name)| !name.is_empty()).copied();
    let fields: Vec<(&str, &str)> = session.chain(fields.iter().copied()).collect();
    post_with(path, &fields, body.as_bytes())
}

/// Reports whether `time` is `wanted` plus or minus a jitter of a fifth, within a timer tick.
pub fn is_about(time: Duration, wanted: Duration) -> bool {
    let tick = Duration::from_millis(3);
    time + tick >= wanted && time <= wanted.mul_f64(1.2) + tick
}

/// Path of Anthropic Messages.
pub const MESSAGES: &str = "/anthropic/v1/messages";
/// Path of `OpenAI` Responses.
pub const RESPONSES: &str = "/openai/v1/responses";
/// Error of a rate limit.
pub const LIMITED: &str = r#"{"type":"error","error":{"type":"rate_limit_error","message":"Error"}}"#;
/// Error of a refused key.
pub const UNKNOWN: &str = r#"{"type":"error","error":{"type":"authentication_error","message":"invalid x-api-key"}}"#;
/// Error of an account without credit.
pub const UNPAID: &str =
    r#"{"type":"error","error":{"type":"billing_error","message":"Your account has a billing issue."}}"#;
/// Error of a key that lacks a permission.
pub const FORBIDDEN: &str = r#"{"type":"error","error":{"type":"permission_error","message":"Your API key does not have permission to use the specified resource."}}"#;
/// Error of a failing provider.
pub const BROKEN: &str = r#"{"type":"error","error":{"type":"api_error","message":"Internal server error"}}"#;
/// Error of an overloaded provider.
pub const OVERLOADED: &str = r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#;
/// Error for reasoning of another organisation.
pub const FOREIGN: &str = r#"{"error":{"message":"Encrypted content organization_id did not match the target organization.","type":"invalid_request_error","param":null,"code":"invalid_encrypted_content"}}"#;

/// Returns a body. Different numbers are different logical requests.
pub fn body(number: usize) -> String {
    format!(r#"{{"model":"m","max_tokens":16,"messages":[{{"role":"user","content":"question {number}"}}]}}"#)
}

/// Returns this body as a request of a session.
pub fn ask(session: &str, number: usize) -> Vec<u8> {
    of_session(session, MESSAGES, &[], &body(number))
}

/// Returns a rate limit with `retry-after`.
pub fn limited(seconds: &str) -> Vec<Step> {
    error(429, &[("retry-after", seconds)], LIMITED)
}

/// Returns a successful answer.
pub fn fine() -> Vec<Step> {
    json(
        200,
        r#"{"id":"msg_1","type":"message","content":[],"stop_reason":"end_turn"}"#,
    )
}

/// Sets the answers of these profiles. All others succeed.
pub fn does(world: &World, table: &[(&'static str, Vec<Step>)]) {
    let table = table.to_vec();
    world.otherwise(move |request| {
        let own = key(request);
        let known = table.iter().find(|(label, _)| *label == own);
        known.map_or_else(fine, |(_, steps)| steps.clone())
    });
}

/// Sends a request. Returns the profiles used for it, and the status.
pub async fn reached(world: &World, request: impl AsRef<[u8]>) -> (String, u16) {
    let before = world.requests().len();
    let answer = world.ask(request).await;
    (keys(&world.requests()[before..]), answer.status())
}
