//! Compares `docs/metrics.md` with the metrics page. With `FREEZE=write` it writes the tables.
#![cfg(target_os = "linux")]

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    fs,
};

use similar::TextDiff;

use crate::frozen::{
    golden::freeze,
    metrics::{exercised, is_open},
};

const PATH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/metrics.md");
const BEGIN: &str = "<!-- The tables below are made by `FREEZE=write cargo test --test it metrics_document`. -->\n";
const END: &str = "<!-- End of the tables. -->\n";

/// A metric, as queries name it.
#[derive(Default)]
struct MetricFamily<'p> {
    name: String,
    kind: &'p str,
    help: &'p str,
    /// The labels in the order of the page, each with its values.
    labels: Vec<(&'p str, BTreeSet<&'p str>)>,
    /// The bounds of a histogram.
    bounds: Vec<&'p str>,
}

impl<'p> MetricFamily<'p> {
    /// Notes the labels of a sample.
    fn read_labels(&mut self, labels: &'p str) {
        for pair in labels.split("\",") {
            let (label, value) = pair.trim_end_matches('"').split_once("=\"").unwrap();
            if label == "le" {
                if !self.bounds.contains(&value) {
                    self.bounds.push(value);
                }
                continue;
            }
            match self.labels.iter_mut().find(|(known, _)| *known == label) {
                Some((_, values)) => drop(values.insert(value)),
                None => self.labels.push((label, BTreeSet::from([value]))),
            }
        }
    }
}

/// Reads the families of an OpenMetrics page, in its order.
fn families(page: &str) -> Vec<MetricFamily<'_>> {
    let mut families: Vec<MetricFamily<'_>> = Vec::new();
    let mut help = "";
    for line in page.lines() {
        if let Some(text) = line.strip_prefix("# HELP ") {
            help = text.split_once(' ').unwrap().1;
        } else if let Some(family) = line.strip_prefix("# TYPE ") {
            let (name, kind) = family.split_once(' ').unwrap();
            let suffix = match kind {
                "counter" => "_total",
                "info" => "_info",
                _ => "",
            };
            let name = format!("{name}{suffix}");
            families.push(MetricFamily {
                name,
                kind,
                help,
                ..MetricFamily::default()
            });
        } else if let Some((_, rest)) = line.split_once('{').filter(|_| !line.starts_with('#')) {
            let (labels, _) = rest.rsplit_once('}').unwrap();
            families.last_mut().unwrap().read_labels(labels);
        }
    }
    families
}

/// Returns the tables of the document.
fn tables(page: &str) -> String {
    let families = families(page);
    let mut text = String::from("\n## Metrics\n\n| metric | type | labels | meaning |\n|---|---|---|---|\n");
    let mut values: BTreeMap<(&str, Vec<&str>), Vec<&str>> = BTreeMap::new();
    for family in &families {
        let labels: Vec<String> = family.labels.iter().map(|(name, _)| format!("`{name}`")).collect();
        let row = [
            &format!("`{}`", family.name),
            family.kind,
            &labels.join(", "),
            family.help,
        ];
        writeln!(text, "| {} |", row.join(" | ")).unwrap();
        for (label, found) in family.labels.iter().filter(|(label, _)| !is_open(&family.name, label)) {
            let found: Vec<&str> = found.iter().copied().collect();
            values.entry((label, found)).or_default().push(&family.name);
        }
    }
    text.push_str("\n## Values of labels\n\n`upstream` and `profile` are names from the configuration, or `other` on a full page. `tool` is the name of a tool,\nor `other`. `row` of `antiphon_refusal_rows_total` is the name of a row of `src/refusals/rows.toml`, `own` for one of\nthe operator, or `other`.\n\n");
    text.push_str("| label | of | values |\n|---|---|---|\n");
    let code = |words: &[&str]| {
        words
            .iter()
            .map(|word| format!("`{word}`"))
            .collect::<Vec<_>>()
            .join(", ")
    };
    for ((label, values), of) in values {
        writeln!(text, "| `{label}` | {} | {} |", code(&of), code(&values)).unwrap();
    }
    text.push_str("\n## Buckets of histograms\n\n| metric | upper bounds in seconds |\n|---|---|\n");
    for family in families.iter().filter(|family| !family.bounds.is_empty()) {
        writeln!(text, "| `{}` | {} |", family.name, family.bounds.join(", ")).unwrap();
    }
    text.push('\n');
    text
}

#[test]
fn the_document_lists_every_metric() {
    let page = exercised().encode_metrics();
    let document = fs::read_to_string(PATH).unwrap();
    let (before, rest) = document.split_once(BEGIN).unwrap();
    let (_, after) = rest.split_once(END).unwrap();
    let wanted = [before, BEGIN, &tables(&page), END, after].concat();
    if freeze() == "write" {
        return fs::write(PATH, wanted).unwrap();
    }
    let diff = TextDiff::from_lines(document.as_str(), &wanted);
    let diff = diff
        .unified_diff()
        .context_radius(0)
        .header("docs/metrics.md", "page")
        .to_string();
    assert!(
        document == wanted,
        "docs/metrics.md differs from the metrics page. Run with FREEZE=write and review the difference.\n\n{diff}"
    );
}
