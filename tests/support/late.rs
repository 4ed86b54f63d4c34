//! Late results over a ledger in memory.

use std::{collections::BTreeSet, sync::Arc};

use antiphon::{
    auth::TokenHash,
    callers::Callers,
    late::{LateSettings, LateStore, LateWorker, ServiceSettings},
    ledger::{Ledger, LedgerSettings, MemoryLedger, WriteBehindWorker, write_behind},
    telemetry::Telemetry,
};

/// Returns an empty ledger in memory.
pub fn memory() -> Arc<dyn Ledger> {
    Arc::new(MemoryLedger::new(LedgerSettings::default(), [9; 32]))
}

/// Returns the late-result store over a ledger, and its background workers.
pub fn over(
    ledger: &Arc<dyn Ledger>,
    settings: LateSettings,
    telemetry: Telemetry,
) -> (LateStore, WriteBehindWorker, LateWorker) {
    let (writes, writer) = write_behind(Arc::clone(ledger), Arc::default());
    let callers = Callers::new(Arc::clone(ledger), writes);
    let (late, keeper) = LateStore::new(Arc::clone(ledger), callers, settings, telemetry);
    (late, writer, keeper)
}

/// As [`over`], with both workers running.
pub fn running(ledger: &Arc<dyn Ledger>, settings: LateSettings) -> LateStore {
    let (late, writer, keeper) = over(ledger, settings, Telemetry::default());
    drop(super::wire::spawn(writer.run()));
    drop(super::wire::spawn(keeper.run()));
    late
}

/// Returns a service with the token `token of NAME`.
pub fn service(name: &str, principals: Option<&[&str]>, tools: Option<&[&str]>) -> ServiceSettings {
    let set = |names: &[&str]| names.iter().map(ToString::to_string).collect::<BTreeSet<String>>();
    ServiceSettings {
        name: name.to_owned(),
        token: Some(TokenHash::hash_token(format!("token of {name}").as_bytes())),
        key: None,
        principals: principals.map(set),
        tools: tools.map(set),
    }
}
