//! The reading of one body: what is found in it, what is remembered of its calls, and what goes up in its place.

use std::panic::{AssertUnwindSafe, catch_unwind};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, header::AUTHORIZATION};

use super::{
    ProxySettings,
    asked::{Asked, Sources},
    body::{ClientBody, Collected},
    coding::Coding,
    error::ProxyError,
    memory::{Memory, Principal},
    prepared::Payload,
    recalled::{self, Known, Notes, Recalled, Tentative},
    record::Record,
    reject::Rejection,
    request::{actions, policy, streamed},
    second::conversation_key,
};
use crate::{
    clock,
    conversation::Outline,
    policy::retry::Footing,
    recall::{Recall, Scope},
    repair::{Action, Mode, Repaired, repair_with, unbound},
    splice::Segments,
    wire::{Unreadable, Wire},
};

/// What was decided about a body.
pub(super) struct Verdict {
    pub(super) payload: Payload,
    /// Whether the body goes up plain although it came coded.
    pub(super) decoded: bool,
    pub(super) renamed: Vec<(String, String)>,
    /// The body as it came, decoded, and as it goes up, where the provider may have a last word on it.
    pub(super) kept: Option<(Bytes, Segments, Known)>,
    /// The answers that its calls were given.
    pub(super) tentative: Option<Tentative>,
    /// Whether the body asks for a setting that needs a header.
    pub(super) unbound: bool,
    pub(super) asked: Asked,
}

impl Verdict {
    /// The bytes that came.
    pub(super) fn untouched(payload: Payload, asked: Asked) -> Self {
        Self {
            payload,
            decoded: false,
            renamed: Vec::new(),
            kept: None,
            tentative: None,
            unbound: false,
            asked,
        }
    }
}

/// A body that was read and mended, with what was known of its calls.
struct Mended {
    repaired: Repaired,
    notes: Notes,
    known: Known,
}

/// How the body of one request is read.
pub(super) struct Reading<'s> {
    pub(super) settings: &'s ProxySettings,
    pub(super) memory: &'s Memory,
    pub(super) recall: &'s Recall,
    pub(super) principal: Principal<'s>,
    pub(super) sources: Sources<'s>,
    pub(super) wire: Wire,
    pub(super) mode: Mode,
}

impl Reading<'_> {
    /// Reads the body and decides what goes up in its place.
    pub(super) async fn inspect(&self, body: ClientBody, record: &mut Record) -> Result<Verdict, ProxyError> {
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
            .and_then(|plain| self.mend(&plain, Known::default()).map(|mended| (plain, mended)));
        record.event.overhead = clock::now().duration_since(began);
        match read {
            Ok((plain, mended)) => {
                let verdict = self.decide(came, plain, coding, mended, record).await;
                record.event.overhead = clock::now().duration_since(began);
                verdict
            }
            Err(Unreadable::TooLarge) if mode == Mode::Strict => Err(too_large(record)),
            Err(reason) => Ok(self.unread(record, reason, Payload::Held(Segments::whole(came)))),
        }
    }

    /// What goes up of a body that was read.
    async fn decide(
        &self,
        came: Bytes,
        plain: Bytes,
        coding: Coding,
        mended: Mended,
        record: &mut Record,
    ) -> Result<Verdict, ProxyError> {
        let asked = self.sources.asked(&plain, &mended.repaired.outline);
        // With a profile the signature is ours, and comes last.
        let signed = asked.footing == Footing::Passthrough && is_signed(self.sources.headers);
        let mode = if signed { Mode::Observe } else { self.mode };
        record.event.mode = Some(mode);
        let report = &mended.repaired.report;
        record.event.unreadable = report.unread;
        match mode {
            Mode::Strict if !report.findings.is_empty() => {
                record.event.rejected = true;
                record.repair = Some(HeaderValue::from_static("rejected"));
                let findings = report.findings.clone();
                record.event.report = Some(mended.repaired.report.without_actions());
                Err(ProxyError::Rejected(Rejection {
                    findings,
                    format: self.wire.format,
                }))
            }
            Mode::Repair => {
                let (mended, tentative) = self.remember(&plain, mended, &asked).await;
                let Mended { repaired, known, .. } = mended;
                let Repaired { body, report, .. } = repaired;
                record.repair = Some(actions(&report));
                let renamed = report.renamed.clone();
                let unbound = report.actions.contains_key(&Action::Unbind);
                record.event.report = Some(report);
                // Untouched, the very bytes that came go up, coded as they were.
                let decoded = coding != Coding::Identity && !body.is_original();
                let kept = Some((plain, body.clone(), known));
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
                    tentative,
                    unbound,
                    asked,
                })
            }
            Mode::Strict | Mode::Observe => {
                record.event.report = Some(mended.repaired.report.without_actions());
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

    /// Asks the ledger for what memory does not know, and keeps the answers that calls are given now: before they are
    /// sent. Counts, batches and compactions read and keep nothing.
    async fn remember(&self, plain: &Bytes, first: Mended, asked: &Asked) -> (Mended, Option<Tentative>) {
        let by = recalled::patience();
        let scope = Scope {
            who: self.principal.caller,
            format: self.wire.format,
            lane: asked.lane.map(|lane| lane.id),
        };
        let mut mended = first;
        if !mended.notes.wanted.is_empty() {
            let mut known = mended.known.clone();
            known.fetch(self.recall, scope, &mended.notes.wanted, by).await;
            mended = self.anew(plain, known, mended);
        }
        if !self.sources.route.asks_for_a_turn() || asked.compacts {
            return (mended, None);
        }
        if !mended.notes.given.is_empty() {
            let standing = self.recall.freeze(scope.who, &mended.notes.given, by).await;
            if !standing.is_empty() {
                let mut known = mended.known.clone();
                known.adopt(standing);
                mended = self.anew(plain, known, mended);
            }
        }
        let tentative = Tentative {
            recall: self.recall.clone(),
            scope,
            notes: std::mem::take(&mut mended.notes),
            plain: plain.clone(),
            outline: std::mem::take(&mut mended.repaired.outline),
        };
        (mended, Some(tentative))
    }

    /// Mends anew with what is known by now.
    fn anew(&self, plain: &Bytes, known: Known, before: Mended) -> Mended {
        self.mend(plain, known).unwrap_or(before)
    }

    /// A body that goes up as it came, unread.
    fn unread(&self, record: &mut Record, reason: Unreadable, payload: Payload) -> Verdict {
        record.event.unreadable = Some(reason);
        record.repair = Some(HeaderValue::from_static("unreadable"));
        Verdict::untouched(payload, self.sources.asked(&[], &Outline::default()))
    }

    /// Reads and mends. A panic of the core would be our bug, so that the provider judges the original.
    fn mend(&self, plain: &Bytes, known: Known) -> Result<Mended, Unreadable> {
        let mended = catch_unwind(AssertUnwindSafe(|| {
            let policy = policy(self.settings, self.memory, self.principal.upstream);
            let answers = Recalled::new(self.memory, self.recall, self.principal, &known);
            let key = || conversation_key(self.principal, plain, self.wire);
            let dropped = (self.mode == Mode::Repair && self.memory.is_unbound(key))
                .then(|| unbound(plain, self.wire, &policy, &answers));
            let repaired = match dropped.flatten() {
                Some(repaired) => repaired,
                None => {
                    answers.notes.replace(Notes::default());
                    repair_with(plain, self.wire, &policy, &answers)?
                }
            };
            Ok((repaired, answers.notes.into_inner()))
        }));
        let (repaired, notes) = mended.unwrap_or(Err(Unreadable::Overlap))?;
        Ok(Mended { repaired, notes, known })
    }
}

/// A signature over the body: any edit would break it.
pub(super) fn is_signed(headers: &HeaderMap) -> bool {
    headers
        .get_all(AUTHORIZATION)
        .iter()
        .any(|value| value.as_bytes().starts_with(b"AWS4-HMAC-SHA256"))
}
