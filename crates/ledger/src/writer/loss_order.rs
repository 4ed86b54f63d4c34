//! The order in which a full queue loses updates.

use crate::ledger::RecordKind;

/// The number of ranks: one for each kind, and one for what is repeated.
pub(super) const RANKS: usize = RecordKind::ALL.len() + 1;

/// The kinds in the order of their loss: those whose loss costs least come first.
///
/// The writer writes only some of them. The others have their place all the same.
const LOSS_ORDER: [RecordKind; RecordKind::ALL.len()] = [
    // A response that its provider loses later is not left out, and its client gets the refusal.
    RecordKind::ResponseChain,
    // The beginning of a conversation changes once, if its server has refused its shape in another one.
    RecordKind::DisputedShape,
    // The provider refuses the block or the body once more, and the request is sent again.
    RecordKind::Thinking,
    RecordKind::LearnedFact,
    // The other replicas learn of the cooldown from the provider.
    RecordKind::SharedCooldown,
    // A later process may send a request about the object with another key.
    RecordKind::ObjectOwner,
    // A later process writes a placeholder, if the client has dropped its result since.
    RecordKind::ClientResult,
    // Only operators read refused results.
    RecordKind::RefusedResult,
    // A later process cannot put the value back, which the provider may refuse.
    RecordKind::Continuity,
    // A later process does not append a text that the provider has seen, or appends one that was taken back.
    RecordKind::AppendedText,
    // A later process may answer a call with other bytes than before.
    RecordKind::PinnedResult,
    // A result that a tool service has posted finds no call, or does not reach its owner.
    RecordKind::CompactedCalls,
    RecordKind::Parked,
    RecordKind::ResultContent,
    RecordKind::Delivery,
    RecordKind::Call,
    // Never queued: a result is reserved before it is sent.
    RecordKind::Reservation,
    // Never queued: a link is stored before anybody gets it.
    RecordKind::TaskLink,
    // A tool that cannot be undone does not run, until its caller reads its results once more.
    RecordKind::Reader,
    // A tool service is not asked to undo an effect, or is asked by another process although its conversation goes on.
    RecordKind::Outgoing,
    RecordKind::LaneSign,
    // Never queued: a claim is granted once it is stored.
    RecordKind::Intent,
    // A later process looks for no record of the caller at all.
    RecordKind::Principal,
];

/// The rank of what a later request queues again, of whatever kind: right before this one.
const REPEATED_BEFORE: RecordKind = RecordKind::PinnedResult;

/// Returns the rank of an update in the order of loss. Those with the lowest are lost first.
pub(super) fn loss_rank(kind: RecordKind, is_repeated: bool) -> usize {
    let rank_of = |kind: RecordKind| {
        let rank = LOSS_ORDER.iter().position(|other| *other == kind);
        rank.unwrap_or(LOSS_ORDER.len())
    };
    let (rank, repeated) = (rank_of(kind), rank_of(REPEATED_BEFORE));
    if is_repeated {
        rank.min(repeated)
    } else if rank < repeated {
        rank
    } else {
        // One rank is that of what is repeated.
        rank.saturating_add(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_one_place_in_the_order_of_loss() {
        let mut ranks: Vec<usize> = RecordKind::ALL.iter().map(|kind| loss_rank(*kind, false)).collect();
        ranks.push(loss_rank(RecordKind::Call, true));
        ranks.sort_unstable();
        assert!(ranks.iter().copied().eq(0..RANKS), "{ranks:?}");
    }

    #[test]
    fn what_is_repeated_is_lost_before_what_is_not() {
        for kind in [RecordKind::Call, RecordKind::Delivery, RecordKind::LaneSign] {
            assert!(loss_rank(kind, true) < loss_rank(RecordKind::PinnedResult, false));
            assert!(loss_rank(kind, true) > loss_rank(RecordKind::AppendedText, false));
        }
        assert_eq!(
            loss_rank(RecordKind::Thinking, true),
            loss_rank(RecordKind::Thinking, false)
        );
    }
}
