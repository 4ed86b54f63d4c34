//! Encoding of late-result records: round trips, and `None` for all other bytes.

use std::time::Duration;

use antiphon::{
    auth::Owner,
    late::records::{ParkedResult, PostRefusal, PostedResult, RecordedCall, RecordedCallState, RefusedResult, TIERS},
    session::SessionStrength,
    table::RecordValue,
};
use proptest::{collection::vec, option, prelude::*, sample::select};

fn moments() -> impl Strategy<Value = Duration> {
    (any::<u64>(), 0_u32..1_000_000_000).prop_map(|(seconds, nanos)| Duration::new(seconds, nanos))
}

fn hashes() -> impl Strategy<Value = [u8; 32]> {
    any::<[u8; 32]>()
}

prop_compose! {
    fn results()(content in "\\PC{0,40}", failed in any::<bool>(), service in "[a-z]{0,9}", at in moments(), [attached, only_if_missing] in any::<[bool; 2]>()) -> PostedResult {
        PostedResult { attached, only_if_missing, ..PostedResult::new(content, failed, &service, at) }
    }
}

prop_compose! {
    fn calls()(
        (account, lane, session, input) in (hashes(), option::of(hashes()), option::of(hashes()), option::of(hashes())),
        strength in select(vec![SessionStrength::Weak, SessionStrength::Strong]),
        (id, tool) in (vec(any::<u8>(), 0..40), vec(any::<u8>(), 0..40)),
        tier in select(TIERS.to_vec()),
        (opened_at, heard_at, deadline, expires_at) in (moments(), moments(), moments(), moments()),
        state in select(RecordedCallState::ALL.to_vec()),
        posted in option::of(results()),
        [is_emitted, has_twin, is_withheld, is_in_request] in any::<[bool; 4]>(),
        (session_label, intent_input, intent, origin) in (option::of("\\PC{0,20}"), option::of(hashes()), option::of(hashes()), option::of(hashes())),
    ) -> RecordedCall {
        RecordedCall { account, lane, session, session_label: session_label.map(Into::into), strength, id, tool, input, tier, opened_at, heartbeat_at: heard_at, deadline, expires_at, state, posted, is_emitted, has_twin, is_withheld, is_in_request, intent_input, intent, origin }
    }
}

proptest! {
    #[test]
    fn late_entries_survive_a_round_trip(call in calls(), posted in results(), id in vec(any::<u8>(), 0..30), owner in option::of(any::<[u8; 16]>())) {
        let bytes = call.encode();
        prop_assert_eq!(RecordedCall::decode(&bytes), Some(call));
        let parked = ParkedResult { call_id: id.clone(), owner: owner.map(Owner::new), session: owner.map(|owner| owner.to_vec()), described: owner.map(|owner| (owner.to_vec(), [3; 32])), posted: posted.clone() };
        prop_assert_eq!(ParkedResult::decode(&parked.encode()), Some(parked.clone()));
        // The record of a refused result says nothing of where it would have gone.
        let posted = PostedResult { only_if_missing: false, ..posted };
        for why in PostRefusal::ALL {
            let evidence = RefusedResult { call_id: id.clone(), reason: why, posted: posted.clone() };
            prop_assert_eq!(RefusedResult::decode(&evidence.encode()), Some(evidence));
        }
        // No record type decodes as another.
        prop_assert_eq!(RecordedCall::decode(&parked.encode()), None);
        prop_assert_eq!(ParkedResult::decode(&bytes), None);
        prop_assert_eq!(RefusedResult::decode(&bytes), None);
    }

    #[test]
    fn late_entries_with_a_wrong_length_or_version_are_none(call in calls(), cut in any::<prop::sample::Index>()) {
        let bytes = call.encode();
        prop_assert_eq!(RecordedCall::decode(&bytes[..cut.index(bytes.len())]), None);
        let longer = [&bytes[..], &[0]].concat();
        prop_assert_eq!(RecordedCall::decode(&longer), None);
        let mut later = bytes.to_vec();
        later[0] = 6;
        prop_assert_eq!(RecordedCall::decode(&later), None);
    }

    #[test]
    fn random_late_entries_never_panic(bytes in vec(any::<u8>(), 0..300), what in 1_u8..4) {
        let framed = [&[1, what], &bytes[..]].concat();
        for bytes in [&bytes, &framed] {
            if let Some(call) = RecordedCall::decode(bytes) {
                prop_assert_eq!(&call.encode()[..], &bytes[..]);
            }
            drop((ParkedResult::decode(bytes), RefusedResult::decode(bytes)));
        }
    }

    #[test]
    fn late_entries_with_one_byte_changed_never_panic(call in calls(), place in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let mut bytes = call.encode().to_vec();
        let place = place.index(bytes.len());
        bytes[place] = byte;
        if let Some(call) = RecordedCall::decode(&bytes) {
            prop_assert_eq!(&call.encode()[..], &bytes[..]);
        }
    }
}

#[test]
fn a_digest_covers_the_content_and_the_error_flag() {
    let of = |content: &str, failed| PostedResult::new(content.to_owned(), failed, "s", Duration::ZERO).digest;
    assert_eq!(of("1", false), of("1", false));
    assert_ne!(of("1", false), of("1", true));
    assert_ne!(of("1", false), of("\"1\"", false));
    let shown = format!(
        "{:?}",
        PostedResult::new("\"canary\"".to_owned(), false, "s", Duration::ZERO)
    );
    assert!(!shown.contains("canary"), "{shown}");
}
