//! Sessions and their findings as text for people.

use std::{
    io::{self, Write},
    path::Path,
    time::Duration,
};

use super::{
    live::LiveState,
    places::shown_path,
    reading::SessionReading,
    weights::{WeightCounts, count_weights, message_of, weight_of},
};
use crate::{
    cli::{
        style::{Painter, TextStyle},
        time_format::format_time,
    },
    printable::printable_name,
    sessions::{FixKind, SessionClient, SessionFinding, SessionReport, Severity},
};

/// Findings of one file that are shown.
const FINDINGS_MAX: usize = 50;
/// Further lines of a finding that are shown.
const LINES_MAX: usize = 8;

/// A session as people are told of it.
pub(super) struct ToldSession<'s> {
    pub(super) path: &'s Path,
    /// Its name for other commands. `None` if no file of it is known.
    pub(super) command_name: Option<String>,
    pub(super) reading: &'s SessionReading,
    /// `None` if no file of it is known.
    pub(super) live: Option<&'s LiveState>,
}

impl ToldSession<'_> {
    /// Writes the session with its findings. `now` is the time since 1970.
    pub(super) fn write(&self, out: &mut impl Write, now: Duration, painter: Painter) -> io::Result<()> {
        self.write_heading(out, now, painter)?;
        write_findings(out, &self.reading.report, painter)?;
        self.write_total(out, painter)
    }

    fn write_heading(&self, out: &mut impl Write, now: Duration, painter: Painter) -> io::Result<()> {
        let report = &self.reading.report;
        let path = painter.paint(TextStyle::Bold, &shown_path(self.path));
        let session = match &report.session {
            Some(id) if is_stored(report) => format!(" ({})", printable_name(id.as_bytes())),
            _ => String::new(),
        };
        let version = report.version.map(|version| format!(" {version}")).unwrap_or_default();
        let age = self.reading.modified.map(|modified| now.saturating_sub(modified));
        let age = age.map(|age| format!(" {} ago,", format_time(age))).unwrap_or_default();
        writeln!(
            out,
            "{path}{session}  {}{version}, {},{age} {} of {} messages would be sent{}",
            report.client.name(),
            format_bytes(report.bytes),
            report.reachable,
            report.messages,
            self.live.map(live_text).unwrap_or_default()
        )
    }

    /// Writes what was found in all, and the command that mends it.
    fn write_total(&self, out: &mut impl Write, painter: Painter) -> io::Result<()> {
        let counts = count_weights(&self.reading.report);
        let total = describe_counts(counts);
        if total.is_empty() {
            return writeln!(out, "  {}", painter.paint(TextStyle::Green, "nothing is damaged"));
        }
        match (counts.mendable, &self.command_name) {
            _ if !self.reading.report.client.is_mended() => writeln!(
                out,
                "  {total}; sessions of {} are only read: antiphon doctor --explain CODE says what helps",
                self.reading.report.client.name()
            ),
            _ if self.reading.is_compressed => {
                writeln!(out, "  {total}; the file is compressed, so it is only read")
            }
            (0, _) => writeln!(
                out,
                "  {total}, none can be mended: antiphon doctor --explain CODE says what helps"
            ),
            (mendable, Some(name)) => {
                writeln!(out, "  {total}, {mendable} can be mended: antiphon doctor --fix {name}")
            }
            (mendable, None) => writeln!(
                out,
                "  {total}, {mendable} can be mended: antiphon doctor --fix with the name of the file"
            ),
        }
    }
}

fn live_text(live: &LiveState) -> String {
    match live {
        LiveState::Idle | LiveState::Unreadable(_) => String::new(),
        LiveState::Recent(_) => ", may be in use".to_owned(),
        LiveState::InUse { pid: Some(pid), .. } => format!(", in use by process {pid}"),
        LiveState::InUse { pid: None, .. } => ", in use".to_owned(),
    }
}

/// Writes the findings of a file, each on a line.
pub(super) fn write_findings(out: &mut impl Write, report: &SessionReport, painter: Painter) -> io::Result<()> {
    write_named_findings(out, report, ["  ", "  "], painter)
}

/// Writes the findings of a file, each on a line. A line begins with the first lead, or with the second one if it has
/// no place of its own.
pub(super) fn write_named_findings(
    out: &mut impl Write,
    report: &SessionReport,
    [place_lead, other_lead]: [&str; 2],
    painter: Painter,
) -> io::Result<()> {
    for finding in report.findings.iter().take(FINDINGS_MAX) {
        write!(out, "{place_lead}")?;
        write_finding(out, report, finding, painter)?;
    }
    let hidden = report.findings.len().saturating_sub(FINDINGS_MAX);
    let unlisted = usize::try_from(report.unlisted).unwrap_or(usize::MAX);
    match hidden.saturating_add(unlisted) {
        0 => Ok(()),
        more if report.unlisted > 0 => writeln!(out, "{other_lead}and {more} more"),
        more => writeln!(out, "{other_lead}and {more} more: --output json lists all"),
    }
}

/// Writes one finding up to the end of its line.
fn write_finding(
    out: &mut impl Write,
    report: &SessionReport,
    finding: &SessionFinding,
    painter: Painter,
) -> io::Result<()> {
    let severity = weight_of(report, finding);
    let style = match severity {
        Severity::Error | Severity::Warning => TextStyle::Red,
        Severity::Note => TextStyle::Dim,
    };
    let unit = if is_stored(report) { "row" } else { "line" };
    let place = if is_stored(report) {
        format!("row {}", finding.line)
    } else {
        format!(":{}", finding.line)
    };
    let place = painter.paint(TextStyle::Cyan, &place);
    let kind = painter.paint(style, &format!("{}: {}", severity.label(), finding.code.label()));
    let id = match finding.id.as_str() {
        "" => String::new(),
        id => format!(" ({})", printable_name(id.as_bytes())),
    };
    let fix = match finding.fix {
        FixKind::Told => "",
        FixKind::InPlace | FixKind::Append => "   can be mended",
    };
    writeln!(
        out,
        "{place}: {kind}: {}{}{id}{fix}",
        message_of(report, finding),
        other_lines(unit, &finding.lines)
    )
}

/// Returns `true` if a session is in a database, which has rows in place of lines.
pub(super) fn is_stored(report: &SessionReport) -> bool {
    report.client == SessionClient::OpenCode
}

/// Names further lines of a finding.
fn other_lines(unit: &str, lines: &[u64]) -> String {
    if lines.is_empty() {
        return String::new();
    }
    let shown: Vec<String> = lines.iter().take(LINES_MAX).map(u64::to_string).collect();
    let more = if lines.len() > LINES_MAX { ", …" } else { "" };
    let ending = if lines.len() == 1 { "" } else { "s" };
    format!(" [see {unit}{ending} {}{more}]", shown.join(", "))
}

/// Says how many findings there are of each weight. Empty if there is none.
pub(super) fn describe_counts(counts: WeightCounts) -> String {
    let parts = [
        ("error", counts.errors),
        ("warning", counts.warnings),
        ("note", counts.notes),
    ];
    let parts = parts.into_iter().filter(|(_, count)| *count > 0);
    let parts: Vec<String> = parts.map(|(word, count)| count_of(count, word)).collect();
    parts.join(", ")
}

/// Returns a number with its word.
pub(super) fn count_of(count: usize, word: &str) -> String {
    let ending = if count == 1 { "" } else { "s" };
    format!("{count} {word}{ending}")
}

/// Formats a size in its largest unit.
pub(super) fn format_bytes(bytes: u64) -> String {
    const UNITS: [(u64, &str); 3] = [(1_000_000_000, "GB"), (1_000_000, "MB"), (1000, "kB")];
    let unit = UNITS.into_iter().find(|(size, _)| bytes >= *size);
    unit.map_or_else(
        || format!("{bytes} B"),
        |(size, name)| format!("{} {name}", bytes / size),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_lines_are_short() {
        for (bytes, shown) in [
            (0, "0 B"),
            (999, "999 B"),
            (1000, "1 kB"),
            (12_900_000, "12 MB"),
            (98_000_000_000, "98 GB"),
        ] {
            assert_eq!(format_bytes(bytes), shown);
        }
        assert_eq!(other_lines("line", &[]), "");
        assert_eq!(other_lines("line", &[3]), " [see line 3]");
        assert_eq!(
            other_lines("line", &[1, 2, 3, 4, 5, 6, 7, 8, 9]),
            " [see lines 1, 2, 3, 4, 5, 6, 7, 8, …]"
        );
    }
}
