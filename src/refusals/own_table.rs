//! An operator's own rows, compiled and checked.

use super::{
    built_in::table,
    example_checks::check_examples,
    own_rule::OwnRule,
    reader::RefusalReader,
    row_checks::{check_mend, check_row, member_of},
    rule_fault::{RowVerdict, RuleFault},
};
use crate::wire::RefusalTable;

/// Largest number of own rows.
pub const RULES_MAX: usize = 200;

/// Own rows that were checked.
#[derive(Clone, Debug, Default)]
pub struct CheckedRules {
    /// The reader with those rows that have no fault.
    pub reader: RefusalReader,
    /// The faults of all rows, in their order.
    pub faults: Vec<RuleFault>,
    /// Rows that are left out because this version does not know their mend.
    pub skipped: Vec<RuleFault>,
}

/// Compiles and checks own rows.
pub fn check_rules(rules: &[OwnRule]) -> CheckedRules {
    if rules.len() > RULES_MAX {
        let message = format!("there are {} rows, and at most {RULES_MAX} are allowed", rules.len());
        return CheckedRules {
            faults: vec![RuleFault::new(RULES_MAX, "", message)],
            ..CheckedRules::default()
        };
    }
    let (mut faults, mut skipped) = (Vec::new(), Vec::new());
    let mut sound: Vec<(usize, &OwnRule)> = Vec::new();
    for (at, rule) in rules.iter().enumerate() {
        let is_repeated = rules.iter().take(at).any(|other| other.name == rule.name);
        match check_row(at, rule, is_repeated) {
            Ok(()) => sound.push((at, rule)),
            Err(RowVerdict::Faulty(found)) => faults.extend(found),
            Err(RowVerdict::Skipped(why)) => skipped.push(why),
        }
    }
    let (own, broken) = compile(&sound);
    // What follows from another fault of a row would only confuse.
    sound.retain(|(at, _)| broken.iter().all(|fault| fault.rule != *at));
    faults.extend(broken);
    faults.extend(check_examples(&own, &sound));
    faults.sort_by_key(|fault| fault.rule);
    CheckedRules {
        reader: RefusalReader::with_own(own),
        faults,
        skipped,
    }
}

/// Compiles rows. Returns the faults of those that are left out, and of mends that make no sense.
fn compile(rules: &[(usize, &OwnRule)]) -> (RefusalTable, Vec<RuleFault>) {
    let texts: Vec<_> = rules.iter().map(|(_, rule)| rule.row_texts()).collect();
    let (own, faults) = table().compile_own(&texts);
    let of_texts = faults.into_iter().filter_map(|(at, fault)| {
        let (at, rule) = rules.get(at)?;
        Some(RuleFault::new(*at, member_of(rule, &fault), fault.to_string()))
    });
    let mut faults: Vec<RuleFault> = of_texts.collect();
    let of_mends = own.rows().iter().filter_map(|row| {
        let (at, _) = rules.iter().find(|(_, rule)| rule.name == row.name)?;
        check_mend(*at, row)
    });
    faults.extend(of_mends);
    (own, faults)
}
