//! Sessions that a provider refuses again and again in words that the proxy does not know.
//!
//! Refusals are counted by conversation and masked text. With the third the session is stuck, until a request of the
//! conversation succeeds or a day goes by.

use std::{
    collections::VecDeque,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tokio::time::Instant;

use super::entries::ExchangeNames;
use crate::{
    clock,
    telemetry::events::{AskedConversation, ExchangeEnded, UnknownRefusal},
    wire::Format,
};

/// The number of refusals with one text that make a session stuck.
const STUCK_AFTER: u32 = 3;
/// Limit of refusals whose session is not stuck yet.
const SUSPECTS_MAX: usize = 256;
/// Limit of stuck sessions.
const STUCK_MAX: usize = 64;
/// Age of the last refusal after which it is forgotten: 24 hours.
const AGE_MAX: Duration = Duration::from_secs(24 * 60 * 60);
/// One caller's share of a full list. Of a caller with more, its own oldest entry makes room.
const SHARE: usize = 4;

/// A conversation that a provider refuses in the same words.
#[derive(Clone, Debug)]
pub struct StuckSession {
    conversation: AskedConversation,
    /// The masked text of the refusal. It has no word of the history but common ones.
    pub text: Box<str>,
    /// The status of the last refusal.
    pub status: u16,
    /// The number of refusals with this text.
    pub refusals: u32,
    /// The time of the first refusal.
    pub first_at: Instant,
    /// The time of the last refusal.
    pub last_at: Instant,
    /// The request id of the last refusal.
    pub id: String,
    /// The format of its body.
    pub format: Option<Format>,
    /// The names of who sent it, and to what.
    pub names: ExchangeNames,
}

impl StuckSession {
    /// Returns the name of the upstream.
    pub fn upstream(&self) -> &str {
        &self.conversation.upstream
    }

    /// Returns the bytes of the caller's principal.
    pub const fn principal_bytes(&self) -> &[u8; 32] {
        self.conversation.caller.principal_bytes()
    }
}

/// The refusals of all conversations, in memory alone.
#[derive(Debug, Default)]
pub(super) struct RefusedSessions {
    lists: Mutex<RefusalLists>,
    /// `true` while there is an entry. In most processes there never is one.
    has_entries: AtomicBool,
}

/// Both lists, the last refusal first.
#[derive(Debug, Default)]
struct RefusalLists {
    suspects: VecDeque<StuckSession>,
    stuck: VecDeque<StuckSession>,
}

impl RefusedSessions {
    /// Counts a refusal. Returns `true` if the session is stuck from now on.
    pub(super) fn record_refusal(&self, refusal: UnknownRefusal, event: &ExchangeEnded) -> bool {
        let mut lists = self.lock_lists();
        // Read with the lock, so that the lists stay in the order of time.
        let now = clock::now();
        lists.forget_old(now);
        let known = lists.take_known(&refusal);
        let refusals = known.as_ref().map_or(0, |known| known.refusals).saturating_add(1);
        let session = StuckSession {
            first_at: known.map_or(now, |known| known.first_at),
            last_at: now,
            refusals,
            conversation: refusal.conversation,
            text: refusal.text,
            status: refusal.status,
            id: event.request_id.clone(),
            format: event.format,
            names: ExchangeNames::of_exchange(event),
        };
        if refusals < STUCK_AFTER {
            push_first(&mut lists.suspects, session, SUSPECTS_MAX);
        } else {
            push_first(&mut lists.stuck, session, STUCK_MAX);
        }
        self.has_entries.store(true, Ordering::Relaxed);
        refusals == STUCK_AFTER
    }

    /// Forgets the refusals of a conversation that has gone on. `None` if the success was no turn of one.
    pub(super) fn record_success(&self, conversation: impl FnOnce() -> Option<AskedConversation>) {
        // One load for almost every success.
        if !self.has_entries.load(Ordering::Relaxed) {
            return;
        }
        if let Some(conversation) = conversation() {
            self.retain_sessions(|session| !conversation.is_next_of(&session.conversation));
        }
    }

    /// Forgets the refusals of upstreams that are not configured any more.
    pub(super) fn retain_upstreams(&self, is_configured: impl Fn(&str) -> bool) {
        self.retain_sessions(|session| is_configured(session.upstream()));
    }

    /// Returns the stuck sessions, those with the last refusal first.
    pub(super) fn stuck_sessions(&self) -> Vec<StuckSession> {
        let mut lists = self.lock_lists();
        lists.forget_old(clock::now());
        lists.stuck.iter().cloned().collect()
    }

    fn retain_sessions(&self, mut is_kept: impl FnMut(&StuckSession) -> bool) {
        let mut lists = self.lock_lists();
        lists.suspects.retain(&mut is_kept);
        lists.stuck.retain(&mut is_kept);
        // Under the lock, so that no entry is stored between the look and the store.
        let has_entries = !(lists.suspects.is_empty() && lists.stuck.is_empty());
        self.has_entries.store(has_entries, Ordering::Relaxed);
    }

    fn lock_lists(&self) -> MutexGuard<'_, RefusalLists> {
        self.lists.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RefusalLists {
    /// Removes the entry of the same refusal, if there is one.
    fn take_known(&mut self, refusal: &UnknownRefusal) -> Option<StuckSession> {
        let is_it = |session: &StuckSession| {
            session.conversation.is_same(&refusal.conversation) && session.text == refusal.text
        };
        [&mut self.stuck, &mut self.suspects].into_iter().find_map(|list| {
            let at = list.iter().position(is_it)?;
            list.remove(at)
        })
    }

    /// Removes the entries without a refusal for a day.
    fn forget_old(&mut self, now: Instant) {
        for list in [&mut self.stuck, &mut self.suspects] {
            let is_old = |session: &StuckSession| now.saturating_duration_since(session.last_at) >= AGE_MAX;
            while list.back().is_some_and(is_old) {
                list.pop_back();
            }
        }
    }
}

/// Puts an entry at the front of a list that has at most `entries_max`.
fn push_first(list: &mut VecDeque<StuckSession>, session: StuckSession, entries_max: usize) {
    if list.len() >= entries_max {
        let is_own = |other: &StuckSession| other.conversation.caller == session.conversation.caller;
        // One caller's texts must not push out the refusals of all others.
        let has_share = list.iter().filter(|other| is_own(other)).count() >= entries_max / SHARE;
        let own = list.iter().rposition(is_own).filter(|_| has_share);
        list.remove(own.unwrap_or(list.len() - 1));
    }
    list.push_front(session);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        auth::{Caller, Principal},
        session::TurnMark,
    };

    fn refusal(caller: u8, text: &str) -> UnknownRefusal {
        UnknownRefusal {
            conversation: AskedConversation {
                caller: Caller::of_account(Principal::from_bytes([caller; 32])),
                lane: None,
                upstream: "anthropic".into(),
                mark: TurnMark::default(),
            },
            text: text.into(),
            status: 400,
        }
    }

    /// Returns `true` if the session is stuck from now on.
    fn refuse(sessions: &RefusedSessions, caller: u8, text: &str) -> bool {
        sessions.record_refusal(refusal(caller, text), &ExchangeEnded::default())
    }

    fn sizes(sessions: &RefusedSessions) -> (usize, usize) {
        let lists = sessions.lock_lists();
        (lists.suspects.len(), lists.stuck.len())
    }

    #[test]
    fn the_third_refusal_in_the_same_words_makes_a_session_stuck_once() {
        let sessions = RefusedSessions::default();
        let stuck: Vec<bool> = (0..5).map(|_| refuse(&sessions, 1, "bad tool")).collect();
        assert_eq!(stuck, [false, false, true, false, false]);
        assert!(!refuse(&sessions, 2, "bad tool") && !refuse(&sessions, 1, "bad role"));
        assert_eq!(sizes(&sessions), (2, 1));
        assert_eq!(sessions.stuck_sessions()[0].refusals, 5);
    }

    #[test]
    fn both_lists_are_bounded_and_one_caller_does_not_fill_them() {
        let sessions = RefusedSessions::default();
        for caller in 0..100 {
            refuse(&sessions, caller, "bad tool");
        }
        for number in 0..1000 {
            refuse(&sessions, 200, &format!("bad tool {number}"));
        }
        assert_eq!(sizes(&sessions), (SUSPECTS_MAX, 0));
        for caller in 0..100 {
            refuse(&sessions, caller, "bad tool");
            refuse(&sessions, caller, "bad tool");
        }
        for number in 0..1000 {
            for _ in 0..3 {
                refuse(&sessions, 200, &format!("bad role {number}"));
            }
        }
        assert_eq!(sizes(&sessions).1, STUCK_MAX);
        let stuck = sessions.stuck_sessions();
        let of_others = stuck.iter().filter(|session| *session.principal_bytes() != [200; 32]);
        assert_eq!(of_others.count(), STUCK_MAX - STUCK_MAX / SHARE);
        assert_eq!(&*stuck[0].text, "bad role 999");
    }

    #[tokio::test(start_paused = true)]
    async fn a_refusal_is_forgotten_a_day_after_its_last_repetition() {
        let sessions = RefusedSessions::default();
        for _ in 0..3 {
            refuse(&sessions, 1, "bad tool");
            tokio::time::advance(AGE_MAX / 2).await;
        }
        assert_eq!(sessions.stuck_sessions().len(), 1);
        tokio::time::advance(AGE_MAX / 2).await;
        assert!(sessions.stuck_sessions().is_empty());
        assert!(!refuse(&sessions, 1, "bad tool"));
    }

    #[test]
    fn a_success_and_a_removed_upstream_clear_what_they_concern() {
        let sessions = RefusedSessions::default();
        for caller in 1..=2 {
            for _ in 0..3 {
                refuse(&sessions, caller, "bad tool");
            }
            refuse(&sessions, caller, "bad role");
        }
        sessions.record_success(|| None);
        assert_eq!(sizes(&sessions), (2, 2));
        sessions.record_success(|| Some(refusal(1, "").conversation));
        assert_eq!(sizes(&sessions), (1, 1));
        sessions.retain_upstreams(|upstream| upstream == "anthropic");
        assert_eq!(sizes(&sessions), (1, 1));
        sessions.retain_upstreams(|_| false);
        assert_eq!(sizes(&sessions), (0, 0));
        sessions.record_success(|| panic!("nothing is looked for without an entry"));
    }
}
