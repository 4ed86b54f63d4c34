//! The reading of one body: what is found in it, what is remembered of its calls, and what goes up in its place.

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, header::AUTHORIZATION};
use tokio::time::Instant;

use super::{
    ProxySettings,
    asked::{Asked, Sources},
    body::{ClientBody, Collected},
    caught::caught,
    coding::Coding,
    error::ProxyError,
    memory::{Memory, Principal},
    owed::{Owed, Put},
    prepared::Payload,
    recalled::{Known, Notes, Recalled},
    record::Record,
    reject::Rejection,
    request::{actions, policy, streamed},
    second::{Kept, conversation_key},
    tentative::Tentative,
};
use crate::{
    auth::{PrincipalKey, Who},
    clock,
    conversation::Outline,
    policy::retry::Footing,
    recall::{Patience, Recall},
    repair::{Action, Mode, Repaired, repair_with, unbound},
    session::body_user,
    splice::Segments,
    wire::{Unreadable, Wire},
};

/// What was decided about a body.
pub(super) struct Verdict {
    pub(super) payload: Payload,
    /// Whether the body goes up plain although it came coded.
    pub(super) decoded: bool,
    pub(super) renamed: Vec<(String, String)>,
    /// What goes up, where the provider may have a last word on it.
    pub(super) kept: Option<Kept>,
    /// The answers that its calls were given.
    pub(super) tentative: Option<Tentative>,
    /// Who is owed the results of its calls; none where no service posts any.
    pub(super) debtor: Option<Owed>,
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
            debtor: None,
            unbound: false,
            asked,
        }
    }
}

/// A body that was read and mended, with what was known of its calls.
struct Mended {
    /// The body that was read: the client's, or with late results at its end.
    plain: Bytes,
    repaired: Repaired,
    notes: Notes,
    known: Known,
}

/// How the body of one request is read.
#[derive(Clone, Copy)]
pub(super) struct Reading<'s> {
    pub(super) settings: &'s ProxySettings,
    pub(super) memory: &'s Memory,
    pub(super) recall: &'s Recall,
    pub(super) principals: &'s PrincipalKey,
    pub(super) who: Who,
    /// How long the exchange may still wait for the ledger.
    pub(super) patience: Patience,
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
            .and_then(|plain| self.mend(&plain, Known::default()));
        record.event.overhead = clock::now().duration_since(began);
        match read {
            Ok(mended) => {
                let verdict = match self.of_user(&mended) {
                    None => self.decide(came, coding, mended, record).await,
                    Some(reading) => reading.decide_for_user(came, coding, mended, record).await,
                };
                record.event.overhead = clock::now().duration_since(began);
                verdict
            }
            Err(Unreadable::TooLarge) if mode == Mode::Strict => Err(too_large(record)),
            Err(reason) => Ok(self.unread(record, reason, Payload::Held(Segments::whole(came)))),
        }
    }

    /// The same for the user that the body names, where bodies are trusted with that.
    fn of_user(&self, mended: &Mended) -> Option<Self> {
        if !self.settings.principals.trust_body_user {
            return None;
        }
        let user = body_user(&mended.plain, &mended.repaired.outline)?;
        let who = self.who.with_user(self.principals, user.as_bytes());
        let caller = who.principal;
        Some(Self {
            who,
            principal: Principal {
                caller,
                ..self.principal
            },
            sources: Sources {
                principal: caller,
                ..self.sources
            },
            ..*self
        })
    }

    /// What was known for the account is not for the user: the body is mended anew.
    async fn decide_for_user(
        mut self,
        came: Bytes,
        coding: Coding,
        mended: Mended,
        record: &mut Record,
    ) -> Result<Verdict, ProxyError> {
        if let Some((late, who)) = &mut record.asker {
            *who = self.who;
            let load = |by| late.load(self.who.principal, by);
            self.patience.spend(load).await;
        }
        let mended = self.anew(Known::default(), mended);
        self.decide(came, coding, mended, record).await
    }

    /// What goes up of a body that was read.
    async fn decide(
        &self,
        came: Bytes,
        coding: Coding,
        mut mended: Mended,
        record: &mut Record,
    ) -> Result<Verdict, ProxyError> {
        let asked = self.sources.asked(&mended.plain, &mended.repaired.outline);
        // With a profile the signature is ours, and comes last.
        let signed = asked.footing == Footing::Passthrough && is_signed(self.sources.headers);
        let mode = if signed { Mode::Observe } else { self.mode };
        record.event.mode = Some(mode);
        let report = &mended.repaired.report;
        record.event.unreadable = report.unread;
        if mode != Mode::Repair && !report.findings.is_empty() {
            record.draft(report, self.wire, mended.plain.clone(), None);
        }
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
            Mode::Repair => Ok(self.mended(came, coding, mended, asked, record).await),
            Mode::Strict | Mode::Observe => {
                record.event.report = Some(std::mem::take(&mut mended.repaired.report).without_actions());
                let repair = match (mode, signed) {
                    (Mode::Observe, true) => "observed; reason=signed",
                    (Mode::Observe, false) => "observed",
                    _ => "none",
                };
                record.repair = Some(HeaderValue::from_static(repair));
                let owed = self.owed(&asked);
                let is_used = owed.late.is_used();
                let tentative = (is_used && self.asks(&asked)).then(|| {
                    owed.went_on(asked.went_on);
                    // Nothing was put in: no call was given an answer.
                    mended.notes = Notes::default();
                    self.tentative(&mut mended, &owed)
                });
                let verdict = Verdict::untouched(Payload::Held(Segments::whole(came)), asked);
                Ok(Verdict {
                    tentative,
                    debtor: is_used.then_some(owed),
                    ..verdict
                })
            }
        }
    }

    /// What goes up of a body that may be mended.
    async fn mended(&self, came: Bytes, coding: Coding, mended: Mended, asked: Asked, record: &mut Record) -> Verdict {
        let before = mended.plain.clone();
        let owed = self.owed(&asked);
        let mut patience = self.patience;
        let remember = |by| self.remember(mended, &asked, &owed, by);
        let (mended, put, mut tentative) = patience.spend(remember).await;
        if let Some(tentative) = &mut tentative {
            tentative.patience = patience;
        }
        let Mended {
            plain, repaired, known, ..
        } = mended;
        let Repaired { body, mut report, .. } = repaired;
        if put.count > 0 {
            report.actions.insert(Action::Append, put.count);
        }
        record.repair = Some(actions(&report));
        if !report.actions.is_empty() {
            record.draft(&report, self.wire, before, Some(body.clone()));
        }
        let renamed = report.renamed.clone();
        let unbound = report.actions.contains_key(&Action::Unbind);
        record.event.report = Some(report);
        // Untouched, the very bytes that came go up, coded as they were.
        let untouched = body.is_original() && put.count == 0;
        let kept = Some(Kept {
            plain,
            ends_with_late: put.at_the_end,
            sent: body.clone(),
            known,
        });
        Verdict {
            payload: Payload::Held(if untouched { Segments::whole(came) } else { body }),
            decoded: coding != Coding::Identity && !untouched,
            renamed,
            kept,
            tentative,
            debtor: owed.late.is_used().then_some(owed),
            unbound,
            asked,
        }
    }

    fn owed(&self, asked: &Asked) -> Owed {
        Owed {
            late: self.sources.late.clone(),
            recall: self.recall.clone(),
            who: self.who,
            format: self.wire.format,
            lane: asked.lane,
            session: asked.session,
        }
    }

    /// Puts late results in, asks the ledger for what memory does not know, and keeps the answers that calls are given now:
    /// before they are sent. Counts, batches and compactions read, and keep nothing. Gives what of ours stands at the end of
    /// messages, too.
    async fn remember(
        &self,
        first: Mended,
        asked: &Asked,
        owed: &Owed,
        by: Instant,
    ) -> (Mended, Put, Option<Tentative>) {
        let asks = self.asks(asked);
        let (mut mended, mut put) = (first, Put::default());
        if asks {
            owed.went_on(asked.went_on);
        }
        let policy = policy(self.settings, self.memory, self.principal.upstream);
        let outline = &mended.repaired.outline;
        let with_late = owed
            .with_late(&mended.plain, self.wire, &policy, outline, asks, by)
            .await;
        if let Some(with_late) = with_late
            && let Ok(again) = self.mend(&with_late.body, Known::default())
        {
            (mended, put) = (again, with_late.put);
        }
        if let Some(lane) = owed.scope().lane.filter(|_| mended.notes.comes_again) {
            mended = self.anew(Known::in_lane(lane), mended);
        }
        if !mended.notes.wanted.is_empty() {
            let mut known = mended.known.clone();
            known.fetch(owed, &mended.notes.wanted, &put.told, by).await;
            mended = self.anew(known, mended);
        }
        if !asks {
            return (mended, put, None);
        }
        if !mended.notes.given.is_empty() {
            self.memory.tell_of_short_lives(self.sources.headers);
            let standing = self.recall.freeze(owed.scope(), &mended.notes.given, by).await;
            if !standing.is_empty() {
                let mut known = mended.known.clone();
                known.adopt(standing);
                mended = self.anew(known, mended);
            }
        }
        for (call, answer) in &mended.notes.given {
            self.sources
                .telemetry
                .record_frozen_answer(mended.known.row_of(*call, answer));
        }
        let tentative = self.tentative(&mut mended, owed);
        (mended, put, Some(tentative))
    }

    /// Whether a turn of the model is asked for, for the conversation's own sake.
    fn asks(&self, asked: &Asked) -> bool {
        self.sources.route.asks_for_a_turn() && !asked.compacts
    }

    /// What is to be kept of the calls of a body that was mended, once a provider takes it.
    fn tentative(&self, mended: &mut Mended, owed: &Owed) -> Tentative {
        Tentative {
            owed: owed.clone(),
            patience: self.patience,
            notes: std::mem::take(&mut mended.notes),
            posted: mended.known.posted(),
            placed: None,
            plain: mended.plain.clone(),
            outline: std::mem::take(&mut mended.repaired.outline),
        }
    }

    /// Mends anew with what is known by now.
    fn anew(&self, known: Known, before: Mended) -> Mended {
        self.mend(&before.plain, known).unwrap_or(before)
    }

    /// A body that goes up as it came, unread.
    fn unread(&self, record: &mut Record, reason: Unreadable, payload: Payload) -> Verdict {
        record.event.unreadable = Some(reason);
        record.repair = Some(HeaderValue::from_static("unreadable"));
        Verdict::untouched(payload, self.sources.asked(&[], &Outline::default()))
    }

    /// Reads and mends. A panic of the core would be our bug, so that the provider judges the original.
    fn mend(&self, plain: &Bytes, known: Known) -> Result<Mended, Unreadable> {
        let mended = caught(|| {
            let policy = policy(self.settings, self.memory, self.principal.upstream);
            let answers = Recalled::new(self.memory, self.recall, self.principal, self.wire.format, &known);
            let key = || conversation_key(self.principal, plain, self.wire);
            let dropped = (self.mode == Mode::Repair && self.memory.is_unbound(key))
                .then(|| unbound(plain, self.wire, &policy, &answers));
            let repaired = match dropped.flatten() {
                Some(repaired) => Ok(repaired),
                None => repair_with(plain, self.wire, &policy, &answers),
            };
            Some(repaired.map(|repaired| (repaired, answers.notes.take())))
        });
        let (repaired, notes) = mended.unwrap_or(Err(Unreadable::Overlap))?;
        Ok(Mended {
            plain: plain.clone(),
            repaired,
            notes,
            known,
        })
    }
}

/// A signature over the body: any edit would break it.
pub(super) fn is_signed(headers: &HeaderMap) -> bool {
    headers
        .get_all(AUTHORIZATION)
        .iter()
        .any(|value| value.as_bytes().starts_with(b"AWS4-HMAC-SHA256"))
}
