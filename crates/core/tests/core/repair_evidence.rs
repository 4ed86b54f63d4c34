//! The table of repairs and their evidence, compared with what the engine does to the cases and to generated bodies.

use std::collections::BTreeSet;

use antiphon_core::{
    conversation::Finding,
    repair::{
        Action, LearnedRules, REPAIR_RULES, RepairPolicy, RepairReport, RepairRule, lost_values, possible_findings,
    },
    wire::Wire,
};
use bytes::Bytes;

use crate::{
    cases::repair_learned,
    support::{bodies, cases::folders},
};

/// Number of generated bodies for each wire.
const GENERATED: u64 = 60;

/// The rules of the table that a body has met.
#[derive(Default)]
struct Met {
    /// Indices of rules that are on, of which a case has the fault and one of the actions.
    repaired: BTreeSet<usize>,
    /// Indices of rules that are switched off, of which a case has the fault as a note.
    noted: BTreeSet<usize>,
    failures: Vec<String>,
}

fn rules_of(wire: Wire, finding: &Finding) -> impl Iterator<Item = (usize, &'static RepairRule)> {
    let rules = REPAIR_RULES.iter().enumerate();
    rules.filter(move |(_, rule)| rule.covers(wire, finding.kind, finding.detail))
}

impl Met {
    /// Notes what a repair did before any refusal.
    fn note_report(&mut self, name: &str, wire: Wire, report: &RepairReport) {
        let mut permitted = BTreeSet::new();
        for finding in &report.findings {
            let mut proven = rules_of(wire, finding)
                .filter(|(_, rule)| !rule.is_switched_off())
                .peekable();
            if proven.peek().is_none() {
                let fault = (finding.kind.code(), finding.detail);
                self.failures
                    .push(format!("{name}: {wire}: {fault:?} is repaired without a rule"));
            }
            for (index, rule) in proven {
                permitted.extend(rule.actions.iter().copied());
                if rule.actions.iter().any(|action| report.actions.contains_key(action)) {
                    self.repaired.insert(index);
                }
            }
        }
        // An opening follows from another repair if that leaves the assistant first.
        let has_open = |action: &&Action| **action == Action::Open && wire.pairing_rules().user_first;
        let mut actions = report.actions.keys();
        if let Some(action) = actions.find(|action| !permitted.contains(action) && !has_open(action)) {
            self.failures
                .push(format!("{name}: {wire}: no rule permits {}", action.label()));
        }
    }

    /// Notes what `check` reports of a case beside its findings, and what the client has dropped.
    fn note_notes(&mut self, wire: Wire, body: &Bytes) {
        let policy = RepairPolicy::default();
        for finding in possible_findings(body, wire, &policy).unwrap_or_default() {
            let switched_off = rules_of(wire, &finding).filter(|(_, rule)| rule.is_switched_off());
            self.noted.extend(switched_off.map(|(index, _)| index));
        }
        // Bodies of Gemini name no model, and only the newer models are documented to want their signatures back.
        let lost = lost_values(body, wire, &policy).unwrap_or_default();
        for finding in lost.documented.into_iter().chain(lost.possible) {
            self.repaired.extend(rules_of(wire, &finding).map(|(index, _)| index));
        }
    }
}

/// Every repair before a refusal has a rule with evidence, and a case meets every rule.
#[test]
fn every_repair_before_a_refusal_has_evidence() {
    let mut met = Met::default();
    for (wire, folder) in folders() {
        let name = folder.file_name().unwrap().to_string_lossy().into_owned();
        // What a refusal has taught needs no other evidence.
        if folder.join("learned.txt").exists() {
            continue;
        }
        let body = Bytes::from(std::fs::read(folder.join("request.json")).unwrap());
        if let Ok(repaired) = repair_learned(&body, wire, LearnedRules::NONE) {
            met.note_report(&name, wire, &repaired.report);
        }
        met.note_notes(wire, &body);
    }
    let of_cases = (met.repaired.clone(), met.noted.clone());
    for (_, wire) in Wire::NAMES {
        for seed in 0..GENERATED {
            let (talk, _) = bodies::mangle(seed, *wire);
            let body = Bytes::from(talk.bytes());
            if let Ok(repaired) = repair_learned(&body, *wire, LearnedRules::NONE) {
                met.note_report(&format!("SEED={seed}"), *wire, &repaired.report);
            }
        }
    }
    for (index, rule) in REPAIR_RULES.iter().enumerate() {
        let (repaired, noted) = &of_cases;
        let is_met = if rule.is_switched_off() { noted } else { repaired }.contains(&index);
        if !is_met {
            met.failures.push(format!("no case meets {rule:?}"));
        }
    }
    met.failures.sort();
    met.failures.dedup();
    assert!(met.failures.is_empty(), "{}", met.failures.join("\n"));
}

/// Every source has a year, so that an old one can be checked again.
#[test]
fn every_source_is_dated() {
    for rule in REPAIR_RULES {
        for evidence in rule.evidence {
            use antiphon_core::repair::Evidence::{Code, Document, Refusal};
            let (Refusal(source) | Document(source) | Code(source)) = evidence;
            let is_dated = source.contains("(20")
                || source.contains(", 20")
                || source.contains("in 20")
                || matches!(evidence, Code(_));
            assert!(is_dated, "{source}");
        }
    }
}
