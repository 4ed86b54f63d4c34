//! Checks of an own row by itself.

use super::{
    built_in::table,
    own_rule::{DEMAND, OwnRule},
    rule_fault::{RowVerdict, RuleFault},
};
use crate::{
    mend::check_argument,
    wire::{MendKind, RefusalKind, RefusalRow, RowFault},
};

/// Bytes of the longest name.
const NAME_BYTES_MAX: usize = 64;
/// Bytes of the longest pattern.
const PATTERN_BYTES_MAX: usize = 1024;

/// Checks a row. `is_repeated` is `true` if an earlier one has its name.
pub(super) fn check_row(at: usize, rule: &OwnRule, is_repeated: bool) -> Result<(), RowVerdict> {
    let mend = rule
        .mend
        .as_deref()
        .map(|mend| mend.split(' ').next().unwrap_or_default());
    if let Some(unknown) = mend.filter(|name| !name.is_empty() && MendKind::from_name(name).is_none()) {
        let message = format!("this version has no mend {unknown:?}: the row is left out");
        return Err(RowVerdict::Skipped(RuleFault::new(at, "mend", message)));
    }
    let mut faults = Vec::new();
    let mut report = |member: &str, message: String| faults.push(RuleFault::new(at, member, message));
    if let Some(message) = name_fault(&rule.name, is_repeated) {
        report("name", message);
    }
    if let Some(message) = fault_fault(rule) {
        report("fault", message);
    }
    if rule.texts.is_empty() {
        report("text", "the row has no text: write at least one".to_owned());
    }
    for (member, patterns) in [("text", &rule.texts), ("then", &rule.then)] {
        for (i, _) in patterns
            .iter()
            .enumerate()
            .filter(|(_, text)| text.len() > PATTERN_BYTES_MAX)
        {
            report(
                &format!("{member}[{i}]"),
                format!("it has more than {PATTERN_BYTES_MAX} bytes"),
            );
        }
        for (i, _) in patterns.iter().enumerate().filter(|(_, text)| text.trim().is_empty()) {
            report(
                &format!("{member}[{i}]"),
                "it is empty, and would match everything".to_owned(),
            );
        }
    }
    for (i, status) in rule.statuses.iter().enumerate() {
        if !(400..=599).contains(status) {
            report(
                &format!("status[{i}]"),
                format!("{status} is no status of an error: write one from 400 to 599"),
            );
        }
    }
    if faults.is_empty() {
        Ok(())
    } else {
        Err(RowVerdict::Faulty(faults))
    }
}

fn name_fault(name: &str, is_repeated: bool) -> Option<String> {
    let is_letter = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'_' | b'-');
    if name.is_empty() {
        return Some("the row has no name: give it one of its own".to_owned());
    }
    if name.len() > NAME_BYTES_MAX || !name.bytes().all(is_letter) {
        return Some("expected a name of lower-case letters, digits, `_` and `-`, at most 64".to_owned());
    }
    if is_repeated {
        return Some(format!("another row has the name {name:?} already"));
    }
    let is_built_in = table().rows().iter().any(|row| row.name == name);
    is_built_in
        .then(|| format!("{name:?} is the name of a built-in row: choose another name, yours comes first anyway"))
}

fn fault_fault(rule: &OwnRule) -> Option<String> {
    match (rule.fault.as_deref(), &rule.mend) {
        (None, None) => Some("the row says neither `mend` nor `fault`: write what meets the refusal".to_owned()),
        (Some(fault), _) if RefusalKind::from_label(fault).is_none() => {
            let known = RefusalKind::LABELS
                .iter()
                .map(|(label, _)| *label)
                .filter(|label| *label != DEMAND);
            let known: Vec<&str> = known.collect();
            Some(format!(
                "unknown fault {fault:?}: write one of {}, or leave it out and write `mend`",
                known.join(", ")
            ))
        }
        (None | Some(_), _) => None,
    }
}

/// Checks what a row says about its mend, once it is compiled.
pub(super) fn check_mend(at: usize, row: &RefusalRow) -> Option<RuleFault> {
    let fault = row.mend.as_ref().and_then(|mend| check_argument(mend).err())?;
    Some(RuleFault::new(at, "mend", fault.to_string()))
}

/// Returns the member of a row that a fault is about.
pub(super) fn member_of(rule: &OwnRule, fault: &RowFault) -> String {
    let place = |text: &String| {
        let lists = [("text", &rule.texts), ("then", &rule.then)];
        let mut found = lists.into_iter().filter_map(|(member, list)| {
            let at = list.iter().position(|known| known == text)?;
            Some(format!("{member}[{at}]"))
        });
        found.next().unwrap_or_else(|| "text".to_owned())
    };
    match fault {
        RowFault::UnknownVariable(text)
        | RowFault::JoinedVariables(text)
        | RowFault::TooManyVariables(text)
        | RowFault::TooShort(text)
        | RowFault::OpenEnd(text)
        | RowFault::LacksVariable { text, .. } => place(text),
        RowFault::UnusedSentences(_) => "then".to_owned(),
        RowFault::UnfitLearning(_) => "learn".to_owned(),
        RowFault::UnknownMendWord { text, .. } => {
            let members = [("fits", &rule.fits), ("learn", &rule.learn)];
            let named = members.iter().find(|(_, said)| said.as_deref() == Some(text));
            named.map_or("mend", |(member, _)| member).to_owned()
        }
        RowFault::UnknownMend { .. } | RowFault::DemandWithoutMend(_) => "mend".to_owned(),
        RowFault::UnknownFault { .. } => "fault".to_owned(),
    }
}
