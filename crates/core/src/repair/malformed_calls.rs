//! Selects the malformed calls of a history that are reported and repaired.

use std::collections::HashSet;

use crate::{
    conversation::{
        CallRowId, Conversation, Flaw, FlawKind, NameFault, PartId, PartKind,
        pairing::{Pairing, ResultRole},
        rules::{CallRule, PairingRules},
    },
    repair::RepairPolicy,
    wire::{self, Format, json::Json},
    work,
};

/// Adds the malformed calls that `rules` demand to the flaws of `pairing`, and removes those that they accept.
pub(super) fn select_malformed_calls(
    conversation: &Conversation<'_>,
    pairing: &mut Pairing,
    format: Format,
    rules: PairingRules,
    policy: &RepairPolicy,
) {
    work::count(pairing.flaws.len());
    pairing.flaws.retain(|(flaw, _)| {
        if flaw.kind.is_malformed_call() {
            policy.malformed_calls
        } else {
            policy.hygiene
        }
    });
    if !policy.malformed_calls {
        return;
    }
    let json = Json::new(conversation.body);
    if rules.calls == CallRule::Strict {
        add_strict_faults(conversation, pairing, format, json);
    }
    // Most histories have no such name, and then the tools are not read.
    work::count(pairing.flaws.len());
    if pairing.flaws.iter().any(|(flaw, _)| name_fault(flaw.kind).is_some()) {
        let declared: HashSet<Vec<u8>> = wire::declared_names(json).into_iter().collect();
        pairing.flaws.retain_mut(|(flaw, _)| {
            work::count(1);
            let stays = match name_fault(flaw.kind) {
                None | Some(NameFault::Missing) => false,
                Some(NameFault::Empty) => rules.calls < CallRule::InputTypeAndSomeName,
                Some(NameFault::Illegal) => {
                    let name = || flaw.part.and_then(|part| name_of(conversation, format, json, part));
                    // The provider judges declared names first. Renaming one would make the model call an unknown tool.
                    rules.calls < CallRule::InputTypeAndName || name().is_some_and(|name| declared.contains(&name))
                }
            };
            !stays || clear_name_fault(&mut flaw.kind)
        });
    }
}

/// Replaces the readers' faults of calls by those of the strictest servers.
fn add_strict_faults(conversation: &Conversation<'_>, pairing: &mut Pairing, format: Format, json: Json<'_>) {
    work::count(pairing.flaws.len());
    pairing.flaws.retain(|(flaw, _)| !flaw.kind.is_malformed_call());
    let flaw_at = |part: PartId, kind| Flaw {
        message: conversation.parts[part].message,
        part: Some(part),
        kind,
    };
    for call in &pairing.calls {
        work::count(1);
        if let Some(fault) = wire::find_call_fault(format, json, conversation.parts[call.part].span) {
            // The provider refuses the call, so no thinking after it can be bound to its old form.
            pairing.flaws.push((flaw_at(call.part, FlawKind::Call(fault)), true));
        }
    }
    // The result of a call without a name repeats what the call has, and a new name would part the two.
    let is_nameless = |call: CallRowId| {
        let call = conversation.parts[pairing.calls[call].part].span;
        wire::judged_name(format, json, call).is_none()
    };
    for result in &pairing.results {
        work::count(1);
        let is_nameless = matches!(result.role, ResultRole::Answers(call) if is_nameless(call));
        if !is_nameless && wire::bad_result_name(format, json, conversation.parts[result.part].span).is_some() {
            pairing.flaws.push((flaw_at(result.part, FlawKind::ResultName), true));
        }
    }
}

/// Returns the fault of the name in a call or result. `None` if it is accepted.
const fn name_fault(kind: FlawKind) -> Option<NameFault> {
    match kind {
        FlawKind::ResultName => Some(NameFault::Illegal),
        FlawKind::Call(fault) => fault.name,
        _ => None,
    }
}

/// Removes the fault of the name. Returns `true` if another fault is left.
fn clear_name_fault(kind: &mut FlawKind) -> bool {
    match kind {
        FlawKind::Call(fault) => {
            fault.name = None;
            fault.input.is_some()
        }
        kind => *kind != FlawKind::ResultName,
    }
}

/// Returns the decoded name of the tool of a call or result.
fn name_of(conversation: &Conversation<'_>, format: Format, json: Json<'_>, part: PartId) -> Option<Vec<u8>> {
    let found = conversation.part(part)?;
    let name = match found.kind {
        PartKind::Result(_) => wire::bad_result_name(format, json, found.span),
        _ => wire::judged_name(format, json, found.span),
    };
    name.map(|name| json.decode_string(name).into_owned())
}
