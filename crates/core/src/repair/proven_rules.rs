//! The pairing rules without the demands for which there is no evidence.

use super::repair_rules::REPAIR_RULES;
use crate::{
    conversation::{
        FindingKind, STANDALONE,
        rules::{IdScope, PairingRules},
    },
    wire::Wire,
};

/// Returns `rules` without the demands that are switched off.
pub(super) fn without_unproven(rules: PairingRules, wire: Wire) -> PairingRules {
    let is_off = |finding: FindingKind, detail: Option<&str>| {
        let mut switched_off = REPAIR_RULES.iter().filter(|rule| rule.is_switched_off());
        switched_off.any(|rule| rule.covers(wire, finding, detail))
    };
    PairingRules {
        one_result: rules.one_result && !is_off(FindingKind::Duplicate, None),
        named_results: rules.named_results && !is_off(FindingKind::NoId, Some(STANDALONE)),
        id_scope: match rules.id_scope {
            IdScope::Turn if is_off(FindingKind::DuplicateCall, None) => IdScope::Shared,
            scope => scope,
        },
        ..rules
    }
}
