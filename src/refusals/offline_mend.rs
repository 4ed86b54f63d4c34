//! A refusal and a body without a server: what the proxy would send after the refusal.

use bytes::Bytes;

use crate::{
    mend::{Mended, meet_demand},
    repair::{self, RepairPolicy},
    wire::{Demand, Refusal, Unreadable, Wire},
};

/// A body that was repaired, and then mended.
#[derive(Clone, Debug)]
pub struct OfflineMend {
    /// The body as it is sent before the refusal.
    pub sent: Bytes,
    /// The body after it, and what was changed.
    pub mended: Mended,
}

/// Repairs a body as the proxy does, and makes the mend that the refusal demands of it.
///
/// `was_told` is `true` if the client has seen this refusal of what its user has written newly. Fails if the body cannot
/// be read.
pub fn mend_offline(
    body: &Bytes,
    wire: Wire,
    demand: &Demand,
    refusal: &Refusal,
    was_told: bool,
) -> Result<OfflineMend, Unreadable> {
    let repaired = repair::repair(body, wire, &RepairPolicy::default())?;
    let sent: Bytes = if repaired.body.is_original() {
        body.clone()
    } else {
        repaired.body.to_vec().into()
    };
    let mended = meet_demand(&sent, wire, demand, &refusal.ids, &|_| was_told)?;
    Ok(OfflineMend { sent, mended })
}
