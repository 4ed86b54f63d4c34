//! The examples and repairs of own rows: each must come out as its row says.

use std::collections::BTreeSet;

use bytes::Bytes;

use super::{
    offline_mend::mend_offline,
    own_rule::{OwnRule, RuleRepair},
    rule_fault::RuleFault,
    trial_text::describe_outcome,
};
use crate::{
    repair::{self, RepairPolicy},
    wire::{Demand, Refusal, RefusalTable, TrialOutcome, Wire},
};

/// Checks the examples and repairs of rows, by a table of rows alone.
pub(super) fn check_examples(own: &RefusalTable, rules: &[(usize, &OwnRule)]) -> Vec<RuleFault> {
    let mut faults = Vec::new();
    let mut fights = BTreeSet::new();
    for (at, rule) in rules {
        // A row with a fault is not in the table.
        if !own.rows().iter().any(|row| row.name == rule.name) {
            continue;
        }
        for (i, example) in rule.examples.iter().enumerate() {
            for status in rule.statuses() {
                let member = format!("example[{i}].text");
                if let Some((one, other)) = fight(own, *status, example.text.as_bytes()) {
                    if fights.insert((one.clone(), other.clone())) {
                        let message =
                            format!("the rows {one} and {other} both read this, and neither has more text: join them");
                        faults.push(RuleFault::new(*at, member, message));
                    }
                    break;
                }
                if let Err(message) = check_example(own, rule, *status, i) {
                    faults.push(RuleFault::new(*at, member, message));
                    break;
                }
            }
        }
        if let Some(repair) = &rule.repair
            && let Err((member, message)) = check_repair(own, rule, repair)
        {
            faults.push(RuleFault::new(*at, format!("repair{member}"), message));
        }
    }
    faults
}

/// Returns the names of two rows that read a text with the same length. `None` if none do.
fn fight(own: &RefusalTable, status: u16, text: &[u8]) -> Option<(String, String)> {
    own.try_rows(Some(status), text).iter().find_map(|trial| {
        let reading = |outcome: TrialOutcome| match outcome {
            TrialOutcome::Reads { literal_bytes } => Some(literal_bytes),
            TrialOutcome::Differs { .. } | TrialOutcome::GoesOn { .. } | TrialOutcome::OtherStatus => None,
        };
        let most = trial.rows.iter().filter_map(|row| reading(row.outcome)).max()?;
        let mut equal = trial.rows.iter().filter(|row| reading(row.outcome) == Some(most));
        let names = (equal.next()?.row.name.clone(), equal.next()?.row.name.clone());
        Some(names)
    })
}

fn check_example(own: &RefusalTable, rule: &OwnRule, status: u16, at: usize) -> Result<(), String> {
    let Some(example) = rule.examples.get(at) else {
        return Ok(());
    };
    let text = example.text.as_bytes();
    match own.read_with_status(status, text) {
        Some(found) if found.row.name == rule.name => {
            if !example.ids.is_empty() && found.refusal.ids != example.ids {
                return Err(format!(
                    "the row reads the ids [{}], and the example says [{}]",
                    found.refusal.ids.join(", "),
                    example.ids.join(", ")
                ));
            }
            Ok(())
        }
        Some(found) => Err(format!("the row {} reads it instead", found.row.name)),
        None => {
            let trials = own.try_rows(Some(status), text);
            let nearest = trials.iter().flat_map(|trial| {
                let mine = trial.rows.iter().filter(|row| row.row.name == rule.name);
                mine.map(move |row| (row.outcome, trial))
            });
            let nearest = nearest.max_by_key(|(outcome, _)| *outcome);
            Err(match nearest {
                Some((outcome, trial)) => {
                    format!("the row does not read it: {}", describe_outcome(outcome, &trial.text))
                }
                None => "the row does not read it: not even its first byte is that of a text".to_owned(),
            })
        }
    }
}

/// Checks that the body of a repair becomes the other one. Returns the member with the fault, below `repair`.
fn check_repair(own: &RefusalTable, rule: &OwnRule, repair: &RuleRepair) -> Result<(), (&'static str, String)> {
    let wire: Wire = repair.wire.parse().map_err(|_| {
        let message = format!(
            "unknown wire {:?}: write one that `antiphon check --wire help` lists",
            repair.wire
        );
        (".wire", message)
    })?;
    let Some(example) = rule.examples.first() else {
        return Err(("", "it needs an example: the refusal that the server gives".to_owned()));
    };
    let status = rule.statuses().first().copied().unwrap_or(400);
    let Some(found) = own.read_with_status(status, example.text.as_bytes()) else {
        // That has been reported with the example.
        return Ok(());
    };
    let Some(demand) = found.refusal.demand.as_deref() else {
        return Err((
            "",
            "only a row with a mend can have one: a fault needs the proxy".to_owned(),
        ));
    };
    let before: Bytes = repair.before.clone().into();
    let mended = make(&before, wire, demand, &found.refusal).map_err(|message| (".before", message))?;
    if mended == before {
        return Err((
            ".before",
            "nothing changes: the mend fits nowhere in this body".to_owned(),
        ));
    }
    if mended != repair.after {
        let place = first_difference(&mended, repair.after.as_bytes());
        return Err((".after", format!("it is not what is sent: {place}")));
    }
    let again = make(&mended, wire, demand, &found.refusal).map_err(|message| (".after", message))?;
    if again != mended {
        return Err((
            ".after",
            "the same refusal changes it again: it must stay as it is then".to_owned(),
        ));
    }
    Ok(())
}

fn make(body: &Bytes, wire: Wire, demand: &Demand, refusal: &Refusal) -> Result<Bytes, String> {
    let unreadable = |cause: crate::wire::Unreadable| format!("it cannot be read: {cause}");
    let made = mend_offline(body, wire, demand, refusal, true).map_err(unreadable)?;
    // A later request is repaired first: that must not undo the mend.
    let repaired = repair::repair(&made.mended.body, wire, &RepairPolicy::default()).map_err(unreadable)?;
    if !repaired.body.is_original() {
        return Err("the repair of pairs would change it after the mend".to_owned());
    }
    Ok(made.mended.body)
}

/// Shows the first bytes at which two bodies differ.
fn first_difference(made: &[u8], wanted: &[u8]) -> String {
    let at = made.iter().zip(wanted).take_while(|(one, other)| one == other).count();
    let shown = |body: &[u8]| {
        let from = body.get(at..).unwrap_or_default();
        let part = from.get(..40.min(from.len())).unwrap_or_default();
        String::from_utf8_lossy(part).into_owned()
    };
    format!("from byte {at} on it is {:?}, and not {:?}", shown(made), shown(wanted))
}
