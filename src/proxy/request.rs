//! The request side: collect, read, mend, and what goes up. Never parses a body itself.

use std::{
    borrow::Cow,
    fmt::Write as _,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

use bytes::Bytes;
use http::{
    HeaderMap, HeaderValue, Method, Request, Uri,
    header::{AUTHORIZATION, CONTENT_ENCODING, CONTENT_LENGTH},
    request::Parts,
};
use http_body::Body as _;
use http_body_util::BodyExt;
use hyper::body::Incoming;

use super::{
    Inner, ProxySettings,
    asked::{Asked, Sources},
    body::{ClientBody, Collected},
    coding::Coding,
    error::ProxyError,
    guard::Refusal,
    headers,
    memory::{Memory, Principal, Recalled},
    prepared::{Payload, Prepared},
    record::Record,
    reject::Rejection,
    second::{Again, ask_for_binding_controls, conversation_key},
};
use crate::{
    auth, clock,
    conversation::Outline,
    policy::retry::Footing,
    provider::Route,
    repair::{Action, Mode, RepairPolicy, Repaired, Report, repair_with, unbound},
    server::framing::Heads,
    splice::Segments,
    upstream::SendBody,
    wire::{Unreadable, Wire},
};

/// What was decided about a body.
struct Verdict {
    payload: Payload,
    /// Whether the body goes up plain although it came coded.
    decoded: bool,
    renamed: Vec<(String, String)>,
    /// The body as it came, decoded, and as it goes up, where the provider may have a last word on it.
    kept: Option<(Bytes, Segments)>,
    /// Whether the body asks for a setting that needs a header.
    unbound: bool,
    asked: Asked,
}

impl Verdict {
    /// The bytes that came.
    fn untouched(payload: Payload, asked: Asked) -> Self {
        Self {
            payload,
            decoded: false,
            renamed: Vec::new(),
            kept: None,
            unbound: false,
            asked,
        }
    }
}

/// Turns the client's request into the one that goes up.
pub(super) async fn prepare(
    inner: &Inner,
    route: &Route<'_>,
    caller: auth::Principal,
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
        principal: caller,
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
        caller,
    };
    let reading = Reading {
        settings,
        memory: &inner.memory,
        principal,
        sources,
        wire,
        mode,
    };
    let verdict = reading.inspect(body, record).await?;
    record.compacts = verdict.asked.compacts;
    Ok(finish(parts, route, verdict, Some((wire, principal))))
}

/// How the body of one request is read.
struct Reading<'s> {
    settings: &'s ProxySettings,
    memory: &'s Memory,
    principal: Principal<'s>,
    sources: Sources<'s>,
    wire: Wire,
    mode: Mode,
}

impl Reading<'_> {
    /// Reads the body and decides what goes up in its place.
    async fn inspect(&self, body: ClientBody, record: &mut Record) -> Result<Verdict, ProxyError> {
        let (settings, mode) = (self.settings, self.mode);
        let Some(coding) = Coding::of(self.sources.headers) else {
            return Ok(self.unread(record, Unreadable::Coding, Payload::Passing(Some(streamed(body)))));
        };
        let limit = settings.inspect_bytes_max;
        let too_large = |record: &mut Record| {
            record.event.unreadable = Some(Unreadable::TooLarge);
            ProxyError::TooLarge { limit }
        };
        let came = match body.collect(limit).await.map_err(ProxyError::Body)? {
            Collected::Whole(came) => came,
            Collected::TooLarge(_) if mode == Mode::Strict => return Err(too_large(record)),
            Collected::TooLarge(body) => {
                let payload = Payload::Passing(Some(streamed(body)));
                return Ok(self.unread(record, Unreadable::TooLarge, payload));
            }
        };
        let began = clock::now();
        let read = coding
            .decode(&came, limit)
            .and_then(|plain| self.mend(&plain).map(|repaired| (plain, repaired)));
        record.event.overhead = clock::now().duration_since(began);
        match read {
            Ok((plain, repaired)) => self.decide(came, plain, coding, repaired, record),
            Err(Unreadable::TooLarge) if mode == Mode::Strict => Err(too_large(record)),
            Err(reason) => Ok(self.unread(record, reason, Payload::Held(Segments::whole(came)))),
        }
    }

    /// What goes up of a body that was read.
    fn decide(
        &self,
        came: Bytes,
        plain: Bytes,
        coding: Coding,
        repaired: Repaired,
        record: &mut Record,
    ) -> Result<Verdict, ProxyError> {
        let Repaired { body, report, outline } = repaired;
        let asked = self.sources.asked(&plain, &outline);
        // With a profile the signature is ours, and comes last.
        let signed = asked.footing == Footing::Passthrough && is_signed(self.sources.headers);
        let wire = self.wire;
        let mode = if signed { Mode::Observe } else { self.mode };
        record.event.unreadable = report.unread;
        record.event.mode = Some(mode);
        match mode {
            Mode::Strict if !report.findings.is_empty() => {
                record.event.rejected = true;
                record.repair = Some(HeaderValue::from_static("rejected"));
                let findings = report.findings.clone();
                record.event.report = Some(report.without_actions());
                Err(ProxyError::Rejected(Rejection {
                    findings,
                    format: wire.format,
                }))
            }
            Mode::Repair => {
                record.repair = Some(actions(&report));
                let renamed = report.renamed.clone();
                let unbound = report.actions.contains_key(&Action::Unbind);
                record.event.report = Some(report);
                // Untouched, the very bytes that came go up, coded as they were.
                let decoded = coding != Coding::Identity && !body.is_original();
                let kept = Some((plain, body.clone()));
                let body = if body.is_original() {
                    Segments::whole(came)
                } else {
                    body
                };
                Ok(Verdict {
                    payload: Payload::Held(body),
                    decoded,
                    renamed,
                    kept,
                    unbound,
                    asked,
                })
            }
            Mode::Strict | Mode::Observe => {
                record.event.report = Some(report.without_actions());
                let repair = match (mode, signed) {
                    (Mode::Observe, true) => "observed; reason=signed",
                    (Mode::Observe, false) => "observed",
                    _ => "none",
                };
                record.repair = Some(HeaderValue::from_static(repair));
                Ok(Verdict::untouched(Payload::Held(Segments::whole(came)), asked))
            }
        }
    }

    /// A body that goes up as it came, unread.
    fn unread(&self, record: &mut Record, reason: Unreadable, payload: Payload) -> Verdict {
        record.event.unreadable = Some(reason);
        record.repair = Some(HeaderValue::from_static("unreadable"));
        Verdict::untouched(payload, self.sources.asked(&[], &Outline::default()))
    }

    /// Reads and mends. A panic of the core would be our bug, so that the provider judges the original.
    fn mend(&self, plain: &Bytes) -> Result<Repaired, Unreadable> {
        let mended = catch_unwind(AssertUnwindSafe(|| {
            let policy = policy(self.settings, self.memory, self.principal.upstream);
            let answers = Recalled {
                memory: self.memory,
                principal: self.principal,
            };
            let key = || conversation_key(self.principal, plain, self.wire);
            if self.mode == Mode::Repair
                && self.memory.is_unbound(key)
                && let Some(repaired) = unbound(plain, self.wire, &policy, &answers)
            {
                return Ok(repaired);
            }
            repair_with(plain, self.wire, &policy, &answers)
        }));
        mended.unwrap_or(Err(Unreadable::Overlap))
    }
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
    let again = again.map(|((plain, sent), (wire, principal))| Again::new(plain, sent, wire, principal));
    Prepared {
        method: parts.method,
        uri: address(route),
        headers,
        payload,
        renamed,
        again,
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

fn streamed(body: ClientBody) -> SendBody {
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

/// A signature over the body: any edit would break it.
fn is_signed(headers: &HeaderMap) -> bool {
    headers
        .get_all(AUTHORIZATION)
        .iter()
        .any(|value| value.as_bytes().starts_with(b"AWS4-HMAC-SHA256"))
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
