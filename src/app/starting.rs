//! The wait for the ledger of a starting proxy. Health checks are answered meanwhile: alive, and not ready.

use std::{convert::Infallible, io, time::Duration};

use tokio::net::TcpListener;

use super::{
    StartError,
    ledger_store::{LedgerStore, OpenedLedger, open_ledger},
};
use crate::{
    api::admin,
    config::{Config, LedgerPlace},
    server::{
        BindError, Tasks,
        inherited::{InheritedListeners, open_listener},
    },
};

/// Opens the ledger of a configuration. A database may be waited for: then the admin listener is opened before, for the
/// health checks, and is one of `inherited` afterwards.
pub(super) async fn open_ledger_of(
    config: &mut Config,
    store: LedgerStore,
    inherited: &mut InheritedListeners,
) -> Result<OpenedLedger, StartError> {
    if !matches!(config.ledger.place, LedgerPlace::Database(_)) {
        return open_ledger(&config.ledger, store).await;
    }
    inherited.check_addresses(config.server.listen, config.admin_listen)?;
    let listener = open_listener(inherited.admin.take(), config.admin_listen)?;
    let (kept, early) = split_listener(listener).map_err(|source| BindError {
        address: config.admin_listen,
        source,
    })?;
    // The configured port may be 0.
    config.admin_listen = kept.local_addr().unwrap_or(config.admin_listen);
    inherited.admin = Some(kept);
    let (tls, timeouts) = (config.admin_tls.clone(), config.server.clone());
    let tasks = Tasks::on_current_runtime();
    let answering = async {
        let served = (admin::AdminService::starting(), tasks.clone());
        admin::serve_listener(early, <_>::default(), tls, timeouts, served).await;
        std::future::pending::<Infallible>().await
    };
    let opened = tokio::select! {
        opened = open_ledger(&config.ledger, store) => opened,
        never = answering => match never {},
    };
    // A connection that stayed open would go on with the answers of the start.
    tasks.drain(Duration::ZERO).await;
    opened
}

/// Splits a listener into the one of the running proxy, and one that is closed before that. Both have the same port.
fn split_listener(listener: TcpListener) -> io::Result<(std::net::TcpListener, TcpListener)> {
    let kept = listener.into_std()?;
    let early = TcpListener::from_std(kept.try_clone()?)?;
    Ok((kept, early))
}
