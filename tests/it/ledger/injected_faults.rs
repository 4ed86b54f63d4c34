//! Shows that walks and stories can fail: over a ledger that breaks one promise for one kind of records, they report it.
//!
//! The rows name, for each kind and each broken promise, the walk or story that reports it, or the reason for which nobody
//! is harmed. A story that does not report the fault fails here, and so does one that reports anything over an honest
//! ledger. Walks run with a fixed seed.

use std::{
    any::Any,
    cell::Cell,
    panic::{self, AssertUnwindSafe},
    sync::Once,
};

use antiphon::{ledger::RecordKind, proxy::OnOutage};
use tokio::runtime;

use super::injection::{Breach, InjectedFault, with_fault};
use crate::{
    admin::late_results,
    late::{cancel_walk, delivery_walk, intent_walk, isolation_walk, replica_races},
    ledger::{object_owners, pinned_results, stored_pins},
    proxy::{continuity::DEEPSEEK, continuity_walk, owned_ids},
    replicas::{learned_edges, learned_facts, learned_thinking, lost_responses, told},
    support::search::Habits,
};

/// The seed of the walks, which is that of all random tests.
const SEED: u64 = 24;

/// A walk or a story. It returns what contradicts a promise, or panics with it.
struct Story {
    name: &'static str,
    tell: fn() -> Vec<String>,
}

/// What becomes of a broken promise.
enum Verdict {
    /// This story reports it, in these words.
    Reported(&'static Story, &'static str),
    /// Nobody is harmed, for this reason.
    Harmless(&'static str),
}

use Verdict::{Harmless, Reported};

/// The verdicts of one kind of records.
struct KindRow {
    kind: RecordKind,
    stale_read: Verdict,
    lost_notice: Verdict,
    lost_commit: Verdict,
    late_commit: Verdict,
}

impl KindRow {
    fn verdict(&self, breach: Breach) -> &Verdict {
        match breach {
            Breach::StaleRead => &self.stale_read,
            Breach::LostNotice => &self.lost_notice,
            Breach::LostCommit => &self.lost_commit,
            Breach::LateCommit => &self.late_commit,
        }
    }
}

/// The reason for kinds that no cache relies on: [`RecordKind::is_announced`] is `false`.
const NOT_TOLD: Verdict = Harmless("no process is told of changes of this kind: what another one may change is read");
/// The reason for rows that are written behind answers.
const BEHIND: Verdict = Harmless("no head and no send waits for the row: a crash may lose the last ones in any case");

macro_rules! story {
    ($name:ident, $path:path) => {
        static $name: Story = Story {
            name: stringify!($path),
            tell: || {
                $path();
                Vec::new()
            },
        };
    };
}

macro_rules! walk {
    ($name:ident, $tell:expr) => {
        static $name: Story = Story {
            name: stringify!($name),
            tell: || $tell,
        };
    };
}

story!(
    LEARNED_SHAPES,
    learned_facts::a_conversation_that_one_replica_had_accepted_keeps_its_shape_at_the_other
);
story!(
    VALUES_LEFT_OUT,
    learned_facts::a_value_that_one_replica_left_out_stays_out_at_the_other
);
story!(
    LEARNED_THINKING,
    learned_thinking::thinking_that_one_replica_had_accepted_stays_at_the_other
);
story!(LONG_HISTORY, learned_edges::a_long_history_does_not_lose_its_result);
story!(
    LOST_RESPONSES,
    lost_responses::a_lost_response_is_left_out_at_either_replica
);
story!(
    OBJECT_OWNERS,
    object_owners::an_owner_that_another_replica_is_writing_is_found
);
story!(FIRST_PIN, pinned_results::of_two_replicas_the_first_row_wins);
story!(
    CORRECTIONS,
    replica_races::no_other_process_corrects_what_a_request_contains
);
story!(
    PARKED_RESULTS,
    told::a_result_parked_at_one_replica_meets_its_call_at_the_other
);
story!(
    COMPACTIONS,
    told::a_result_follows_its_conversation_to_the_replica_after_a_compaction
);
story!(
    LONG_RESULTS,
    told::a_long_result_that_one_replica_got_is_in_the_next_request_of_the_other
);
story!(READERS, told::a_reader_of_one_replica_is_known_to_the_other);
story!(RESERVATIONS, told::one_of_two_new_conversations_gets_the_result);
story!(TASK_LINKS, told::a_task_link_of_one_replica_opens_the_page_of_the_other);
story!(
    OPERATOR_LISTS,
    late_results::each_list_has_the_call_its_caller_and_the_reason
);
story!(FEEDS, told::a_feed_tells_of_a_result_that_another_replica_got);
story!(COOLDOWNS, told::a_cooldown_of_one_replica_holds_at_the_other);
story!(
    LANE_SIGNS,
    told::a_conversation_that_goes_on_at_the_other_replica_is_not_cancelled
);
story!(
    DEAD_SENDERS,
    told::a_message_of_a_replica_that_died_is_sent_by_the_other_soon
);
walk!(OWNER_WALK, on_paused_time(owned_ids::play_walk(SEED, 300)).misdirected);
walk!(INTENT_WALK, {
    on_paused_time(intent_walk::play_walk(SEED, 500));
    Vec::new()
});
walk!(CANCEL_WALK, {
    on_paused_time(cancel_walk::play_walk(SEED, 500));
    Vec::new()
});
walk!(KILLS, {
    let outcomes = on_paused_time(stored_pins::kill_processes(60)).into_iter();
    outcomes.flat_map(|outcomes| outcomes.contradictions).collect()
});
walk!(DELIVERY_WALK, play_delivery_walk(SEED));
// Its first round in which a process restarts between a compaction and a result.
walk!(COMPACTION_WALK, play_delivery_walk(27));
walk!(ISOLATION_WALK, {
    let (_, wrong) = on_paused_time(isolation_walk::runs(SEED, 200, Habits::default()));
    let first = wrong.iter().map(|(kind, told)| format!("{kind:?}: {}", told[0]));
    first.collect()
});
walk!(
    CONTINUITY_WALK,
    on_real_time(continuity_walk::play_walk(DEEPSEEK, SEED, 30)).1
);

const ABSENT: &str = "absent where the user speaks, without a counted reason";

/// What stands in a table, as the table of tables in ARCHITECTURE.md has it.
static TABLES: [KindRow; 7] = [
    KindRow {
        kind: RecordKind::Principal,
        stale_read: Reported(&KILLS, "placeholder of a new caller: 20 ms"),
        lost_notice: NOT_TOLD,
        lost_commit: Reported(&DELIVERY_WALK, "prefix changed"),
        late_commit: Reported(&KILLS, "placeholder of a new caller: 20 ms"),
    },
    KindRow {
        kind: RecordKind::ObjectOwner,
        stale_read: Reported(&OWNER_WALK, "misdirected"),
        lost_notice: Harmless("its table trusts no notice: on a shared ledger it reads what it does not know, twice"),
        lost_commit: Reported(&OWNER_WALK, "misdirected"),
        late_commit: Reported(&OBJECT_OWNERS, "the owner at the other replica"),
    },
    KindRow {
        kind: RecordKind::ResponseChain,
        stale_read: Reported(&LOST_RESPONSES, "the client got the refusal"),
        lost_notice: NOT_TOLD,
        lost_commit: Reported(&LOST_RESPONSES, "the client got the refusal"),
        late_commit: BEHIND,
    },
    KindRow {
        kind: RecordKind::DisputedShape,
        stale_read: Reported(&LEARNED_SHAPES, "the accepted conversation"),
        lost_notice: NOT_TOLD,
        lost_commit: Reported(&LEARNED_SHAPES, "the accepted conversation"),
        late_commit: BEHIND,
    },
    KindRow {
        kind: RecordKind::Thinking,
        stale_read: Reported(&LEARNED_THINKING, "dropped=6"),
        lost_notice: Reported(&LEARNED_THINKING, "dropped=6"),
        lost_commit: Reported(&LEARNED_THINKING, "dropped=6"),
        late_commit: BEHIND,
    },
    KindRow {
        kind: RecordKind::Continuity,
        stale_read: Reported(&VALUES_LEFT_OUT, "put back into an accepted prefix"),
        lost_notice: Reported(&VALUES_LEFT_OUT, "put back into an accepted prefix"),
        lost_commit: Reported(&CONTINUITY_WALK, "an accepted prefix has changed"),
        late_commit: BEHIND,
    },
    KindRow {
        kind: RecordKind::LearnedFact,
        stale_read: Reported(&LEARNED_SHAPES, "a new conversation"),
        lost_notice: Reported(&LEARNED_SHAPES, "a new conversation"),
        lost_commit: Reported(&LEARNED_SHAPES, "a new conversation"),
        late_commit: BEHIND,
    },
];

/// What is remembered of histories and their calls without a table.
static HISTORIES: [KindRow; 8] = [
    KindRow {
        kind: RecordKind::PinnedResult,
        // On a shared ledger the commit decides, and its conflict tells what a read has missed.
        stale_read: Reported(&KILLS, "placeholder: 20 ms"),
        lost_notice: NOT_TOLD,
        lost_commit: Reported(&FIRST_PIN, "the first row stands"),
        late_commit: Reported(&KILLS, "moved result: 20 ms"),
    },
    KindRow {
        kind: RecordKind::AppendedText,
        stale_read: Reported(&DELIVERY_WALK, "settled result contradicted"),
        lost_notice: Reported(&DELIVERY_WALK, "prefix changed"),
        lost_commit: Reported(&ISOLATION_WALK, "Prefix"),
        late_commit: Reported(&DELIVERY_WALK, "prefix changed"),
    },
    KindRow {
        kind: RecordKind::ClientResult,
        stale_read: Reported(&LONG_HISTORY, "placeholder=1"),
        lost_notice: NOT_TOLD,
        lost_commit: Reported(&LONG_HISTORY, "placeholder=1"),
        late_commit: BEHIND,
    },
    KindRow {
        kind: RecordKind::Call,
        stale_read: Reported(&DELIVERY_WALK, ABSENT),
        lost_notice: NOT_TOLD,
        lost_commit: Reported(&ISOLATION_WALK, "Answer"),
        late_commit: Reported(&DELIVERY_WALK, ABSENT),
    },
    KindRow {
        kind: RecordKind::Delivery,
        stale_read: Reported(&DELIVERY_WALK, ABSENT),
        // A request with a call that lacks its result reads them anyway.
        lost_notice: Reported(&FEEDS, "the feed tells nothing"),
        lost_commit: Reported(&CORRECTIONS, "the request contains the result"),
        late_commit: Reported(&DELIVERY_WALK, ABSENT),
    },
    KindRow {
        kind: RecordKind::Parked,
        stale_read: Reported(&PARKED_RESULTS, "no request had the result"),
        lost_notice: Reported(&PARKED_RESULTS, "no request had the result"),
        lost_commit: Reported(&PARKED_RESULTS, "no request had the result"),
        late_commit: Reported(&PARKED_RESULTS, "no request had the result"),
    },
    KindRow {
        kind: RecordKind::CompactedCalls,
        stale_read: Reported(&COMPACTION_WALK, ABSENT),
        lost_notice: Reported(&COMPACTIONS, "the result of the compacted call"),
        lost_commit: Reported(&COMPACTION_WALK, ABSENT),
        late_commit: Reported(&COMPACTIONS, "the result of the compacted call"),
    },
    KindRow {
        kind: RecordKind::ResultContent,
        stale_read: Reported(&LONG_RESULTS, "the long result"),
        lost_notice: NOT_TOLD,
        lost_commit: Reported(&LONG_RESULTS, "the long result"),
        late_commit: Reported(&LONG_RESULTS, "the long result"),
    },
];

/// What is remembered for services, operators and the proxy itself.
static OTHERS: [KindRow; 8] = [
    KindRow {
        kind: RecordKind::Intent,
        stale_read: Reported(&INTENT_WALK, "lost: "),
        lost_notice: NOT_TOLD,
        lost_commit: Reported(&INTENT_WALK, "lost: "),
        late_commit: Reported(&INTENT_WALK, "lost: "),
    },
    KindRow {
        kind: RecordKind::Outgoing,
        stale_read: Reported(&DEAD_SENDERS, "the message is late or lost"),
        lost_notice: Reported(&DEAD_SENDERS, "the message is late or lost"),
        lost_commit: Reported(&CANCEL_WALK, "a cancel is lost"),
        late_commit: Reported(&CANCEL_WALK, "a cancel is lost"),
    },
    KindRow {
        kind: RecordKind::LaneSign,
        stale_read: Reported(&LANE_SIGNS, "a conversation that goes on: true"),
        lost_notice: NOT_TOLD,
        lost_commit: Reported(&LANE_SIGNS, "a conversation that goes on: true"),
        late_commit: Reported(&LANE_SIGNS, "a conversation that goes on: true"),
    },
    KindRow {
        kind: RecordKind::SharedCooldown,
        stale_read: Reported(&COOLDOWNS, "the key has a cooldown"),
        lost_notice: Reported(&COOLDOWNS, "the key has a cooldown"),
        lost_commit: Reported(&COOLDOWNS, "the key has a cooldown"),
        late_commit: Reported(&COOLDOWNS, "the key has a cooldown"),
    },
    KindRow {
        kind: RecordKind::RefusedResult,
        stale_read: Harmless("only the list of operators shows it, and the next look at the list does"),
        lost_notice: NOT_TOLD,
        lost_commit: Reported(&OPERATOR_LISTS, "?state=evidence"),
        late_commit: Reported(&OPERATOR_LISTS, "?state=evidence"),
    },
    KindRow {
        kind: RecordKind::Reader,
        stale_read: Reported(&READERS, "the caller reads its results"),
        lost_notice: NOT_TOLD,
        lost_commit: Reported(&READERS, "the caller reads its results"),
        late_commit: Harmless("a reader is noted once an hour, behind its answer, and counts for a week"),
    },
    KindRow {
        kind: RecordKind::Reservation,
        stale_read: Reported(&RESERVATIONS, "conversations that take the result"),
        lost_notice: NOT_TOLD,
        lost_commit: Reported(&RESERVATIONS, "conversations that take the result"),
        late_commit: Reported(&RESERVATIONS, "conversations that take the result"),
    },
    KindRow {
        kind: RecordKind::TaskLink,
        stale_read: Reported(&TASK_LINKS, "the link opens nothing"),
        lost_notice: NOT_TOLD,
        lost_commit: Reported(&TASK_LINKS, "the link opens nothing"),
        late_commit: Reported(&TASK_LINKS, "the link opens nothing"),
    },
];

thread_local! {
    /// `true` while a panic on this thread is a report, which is not printed.
    static IS_SILENT: Cell<bool> = const { Cell::new(false) };
}

/// Makes the panics of silent threads print nothing. Others print as before.
fn silence_reports() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if !IS_SILENT.get() {
                before(info);
            }
        }));
    });
}

/// Runs a story over ledgers with a fault, or over honest ones. Returns what contradicts a promise.
fn contradictions(story: &Story, fault: Option<InjectedFault>) -> Vec<String> {
    silence_reports();
    IS_SILENT.set(true);
    let told = panic::catch_unwind(AssertUnwindSafe(|| with_fault(fault, story.tell)));
    IS_SILENT.set(false);
    told.unwrap_or_else(|panic| vec![words_of(&*panic)])
}

/// Returns the words of a panic.
fn words_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    let text = text.or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string));
    text.unwrap_or_else(|| "a panic without words".to_owned())
}

/// Plays a walk on paused time.
fn on_paused_time<T>(walk: impl Future<Output = T>) -> T {
    let mut builder = runtime::Builder::new_current_thread();
    builder.enable_all().start_paused(true).build().unwrap().block_on(walk)
}

/// Plays a walk on real time, in one thread too.
fn on_real_time<T>(walk: impl Future<Output = T>) -> T {
    let mut builder = runtime::Builder::new_current_thread();
    builder.enable_all().build().unwrap().block_on(walk)
}

/// Plays one round of the delivery walk with two replicas that are told of each other's changes.
fn play_delivery_walk(seed: u64) -> Vec<String> {
    on_paused_time(delivery_walk::play_walk(seed, 250, OnOutage::Wait, (2, true))).1
}

/// Checks rows: each story that is to report a fault does so, and each reports nothing over an honest ledger.
fn check_rows(rows: &[KindRow]) {
    println!("SEED={SEED}");
    let (mut unnoticed, mut honest) = (Vec::new(), Vec::<&Story>::new());
    for row in rows {
        for breach in Breach::ALL {
            let kind = row.kind;
            let (story, words) = match row.verdict(breach) {
                Reported(story, words) => (*story, *words),
                Harmless(why) => {
                    println!("{kind:?} {breach:?}: {why}");
                    continue;
                }
            };
            let told = contradictions(story, Some(InjectedFault { kind, breach }));
            println!("{kind:?} {breach:?}: {} of {}", told.len(), story.name);
            if !told.iter().any(|told| told.contains(words)) {
                unnoticed.push(format!(
                    "{kind:?} {breach:?}, wanted {words:?} of {}: {told:#?}",
                    story.name
                ));
            }
            if !honest.iter().any(|known| known.name == story.name) {
                honest.push(story);
            }
        }
    }
    assert!(unnoticed.is_empty(), "unnoticed: {unnoticed:#?}");
    for story in honest {
        let told = contradictions(story, None);
        assert!(told.is_empty(), "{} over an honest ledger: {told:#?}", story.name);
    }
}

#[test]
fn injected_faults_of_tables_are_reported() {
    check_rows(&TABLES);
}

#[test]
fn injected_faults_of_histories_are_reported() {
    check_rows(&HISTORIES);
}

#[test]
fn injected_faults_of_others_are_reported() {
    check_rows(&OTHERS);
}

/// Each kind has one row, whose notices matter only if the ledger sends some.
#[test]
fn every_kind_has_a_row_of_injected_faults() {
    let rows: Vec<&KindRow> = TABLES.iter().chain(&HISTORIES).chain(&OTHERS).collect();
    for kind in RecordKind::ALL {
        let of_kind: Vec<&&KindRow> = rows.iter().filter(|row| row.kind == kind).collect();
        assert_eq!(of_kind.len(), 1, "rows of {kind:?}");
        let has_no_notices = matches!(NOT_TOLD, Harmless(why) if
            matches!(of_kind[0].lost_notice, Harmless(other) if other == why));
        assert_eq!(has_no_notices, !kind.is_announced(), "notices of {kind:?}");
    }
}
