//! `antiphon rules test`: checks rows, and prints a line for each.

use std::{
    io::{self, Write},
    path::Path,
    process::ExitCode,
};

use super::arguments::TestArgs;
use crate::{
    cli::{
        EXIT_USAGE,
        config::load_chosen,
        output::{ReportOutput, write_note},
        style::{Painter, TextStyle},
        success_if,
    },
    config::{ConfigProblem, LoadedRule, LoadedRules, load_rules},
    server::regular_file::read_regular,
};

/// Checks the rows of the file, or those of the configuration.
pub(super) fn run(args: &TestArgs) -> anyhow::Result<ExitCode> {
    let (rules, problems) = match &args.file {
        Some(path) => match read_rules(path) {
            Ok(read) => read,
            Err(problem) => {
                write_note(&format!("antiphon: {problem}"));
                return Ok(ExitCode::from(EXIT_USAGE));
            }
        },
        None => match load_chosen(args.config.clone()) {
            Ok(loaded) => (loaded.config.rules, Vec::new()),
            // Rows alone are tested here: what else is wrong makes the configuration unreadable.
            Err(error) if error.problems.iter().all(is_of_rows) => (LoadedRules::default(), error.problems),
            Err(error) => return Err(error.into()),
        },
    };
    let mut out = ReportOutput::default();
    write_lines(&mut out, &rules, &problems, Painter::of_stdout())?;
    out.flush()?;
    Ok(success_if(problems.is_empty()))
}

/// Reads a file of rows with its problems. Fails for one that cannot be read.
pub(super) fn read_rules(path: &Path) -> Result<(LoadedRules, Vec<ConfigProblem>), ConfigProblem> {
    load_rules(&path.display().to_string(), &read_regular)
}

fn is_of_rows(problem: &ConfigProblem) -> bool {
    problem.file.is_some() || problem.key.starts_with("repair.rules")
}

fn write_lines(
    out: &mut impl Write,
    rules: &LoadedRules,
    problems: &[ConfigProblem],
    painter: Painter,
) -> io::Result<()> {
    let (ok, fault) = (
        painter.paint(TextStyle::Green, "ok"),
        painter.paint(TextStyle::Red, "fault"),
    );
    for problem in problems {
        writeln!(out, "{fault}  {problem}")?;
    }
    rules
        .warnings
        .iter()
        .for_each(|warning| write_note(&format!("warning: {warning}")));
    let is_sound = |row: &&LoadedRule| {
        let prefix = format!("{}.", row.key);
        let is_its = |problem: &ConfigProblem| {
            let key = problem.key.as_str();
            problem.file.as_deref() == row.file.as_deref() && (key == row.key || key.starts_with(&prefix))
        };
        let own = rules.checked.reader.own();
        let is_compiled = own.is_some_and(|own| own.rows().iter().any(|known| known.name == row.rule.name));
        is_compiled && !problems.iter().any(is_its)
    };
    let sound: Vec<&LoadedRule> = rules.rows.iter().filter(is_sound).collect();
    for row in &sound {
        writeln!(out, "{ok}  {}  {}", row.rule.name, tested(row))?;
    }
    write_note(&format!(
        "antiphon: {} rows ok, {} skipped, {} problems",
        sound.len(),
        rules.warnings.len(),
        problems.len()
    ));
    Ok(())
}

/// Says what was tested of a row.
fn tested(row: &LoadedRule) -> String {
    let examples = match row.rule.examples.len() {
        0 => "no example".to_owned(),
        1 => "1 example".to_owned(),
        count => format!("{count} examples"),
    };
    let repair = if row.rule.repair.is_some() { ", repair" } else { "" };
    format!("({examples}{repair})")
}
