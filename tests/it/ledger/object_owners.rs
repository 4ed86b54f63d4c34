//! The owners of a provider's objects, in the store alone.

use std::{sync::Arc, time::Duration};

use antiphon::{
    auth::{Caller, Principal, PrincipalKey},
    ledger::{Ledger, RecordKind},
    recall::{ObjectOwners, ObjectScope},
    table::{TableParts, VerifiedCallers},
    telemetry::Telemetry,
    writer::{Writer, writer},
};
use tokio::time::Instant;

use crate::{
    ledger::switchable::SwitchableLedger,
    support::{kept::durable, wire::spawn},
};

/// Records that one caller may write in a day.
const WRITES_MAX: usize = 5_000;

/// One process: the store, its background writes, and its verified callers.
struct Process {
    owners: ObjectOwners,
    writes: Writer,
    callers: VerifiedCallers,
}

impl Process {
    /// Starts over a ledger.
    fn over(ledger: &Arc<dyn Ledger>) -> Self {
        let (writes, worker) = writer(Arc::clone(ledger), Telemetry::default());
        drop(spawn(worker.run()));
        let parts = TableParts::new(ledger, &writes, Telemetry::default());
        let callers = VerifiedCallers::new(&parts);
        let owners = ObjectOwners::new(&parts, &callers);
        Self {
            owners,
            writes,
            callers,
        }
    }

    fn note(&self, who: Caller, id: &str, profile: &str) {
        let scope = ObjectScope {
            caller: who,
            upstream: "openai",
        };
        let name = scope.object_name(id.as_bytes()).unwrap();
        self.owners.note_owner(who, name, profile);
    }

    async fn owner(&self, who: Caller, upstream: &str, id: &str) -> Option<String> {
        let scope = ObjectScope { caller: who, upstream };
        let name = scope.object_name(id.as_bytes()).unwrap();
        let deadline = Instant::now() + Duration::from_secs(1);
        let found = self.owners.find_owners(who, &[name], deadline).await;
        found[0].as_deref().map(ToOwned::to_owned)
    }
}

fn who(name: &str) -> Caller {
    Caller::of_account(Principal::of_token(&PrincipalKey::new([7; 32]), name))
}

/// A look-up in vain is remembered, but says nothing about an answer that mentions the object later.
#[tokio::test(start_paused = true)]
async fn an_object_that_was_looked_up_in_vain_has_no_owner() {
    let process = Process::over(&durable());
    process.callers.mark_verified(who("ann"));
    process.note(who("ann"), "file-1", "a");
    assert_eq!(process.owner(who("ann"), "openai", "file-2").await, None);
    let scope = ObjectScope {
        caller: who("ann"),
        upstream: "openai",
    };
    let has_owner = |id: &[u8]| process.owners.has_owner(who("ann"), scope.object_name(id).unwrap());
    assert!(has_owner(b"file-1") && !has_owner(b"file-2"));
}

#[tokio::test(start_paused = true)]
async fn an_owner_outlives_the_process_for_its_caller_and_upstream() {
    let ledger = durable();
    let first = Process::over(&ledger);
    first.callers.mark_verified(who("ann"));
    first.note(who("ann"), "file-1", "a");
    // Nothing is written for a caller that no provider has accepted, or for one without a credential.
    let nobody = Caller::of_account(Principal::NONE);
    first.note(who("ben"), "file-1", "b");
    first.note(nobody, "file-1", "c");
    assert_eq!(first.owner(who("ben"), "openai", "file-1").await.as_deref(), Some("b"));
    assert_eq!(first.owner(nobody, "openai", "file-1").await.as_deref(), Some("c"));
    first.writes.flush().await;
    let second = Process::over(&ledger);
    for (caller, upstream, id, expected) in [
        (who("ann"), "openai", "file-1", Some("a")),
        (who("ann"), "azure", "file-1", None),
        (who("ann"), "openai", "file-2", None),
        (who("ben"), "openai", "file-1", None),
        (nobody, "openai", "file-1", None),
    ] {
        let owner = second.owner(caller, upstream, id).await;
        assert_eq!(owner.as_deref(), expected, "{upstream} {id}");
    }
    // A later owner replaces the record, whether this process or another one has written it.
    second.note(who("ann"), "file-1", "b");
    second.note(who("ann"), "file-2", "b");
    second.note(who("ann"), "file-2", "c");
    second.writes.flush().await;
    let third = Process::over(&ledger);
    assert_eq!(third.owner(who("ann"), "openai", "file-1").await.as_deref(), Some("b"));
    assert_eq!(third.owner(who("ann"), "openai", "file-2").await.as_deref(), Some("c"));
}

/// The client of one replica may continue at the other before the first has written the id.
#[tokio::test(start_paused = true)]
pub(crate) async fn an_owner_that_another_replica_is_writing_is_found() {
    let ledger = SwitchableLedger::shared(true);
    let other: Arc<dyn Ledger> = ledger.replica();
    let first: Arc<dyn Ledger> = Arc::<SwitchableLedger>::clone(&ledger);
    let (first, second) = (Process::over(&first), Process::over(&other));
    drop(spawn(second.owners.clone().follow_holders()));
    first.callers.mark_verified(who("ann"));
    first.writes.flush().await;
    // The other replica has read that nobody has objects.
    tokio::time::sleep(Duration::from_secs(1)).await;
    ledger.delay_syncs(Duration::from_millis(20));
    first.note(who("ann"), "resp-1", "a");
    assert!(second.owners.may_have(who("ann")));
    let owner = second.owner(who("ann"), "openai", "resp-1").await;
    assert_eq!(owner.as_deref(), Some("a"), "the owner at the other replica");
}

#[tokio::test(start_paused = true)]
async fn the_records_of_a_caller_are_bounded() {
    let ledger = durable();
    let process = Process::over(&ledger);
    process.callers.mark_verified(who("ann"));
    for number in 0..WRITES_MAX + 100 {
        process.note(who("ann"), &format!("file-{number}"), "a");
        // A use writes nothing more.
        process.note(who("ann"), &format!("file-{number}"), "a");
        if number % 500 == 0 {
            process.writes.flush().await;
        }
    }
    process.writes.flush().await;
    let size = ledger.usage().await.unwrap();
    assert_eq!(size.records, WRITES_MAX as u64 + 1, "with that of the caller itself");
    let last = format!("file-{}", WRITES_MAX + 99);
    assert_eq!(
        process.owner(who("ann"), "openai", &last).await.as_deref(),
        Some("a"),
        "in memory"
    );
    let holders = ledger.list_principals(RecordKind::ObjectOwner, None, 9).await.unwrap();
    assert_eq!(holders.len(), 1);
}

/// An object that nobody has noted is waited for once, and never for a caller without records.
#[tokio::test(start_paused = true)]
async fn an_object_of_nobody_delays_only_the_first_request() {
    let ledger = SwitchableLedger::shared(true);
    let process = Process::over(&(Arc::<SwitchableLedger>::clone(&ledger) as Arc<dyn Ledger>));
    process.callers.mark_verified(who("ann"));
    process.writes.flush().await;
    let mut waits = Vec::new();
    for name in ["ann", "ann", "ann", "ben", "ben"] {
        let began = Instant::now();
        assert_eq!(process.owner(who(name), "openai", "resp-of-before").await, None);
        waits.push((name, began.elapsed().as_millis()));
    }
    assert!(waits[1..].iter().all(|(_, wait)| *wait == 0), "{waits:?}");
}
