//! The second repair: what to send once more after a provider has refused what was sent.

use bytes::Bytes;

use super::{
    Answers, Learned, RepairPolicy, Repaired, Report,
    insist::{Insistence, Step},
    repair_learned,
};
use crate::{
    conversation::Outline,
    splice::Segments,
    wire::{Refusal, RefusalKind, Wire},
};

/// What to send in place of `sent`, which was made of `body`, after `refusal`; none where nothing better is known.
///
/// The format's rules in their strictest reading, where they find fault with what the refusal names. Else, if we had
/// edited the body and what it names was balanced in the original, or is not in it, the original. Else the ids are
/// followed by name.
pub fn second(
    body: &Bytes,
    sent: &Segments,
    wire: Wire,
    policy: &RepairPolicy,
    answers: &dyn Answers,
    refusal: &Refusal,
) -> Option<Repaired> {
    if matches!(refusal.kind, RefusalKind::Bound { .. }) {
        return None;
    }
    let mut insistence = Insistence {
        refusal,
        step: Step::Rules,
    };
    let before = sent.to_vec();
    for step in [Step::Rules, Step::Ids] {
        insistence.step = step;
        let learned = Learned {
            insistence: Some(insistence),
            drop_bound: false,
        };
        let Ok(repaired) = repair_learned(body, wire, policy, answers, &learned) else {
            continue;
        };
        if insistence.is_met(&repaired.report.findings) && repaired.body.to_vec() != before {
            return Some(repaired);
        }
        if step == Step::Rules && !sent.is_original() {
            let conversation = wire.read(body).ok()?;
            if insistence.was_balanced(&conversation) || insistence.names_ours(&conversation) {
                return Some(Repaired {
                    body: Segments::whole(body.clone()),
                    report: Report::default(),
                    outline: Outline::of(&conversation),
                });
            }
        }
    }
    None
}

/// As [`super::repair_with`], with the documented setting that lets the provider drop thinking which it has bound to
/// another prefix. None where the format has no such setting, or the body says itself what it wants.
pub fn unbound(body: &Bytes, wire: Wire, policy: &RepairPolicy, answers: &dyn Answers) -> Option<Repaired> {
    let learned = Learned {
        insistence: None,
        drop_bound: true,
    };
    let repaired = repair_learned(body, wire, policy, answers, &learned).ok()?;
    repaired
        .report
        .actions
        .contains_key(&super::Action::Unbind)
        .then_some(repaired)
}
