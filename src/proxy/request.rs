//! The request side: collect, read, mend, and what goes up. Never parses a body itself.

use std::{borrow::Cow, fmt::Write as _, sync::Arc};

use bytes::Bytes;
use http::{
    HeaderMap, HeaderValue, Method, Request, Uri,
    header::{CONTENT_ENCODING, CONTENT_LENGTH},
    request::Parts,
};
use http_body::Body as _;
use http_body_util::BodyExt;
use hyper::body::Incoming;

use super::{
    Inner, ProxySettings,
    asked::Sources,
    body::{ClientBody, Collected},
    error::ProxyError,
    guard::Refusal,
    headers,
    memory::{Memory, Principal},
    prepared::{Payload, Prepared},
    reading::{Reading, Verdict},
    record::Record,
    second::{Again, ask_for_binding_controls},
};
use crate::{
    auth::Who,
    conversation::Outline,
    provider::Route,
    recall::Patience,
    repair::{Action, Mode, RepairPolicy, Report},
    server::framing::Heads,
    splice::Segments,
    upstream::SendBody,
    wire::Wire,
};

/// Turns the client's request into the one that goes up; waits for the ledger as long as its `patience` lasts.
pub(super) async fn prepare(
    inner: &Inner,
    route: &Route<'_>,
    caller: Who,
    patience: Patience,
    request: Request<Incoming>,
    record: &mut Record,
) -> Result<Prepared, ProxyError> {
    let (parts, body) = request.into_parts();
    let settings = &inner.settings;
    let mode = mode(&parts.headers, route.upstream.mode, settings.trust_mode_header)?;
    let body = ClientBody::new(body, settings.upload_idle_timeout, Arc::clone(&record.bytes_in));
    let sources = Sources {
        route,
        headers: &parts.headers,
        profiles: &inner.profiles,
        sessions: &inner.sessions,
        telemetry: &inner.telemetry,
        late: &inner.late,
        principal: caller.principal,
    };
    let Some(wire) = route.wire.filter(|_| !body.is_end_stream()) else {
        let asked = sources.asked(&[], &Outline::default());
        let payload = if inner.profiles.needs_body(&route.upstream.name) {
            match body
                .collect(settings.inspect_bytes_max)
                .await
                .map_err(ProxyError::Body)?
            {
                Collected::Whole(body) => Payload::Held(Segments::whole(body)),
                Collected::TooLarge(body) => Payload::Passing(Some(streamed(body))),
            }
        } else if body.is_end_stream() && matches!(parts.method, Method::GET | Method::HEAD) {
            // What only asks may be asked again.
            Payload::Held(Segments::whole(Bytes::new()))
        } else {
            if let Some(heads) = parts.extensions.get::<Heads>() {
                heads.streamed();
            }
            Payload::Passing(Some(streamed(body)))
        };
        return Ok(finish(parts, route, Verdict::untouched(payload, asked), None));
    };
    (record.event.format, record.event.mode) = (Some(wire.format), Some(mode));
    let principal = Principal {
        upstream: &route.upstream.name,
        caller: caller.principal,
    };
    let reading = Reading {
        settings,
        memory: &inner.memory,
        recall: &inner.recall,
        principals: &inner.principals,
        who: caller,
        patience,
        principal,
        sources,
        wire,
        mode,
    };
    let verdict = reading.inspect(body, record).await?;
    record.compacts = verdict.asked.compacts;
    let principal = Principal {
        caller: verdict.asked.principal,
        ..principal
    };
    Ok(finish(parts, route, verdict, Some((wire, principal))))
}

/// The policy, with what was learned of this upstream.
pub(super) fn policy<'s>(settings: &'s ProxySettings, memory: &Memory, upstream: &str) -> Cow<'s, RepairPolicy> {
    if !memory.wants_unique_ids(upstream) {
        return Cow::Borrowed(&settings.policy);
    }
    Cow::Owned(RepairPolicy {
        unique_ids: true,
        ..settings.policy.clone()
    })
}

/// Puts head and body together, addressed to the upstream.
fn finish(mut parts: Parts, route: &Route<'_>, verdict: Verdict, read: Option<(Wire, Principal<'_>)>) -> Prepared {
    let Verdict {
        payload,
        decoded,
        renamed,
        kept,
        tentative,
        debtor,
        unbound,
        asked,
    } = verdict;
    if unbound {
        ask_for_binding_controls(&mut parts.headers);
    }
    if decoded {
        parts.headers.remove(CONTENT_ENCODING);
    }
    let claimed = parts.headers.contains_key(CONTENT_LENGTH);
    let mut headers = headers::for_upstream(parts.headers, route.wire.is_some());
    // Our own length, never the client's: a POST without a body has one too.
    let length = payload.length();
    let wanted = claimed || matches!(parts.method, Method::POST | Method::PUT | Method::PATCH);
    if let Some(length) = length.filter(|length| *length > 0 || wanted) {
        headers.insert(CONTENT_LENGTH, length.into());
    }
    let again = kept.zip(read);
    let again = again.map(|(kept, (wire, principal))| Again::new(kept, wire, principal));
    Prepared {
        method: parts.method,
        uri: address(route),
        headers,
        payload,
        renamed,
        again,
        tentative,
        debtor,
        asked,
    }
}

fn address(route: &Route<'_>) -> Uri {
    let mut parts = http::uri::Parts::default();
    parts.scheme = Some(route.upstream.scheme.clone());
    parts.authority = Some(route.upstream.authority.clone());
    parts.path_and_query = Some(route.target.clone());
    // All three are set, so that this cannot fail; an empty URL is an error of the client below.
    Uri::from_parts(parts).unwrap_or_default()
}

pub(super) fn streamed(body: ClientBody) -> SendBody {
    body.map_err(Into::into).boxed_unsync()
}

/// The mode in force: the route's, or the header's where that is stricter or trusted.
fn mode(headers: &HeaderMap, route: Mode, trusted: bool) -> Result<Mode, ProxyError> {
    let mut values = headers.get_all(headers::MODE).iter();
    let (first, second) = (values.next(), values.next());
    let Some(value) = first else { return Ok(route) };
    let known = [Mode::Observe, Mode::Repair, Mode::Strict];
    let asked = known
        .into_iter()
        .find(|mode| mode.label().as_bytes() == value.as_bytes());
    let Some(asked) = asked.filter(|_| second.is_none()) else {
        return Err(ProxyError::Refused(Refusal::Mode));
    };
    Ok(if trusted || strictness(asked) > strictness(route) {
        asked
    } else {
        route
    })
}

const fn strictness(mode: Mode) -> u8 {
    match mode {
        Mode::Observe => 0,
        Mode::Repair => 1,
        Mode::Strict => 2,
    }
}

/// The value of `x-antiphon-repair`: `none`, or the actions taken: `moved=1, merged=1`.
pub(super) fn actions(report: &Report) -> HeaderValue {
    let mut text = String::new();
    for action in Action::ALL {
        if let Some(count) = report.actions.get(&action).filter(|count| **count > 0) {
            let comma = if text.is_empty() { "" } else { ", " };
            // Writing to a string cannot fail.
            let _ = write!(text, "{comma}{}={count}", action.label());
        }
    }
    if text.is_empty() {
        return HeaderValue::from_static("none");
    }
    HeaderValue::from_str(&text).unwrap_or(HeaderValue::from_static("none"))
}
