//! The record of a cooldown in the ledger.

use std::time::{Duration, Instant};

use bytes::Bytes;
use serde::Deserialize;
use serde_json::json;

use crate::{
    auth::Principal,
    digest::digest_of,
    keys::rotation::{SharedCooldown, SharedCooldownState},
    ledger::{Moment, RecordKey, RecordKind},
    policy::CooldownReason,
};

/// The version of the record.
const VERSION: u8 = 1;
/// The shortest time for which a record is stored: every process has read it by then.
const STORED_MIN: Duration = Duration::from_secs(60);
/// The time after its end for which a word waits for a ledger that is away.
const STORED_MAX: Duration = Duration::from_secs(60 * 60);

/// A cooldown of a credential, with its times since 1970.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct StoredCooldown {
    /// The keyed hash of upstream and credential.
    pub(super) tag: [u8; 32],
    reason: CooldownReason,
    model: Option<Box<str>>,
    disables: bool,
    is_named: bool,
    /// The last refusal.
    failed_at: Moment,
    /// The end of the cooldown. Zero if only the end of an earlier one is known.
    until: Moment,
    /// A cooldown whose last refusal was before this time has ended. Zero if none has.
    ended_before: Moment,
}

/// The JSON of a record. Times are milliseconds since 1970.
#[derive(Deserialize)]
struct RestRecord {
    version: u8,
    credential: String,
    reason: String,
    model: Option<Box<str>>,
    disables: bool,
    named: bool,
    refused_at: u64,
    until: u64,
    ended_before: u64,
}

impl StoredCooldown {
    /// Converts a cooldown. `now` is the present on both clocks.
    pub(super) fn of_shared(tag: [u8; 32], cooldown: SharedCooldown, now: (Instant, Moment)) -> Self {
        let moment = |at| moment_of(at, now);
        let (disables, is_named, failed_at, until, ended_before) = match cooldown.state {
            SharedCooldownState::Lasting {
                disables,
                is_named,
                failed_at,
                until,
            } => (disables, is_named, moment(failed_at), moment(until), Moment::ZERO),
            SharedCooldownState::Ended { began_before } => {
                (false, false, Moment::ZERO, Moment::ZERO, moment(began_before))
            }
        };
        Self {
            tag,
            reason: cooldown.reason,
            model: cooldown.model,
            disables,
            is_named,
            failed_at,
            until,
            ended_before,
        }
    }

    /// Returns the cooldown. `now` is the present on both clocks.
    pub(super) fn to_shared(&self, now: (Instant, Moment)) -> SharedCooldown {
        let instant = |at| instant_of(at, now);
        SharedCooldown {
            reason: self.reason,
            model: self.model.clone(),
            state: if self.lasts_after(self.ended_before) {
                SharedCooldownState::Lasting {
                    disables: self.disables,
                    is_named: self.is_named,
                    failed_at: instant(self.failed_at),
                    until: instant(self.until),
                }
            } else {
                SharedCooldownState::Ended {
                    began_before: instant(self.ended_before),
                }
            },
        }
    }

    /// Returns `true` if there is a cooldown, and one that ended before `ended_before` was another.
    fn lasts_after(&self, ended_before: Moment) -> bool {
        self.until > Moment::ZERO && self.failed_at >= ended_before
    }

    /// Returns both words about one cooldown as one: the later end of those that last, and the end of the earlier ones.
    pub(super) fn merged_with(&self, other: &Self) -> Self {
        let ended_before = self.ended_before.max(other.ended_before);
        let end = |cooldown: &Self| cooldown.lasts_after(ended_before).then_some(cooldown.until);
        let last = if end(self) > end(other) { self } else { other };
        Self {
            ended_before,
            ..last.clone()
        }
    }

    /// Returns the record that follows from this word and `stored`. `None` if it is no news.
    pub(super) fn applied_to(&self, stored: Option<&Self>) -> Option<Self> {
        match stored {
            Some(stored) => Some(self.merged_with(stored)).filter(|merged| merged != stored),
            // The end of a cooldown that nobody else knows is no news.
            None => self.lasts_after(self.ended_before).then(|| self.clone()),
        }
    }

    /// Returns `true` if a word that nobody has got yet is of no use any more.
    pub(super) fn is_over(&self, now: Moment) -> bool {
        self.until.max(self.ended_before).saturating_add(STORED_MAX) < now
    }

    /// Returns the key of the record.
    pub(super) fn key(&self) -> RecordKey {
        let (has_model, model) = match &self.model {
            Some(model) => (&b"model"[..], model.as_bytes()),
            None => (&b""[..], &b""[..]),
        };
        let name = digest_of([&self.tag[..], self.reason.label().as_bytes(), has_model, model]);
        RecordKey::new(RecordKind::SharedCooldown, Self::owner(), name)
    }

    /// Returns the principal of all these records. They belong to no client.
    pub(super) fn owner() -> Principal {
        Principal::from_bytes(digest_of([&b"cooldowns of keys"[..]]))
    }

    /// Returns the time until which the record is stored.
    pub(super) fn expires_at(&self, now: Moment) -> Moment {
        self.until.max(now).saturating_add(STORED_MIN)
    }

    /// Returns the bytes of the record.
    pub(super) fn encode(&self) -> Bytes {
        let millis = |moment: Moment| u64::try_from(moment.as_millis()).unwrap_or(u64::MAX);
        let record = json!({
            "version": VERSION,
            "credential": blake3::Hash::from_bytes(self.tag).to_hex().to_string(),
            "reason": self.reason.label(),
            "model": self.model,
            "disables": self.disables,
            "named": self.is_named,
            "refused_at": millis(self.failed_at),
            "until": millis(self.until),
            "ended_before": millis(self.ended_before),
        });
        record.to_string().into()
    }

    /// Decodes a record. `None` for another version.
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let record: RestRecord = serde_json::from_slice(bytes).ok()?;
        let reason = CooldownReason::ALL
            .into_iter()
            .find(|reason| reason.label() == record.reason)?;
        (record.version == VERSION).then_some(())?;
        Some(Self {
            tag: *blake3::Hash::from_hex(&record.credential).ok()?.as_bytes(),
            reason,
            model: record.model,
            disables: record.disables,
            is_named: record.named,
            failed_at: Moment::from_millis(record.refused_at),
            until: Moment::from_millis(record.until),
            ended_before: Moment::from_millis(record.ended_before),
        })
    }
}

/// Returns the time since 1970 of an instant, to the millisecond.
fn moment_of(at: Instant, (now, unix_now): (Instant, Moment)) -> Moment {
    let moment = match at.checked_duration_since(now) {
        Some(ahead) => unix_now.saturating_add(ahead),
        None => unix_now.saturating_sub(now.saturating_duration_since(at)),
    };
    Moment::from_millis(u64::try_from(moment.as_millis()).unwrap_or(u64::MAX))
}

/// Returns the instant of a time since 1970. One before the start of the machine is the present.
fn instant_of(at: Moment, (now, unix_now): (Instant, Moment)) -> Instant {
    let instant = match at.checked_sub(unix_now) {
        Some(ahead) => now.checked_add(ahead),
        None => now.checked_sub(unix_now.saturating_sub(at)),
    };
    instant.unwrap_or(now)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock;

    const UNIX_NOW: Moment = Duration::from_secs(1_000_000);

    fn lasting(failed_at: u64, until: u64) -> StoredCooldown {
        StoredCooldown {
            tag: [7; 32],
            reason: CooldownReason::RateLimit,
            model: Some("m".into()),
            disables: false,
            is_named: true,
            failed_at: Duration::from_secs(failed_at),
            until: Duration::from_secs(until),
            ended_before: Moment::ZERO,
        }
    }

    /// Replicas of another version read it, so that the text and the name may never change.
    #[test]
    fn the_text_of_a_record_stays() {
        let text = concat!(
            r#"{"version":1,"credential":"0707070707070707070707070707070707070707070707070707070707070707","#,
            r#""reason":"rate_limit","model":"m","disables":false,"named":true,"refused_at":7000,"until":9000,"#,
            r#""ended_before":0}"#
        );
        let cooldown = lasting(7, 9);
        assert_eq!(cooldown.encode(), text.as_bytes());
        assert_eq!(StoredCooldown::decode(text.as_bytes()), Some(cooldown.clone()));
        let name = blake3::Hash::from_bytes(cooldown.key().name).to_hex();
        assert_eq!(
            name.as_str(),
            "042cd7e7b8f40713c3785e995709d9ce83c07e8ac7c244c6fd3f1be7486044df"
        );
    }

    fn ended(before: u64) -> StoredCooldown {
        StoredCooldown {
            failed_at: Moment::ZERO,
            until: Moment::ZERO,
            ended_before: Duration::from_secs(before),
            ..lasting(0, 0)
        }
    }

    #[test]
    fn a_record_is_read_as_it_was_written() {
        for cooldown in [
            lasting(1, 2),
            ended(3),
            StoredCooldown {
                model: None,
                ..lasting(1, 9)
            },
        ] {
            assert_eq!(StoredCooldown::decode(&cooldown.encode()), Some(cooldown));
        }
        assert_eq!(StoredCooldown::decode(b"{}"), None);
        assert_ne!(
            lasting(1, 2).key(),
            StoredCooldown {
                model: None,
                ..lasting(1, 2)
            }
            .key()
        );
        let empty = StoredCooldown {
            model: Some("".into()),
            ..lasting(1, 2)
        };
        assert_ne!(
            empty.key(),
            StoredCooldown {
                model: None,
                ..lasting(1, 2)
            }
            .key()
        );
    }

    #[test]
    fn the_latest_word_about_a_key_wins() {
        let stored = lasting(10, 60);
        // A later end is news, an earlier or the same one is not.
        assert_eq!(lasting(20, 90).applied_to(Some(&stored)), Some(lasting(20, 90)));
        assert_eq!(lasting(20, 60).applied_to(Some(&stored)), None);
        // A success ends what began before its exchange.
        let freed = ended(15).applied_to(Some(&stored)).unwrap();
        assert_eq!(freed.ended_before, Duration::from_secs(15));
        assert!(
            ended(10)
                .applied_to(Some(&stored))
                .unwrap()
                .lasts_after(Duration::from_secs(10))
        );
        assert_eq!(ended(15).applied_to(Some(&freed)), None);
        assert_eq!(ended(15).applied_to(None), None);
        // A refusal from before that success comes late, and one after it begins anew.
        assert_eq!(lasting(12, 90).applied_to(Some(&freed)), None);
        let anew = lasting(16, 30).applied_to(Some(&freed)).unwrap();
        // A success and a refusal that follows it may wait together for the ledger.
        let both = lasting(20, 30).merged_with(&ended(15));
        assert_eq!(
            both.applied_to(Some(&lasting(10, 60))).unwrap().until,
            Duration::from_secs(30)
        );
        assert_eq!(both.applied_to(None), Some(both));
        assert_eq!(
            (anew.until, anew.ended_before),
            (Duration::from_secs(30), Duration::from_secs(15))
        );
    }

    #[test]
    fn times_survive_the_way_over_another_process() {
        let now = (clock::std_now(), UNIX_NOW);
        let cooldown = SharedCooldown {
            reason: CooldownReason::Auth,
            model: None,
            state: SharedCooldownState::Lasting {
                disables: true,
                is_named: false,
                failed_at: now.0,
                until: now.0 + Duration::from_secs(600),
            },
        };
        assert_eq!(
            StoredCooldown::of_shared([1; 32], cooldown.clone(), now).to_shared(now),
            cooldown
        );
        let later = (now.0, UNIX_NOW + Duration::from_secs(60));
        let SharedCooldownState::Lasting { until, .. } =
            StoredCooldown::of_shared([1; 32], cooldown, now).to_shared(later).state
        else {
            panic!();
        };
        assert_eq!(until, now.0 + Duration::from_secs(540));
    }
}
