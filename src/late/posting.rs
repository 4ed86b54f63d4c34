//! What services do: post a result, and say that they still work on one.
//!
//! A result is durable before it is acknowledged. It changes one call once: the call's version decides among several.

use super::{
    GRACE, Late, LateError, TRIES,
    entry::{Call, Evidence, Parked, Posted, State, Why},
    feed,
    matching::{self, Candidate, Match, Named, Ruling},
    names,
};
use crate::{
    auth::Principal,
    clock,
    ledger::{Index, Key, Kind, Moment, Outcome, ROWS_MAX, Record, Step},
    repair::{Tier, is_strong},
};

/// Content of evidence up to this size is kept.
const EVIDENCE_BYTES_MAX: usize = 64 * 1024;
/// What a delivery says: that it is one, in its first form.
const DELIVERY: &[u8] = &[1, 4];

/// What became of a post.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Posting {
    /// It is the result of a call.
    Settled {
        /// Where the call stands.
        state: State,
        /// Whether it was not so before.
        first: bool,
    },
    /// No such call is known yet: it waits for it.
    Parked,
    /// It was refused, and kept as evidence.
    Refused(Why),
    /// No such call is known.
    Unknown,
}

/// What became of a heartbeat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Beat {
    /// The call waits longer.
    Open {
        /// Until when.
        deadline: Moment,
    },
    /// It waits for nothing any more.
    Terminal,
    /// It came too late.
    Expired,
    /// Several calls may be meant.
    Ambiguous,
    /// No such call is known.
    Unknown,
}

/// The one call that was meant.
enum Meant {
    One(Box<(Record, Call)>),
    Several,
    None,
}

impl Late {
    /// Takes a result for a call. What is told is kept, and survives the process where the ledger does.
    pub async fn post(&self, named: &Named<'_>, content: String, failed: bool) -> Result<Posting, LateError> {
        let posted = Posted::new(content, failed, &named.service.name, clock::since_1970());
        if let Some(posting) = self.place(named, &posted, None).await? {
            return Ok(posting);
        }
        if is_strong(named.call_id, b"") {
            self.park(named, posted).await
        } else {
            Ok(Posting::Unknown)
        }
    }

    /// Extends the time of a call that its service still works on.
    pub async fn heartbeat(&self, named: &Named<'_>) -> Result<Beat, LateError> {
        for _ in 0..TRIES {
            let now = clock::since_1970();
            let (record, mut call) = match self.meant(named, now).await? {
                Meant::None => return Ok(Beat::Unknown),
                Meant::Several => return Ok(Beat::Ambiguous),
                Meant::One(found) => *found,
            };
            if matching::is_terminal(&call) {
                return Ok(Beat::Terminal);
            }
            if call.expires_at <= now {
                return Ok(Beat::Expired);
            }
            let wanted = self.0.settings.tool(&call.tool).max_duration;
            call.heard_at = now;
            call.deadline = call.deadline.max(now + wanted.unwrap_or(self.0.settings.ttl));
            call.expires_at = call.expires_at.max(call.deadline);
            let deadline = call.deadline;
            if self.0.ledger.commit(vec![self.replace(&record, &call)], now).await? == Outcome::Done {
                return Ok(Beat::Open { deadline });
            }
        }
        Err(LateError::Busy)
    }

    /// Settles the call that is meant; none where none is recorded. `parked` goes with whatever becomes of it.
    async fn place(
        &self,
        named: &Named<'_>,
        posted: &Posted,
        parked: Option<&Step>,
    ) -> Result<Option<Posting>, LateError> {
        for _ in 0..TRIES {
            let now = clock::since_1970();
            let (record, call) = match self.meant(named, now).await? {
                Meant::None => return Ok(None),
                Meant::Several => {
                    self.keep_evidence(named.service.own, named, Why::Ambiguous, posted, parked)
                        .await?;
                    return Ok(Some(Posting::Refused(Why::Ambiguous)));
                }
                Meant::One(found) => *found,
            };
            let principal = Principal::from_bytes(record.key.principal);
            match matching::judge(&call, &posted.digest, now) {
                Ruling::Again => {
                    self.remove(parked).await?;
                    let (state, first) = (call.state, false);
                    return Ok(Some(Posting::Settled { state, first }));
                }
                Ruling::Refused(why) => {
                    self.keep_evidence(principal, named, why, posted, parked).await?;
                    return Ok(Some(Posting::Refused(why)));
                }
                Ruling::First(state) => {
                    if self.settle(&record, call, posted, state, parked).await? {
                        return Ok(Some(Posting::Settled { state, first: true }));
                    }
                }
            }
        }
        Err(LateError::Busy)
    }

    /// Writes a result into its call, if nobody else has changed it.
    async fn settle(
        &self,
        record: &Record,
        mut call: Call,
        posted: &Posted,
        state: State,
        parked: Option<&Step>,
    ) -> Result<bool, LateError> {
        let now = clock::since_1970();
        let attached = self.is_attached(&call, now);
        let settled = feed::Settled {
            name: record.key.name,
            call_id: call.id.clone(),
            tool: call.tool.clone(),
            failed: posted.failed,
        };
        call.state = state;
        call.posted = Some(Posted {
            attached,
            ..posted.clone()
        });
        let until = self.kept_until(&call);
        let principal = Principal::from_bytes(record.key.principal);
        // What was only read is kept, and pushed to nobody.
        let is_pushed = state == State::Settled && call.tier != Tier::Read;
        let delivery = Step::Insert {
            key: names::key(Kind::Delivery, principal, record.key.name),
            index: None,
            value: DELIVERY.into(),
            expires_at: until,
        };
        let steps = [self.replace(record, &call)].into_iter();
        let steps = steps.chain(is_pushed.then_some(delivery)).chain(parked.cloned());
        if self.0.ledger.commit(steps.collect(), now).await? != Outcome::Done {
            return Ok(false);
        }
        self.0
            .telemetry
            .record_late_event(if attached { "attached" } else { "detached" });
        if is_pushed {
            self.0.pending.add(principal, settled.name, until);
            self.0.feed.tell(principal, settled);
        }
        Ok(true)
    }

    /// Keeps a result until its call is recorded.
    async fn park(&self, named: &Named<'_>, posted: Posted) -> Result<Posting, LateError> {
        let now = clock::since_1970();
        let key = names::key(
            Kind::Parked,
            named.service.own,
            names::of_parked(named.call_id, named.owner),
        );
        let parked = Parked {
            call_id: named.call_id.to_vec(),
            owner: named.owner,
            posted,
        };
        let insert = Step::Insert {
            key,
            index: Some(names::index(named.call_id)),
            value: parked.encode(),
            expires_at: now + self.0.settings.parked_for,
        };
        if let Outcome::Conflict(standing) = self.0.ledger.commit(vec![insert], now).await? {
            let known = standing.into_iter().flatten().next();
            let known = known.and_then(|record| Parked::decode(&record.value));
            if known.is_some_and(|known| known.posted.digest != parked.posted.digest) {
                self.keep_evidence(named.service.own, named, Why::Conflict, &parked.posted, None)
                    .await?;
                return Ok(Posting::Refused(Why::Conflict));
            }
        } else {
            self.0.telemetry.record_late_event("parked");
        }
        // The call may have been recorded just before; then nobody else looks for this.
        let remove = Step::Remove { key, version: 1 };
        let met = self.place(named, &parked.posted, Some(&remove)).await?;
        Ok(met.unwrap_or(Posting::Parked))
    }

    /// Settles what is parked under the index of a call that was recorded.
    pub(super) async fn meet(&self, index: Index) -> Result<(), LateError> {
        let now = clock::since_1970();
        let mut failed = None;
        for record in self.0.ledger.find(Kind::Parked, index, ROWS_MAX, now).await? {
            let Some(parked) = Parked::decode(&record.value) else {
                continue;
            };
            let own = Principal::from_bytes(record.key.principal);
            let Some(service) = self.0.services.iter().find(|service| service.own == own) else {
                continue;
            };
            let named = Named {
                service,
                call_id: &parked.call_id,
                owner: parked.owner,
            };
            let remove = Step::Remove {
                key: record.key,
                version: record.version,
            };
            match self.place(&named, &parked.posted, Some(&remove)).await {
                Ok(Some(posting)) => tracing::debug!(?posting, "a parked result has met its call"),
                Ok(None) => {}
                // The others are not kept from theirs.
                Err(error) => failed = Some(error),
            }
        }
        failed.map_or(Ok(()), Err)
    }

    async fn meant(&self, named: &Named<'_>, now: Moment) -> Result<Meant, LateError> {
        let records = self
            .0
            .ledger
            .find(Kind::Call, names::index(named.call_id), ROWS_MAX, now)
            .await?;
        if records.len() >= ROWS_MAX {
            // There may be more than were seen.
            return Ok(Meant::Several);
        }
        let decoded = records.into_iter().filter_map(|record| {
            let call = Call::decode(&record.value)?;
            Some((record, call))
        });
        let mut calls: Vec<(Record, Call)> = decoded.collect();
        let candidates: Vec<Candidate<'_>> = calls
            .iter()
            .map(|(record, call)| Candidate {
                principal: Principal::from_bytes(record.key.principal),
                call,
            })
            .collect();
        Ok(match matching::choose(named, &self.0.owners, &candidates) {
            Match::One(place) if place < calls.len() => Meant::One(Box::new(calls.swap_remove(place))),
            Match::Several => Meant::Several,
            Match::One(_) | Match::None => Meant::None,
        })
    }

    /// Whether a call's turn is still the last of its lane, as far as is known.
    fn is_attached(&self, call: &Call, now: Moment) -> bool {
        let was_left = |name: &[u8; 32]| self.0.left.get(name).is_some_and(|at| at >= call.opened_at);
        let left = call.lane.iter().chain(&call.session).any(was_left);
        call.state == State::Open && !left && now < call.heard_at + self.0.settings.detach_after
    }

    fn replace(&self, record: &Record, call: &Call) -> Step {
        Step::Replace {
            key: record.key,
            version: record.version,
            value: call.encode(),
            expires_at: record.expires_at.max(self.kept_until(call)),
        }
    }

    /// Keeps a refused result for people to look at; `parked` goes.
    async fn keep_evidence(
        &self,
        principal: Principal,
        named: &Named<'_>,
        why: Why,
        posted: &Posted,
        parked: Option<&Step>,
    ) -> Result<(), LateError> {
        let now = clock::since_1970();
        let mut posted = posted.clone();
        if posted.content.len() > EVIDENCE_BYTES_MAX {
            // Its hash tells what it was.
            "null".clone_into(&mut posted.content);
        }
        let key: Key = names::key(
            Kind::Evidence,
            principal,
            names::of_evidence(named.call_id, &posted.digest),
        );
        let evidence = Evidence {
            call_id: named.call_id.to_vec(),
            why,
            posted,
        };
        let insert = Step::Insert {
            key,
            index: None,
            value: evidence.encode(),
            expires_at: now + self.0.settings.ttl + GRACE,
        };
        let steps = [insert].into_iter().chain(parked.cloned());
        match self.0.ledger.commit(steps.collect(), now).await {
            Ok(Outcome::Done) => {}
            // Bounded: of all that fall on one place the first is kept.
            Ok(Outcome::Conflict(_)) => self.remove(parked).await?,
            // What a service is told stays the same. What is parked stays.
            Err(error) => tracing::warn!(%error, "evidence of a refused result was not kept"),
        }
        self.0.telemetry.record_late_event(why.label());
        Ok(())
    }

    async fn remove(&self, parked: Option<&Step>) -> Result<(), LateError> {
        if let Some(step) = parked {
            // Who came first has removed it.
            self.0.ledger.commit(vec![step.clone()], clock::since_1970()).await?;
        }
        Ok(())
    }
}
