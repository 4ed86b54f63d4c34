//! Pools of profiles for still worlds: who was asked, who rests, and how the breakers stand.

use std::time::Duration;

use antiphon::{
    auth::{Credential, Profile, Secret, rotation::ProfileStatus},
    provider::{ProviderKind, Upstream},
    repair::Mode,
};
use tokio::time::Instant;

use super::{
    app::{Builder, post_with},
    still::{Request, Step, World, error, json},
    wire::Message,
};

/// What every key begins with: nothing that we write may hold it.
pub const CANARY: &str = "sk-canary-";

/// A profile whose key ends with its label. Heavy ones are chosen first.
pub fn profile(label: &str, organisation: Option<&str>, weight: u32) -> Profile {
    Profile {
        label: label.to_owned(),
        credential: Credential::Key(Secret::new(format!("{CANARY}{label}"))),
        weight,
        organisation: organisation.map(ToOwned::to_owned),
        models: Vec::new(),
    }
}

/// `a` before `b` before `c`, of organisations nobody has named.
pub fn strangers(labels: &str) -> Vec<Profile> {
    let weights = [1_000_000_000, 10_000, 1];
    let labels = labels.split_inclusive(|_| true).zip(weights);
    labels.map(|(label, weight)| profile(label, None, weight)).collect()
}

/// `a`, asked first, and `b` of one organisation, `c` of another.
pub fn family() -> Vec<Profile> {
    let mut profiles = strangers("abc");
    for (profile, organisation) in profiles.iter_mut().zip(["org-x", "org-x", "org-y"]) {
        profile.organisation = Some(organisation.to_owned());
    }
    profiles
}

/// Gives every upstream these profiles, and adds one of Amazon's kind.
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

/// A still world in which every upstream has these profiles.
pub fn world(profiles: &[Profile]) -> World {
    World::with(|builder| pooled(builder, profiles))
}

/// The label of the profile that a request went up with; empty for the client's own credential.
pub fn key(message: &Message) -> String {
    let sent = ["x-api-key", "authorization", "x-goog-api-key"];
    let value = sent.iter().find_map(|name| message.header(name)).unwrap_or_default();
    let label = value.trim_start_matches("Bearer ").strip_prefix(CANARY);
    label.unwrap_or_default().to_owned()
}

/// The labels of requests, one letter each, in order.
pub fn keys(requests: &[Request]) -> String {
    requests.iter().map(|request| key(&request.message)).collect()
}

/// A profile of an upstream as it stands.
pub fn view(world: &World, upstream: &str, label: &str) -> ProfileStatus {
    let all = world.shared.profiles.profile_statuses(Instant::now().into_std());
    let (_, views) = all.into_iter().find(|(name, _)| *name == upstream).unwrap();
    views.into_iter().find(|view| &*view.label == label).unwrap()
}

/// One rest: its recorded reason, its model, whether it disables, whether it came through another; seconds left.
pub type Rest = (&'static str, Option<String>, bool, bool, u64);

/// Why a profile rests.
pub fn rests(world: &World, upstream: &str, label: &str) -> Vec<Rest> {
    let now = Instant::now().into_std();
    let rests = view(world, upstream, label).cooldowns.into_iter();
    rests
        .map(|rest| {
            let left = rest.until.saturating_duration_since(now).as_secs();
            let model = rest.model.map(String::from);
            (rest.reason.label(), model, rest.disables, rest.shared, left)
        })
        .collect()
}

/// Whether nobody rests, anywhere.
pub fn untouched(world: &World) -> bool {
    let all = world.shared.profiles.profile_statuses(Instant::now().into_std());
    all.iter()
        .flat_map(|(_, views)| views)
        .all(|view| view.cooldowns.is_empty())
}

/// Failures in a row that the breakers of an upstream have counted, all models together.
pub fn failures(world: &World, upstream: &str) -> u32 {
    let all = world.shared.profiles.breaker_statuses(Instant::now().into_std());
    let (_, views) = all.into_iter().find(|(name, _)| *name == upstream).unwrap();
    views.iter().map(|view| view.failures).sum()
}

/// A POST of a session.
pub fn of_session(session: &str, path: &str, fields: &[(&str, &str)], body: &str) -> Vec<u8> {
    let session = [("x-antiphon-session", session)];
    let session = session.iter().filter(|(_, name)| !name.is_empty()).copied();
    let fields: Vec<(&str, &str)> = session.chain(fields.iter().copied()).collect();
    post_with(path, &fields, body.as_bytes())
}

/// Whether a time lies in what a jitter of a fifth makes of another, give or take a tick.
pub fn is_about(time: Duration, wanted: Duration) -> bool {
    let tick = Duration::from_millis(3);
    time + tick >= wanted && time <= wanted.mul_f64(1.2) + tick
}

/// Messages of Anthropic.
pub const MESSAGES: &str = "/anthropic/v1/messages";
/// Responses of `OpenAI`.
pub const RESPONSES: &str = "/openai/v1/responses";
/// A limit.
pub const LIMITED: &str = r#"{"type":"error","error":{"type":"rate_limit_error","message":"Error"}}"#;
/// A key that is not taken.
pub const UNKNOWN: &str = r#"{"type":"error","error":{"type":"authentication_error","message":"invalid x-api-key"}}"#;
/// A failure of the provider.
pub const BROKEN: &str = r#"{"type":"error","error":{"type":"api_error","message":"Internal server error"}}"#;
/// Too much for everybody.
pub const OVERLOADED: &str = r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#;
/// Reasoning of another organisation's.
pub const FOREIGN: &str = r#"{"error":{"message":"Encrypted content organization_id did not match the target organization.","type":"invalid_request_error","param":null,"code":"invalid_encrypted_content"}}"#;

/// A question; no two numbers make one logical request.
pub fn body(number: usize) -> String {
    format!(r#"{{"model":"m","max_tokens":16,"messages":[{{"role":"user","content":"question {number}"}}]}}"#)
}

/// It, asked by a session.
pub fn ask(session: &str, number: usize) -> Vec<u8> {
    of_session(session, MESSAGES, &[], &body(number))
}

/// A limit for so many seconds.
pub fn limited(seconds: &str) -> Vec<Step> {
    error(429, &[("retry-after", seconds)], LIMITED)
}

/// A good answer.
pub fn fine() -> Vec<Step> {
    json(
        200,
        r#"{"id":"msg_1","type":"message","content":[],"stop_reason":"end_turn"}"#,
    )
}

/// What each of these profiles does, whenever it is asked; the others answer well.
pub fn does(world: &World, table: &[(&'static str, Vec<Step>)]) {
    let table = table.to_vec();
    world.otherwise(move |request| {
        let own = key(request);
        let known = table.iter().find(|(label, _)| *label == own);
        known.map_or_else(fine, |(_, steps)| steps.clone())
    });
}

/// Asks, and gives the profiles that this has reached.
pub async fn reached(world: &World, request: impl AsRef<[u8]>) -> (String, u16) {
    let before = world.requests().len();
    let answer = world.ask(request).await;
    (keys(&world.requests()[before..]), answer.status())
}
