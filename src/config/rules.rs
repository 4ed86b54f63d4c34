//! Own rows of refusals: those of the configuration, and those of the file that it names.

use std::{collections::BTreeMap, path::Path};

use super::{
    ReadFile,
    file::RuleSection,
    lowering::Lowering,
    problem::{ConfigProblem, FilePlace},
    read::{self, RulesReading},
    trusted_file::writable_reason,
};
use crate::{
    printable::printable_text,
    refusals::{CheckedRules, OwnRule, RULES_MAX, RuleFault, check_rules},
};

/// The key with the name of the file.
pub(super) const RULES_FILE: &str = "repair.rules_file";
/// The list of rows in a file of its own.
const ROWS_OF_FILE: &str = "row";
/// The key with rows.
const RULES: &str = "repair.rules";
/// Most problems of rows that are reported.
const PROBLEMS_MAX: usize = 50;

/// Own rows that were read and checked.
#[derive(Clone, Debug, Default)]
pub struct LoadedRules {
    /// The rows, first those of the configuration.
    pub rows: Vec<LoadedRule>,
    /// The checked rows.
    pub checked: CheckedRules,
    /// Rows that are left out, each with the reason.
    pub warnings: Vec<String>,
}

/// An own row, and where it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadedRule {
    /// The row.
    pub rule: OwnRule,
    /// The file in which it stands. `None` for the configuration.
    pub file: Option<String>,
    /// Its key there: `row[0]`.
    pub key: String,
    /// The source that the operator has noted.
    pub seen: Option<String>,
}

/// Places of values in a file, by their keys.
type RulePlaces = BTreeMap<String, FilePlace>;

/// Returns the own rows of the configuration. Reports what is wrong with them.
pub(super) fn lower_rules(lowering: &mut Lowering, read_file: &ReadFile<'_>) -> LoadedRules {
    let inline = rows_of(&lowering.file.repair.rules, RULES, None);
    let Some(name) = lowering.file.repair.rules_file.clone() else {
        return check_loaded(lowering, inline, None);
    };
    let reading = lowering.value_or_report(RULES_FILE, read_rules_file(&name, read_file));
    check_loaded(lowering, inline, reading.map(|reading| (name.as_str(), reading)))
}

/// Checks the rows of both places, and reports their problems.
fn check_loaded(lowering: &mut Lowering, mut rows: Vec<LoadedRule>, file: Option<(&str, RulesReading)>) -> LoadedRules {
    let mut places = RulePlaces::new();
    if let Some((name, reading)) = file {
        rows.extend(rows_of(&reading.rows, ROWS_OF_FILE, Some(name)));
        lowering.problems.extend(in_file(reading.problems, name));
        places = reading.places;
    }
    if rows.len() > RULES_MAX {
        lowering.report_problem(RULES, too_many(rows.len()));
        return LoadedRules::default();
    }
    let rules: Vec<OwnRule> = rows.iter().map(|row| row.rule.clone()).collect();
    let checked = check_rules(&rules);
    let mut problems: Vec<ConfigProblem> = Vec::new();
    for fault in &checked.faults {
        let Some(row) = rows.get(fault.rule) else { continue };
        let own = if row.file.is_some() { &places } else { &lowering.places };
        let problem = problem_of(fault, row, own);
        // A value of the wrong type was left out, and has its own problem.
        let is_known = |known: &ConfigProblem| known.file == problem.file && known.key.starts_with(&row.key);
        if !lowering.problems.iter().any(is_known) {
            problems.push(problem);
        }
    }
    lowering.problems.extend(at_most(problems));
    let warnings = checked.skipped.iter().filter_map(|skipped| {
        let row = rows.get(skipped.rule)?;
        let own = if row.file.is_some() { &places } else { &lowering.places };
        Some(problem_of(skipped, row, own).without_line_text().to_string())
    });
    LoadedRules {
        warnings: warnings.collect(),
        checked,
        rows,
    }
}

/// Reads a file of rows and checks it, apart from any configuration. Returns the problems of its rows too.
///
/// Fails for a file that cannot be read, or that others may write.
pub fn load_rules(name: &str, read_file: &ReadFile<'_>) -> Result<(LoadedRules, Vec<ConfigProblem>), ConfigProblem> {
    let mut lowering = Lowering::default();
    let reading = read_rules_file(name, read_file)?;
    let loaded = check_loaded(&mut lowering, Vec::new(), Some((name, reading)));
    Ok((loaded, lowering.problems))
}

/// Reads the file. Fails for one that cannot be read, or that others may write.
fn read_rules_file(name: &str, read_file: &ReadFile<'_>) -> Result<RulesReading, ConfigProblem> {
    if name.is_empty() {
        return Err(ConfigProblem::of_value("expected the path of a file"));
    }
    let path = Path::new(name);
    let text = read_file(path).map_err(|error| {
        let shown = printable_text(name);
        let hint = if name.contains(char::is_control) {
            r"write a path with backslashes in single quotes: 'C:\antiphon\rules.toml'"
        } else {
            "name a readable file of rows, with at most 1 MiB"
        };
        ConfigProblem::of_value(format!("cannot read {shown}: {error}")).with_hint(hint)
    })?;
    // Whoever writes the rows decides on what providers get.
    if let Some(reason) = writable_reason(path) {
        return Err(ConfigProblem::of_value(format!("{name} is not used: {reason}")));
    }
    Ok(read::read_rules(&text))
}

fn rows_of(sections: &[RuleSection], list: &str, file: Option<&str>) -> Vec<LoadedRule> {
    let rows = sections.iter().enumerate();
    rows.map(|(at, section)| LoadedRule {
        rule: section.to_rule(),
        file: file.map(ToOwned::to_owned),
        key: format!("{list}[{at}]"),
        seen: section.seen.clone(),
    })
    .collect()
}

fn too_many(count: usize) -> ConfigProblem {
    ConfigProblem::of_value(format!("there are {count} rows, and at most {RULES_MAX} are allowed"))
        .with_hint("leave out rows whose server does not refuse anything any more")
}

/// Returns the problem that a row has at its place.
fn problem_of(fault: &RuleFault, row: &LoadedRule, places: &RulePlaces) -> ConfigProblem {
    let key = match fault.member.as_str() {
        "" => row.key.clone(),
        member => format!("{}.{member}", row.key),
    };
    // A member that is missing has no place: that of the row tells where it belongs.
    let list = key.strip_suffix(']').and_then(|key| key.rsplit_once('['));
    let list = list.map_or("", |(list, _)| list);
    let known = [key.as_str(), list, &row.key];
    let place = known.into_iter().find_map(|key| places.get(key)).cloned();
    let name = if row.rule.name.is_empty() {
        String::new()
    } else {
        format!("row {}: ", row.rule.name)
    };
    ConfigProblem {
        file: row.file.as_deref().map(Into::into),
        ..ConfigProblem::new(key, format!("{name}{}", fault.message)).with_place(place)
    }
}

fn in_file(problems: Vec<ConfigProblem>, name: &str) -> Vec<ConfigProblem> {
    let named = problems.into_iter().map(|problem| ConfigProblem {
        file: Some(name.into()),
        ..problem
    });
    at_most(named.collect())
}

/// Returns the first problems, and how many there are beyond them.
fn at_most(mut problems: Vec<ConfigProblem>) -> Vec<ConfigProblem> {
    let beyond = problems.len().saturating_sub(PROBLEMS_MAX);
    problems.truncate(PROBLEMS_MAX);
    if beyond > 0 {
        problems.push(ConfigProblem::new(
            RULES,
            format!("{beyond} more problems of rows are not listed"),
        ));
    }
    problems
}
