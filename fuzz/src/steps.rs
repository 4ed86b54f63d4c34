//! The steps of a body, as every wire.

use antiphon_core::{
    repair::{PairingContext, PlaceOptions, RepairPolicy, client_results, late_places, parse},
    wire::{Dialect, Format, Wire},
    work::measure,
};
use bytes::Bytes;

use super::{feed::Feed, talk};

/// Largest allowed number of steps for each byte.
const STEPS_A_BYTE: u64 = 64;
/// Steps that any body may take.
const STEPS_FREE: u64 = 100_000;

/// Checks that a body takes a bounded number of steps for each byte: the bytes as every wire, and the conversations that
/// they choose.
pub fn steps(bytes: &[u8]) {
    let body = Bytes::copy_from_slice(bytes);
    for (_, wire) in Wire::NAMES {
        check_steps(&body, *wire);
    }
    for format in Format::ALL {
        let body = Bytes::from(talk::body(&mut Feed::new(bytes), format));
        let wire = Wire::NAMES.iter().find(|(_, wire)| wire.format == format);
        if let Some((_, wire)) = wire {
            check_steps(&body, *wire);
        }
    }
}

fn check_steps(body: &Bytes, wire: Wire) {
    let policy = RepairPolicy::default();
    let repair = measure(|| antiphon_core::repair(body, wire, &policy).map(|done| done.body.to_vec())).0;
    assert!(repair > 0, "steps are counted with debug assertions only");
    let uses = measure(|| {
        // The other dialects of a format differ in their rules alone.
        if wire.dialect != Dialect::Standard {
            return;
        }
        let Ok(parsed) = parse(body, wire) else { return };
        let paired = parsed.pair(PairingContext::new(&policy));
        drop(client_results(body, wire.format, &paired.outline(), true));
        drop(paired.all_calls());
        drop(late_places(&paired, PlaceOptions::default()));
    });
    let most = STEPS_A_BYTE * body.len() as u64 + STEPS_FREE;
    for (work, steps) in [("repair", repair), ("calls and results", uses.0)] {
        let text = String::from_utf8_lossy(body);
        assert!(
            steps <= most,
            "{wire}: {work}: {steps} steps for {} bytes: {text}",
            body.len()
        );
    }
}
