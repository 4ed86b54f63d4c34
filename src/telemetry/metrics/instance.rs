//! Metrics of this instance: its version, its configuration, refused connections and handshakes, and the metrics page
//! itself.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use prometheus_client::metrics::{counter::Counter, gauge::Gauge};

use super::{family::CounterFamily, label_sets::LabelSpace, page::metric_table};
use crate::{clock, telemetry::events::HandshakeFault};

/// The revision of the source. A build script could not find it in a published crate, so the build sets a variable.
const REVISION: &str = match option_env!("SOURCE_REVISION") {
    Some(revision) if !revision.is_empty() => revision,
    _ => "unknown",
};

metric_table! {
    /// Metrics of this instance.
    InstanceMetrics(page) {
        // Rows without a handle: nothing records them.
        _build: () = page.info(
            "build",
            "The version of the proxy, and the revision of its source if the build named one",
            [("version", env!("CARGO_PKG_VERSION")), ("revision", REVISION)],
        );
        reload_successful: Gauge = page.gauge(
            "config_last_reload_successful",
            "1 if the last reload succeeded, 0 if it failed and the previous configuration is in force",
        );
        reloaded_at: Gauge<f64, AtomicU64> = page.seconds(
            "config_last_reload_success_timestamp",
            "Time of the last successful reload, or of the start, in seconds since 1970",
        );
        connections_refused: Counter = page.counter(
            "connections_refused",
            "Client connections that were closed at once: their address had server.connections_per_address_max",
        );
        failed_handshakes: CounterFamily<1> = page.counters(
            "tls_handshakes_failed",
            "TLS handshakes with clients that failed, by reason",
            LabelSpace::closed([("reason", &HandshakeFault::ALL.map(HandshakeFault::label))]),
        );
        certificate_expires: Arc<AtomicU64> = page.optional_timestamp(
            "tls_certificate_expires",
            "Time when the certificate of the listeners expires, in seconds since 1970",
        );
        _series_folded: () = page.folded_updates(
            "series_folded",
            "Updates that were counted under the label value other, or dropped, because the page is full",
        );
    }
}

impl InstanceMetrics {
    /// Counts a connection that was refused because of its address.
    pub(in crate::telemetry) fn record_refused_connection(&self) {
        self.connections_refused.inc();
    }

    /// Counts a handshake that failed.
    pub(in crate::telemetry) fn record_failed_handshake(&self, fault: HandshakeFault) {
        self.failed_handshakes.count([fault.label()]);
    }

    /// Records the end of the certificate's validity, since 1970.
    pub(in crate::telemetry) fn record_certificate_expiry(&self, expires_at: Duration) {
        self.certificate_expires.store(expires_at.as_secs(), Ordering::Relaxed);
    }

    /// Records a reload of the configuration. The first load, at the start, counts as one.
    pub(in crate::telemetry) fn record_reload(&self, is_successful: bool) {
        self.reload_successful.set(i64::from(is_successful));
        // A failed reload leaves the time of the configuration that is still in force.
        if is_successful {
            self.reloaded_at.set(clock::system_time().as_secs_f64());
        }
    }
}
