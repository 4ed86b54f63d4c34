//! The conformance suite of the `Ledger` trait, run over every store, and a random walk against a simple model.
//!
//! `STEPS=` sets the length of the walk, `SEED=<n>` replays another, `SEED=random` takes a new one.
#![expect(
    clippy::disallowed_methods,
    reason = "the number of steps comes from the environment"
)]

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    sync::Arc,
    time::Duration,
};

use antiphon::ledger::{
    CommitOutcome, CommitResult, CommitStep, Ledger, LedgerError, LedgerSettings, LedgerSize, MOMENT_MAX, MemoryLedger,
    Moment, PostgresLedger, RECORD_BYTES, ROWS_MAX, Record, RecordKey, RecordKind, SqliteLedger, TimedCommit,
    VALUE_BYTES_MAX,
};
use bytes::Bytes;

use crate::support::{
    bodies::Rng,
    database::{new_database, settings_of},
    seed::seed,
    wire::spawn,
};

pub(crate) const SECRET: [u8; 32] = [7; 32];
pub(crate) const NOW: Moment = Duration::from_secs(4_000_000_000);
pub(crate) const LATER: Moment = Duration::from_secs(4_000_000_100);
const DAY: Duration = Duration::from_secs(86_400);

pub(crate) fn key(kind: RecordKind, principal: u8, name: u64) -> RecordKey {
    let mut long = [0xA5; 32];
    long[..8].copy_from_slice(&name.to_be_bytes());
    RecordKey {
        kind,
        principal: [principal; 32],
        name: long,
    }
}

pub(crate) fn call(name: u64) -> RecordKey {
    key(RecordKind::Call, 1, name)
}

pub(crate) fn insert(key: RecordKey, value: impl Into<Bytes>) -> CommitStep {
    CommitStep::Insert {
        key,
        index: None,
        value: value.into(),
        expires_at: LATER,
    }
}

fn indexed(key: RecordKey, index: u8) -> CommitStep {
    CommitStep::Insert {
        key,
        index: Some([index; 16]),
        value: Bytes::from_static(b"found"),
        expires_at: LATER,
    }
}

fn replace(key: RecordKey, version: u64, value: &'static str) -> CommitStep {
    CommitStep::Replace {
        key,
        version,
        value: Bytes::from_static(value.as_bytes()),
        expires_at: LATER,
    }
}

fn remove(key: RecordKey, version: u64) -> CommitStep {
    CommitStep::Remove { key, version }
}

fn bounded(bytes_max: u64, principal_bytes_max: u64) -> LedgerSettings {
    LedgerSettings {
        bytes_max,
        principal_bytes_max,
    }
}

pub(crate) async fn done(ledger: &dyn Ledger, steps: Vec<CommitStep>, now: Moment) {
    assert_eq!(ledger.commit(steps, now).await.unwrap(), CommitOutcome::Done);
}

async fn conflict(ledger: &dyn Ledger, steps: Vec<CommitStep>, now: Moment) -> Vec<Option<Record>> {
    match ledger.commit(steps, now).await.unwrap() {
        CommitOutcome::Conflict(standing) => standing,
        CommitOutcome::Done => panic!("done"),
    }
}

pub(crate) async fn get(ledger: &dyn Ledger, key: RecordKey, now: Moment) -> Option<Record> {
    ledger.read(vec![key], now).await.unwrap().remove(0)
}

async fn value(ledger: &dyn Ledger, key: RecordKey) -> Option<String> {
    let record = get(ledger, key, NOW).await?;
    Some(String::from_utf8(record.value.to_vec()).unwrap())
}

async fn listed(ledger: &dyn Ledger, kind: RecordKind, principal: u8, limit: usize) -> Vec<u64> {
    names(&ledger.list_records(kind, [principal; 32], limit, NOW).await.unwrap())
}

fn names(records: &[Record]) -> Vec<u64> {
    let name = |record: &Record| u64::from_be_bytes(record.key.name[..8].try_into().unwrap());
    records.iter().map(name).collect()
}

/// Returns every store, empty.
async fn stores(folder: &Path, settings: LedgerSettings) -> Vec<(&'static str, Arc<dyn Ledger>)> {
    let file = SqliteLedger::open(&folder.join("ledger.db"), settings, SECRET).unwrap();
    let mut stores: Vec<(&'static str, Arc<dyn Ledger>)> = vec![
        ("memory", Arc::new(MemoryLedger::new(settings, SECRET))),
        ("sqlite", Arc::new(file)),
    ];
    if let Some(url) = new_database().await {
        let (shared, worker) = PostgresLedger::open(&settings_of(&url), settings, SECRET)
            .await
            .unwrap();
        drop(spawn(worker.run()));
        stores.push(("postgres", Arc::new(shared)));
    }
    stores
}

/// Runs each case over each store.
macro_rules! cases {
    ($($name:ident($ledger:ident, $settings:expr) $body:block)*) => {$(
        #[tokio::test]
        async fn $name() {
            let folder = tempfile::tempdir().unwrap();
            for (store, ledger) in stores(folder.path(), $settings).await {
                println!("store: {store}");
                let $ledger: &Arc<dyn Ledger> = &ledger;
                $body
            }
        }
    )*};
}

cases! {
    inserted_records_can_be_read(ledger, LedgerSettings::default()) {
        assert_eq!(get(&**ledger, call(1), NOW).await, None);
        done(&**ledger, vec![indexed(call(1), 3)], NOW).await;
        let record = get(&**ledger, call(1), NOW).await.unwrap();
        let wanted = Record {
            key: call(1),
            index: Some([3; 16]),
            value: Bytes::from_static(b"found"),
            version: 1,
            made_at: NOW,
            expires_at: LATER,
        };
        assert_eq!(record, wanted);
        let both = ledger.read(vec![call(2), call(1), call(1)], NOW).await.unwrap();
        assert_eq!(both, [None, Some(wanted.clone()), Some(wanted)]);
        assert_eq!(ledger.secret(), SECRET);
        assert_eq!(ledger.read(vec![], NOW).await.unwrap(), []);
        done(&**ledger, vec![], NOW).await;
    }

    a_second_insert_conflicts_and_returns_the_stored_record(ledger, LedgerSettings::default()) {
        done(&**ledger, vec![insert(call(1), "first")], NOW).await;
        let stands = get(&**ledger, call(1), NOW).await;
        assert!(stands.is_some());
        assert_eq!(conflict(&**ledger, vec![insert(call(1), "second")], NOW).await, [stands]);
    }

    records_are_replaced_and_removed_by_version(ledger, LedgerSettings::default()) {
        done(&**ledger, vec![insert(call(1), "one"), insert(call(2), "other")], NOW).await;
        done(&**ledger, vec![replace(call(1), 1, "two")], Duration::from_secs(9)).await;
        let record = get(&**ledger, call(1), NOW).await.unwrap();
        assert_eq!((&record.value[..], record.version, record.made_at), (&b"two"[..], 2, NOW));
        for stale in [replace(call(1), 1, "three"), remove(call(1), 1), remove(call(1), u64::MAX)] {
            assert_eq!(conflict(&**ledger, vec![stale], NOW).await, [Some(record.clone())]);
        }
        for nothing in [replace(call(9), 1, "three"), remove(call(9), 1)] {
            assert_eq!(conflict(&**ledger, vec![nothing], NOW).await, [None]);
        }
        assert_eq!(listed(&**ledger, RecordKind::Call, 1, 9).await, [1, 2], "it keeps its place");
        done(&**ledger, vec![remove(call(1), 2)], NOW).await;
        assert_eq!(get(&**ledger, call(1), NOW).await, None);
        done(&**ledger, vec![insert(call(1), "again")], NOW).await;
        assert_eq!(get(&**ledger, call(1), NOW).await.unwrap().version, 1);
        assert_eq!(listed(&**ledger, RecordKind::Call, 1, 9).await, [2, 1]);
    }

    all_or_nothing_and_later_steps_see_earlier_ones(ledger, LedgerSettings::default()) {
        done(&**ledger, vec![insert(call(1), "stands")], NOW).await;
        let stands = get(&**ledger, call(1), NOW).await;
        let steps = vec![insert(call(2), "new"), insert(call(1), "clash"), remove(call(2), 1), replace(call(3), 1, "x")];
        assert_eq!(conflict(&**ledger, steps, NOW).await, [None, stands, None, None]);
        assert_eq!(listed(&**ledger, RecordKind::Call, 1, 9).await, [1]);
        let usage = ledger.usage().await.unwrap();
        assert_eq!(usage, LedgerSize { records: 1, bytes: RECORD_BYTES + 6 });
        let chain = vec![
            insert(call(4), "a"), replace(call(4), 1, "b"), replace(call(4), 2, "c"),
            remove(call(1), 1), insert(call(1), "anew"), insert(call(5), "x"), remove(call(5), 1),
        ];
        done(&**ledger, chain, NOW).await;
        assert_eq!(value(&**ledger, call(4)).await.as_deref(), Some("c"));
        assert_eq!(value(&**ledger, call(1)).await.as_deref(), Some("anew"));
        assert_eq!(listed(&**ledger, RecordKind::Call, 1, 9).await, [4, 1]);
        let twice = conflict(&**ledger, vec![insert(call(6), "own"), insert(call(6), "twin")], NOW).await;
        assert_eq!(twice[1].as_ref().map(|record| &record.value[..]), Some(&b"own"[..]));
        assert_eq!(get(&**ledger, call(6), NOW).await, None);
    }

    expired_records_are_absent_for_every_method(ledger, LedgerSettings::default()) {
        done(&**ledger, vec![indexed(call(1), 3)], NOW).await;
        let last = LATER.saturating_sub(Duration::from_nanos(1));
        assert!(get(&**ledger, call(1), last).await.is_some());
        assert_eq!(get(&**ledger, call(1), LATER).await, None);
        assert_eq!(ledger.list_records(RecordKind::Call, [1; 32], 9, LATER).await.unwrap(), []);
        assert_eq!(ledger.find_by_index(RecordKind::Call, [3; 16], 9, LATER).await.unwrap(), []);
        assert_eq!(conflict(&**ledger, vec![remove(call(1), 1)], LATER).await, [None]);
        assert_eq!(ledger.usage().await.unwrap().records, 1);
        let again = CommitStep::Insert { key: call(1), index: None, value: Bytes::from_static(b"2"), expires_at: LATER + DAY };
        done(&**ledger, vec![again], LATER).await;
        let record = get(&**ledger, call(1), LATER).await.unwrap();
        assert_eq!((record.version, record.made_at), (1, LATER));
        assert_eq!(ledger.usage().await.unwrap(), LedgerSize { records: 1, bytes: RECORD_BYTES + 1 });
    }

    clocks_may_jump(ledger, LedgerSettings::default()) {
        done(&**ledger, vec![insert(call(1), "kept")], NOW).await;
        assert_eq!(get(&**ledger, call(1), NOW + 365 * DAY).await, None);
        assert!(get(&**ledger, call(1), NOW).await.is_some(), "a year ahead was a mistake");
        assert!(get(&**ledger, call(1), Duration::ZERO).await.is_some(), "nothing expires early");
        done(&**ledger, vec![insert(call(2), "past")], Duration::ZERO).await;
        assert_eq!(listed(&**ledger, RecordKind::Call, 1, 9).await, [1, 2], "in the order of putting in");
        let never = CommitStep::Insert { key: call(3), index: None, value: Bytes::new(), expires_at: Duration::MAX };
        done(&**ledger, vec![never], NOW + 365 * DAY).await;
        assert_eq!(get(&**ledger, call(3), NOW).await.unwrap().expires_at, MOMENT_MAX);
        done(&**ledger, vec![insert(call(4), "gone at once")], Duration::MAX).await;
        assert_eq!(get(&**ledger, call(4), NOW).await.unwrap().made_at, MOMENT_MAX);
        assert_eq!(ledger.remove_expired(NOW + 365 * DAY).await.unwrap(), 3);
        assert_eq!(ledger.remove_expired(Duration::MAX).await.unwrap(), 1);
        assert_eq!(ledger.usage().await.unwrap(), LedgerSize::default());
    }

    lists_contain_the_latest_records_in_order(ledger, LedgerSettings::default()) {
        for name in [5, 3, 9, 1, 7] {
            done(&**ledger, vec![insert(call(name), "x"), insert(key(RecordKind::PinnedResult, 1, name), "y")], NOW).await;
        }
        assert_eq!(listed(&**ledger, RecordKind::Call, 1, 9).await, [5, 3, 9, 1, 7]);
        assert_eq!(listed(&**ledger, RecordKind::Call, 1, 2).await, [1, 7]);
        assert_eq!(listed(&**ledger, RecordKind::Call, 1, 0).await, [0; 0]);
        assert_eq!(listed(&**ledger, RecordKind::Call, 1, usize::MAX).await.len(), 5);
        let many = (100..100 + ROWS_MAX as u64).map(|name| insert(call(name), "")).collect();
        done(&**ledger, many, NOW).await;
        let full = listed(&**ledger, RecordKind::Call, 1, usize::MAX).await;
        assert_eq!((full.len(), full[0]), (ROWS_MAX, 100));
    }

    the_first_record_of_a_ledger_is_on_the_first_page(ledger, LedgerSettings::default()) {
        done(&**ledger, vec![insert(call(7), "first")], NOW).await;
        let page = ledger.list_after(RecordKind::Call, [1; 32], 0, 9, NOW).await.unwrap();
        let [(place, record)] = &page[..] else { panic!("{page:?}") };
        assert_eq!(record.key, call(7));
        assert_eq!(ledger.list_after(RecordKind::Call, [1; 32], *place, 9, NOW).await.unwrap(), []);
    }

    services_find_by_index_across_principals(ledger, LedgerSettings::default()) {
        let theirs = [key(RecordKind::Call, 1, 1), key(RecordKind::Call, 2, 2), key(RecordKind::Call, 3, 3)];
        for key in theirs {
            done(&**ledger, vec![indexed(key, 3)], NOW).await;
        }
        done(&**ledger, vec![indexed(call(4), 4), indexed(key(RecordKind::Parked, 1, 5), 3), insert(call(6), "")], NOW).await;
        let found = ledger.find_by_index(RecordKind::Call, [3; 16], 9, NOW).await.unwrap();
        assert_eq!(found.iter().map(|record| record.key).collect::<Vec<_>>(), theirs);
        assert_eq!(names(&ledger.find_by_index(RecordKind::Call, [3; 16], 2, NOW).await.unwrap()), [2, 3]);
        assert_eq!(ledger.find_by_index(RecordKind::Call, [0; 16], 9, NOW).await.unwrap(), []);
        done(&**ledger, vec![replace(theirs[0], 1, "new")], NOW).await;
        assert_eq!(names(&ledger.find_by_index(RecordKind::Call, [3; 16], 9, NOW).await.unwrap()), [1, 2, 3]);
    }

    equal_names_of_two_principals_are_separate_records(ledger, LedgerSettings::default()) {
        let [mine, theirs] = [key(RecordKind::Call, 1, 1), key(RecordKind::Call, 2, 1)];
        done(&**ledger, vec![insert(mine, "mine")], NOW).await;
        assert_eq!(get(&**ledger, theirs, NOW).await, None);
        assert_eq!(conflict(&**ledger, vec![remove(theirs, 1)], NOW).await, [None]);
        assert_eq!(get(&**ledger, key(RecordKind::PinnedResult, 1, 1), NOW).await, None);
        done(&**ledger, vec![insert(theirs, "theirs")], NOW).await;
        done(&**ledger, vec![replace(theirs, 1, "changed")], NOW).await;
        assert_eq!(value(&**ledger, mine).await.as_deref(), Some("mine"));
        assert_eq!(value(&**ledger, theirs).await.as_deref(), Some("changed"));
        let listed = ledger.list_records(RecordKind::Call, [1; 32], 9, NOW).await.unwrap();
        assert_eq!(listed.iter().map(|record| record.key).collect::<Vec<_>>(), [mine]);
        done(&**ledger, vec![remove(theirs, 2)], NOW).await;
        assert!(get(&**ledger, mine, NOW).await.is_some());
    }

    a_principal_cannot_exceed_its_share(ledger, bounded(4 * (RECORD_BYTES + 10), 2 * (RECORD_BYTES + 10))) {
        let ten = "0123456789";
        done(&**ledger, vec![insert(call(1), ten), insert(call(2), ten)], NOW).await;
        let full = ledger.commit(vec![insert(call(3), "")], NOW).await;
        assert!(matches!(full, Err(LedgerError::Full { of_principal: true })), "{full:?}");
        let longer = ledger.commit(vec![replace(call(1), 1, "0123456789a")], NOW).await;
        assert!(matches!(longer, Err(LedgerError::Full { of_principal: true })), "{longer:?}");
        assert_eq!(conflict(&**ledger, vec![insert(call(1), "longer than that")], NOW).await.len(), 1);
        done(&**ledger, vec![insert(key(RecordKind::Call, 2, 1), ten), insert(key(RecordKind::Call, 3, 1), ten)], NOW).await;
        let total = ledger.commit(vec![insert(key(RecordKind::Call, 4, 1), "")], NOW).await;
        assert!(matches!(total, Err(LedgerError::Full { of_principal: false })), "{total:?}");
        assert_eq!(ledger.usage().await.unwrap().records, 4);
        done(&**ledger, vec![remove(call(1), 1), insert(call(3), ten)], NOW).await;
        done(&**ledger, vec![replace(call(3), 1, "short")], NOW).await;
        let room = vec![insert(key(RecordKind::Call, 5, 1), "")];
        assert!(ledger.commit(room.clone(), NOW).await.is_err());
        assert_eq!(ledger.remove_unusable(NOW).await.unwrap(), 0);
        done(&**ledger, vec![insert(key(RecordKind::Call, 6, 1), "0123")], LATER).await;
        assert_eq!(ledger.usage().await.unwrap().records, 1, "what had expired made room by itself");
    }

    removing_records_frees_space(ledger, LedgerSettings::default()) {
        for name in 0..300 {
            let expires_at = if name % 3 == 0 { LATER + DAY } else { LATER };
            let step = CommitStep::Insert { key: call(name), index: None, value: Bytes::from(vec![1; 9]), expires_at };
            done(&**ledger, vec![step], NOW).await;
        }
        assert_eq!(ledger.remove_expired(NOW).await.unwrap(), 0);
        assert_eq!(ledger.remove_expired(LATER).await.unwrap(), 200);
        assert_eq!(ledger.remove_unusable(LATER).await.unwrap(), 0);
        assert_eq!(ledger.usage().await.unwrap(), LedgerSize { records: 100, bytes: 100 * (RECORD_BYTES + 9) });
        assert_eq!(listed(&**ledger, RecordKind::Call, 1, 3).await, [291, 294, 297]);
    }

    values_are_long_or_odd(ledger, LedgerSettings::default()) {
        let values: [Vec<u8>; 5] = [
            vec![], vec![0], (0..=255).collect(), "\u{0}\u{FFFD}\u{10FFFF}é'\";--".into(), vec![0xFF; 8 * 1024 * 1024],
        ];
        for (name, value) in (0..).zip(values) {
            done(&**ledger, vec![insert(call(name), value.clone())], NOW).await;
            assert!(get(&**ledger, call(name), NOW).await.unwrap().value == value, "{name}");
        }
        let most = vec![1; VALUE_BYTES_MAX];
        done(&**ledger, vec![insert(call(8), most)], NOW).await;
        assert_eq!(get(&**ledger, call(8), NOW).await.unwrap().value.len(), VALUE_BYTES_MAX);
        let more = vec![1; VALUE_BYTES_MAX + 1];
        let refused = ledger.commit(vec![insert(call(9), ""), insert(call(10), more)], NOW).await;
        assert!(matches!(refused, Err(LedgerError::TooLarge)), "{refused:?}");
        assert_eq!(get(&**ledger, call(9), NOW).await, None);
    }

    oversized_commits_are_refused(ledger, LedgerSettings::default()) {
        let steps = (0..=ROWS_MAX as u64).map(|name| insert(call(name), "")).collect();
        assert!(matches!(ledger.commit(steps, NOW).await, Err(LedgerError::TooLarge)));
        let keys = (0..=ROWS_MAX as u64).map(call).collect();
        assert!(matches!(ledger.read(keys, NOW).await, Err(LedgerError::TooLarge)));
        assert_eq!(ledger.usage().await.unwrap(), LedgerSize::default());
    }

    each_commit_of_several_stands_alone(ledger, bounded(u64::MAX, 20 * (RECORD_BYTES + 4))) {
        done(&**ledger, vec![insert(call(1), "old")], NOW).await;
        let commit = |steps: Vec<CommitStep>, now| TimedCommit { steps, now };
        let results = ledger.commit_each(vec![
            // A conflict undoes its own steps only.
            commit(vec![insert(call(2), "no"), insert(call(1), "no")], NOW),
            commit(vec![insert(call(3), "yes")], NOW),
            commit(vec![insert(call(4), vec![0; VALUE_BYTES_MAX + 1])], NOW),
            // Each sees those before it, as of its own time.
            commit(vec![replace(call(3), 1, "new")], NOW),
            commit(vec![insert(call(1), "late")], LATER),
            commit(vec![insert(call(5), vec![0; 20 * 256])], NOW),
            commit(vec![insert(call(6), "yes")], NOW),
        ]);
        let words = |result: &CommitResult| match result {
            Ok(CommitOutcome::Done) => "done",
            Ok(CommitOutcome::Conflict(_)) => "conflict",
            Err(error) => error.label(),
        };
        let words: Vec<&str> = results.await.unwrap().iter().map(words).collect();
        assert_eq!(words, ["conflict", "done", "too_large", "done", "done", "full", "done"]);
        assert_eq!(value(&**ledger, call(3)).await.as_deref(), Some("new"));
        assert_eq!(get(&**ledger, call(2), NOW).await, None);
        assert_eq!(ledger.usage().await.unwrap().records, 3);
        assert_eq!(ledger.commit_each(Vec::new()).await.unwrap().len(), 0);
    }

    one_of_many_concurrent_commits_wins(ledger, LedgerSettings::default()) {
        for name in 0..20 {
            let mut racers = tokio::task::JoinSet::new();
            for racer in 0..32_u8 {
                let ledger = Arc::clone(ledger);
                racers.spawn(async move { (racer, ledger.commit(vec![insert(call(name), vec![racer])], NOW).await.unwrap()) });
            }
            let outcomes = racers.join_all().await;
            let winners: Vec<u8> = outcomes.iter().filter(|(_, outcome)| *outcome == CommitOutcome::Done).map(|(racer, _)| *racer).collect();
            assert_eq!(winners.len(), 1);
            let stands = get(&**ledger, call(name), NOW).await;
            assert_eq!(stands.as_ref().unwrap().value[0], winners[0]);
            for (_, outcome) in outcomes.iter().filter(|(_, outcome)| *outcome != CommitOutcome::Done) {
                assert_eq!(*outcome, CommitOutcome::Conflict(vec![stands.clone()]));
            }
        }
    }

    a_dropped_reply_is_harmless(ledger, LedgerSettings::default()) {
        for name in 0..50 {
            let mut reply = ledger.commit(vec![insert(call(name), "x")], NOW);
            drop(futures_util::poll!(&mut reply));
            drop(reply);
            for mut reply in [ledger.remove_unusable(NOW), ledger.remove_expired(NOW)] {
                drop(futures_util::poll!(&mut reply));
            }
        }
        done(&**ledger, vec![insert(call(99), "x")], NOW).await;
        assert!(get(&**ledger, call(99), NOW).await.is_some());
    }
}

/// The simplest ledger: records in insertion order.
#[derive(Clone, Debug, Default)]
struct Model(Vec<Record>);

const SHARE: u64 = 5 * RECORD_BYTES;
const WHOLE: u64 = 12 * RECORD_BYTES;

impl Model {
    fn bytes(&self, of: impl Fn(&Record) -> bool) -> u64 {
        let counted = |record: &Record| RECORD_BYTES + record.value.len() as u64;
        self.0.iter().filter(|record| of(record)).map(counted).sum()
    }

    fn at(&self, key: &RecordKey, now: Moment) -> Option<usize> {
        self.0
            .iter()
            .position(|record| record.key == *key && record.expires_at > now)
    }

    fn try_all(&self, steps: &[CommitStep], now: Moment) -> Result<Self, String> {
        let (mut tried, mut clash, mut standing) = (self.clone(), false, Vec::new());
        for step in steps {
            let at = tried.at(step.key(), now);
            let stands = at.map(|at| tried.0[at].clone());
            let right = match step {
                CommitStep::Insert { .. } => at.is_none(),
                CommitStep::Replace { version, .. } | CommitStep::Remove { version, .. } => {
                    stands.as_ref().is_some_and(|record| record.version == *version)
                }
            };
            clash |= !right;
            standing.push(stands.filter(|_| !right));
            match step {
                _ if !right => {}
                CommitStep::Insert {
                    key,
                    index,
                    value,
                    expires_at,
                } => {
                    tried.0.retain(|record| record.key != *key);
                    tried.0.push(Record {
                        key: *key,
                        index: *index,
                        value: value.clone(),
                        version: 1,
                        made_at: now,
                        expires_at: *expires_at,
                    });
                }
                CommitStep::Replace { value, expires_at, .. } => {
                    let record = &mut tried.0[at.unwrap()];
                    (record.value, record.expires_at, record.version) =
                        (value.clone(), *expires_at, record.version + 1);
                }
                CommitStep::Remove { .. } => drop(tried.0.remove(at.unwrap())),
            }
        }
        if clash {
            return Err(format!("{:?}", CommitOutcome::Conflict(standing)));
        }
        let grew = |of: &dyn Fn(&Record) -> bool, max| tried.bytes(of) > max && tried.bytes(of) > self.bytes(of);
        for step in steps {
            if grew(&|record| record.key.principal == step.key().principal, SHARE) {
                return Err("full: own".to_owned());
            }
        }
        if grew(&|_| true, WHOLE) {
            return Err("full: whole".to_owned());
        }
        Ok(tried)
    }

    fn commit(&mut self, steps: &[CommitStep], now: Moment) -> String {
        let mut tried = self.try_all(steps, now);
        if tried.as_ref().is_err_and(|why| why.starts_with("full")) {
            self.0.retain(|record| record.expires_at > now);
            tried = self.try_all(steps, now);
        }
        match tried {
            Ok(tried) => {
                *self = tried;
                "Done".to_owned()
            }
            Err(why) => why,
        }
    }
}

fn told(outcome: Result<CommitOutcome, LedgerError>) -> String {
    match outcome {
        Ok(outcome) => format!("{outcome:?}"),
        Err(LedgerError::Full { of_principal: true }) => "full: own".to_owned(),
        Err(LedgerError::Full { of_principal: false }) => "full: whole".to_owned(),
        Err(error) => panic!("{error:?}"),
    }
}

fn random_key(rng: &mut Rng) -> RecordKey {
    let kind = *rng.pick(&[RecordKind::Call, RecordKind::PinnedResult]);
    key(kind, u8::try_from(rng.below(4)).unwrap(), rng.next() % 6)
}

fn random_step(rng: &mut Rng, model: &Model, now: Moment) -> CommitStep {
    let key = random_key(rng);
    let value = Bytes::from(vec![u8::try_from(rng.below(256)).unwrap(); rng.below(300)]);
    let stands = model.at(&key, now).map_or(1, |at| model.0[at].version);
    let version = if rng.chance(80) { stands } else { rng.next() % 4 };
    let expires_at = now + Duration::from_millis(rng.next() % 40);
    match rng.below(4) {
        0 => CommitStep::Replace {
            key,
            version,
            value,
            expires_at,
        },
        1 => CommitStep::Remove { key, version },
        _ => {
            let index = rng.chance(50).then(|| [u8::try_from(rng.below(3)).unwrap(); 16]);
            CommitStep::Insert {
                key,
                index,
                value,
                expires_at,
            }
        }
    }
}

type Stores = Vec<(&'static str, Arc<dyn Ledger>)>;

/// Asserts that the stores list and find the same records as the model.
async fn same_lists(stores: &Stores, model: &Model, rng: &mut Rng, now: Moment, at: &impl Fn(&str) -> String) {
    let RecordKey { kind, principal, .. } = random_key(rng);
    let (index, limit) = ([u8::try_from(rng.below(3)).unwrap(); 16], rng.below(6));
    let latest = |is_it: &dyn Fn(&Record) -> bool| {
        let mut found: Vec<Record> = model
            .0
            .iter()
            .filter(|record| record.expires_at > now && record.key.kind == kind && is_it(record))
            .cloned()
            .collect();
        found.split_off(found.len().saturating_sub(limit))
    };
    for (store, ledger) in stores {
        let list = ledger.list_records(kind, principal, limit, now).await.unwrap();
        assert_eq!(
            list,
            latest(&|record| record.key.principal == principal),
            "{}",
            at(store)
        );
        let (mut paged, mut after) = (Vec::new(), 0);
        loop {
            let page = ledger.list_after(kind, principal, after, 2, now).await.unwrap();
            let Some((last, _)) = page.last() else { break };
            after = *last;
            paged.extend(page.into_iter().map(|(_, record)| record));
        }
        let whole = ledger.list_records(kind, principal, 999, now).await.unwrap();
        assert_eq!(paged, whole, "{}", at(store));
        let owners = ledger.list_principals(kind, None, 99).await.unwrap();
        let (mut pages, mut after) = (Vec::new(), None);
        loop {
            let page = ledger.list_principals(kind, after, 2).await.unwrap();
            let Some(last) = page.last() else { break };
            after = Some(*last);
            pages.extend(page);
        }
        assert_eq!(pages, owners, "{}", at(store));
        let is_live = |record: &&Record| record.expires_at > now && record.key.kind == kind;
        let is_listed = |record: &Record| owners.contains(&record.key.principal);
        assert!(model.0.iter().filter(is_live).all(is_listed), "{}", at(store));
        let distinct: BTreeSet<_> = owners.iter().collect();
        assert_eq!(distinct.len(), owners.len(), "{}", at(store));
        let found = ledger.find_by_index(kind, index, limit, now).await.unwrap();
        assert_eq!(found, latest(&|record| record.index == Some(index)), "{}", at(store));
    }
}

#[tokio::test]
async fn every_store_matches_the_model() {
    let number = |name: &str| std::env::var(name).ok().and_then(|value| value.parse::<u64>().ok());
    let seed = seed();
    println!("SEED={seed}");
    let mut rng = Rng::new(seed);
    let folder = tempfile::tempdir().unwrap();
    let stores = stores(folder.path(), bounded(WHOLE, SHARE)).await;
    let mut model = Model::default();
    let mut seen: BTreeMap<String, u64> = BTreeMap::new();
    let mut now = NOW;
    for round in 0..number("STEPS").unwrap_or(5_000) {
        // The clock advances, and now and then jumps back.
        now = if rng.chance(2) {
            now.saturating_sub(Duration::from_millis(5))
        } else {
            now + Duration::from_micros(rng.next() % 2000)
        };
        let at = |store: &str| format!("SEED={seed} round {round} {store}");
        match rng.below(10) {
            0..6 => {
                let steps: Vec<CommitStep> = (0..rng.within(1, 3))
                    .map(|_| random_step(&mut rng, &model, now))
                    .collect();
                let wanted = model.commit(&steps, now);
                let name = wanted.split(['(', ' ']).next().unwrap().to_owned();
                *seen.entry(name).or_default() += 1;
                for (store, ledger) in &stores {
                    assert_eq!(told(ledger.commit(steps.clone(), now).await), wanted, "{}", at(store));
                }
            }
            6 => {
                let keys: Vec<RecordKey> = (0..3).map(|_| random_key(&mut rng)).collect();
                let wanted: Vec<_> = keys
                    .iter()
                    .map(|key| model.at(key, now).map(|at| model.0[at].clone()))
                    .collect();
                for (store, ledger) in &stores {
                    assert_eq!(ledger.read(keys.clone(), now).await.unwrap(), wanted, "{}", at(store));
                }
            }
            7 | 8 => same_lists(&stores, &model, &mut rng, now, &at).await,
            _ => {
                let before = model.0.len();
                if rng.chance(30) {
                    model.0.retain(|record| record.expires_at > now);
                    let damaged_too = rng.chance(50);
                    for (store, ledger) in &stores {
                        let cleared = if damaged_too {
                            ledger.remove_unusable(now)
                        } else {
                            ledger.remove_expired(now)
                        };
                        let gone = (before - model.0.len()) as u64;
                        assert_eq!(cleared.await.unwrap(), gone, "{}", at(store));
                    }
                }
            }
        }
        let usage = LedgerSize {
            records: model.0.len() as u64,
            bytes: model.bytes(|_| true),
        };
        for (store, ledger) in &stores {
            assert_eq!(ledger.usage().await.unwrap(), usage, "{}", at(store));
        }
    }
    println!("{seen:?}");
    assert!(seen.len() >= 3, "the walk saw too little: {seen:?}");
}
