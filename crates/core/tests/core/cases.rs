//! Replays every folder of `tests/cases/<wire>/<story>`: `request.json` in, `findings.txt`, `repaired.json` and
//! `lost.txt` out,
//! byte for byte.
//!
//! `learned.txt`, where there is one, lists the rules that the provider's refusals have taught, one on each line:
//! `unique_ids`, `strict_calls`, `user_first`, `one_result`, `named_results`, `before_calls`, `apart_from_results`,
//! `bridged`.
//!
//! `lost.txt`, where there is one, lists the values that the client has dropped, as [`lost_values`] finds them.
//!
//! A folder without `repaired.json` contains a body that must come out as the same bytes.
//! `UPDATE_CASES=1 cargo cases` rewrites the expected files. Read the difference before you commit it.

use std::{fmt::Write as _, fs, path::Path};

use antiphon_core::{
    conversation::{Finding, rules::WordsPlace},
    repair::{
        KnownResults, LearnedRules, PairingContext, RepairPolicy, RepairReport, Repaired, lost_values, parse, plan,
    },
    wire::{Unreadable, Wire},
};
use bytes::Bytes;

use crate::support::{
    cases::{folders, root},
    repository::repository,
};

#[test]
fn every_case_gives_its_expected_files() {
    let mut failures = Vec::new();
    let mut count = 0;
    for (wire, folder) in folders() {
        count += 1;
        if let Err(why) = check(wire, &folder) {
            failures.push(format!(
                "{}: {why}",
                folder.strip_prefix(root()).unwrap_or(&folder).display()
            ));
        }
    }
    assert!(count >= 80, "only {count} cases found");
    assert!(
        failures.is_empty(),
        "{} of {count} cases failed:\n{}",
        failures.len(),
        failures.join("\n")
    );
}

/// Every case and every test that `README.md` names exists.
#[test]
fn the_table_of_reasons_names_what_exists() {
    let text = fs::read_to_string(root().join("README.md")).unwrap();
    let folders = ["crates/core/tests/core", "tests/it"];
    let sources: Vec<_> = folders
        .iter()
        .flat_map(|folder| all_sources(&repository(folder)))
        .collect();
    let mut count = 0;
    for row in text
        .lines()
        .filter(|line| line.starts_with("| ") && !line.starts_with("| reason"))
    {
        let cells: Vec<&str> = row.split(" | ").collect();
        let [_, reported, covered] = cells[..] else {
            panic!("three cells are due: {row}")
        };
        assert!(!reported.is_empty(), "{row}");
        for name in covered.trim_end_matches(" |").split(", ") {
            let name = name.trim_matches('`');
            count += 1;
            if let Some((module, function)) = name.split_once("::") {
                let is_test =
                    |(file, source): &(String, String)| file == module && source.contains(&format!("fn {function}("));
                assert!(sources.iter().any(is_test), "no test {name}");
            } else {
                assert!(root().join(name).join("request.json").exists(), "no case {name}");
            }
        }
    }
    assert!(count > 50, "only {count} names found");
}

/// Returns the name and the text of every test file below `folder`.
fn all_sources(folder: &Path) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(all_sources(&path));
        } else if let Some(name) = path.file_stem() {
            found.push((name.to_string_lossy().into_owned(), fs::read_to_string(&path).unwrap()));
        }
    }
    found
}

fn check(wire: Wire, folder: &Path) -> Result<(), String> {
    let request = Bytes::from(fs::read(folder.join("request.json")).map_err(|error| error.to_string())?);
    let learned = read_learned(folder)?;
    let repair = |body: &Bytes| repair_learned(body, wire, learned);
    let (findings, repaired) = match repair(&request) {
        Err(unreadable) => (format!("unreadable: {}\n", unreadable.code()), None),
        Ok(done) => {
            if done.body.is_original() && done.body.parts().first().map(|part| part.as_ptr()) != Some(request.as_ptr())
            {
                return Err("a healthy body was copied".to_owned());
            }
            let out = Bytes::from(done.body.to_vec());
            let again = repair(&out).map_err(|why| format!("the output: {why}"))?;
            if !again.body.is_original() {
                return Err(format!(
                    "repairing the output adds edits: {}",
                    String::from_utf8_lossy(&again.body.to_vec())
                ));
            }
            (describe(&done.report, wire), (!done.body.is_original()).then_some(out))
        }
    };
    let lost = describe_lost(&request, wire);
    if std::env::var_os("UPDATE_CASES").is_some() {
        update(folder, &findings, &lost, repaired.as_deref());
    }
    let expected = fs::read(folder.join("repaired.json")).ok();
    if expected.as_deref() != repaired.as_deref() {
        return Err(format!(
            "repaired body differs:\n{}",
            String::from_utf8_lossy(repaired.as_deref().unwrap_or(&request))
        ));
    }
    for (name, found) in [("findings.txt", findings), ("lost.txt", lost)] {
        if fs::read_to_string(folder.join(name)).unwrap_or_default() != found {
            return Err(format!("{name} differs:\n{found}"));
        }
    }
    Ok(())
}

/// Describes the values that the client has dropped: those that the dialect documents, and those of some servers.
fn describe_lost(request: &Bytes, wire: Wire) -> String {
    // An unreadable body has its reason in `findings.txt`.
    let lost = lost_values(request, wire, &RepairPolicy::default()).unwrap_or_default();
    let mut text = String::new();
    for (lead, findings) in [("documented", lost.documented), ("possible", lost.possible)] {
        for finding in findings {
            writeln!(text, "{lead} {}", line(&finding, wire)).unwrap();
        }
    }
    text
}

/// Repairs one body under rules that refusals have taught.
pub(crate) fn repair_learned(body: &Bytes, wire: Wire, learned: LearnedRules) -> Result<Repaired, Unreadable> {
    let policy = RepairPolicy::default();
    let context = PairingContext {
        learned,
        ..PairingContext::new(&policy)
    };
    let paired = parse(body, wire)?.pair(context);
    let plan = plan(&paired, &KnownResults::default(), &policy)?;
    Ok(Repaired {
        body: plan.splice(&paired, body)?,
        report: plan.report,
    })
}

/// Reads the rules of a case that refusals have taught.
fn read_learned(folder: &Path) -> Result<LearnedRules, String> {
    let mut learned = LearnedRules::NONE;
    for rule in fs::read_to_string(folder.join("learned.txt"))
        .unwrap_or_default()
        .lines()
    {
        match rule {
            "unique_ids" => learned.unique_ids = true,
            "strict_calls" => learned.strict_calls = true,
            "user_first" => learned.user_first = true,
            "one_result" => learned.one_result = true,
            "named_results" => learned.named_results = true,
            "before_calls" => learned.words = Some(WordsPlace::BeforeCalls),
            "apart_from_results" => learned.words = Some(WordsPlace::ApartFromResults),
            "bridged" => learned.words = Some(WordsPlace::Bridged),
            other => return Err(format!("learned.txt: {other} is no rule")),
        }
    }
    Ok(learned)
}

fn update(folder: &Path, findings: &str, lost: &str, repaired: Option<&[u8]>) {
    fs::write(folder.join("findings.txt"), findings).unwrap();
    if lost.is_empty() {
        drop(fs::remove_file(folder.join("lost.txt")));
    } else {
        fs::write(folder.join("lost.txt"), lost).unwrap();
    }
    match repaired {
        Some(body) => fs::write(folder.join("repaired.json"), body).unwrap(),
        None => drop(fs::remove_file(folder.join("repaired.json"))),
    }
}

fn describe(report: &RepairReport, wire: Wire) -> String {
    let mut text = String::new();
    for finding in &report.findings {
        writeln!(text, "{}", line(finding, wire)).unwrap();
    }
    for (action, count) in &report.actions {
        writeln!(text, "{}={count}", action.label()).unwrap();
    }
    for (name, count) in [("deferred", report.deferred), ("unrepairable", report.unrepairable)] {
        if count > 0 {
            writeln!(text, "{name}={count}").unwrap();
        }
    }
    text
}

fn line(finding: &Finding, wire: Wire) -> String {
    let detail = finding.detail.map(|detail| format!(" {detail}")).unwrap_or_default();
    let place = wire.format.finding_path(finding);
    format!("{place} {}{detail} {}", finding.kind.code(), finding.id)
        .trim_end()
        .to_owned()
}
