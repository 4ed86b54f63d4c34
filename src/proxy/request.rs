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
    ProxySettings,
    body::{ClientBody, Collected, Spliced},
    coding::Coding,
    error::ProxyError,
    guard::Refusal,
    headers,
    memory::{Memory, Principal, Recalled},
    record::Record,
    reject::Rejection,
    second::{Again, ask_for_binding_controls, conversation_key},
};
use crate::{
    clock,
    provider::Route,
    repair::{Action, Mode, RepairPolicy, Repaired, Report, repair_with, unbound},
    server::framing::Heads,
    splice::Segments,
    upstream::SendBody,
    wire::{Unreadable, Wire},
};

/// A request that is ready to be sent.
#[derive(Debug)]
pub(super) struct Prepared {
    /// The request, with its full URL.
    pub request: Request<SendBody>,
    /// Ids that were replaced: (new, old).
    pub renamed: Vec<(String, String)>,
    /// What a second send needs; none where the provider's first word is final.
    pub again: Option<Again>,
}

/// What was decided about a body.
struct Verdict {
    body: SendBody,
    /// Whether the body goes up plain although it came coded.
    decoded: bool,
    renamed: Vec<(String, String)>,
    /// The body as it came, decoded, and as it goes up, where it may go up again.
    kept: Option<(Bytes, Segments)>,
    /// Whether the body asks for a setting that needs a header.
    unbound: bool,
}

impl Verdict {
    /// The bytes that came.
    fn untouched(body: SendBody) -> Self {
        Self {
            body,
            decoded: false,
            renamed: Vec::new(),
            kept: None,
            unbound: false,
        }
    }
}

/// Turns the client's request into the one that goes up.
pub(super) async fn prepare(
    settings: &ProxySettings,
    memory: &Memory,
    route: &Route<'_>,
    request: Request<Incoming>,
    record: &mut Record,
) -> Result<Prepared, ProxyError> {
    let (parts, body) = request.into_parts();
    let mode = mode(&parts.headers, route.upstream.mode, settings.trust_mode_header)?;
    let body = ClientBody::new(body, settings.upload_idle_timeout, Arc::clone(&record.bytes_in));
    let Some(wire) = route.wire.filter(|_| !body.is_end_stream()) else {
        if let Some(heads) = parts.extensions.get::<Heads>() {
            heads.streamed();
        }
        return Ok(finish(parts, route, Verdict::untouched(streamed(body)), None));
    };
    (record.event.format, record.event.mode) = (Some(wire.format), Some(mode));
    let principal = memory.principal(&route.upstream.name, &parts.headers, parts.uri.query());
    let reading = Reading {
        settings,
        memory,
        principal,
        headers: &parts.headers,
        wire,
        mode,
    };
    let verdict = reading.inspect(body, record).await?;
    Ok(finish(parts, route, verdict, Some((wire, principal))))
}

/// How the body of one request is read.
struct Reading<'s> {
    settings: &'s ProxySettings,
    memory: &'s Memory,
    principal: Principal<'s>,
    headers: &'s HeaderMap,
    wire: Wire,
    mode: Mode,
}

impl Reading<'_> {
    /// Reads the body and decides what goes up in its place.
    async fn inspect(&self, body: ClientBody, record: &mut Record) -> Result<Verdict, ProxyError> {
        let (settings, mode) = (self.settings, self.mode);
        let Some(coding) = Coding::of(self.headers) else {
            return Ok(unread(record, Unreadable::Coding, streamed(body)));
        };
        let limit = settings.inspect_bytes_max;
        let too_large = |record: &mut Record| {
            record.event.unreadable = Some(Unreadable::TooLarge);
            ProxyError::TooLarge { limit }
        };
        let came = match body.collect(limit).await.map_err(ProxyError::Body)? {
            Collected::Whole(came) => came,
            Collected::TooLarge(_) if mode == Mode::Strict => return Err(too_large(record)),
            Collected::TooLarge(body) => return Ok(unread(record, Unreadable::TooLarge, streamed(body))),
        };
        let began = clock::now();
        let read = coding
            .decode(&came, limit)
            .and_then(|plain| self.mend(&plain).map(|repaired| (plain, repaired)));
        record.event.overhead = clock::now().duration_since(began);
        match read {
            Ok((plain, repaired)) => self.decide(came, plain, coding, repaired, record),
            Err(Unreadable::TooLarge) if mode == Mode::Strict => Err(too_large(record)),
            Err(reason) => Ok(unread(record, reason, in_memory(Segments::whole(came)))),
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
        let Repaired { body, report, .. } = repaired;
        let (wire, signed) = (self.wire, is_signed(self.headers));
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
                    body: in_memory(body),
                    decoded,
                    renamed,
                    kept,
                    unbound,
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
                Ok(Verdict::untouched(in_memory(Segments::whole(came))))
            }
        }
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

/// A body that goes up as it came, unread.
fn unread(record: &mut Record, reason: Unreadable, body: SendBody) -> Verdict {
    record.event.unreadable = Some(reason);
    record.repair = Some(HeaderValue::from_static("unreadable"));
    Verdict::untouched(body)
}

/// Puts head and body together, addressed to the upstream.
fn finish(mut parts: Parts, route: &Route<'_>, verdict: Verdict, read: Option<(Wire, Principal<'_>)>) -> Prepared {
    let Verdict {
        body,
        decoded,
        renamed,
        kept,
        unbound,
    } = verdict;
    if unbound {
        ask_for_binding_controls(&mut parts.headers);
    }
    if decoded {
        parts.headers.remove(CONTENT_ENCODING);
    }
    let claimed = parts.headers.contains_key(CONTENT_LENGTH);
    let mut request = Request::new(body);
    *request.headers_mut() = headers::for_upstream(parts.headers, route.wire.is_some());
    // Our own length, never the client's: a POST without a body has one too.
    let length = request.body().size_hint().exact();
    let wanted = claimed || matches!(parts.method, Method::POST | Method::PUT | Method::PATCH);
    if let Some(length) = length.filter(|length| *length > 0 || wanted) {
        request.headers_mut().insert(CONTENT_LENGTH, length.into());
    }
    *request.method_mut() = parts.method;
    *request.uri_mut() = address(route);
    let again = kept.zip(read);
    let again = again.map(|((plain, sent), (wire, principal))| Again::new(&request, plain, sent, wire, principal));
    Prepared {
        request,
        renamed,
        again,
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

/// A body of slices that are in memory.
pub(super) fn in_memory(body: Segments) -> SendBody {
    Spliced::from(body).map_err(|never| match never {}).boxed_unsync()
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
