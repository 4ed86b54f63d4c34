//! The rows of what is remembered between requests, byte for byte: names, values, versions and lifetimes.
//!
//! A process of another version reads them, so that they may never change.

use std::{fmt::Write as _, sync::Arc, time::Duration};

use antiphon::{
    auth::{Caller, Principal},
    clock,
    ledger::{Ledger, RecordKind},
    recall::{
        CarriedValue, ContinuityScope, FactKey, LearnedFact, ObjectOwners, ObjectScope, RecallSettings, RecallStore,
        ShapeVerdict, ThinkingFact,
    },
    repair::ContinuityKind,
    table::{TableParts, VerifiedCallers},
    telemetry::Telemetry,
    wire::{Format, ItemChain},
    writer::{Writer, writer},
};
use tokio::time::Instant;

use crate::{
    frozen::golden,
    ledger::pinned_results::call,
    support::{kept::durable, wire::spawn},
};

/// One process with everything that it remembers.
struct Process {
    ledger: Arc<dyn Ledger>,
    writes: Writer,
    callers: VerifiedCallers,
    recall: RecallStore,
    objects: ObjectOwners,
}

impl Process {
    fn start(ledger: &Arc<dyn Ledger>) -> Self {
        let (writes, worker) = writer(Arc::clone(ledger), Telemetry::default());
        drop(spawn(worker.run()));
        let parts = TableParts::new(ledger, &writes, Telemetry::default());
        let callers = VerifiedCallers::new(&parts);
        let settings = RecallSettings {
            record_ttl: Duration::from_secs(7 * 24 * 60 * 60),
            stores_client_results: true,
        };
        Self {
            recall: RecallStore::new(&parts, callers.clone(), Telemetry::default(), settings),
            objects: ObjectOwners::new(&parts, &callers),
            ledger: Arc::clone(ledger),
            writes,
            callers,
        }
    }

    /// Returns the rows of a kind, in the order of their inserts.
    async fn rows(&self, kind: RecordKind, who: Caller) -> String {
        self.writes.flush().await;
        let list = self
            .ledger
            .list_records(kind, *who.principal_bytes(), 100, clock::unix_time());
        let mut text = format!("# {kind:?}\n");
        for record in list.await.unwrap() {
            let hours = record
                .expires_at
                .saturating_sub(record.made_at)
                .as_secs()
                .div_ceil(3600);
            let (name, value) = (hex(&record.key.name), hex(&record.value));
            writeln!(text, "{name} v{} {hours}h {value}", record.version).unwrap();
        }
        text
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn who() -> Caller {
    Caller::of_account(Principal::from_bytes([7; 32]))
}

const KEYS: [FactKey; 3] = [[1; 32], [2; 32], [3; 32]];

fn scope(model: &str) -> ContinuityScope<'_> {
    ContinuityScope {
        caller: who(),
        format: Format::OpenAiChat,
        upstream: "deepseek",
        model,
        organisation: "org",
    }
}

#[tokio::test(start_paused = true)]
async fn the_rows_of_what_is_remembered_are_pinned() {
    let process = Process::start(&durable());
    let Process {
        recall,
        objects,
        callers,
        ..
    } = &process;
    callers.mark_verified(who());
    let mut all = process.rows(RecordKind::Principal, who()).await;

    recall.note_thinking_facts(
        who(),
        [(KEYS[0], ThinkingFact::Refused), (KEYS[1], ThinkingFact::Accepted)],
        true,
    );
    // The first fact about a block stays.
    recall.note_thinking_facts(who(), [(KEYS[1], ThinkingFact::Refused)], true);
    all += &process.rows(RecordKind::Thinking, who()).await;

    recall.note_shape(who(), KEYS[0], ShapeVerdict::Accepted);
    recall.note_shape(who(), KEYS[1], ShapeVerdict::Changed);
    recall.note_shape(who(), KEYS[2], ShapeVerdict::Accepted);
    recall.note_shape(who(), KEYS[2], ShapeVerdict::Changed);
    all += &process.rows(RecordKind::DisputedShape, who()).await;

    let facts = [
        (
            KEYS[0],
            LearnedFact::DueCalls(vec!["call_1".to_owned(), "call_2".to_owned()]),
        ),
        (KEYS[1], LearnedFact::AnsweredCall(Some(KEYS[0]))),
        (KEYS[2], LearnedFact::WantedContinuity),
        (KEYS[2], LearnedFact::RulesRetracted),
    ];
    recall.store_facts(who(), &facts);
    // Learned again: it becomes the latest.
    recall.store_facts(who(), &facts[..1]);
    all += &process.rows(RecordKind::LearnedFact, who()).await;

    let object = |id: &[u8]| {
        let scope = ObjectScope {
            caller: who(),
            upstream: "openai",
        };
        scope.object_name(id).unwrap()
    };
    objects.note_owner(who(), object(b"file-1"), "a");
    objects.note_owner(who(), object(b"file-2"), "a");
    objects.note_owner(who(), object(b"file-2"), "b");
    all += &process.rows(RecordKind::ObjectOwner, who()).await;

    let chains = recall.response_chains();
    let other = ItemChain::from_bytes(&[1; 41]).unwrap();
    chains.note_chain(who(), "resp_1", ItemChain::default());
    chains.note_chain(who(), "resp_2", ItemChain::default());
    chains.note_chain(who(), "resp_2", other);
    all += &process.rows(RecordKind::ResponseChain, who()).await;

    let values = recall.continuity();
    let value = |name: &str| (ContinuityKind::Reasoning, call(name));
    values.note_value(scope("m"), value("a"), Some("a thought"));
    values.note_value(scope("m"), value("b"), None);
    let known = values
        .find_values(scope("m"), &[value("a")], Instant::now() + Duration::from_secs(1))
        .await;
    assert_eq!(known.len(), 1);
    let put_back = [(value("a"), CarriedValue::Text("a thought".into()))];
    assert_eq!(values.pin_values(scope("m"), &put_back).len(), 1);
    values.commit_values(scope("m"), &put_back);
    values.leave_out(scope("m"), &[value("b")]);
    all += &process.rows(RecordKind::Continuity, who()).await;

    golden::same("ledger-v1-memory.txt", &all);
}
