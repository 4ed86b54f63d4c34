//! The line of an exchange for people: the columns, and the rule that keeps it within 120 of them.

use super::exchange_fields::ExchangeFields;

/// Limit of columns of a line.
pub(super) const COLUMNS_MAX: usize = 120;
/// Characters of a request id that are shown: the last group of a UUID v7, which is random.
const ID_CHARS: usize = 12;
/// Milliseconds from which a duration is shown in seconds.
const SECONDS_FROM: u64 = 10_000;
/// The longest duration that is shown, in seconds.
const SECONDS_MAX: u64 = 99_999;

/// The style of a column on a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ColumnStyle {
    /// The terminal's own.
    Plain,
    /// Less visible than the rest.
    Dim,
    /// The color of the level.
    Level,
}

/// The columns of a line, in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ColumnName {
    Time,
    Level,
    Status,
    Upstream,
    /// Model, or the path of a request without one.
    Subject,
    Duration,
    Failure,
    Repair,
    Rules,
    Calls,
    RequestId,
}

/// One column of a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LineColumn {
    name: ColumnName,
    /// The text.
    pub(super) text: String,
    /// The style.
    pub(super) style: ColumnStyle,
}

/// The columns to cut while a line is too long, each with the width that it keeps. The JSON form has everything whole.
const CUTS: [(ColumnName, usize); 8] = [
    // The repair says what was done; the rules say why.
    (ColumnName::Rules, 0),
    (ColumnName::Subject, 20),
    (ColumnName::Calls, 20),
    (ColumnName::Subject, 16),
    (ColumnName::Upstream, 10),
    (ColumnName::Repair, 12),
    (ColumnName::Failure, 24),
    (ColumnName::Calls, 0),
];

/// Returns the columns of an exchange's line, which need 120 columns at most with a space between each two.
///
/// `time` and `level` are printed as they are.
pub(super) fn line_columns(time: &str, level: &str, fields: &ExchangeFields) -> Vec<LineColumn> {
    let column = |name, text: String, style| LineColumn { name, text, style };
    let mut columns = [
        column(ColumnName::Time, time.to_owned(), ColumnStyle::Dim),
        column(ColumnName::Level, level.to_owned(), ColumnStyle::Level),
        column(ColumnName::Status, status_text(fields.status), ColumnStyle::Level),
        column(ColumnName::Upstream, fields.upstream.clone(), ColumnStyle::Plain),
        column(ColumnName::Subject, subject_text(fields), ColumnStyle::Plain),
        column(ColumnName::Duration, duration_text(fields.dur_ms), ColumnStyle::Plain),
        column(ColumnName::Failure, failure_text(fields), ColumnStyle::Level),
        column(ColumnName::Repair, repair_text(&fields.repair), ColumnStyle::Plain),
        column(ColumnName::Rules, rules_text(fields), ColumnStyle::Dim),
        column(ColumnName::Calls, calls_text(fields), ColumnStyle::Plain),
        column(ColumnName::RequestId, short_id(&fields.request_id), ColumnStyle::Dim),
    ];
    for (name, width_min) in CUTS {
        let excess = line_width(&columns).saturating_sub(COLUMNS_MAX);
        if excess == 0 {
            break;
        }
        if let Some(LineColumn { text, .. }) = columns.iter_mut().find(|column| column.name == name) {
            *text = cut_text(text, text_width(text).saturating_sub(excess).max(width_min));
        }
    }
    columns.into_iter().filter(|column| !column.text.is_empty()).collect()
}

/// Returns the width of a line with a space between each two columns that are not empty.
fn line_width(columns: &[LineColumn]) -> usize {
    let widths = columns.iter().map(|column| text_width(&column.text));
    let widths = widths.filter(|width| *width > 0).map(|width| width.saturating_add(1));
    widths.sum::<usize>().saturating_sub(1)
}

/// Returns the width of a text, or more. Characters beyond ASCII count as wide, as they are in many fonts.
pub(super) fn text_width(text: &str) -> usize {
    text.chars().map(letter_width).sum()
}

const fn letter_width(letter: char) -> usize {
    if letter.is_ascii() { 1 } else { 2 }
}

/// Returns a text of at most `width_max` columns, with a mark if it was cut.
fn cut_text(text: &str, width_max: usize) -> String {
    const MARK: &str = "…";
    if text_width(text) <= width_max {
        return text.to_owned();
    }
    let Some(mut room) = width_max.checked_sub(text_width(MARK)).filter(|room| *room > 0) else {
        return String::new();
    };
    let fits = |letter: &char| {
        let left = room.checked_sub(letter_width(*letter));
        room = left.unwrap_or_default();
        left.is_some()
    };
    text.chars().take_while(fits).chain(MARK.chars()).collect()
}

/// Returns the status, or dashes if the client got none.
fn status_text(status: u64) -> String {
    match status {
        0 => "---".to_owned(),
        status => status.to_string(),
    }
}

/// Returns the model, or the path of a request without one.
fn subject_text(fields: &ExchangeFields) -> String {
    if fields.model.is_empty() {
        format!("{} {}", fields.method, fields.path)
    } else {
        fields.model.clone()
    }
}

/// Returns a duration in a unit that is easy to read.
fn duration_text(millis: u64) -> String {
    match millis {
        0..SECONDS_FROM => format!("{millis} ms"),
        _ => format!("{} s", (millis / 1000).min(SECONDS_MAX)),
    }
}

/// Returns a failure: its side, its code, and the cause of a failed send. Empty after a success.
fn failure_text(fields: &ExchangeFields) -> String {
    let refused = if fields.is_history_refused {
        " history refused"
    } else {
        ""
    };
    match (fields.side.as_str(), fields.code.as_str()) {
        ("-", "ok") => String::new(),
        (side, code) if fields.cause.is_empty() => format!("{side}/{code}{refused}"),
        (side, code) => format!("{side}/{code} {}", fields.cause),
    }
}

/// Returns the repair in words. Empty if nothing was found.
fn repair_text(repair: &str) -> String {
    match repair {
        "" | "none" => String::new(),
        "observed" | "rejected" => repair.to_owned(),
        _ => match repair.strip_prefix("unreadable; reason=") {
            Some(reason) => format!("unreadable={reason}"),
            None => format!("repaired {repair}"),
        },
    }
}

/// Returns the names of the rows because of which the body has mends. Empty if it has none.
fn rules_text(fields: &ExchangeFields) -> String {
    match fields.rules.as_str() {
        "" => String::new(),
        rules => format!("by {rules}"),
    }
}

/// Returns the calls that were found broken, each as its tool and its id. Empty if there are none.
fn calls_text(fields: &ExchangeFields) -> String {
    // Each is written as its fault, its tool and its id.
    let names = fields.broken_calls.split(", ").filter_map(|call| call.split_once(' '));
    let names: Vec<&str> = names.map(|(_, name)| name).collect();
    if names.is_empty() {
        return String::new();
    }
    format!("({})", names.join(", "))
}

/// Returns the end of a request id. Its start is the time, which is the same for a minute of requests.
fn short_id(id: &str) -> String {
    let letters = id.chars().count();
    id.chars().skip(letters.saturating_sub(ID_CHARS)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the fields of a successful exchange.
    fn fields() -> ExchangeFields {
        ExchangeFields {
            request_id: "0190b5a0-0000-7000-8000-0123456789ab".to_owned(),
            method: "POST".to_owned(),
            path: "/anthropic/v1/messages".to_owned(),
            upstream: "anthropic".to_owned(),
            model: "claude-sonnet-4-5".to_owned(),
            status: 200,
            dur_ms: 12,
            side: "-".to_owned(),
            code: "ok".to_owned(),
            ..ExchangeFields::default()
        }
    }

    fn line(time: &str, fields: &ExchangeFields) -> String {
        let columns = line_columns(time, "INFO", fields);
        let texts: Vec<&str> = columns.iter().map(|column| column.text.as_str()).collect();
        texts.join(" ")
    }

    /// Returns the fields of an exchange that failed.
    fn failed(status: u64, side: &str, code: &str) -> ExchangeFields {
        let (side, code) = (side.to_owned(), code.to_owned());
        ExchangeFields {
            status,
            side,
            code,
            ..fields()
        }
    }

    /// Returns the same fields with a repair, and with the calls that it was about.
    fn with_repair(repair: &str, broken_calls: &str, fields: ExchangeFields) -> ExchangeFields {
        let (repair, broken_calls) = (repair.to_owned(), broken_calls.to_owned());
        ExchangeFields {
            repair,
            broken_calls,
            ..fields
        }
    }

    #[test]
    fn a_line_shows_what_matters_to_people() {
        let slow = ExchangeFields {
            dur_ms: 75_900,
            ..fields()
        };
        let refused = ExchangeFields {
            is_history_refused: true,
            ..failed(400, "client", "request")
        };
        let elsewhere = ExchangeFields {
            status: 404,
            upstream: String::new(),
            model: String::new(),
            ..fields()
        };
        let rejected = failed(400, "client", "rejected");
        let intercepted = ExchangeFields {
            cause: "unknown_issuer".to_owned(),
            ..failed(502, "network", "tls")
        };
        let mended = ExchangeFields {
            rules: "developer_not_one_of_roles".to_owned(),
            ..with_repair("fixed=1", "", fields())
        };
        let model = "anthropic claude-sonnet-4-5";
        for (fields, shown) in [
            (fields(), format!("200 {model} 12 ms")),
            (with_repair("none", "", slow), format!("200 {model} 75 s")),
            (
                failed(529, "provider", "overloaded"),
                format!("529 {model} 12 ms provider/overloaded"),
            ),
            (
                failed(0, "client", "client_gone"),
                format!("--- {model} 12 ms client/client_gone"),
            ),
            (
                with_repair("placeholder=1", "unanswered bash toolu_01A", fields()),
                format!("200 {model} 12 ms repaired placeholder=1 (bash toolu_01A)"),
            ),
            (
                with_repair("rejected", "orphan - call_1, no_id bash -", rejected),
                format!("400 {model} 12 ms client/rejected rejected (- call_1, bash -)"),
            ),
            (
                with_repair("unreadable; reason=shape", "", refused),
                format!("400 {model} 12 ms client/request history refused unreadable=shape"),
            ),
            (
                mended,
                format!("200 {model} 12 ms repaired fixed=1 by developer_not_one_of_roles"),
            ),
            (intercepted, format!("502 {model} 12 ms network/tls unknown_issuer")),
            (elsewhere, "404 POST /anthropic/v1/messages 12 ms".to_owned()),
        ] {
            let line = line("12:13:05Z", &fields);
            assert_eq!(line, format!("12:13:05Z INFO {shown} 0123456789ab"));
        }
    }

    #[test]
    fn no_line_is_longer_than_its_limit() {
        let texts = ["", "a", &"a".repeat(40), &"图".repeat(40), &"x".repeat(5000), "-"];
        let calls = [
            "",
            "unanswered bash toolu_01A",
            &format!("orphan {0} {0}, bad_id {0} {0}", "图".repeat(40)),
        ];
        let mut lines = 0;
        for upstream in texts {
            for model in texts {
                for repair in texts {
                    for code in texts {
                        for broken_calls in calls {
                            let fields = ExchangeFields {
                                upstream: upstream.to_owned(),
                                model: model.to_owned(),
                                repair: repair.to_owned(),
                                rules: repair.to_owned(),
                                side: "provider_compaction".to_owned(),
                                code: code.to_owned(),
                                broken_calls: broken_calls.to_owned(),
                                path: "/".repeat(300),
                                is_history_refused: true,
                                status: u64::from(u16::MAX),
                                dur_ms: u64::MAX,
                                ..fields()
                            };
                            let line = line("2026-11-24T12:13:05Z", &fields);
                            assert!(text_width(&line) <= COLUMNS_MAX, "{line}");
                            assert!(line.ends_with(" 0123456789ab"), "{line}");
                            assert!(line.contains(" 99999 s provider_compaction/"), "{line}");
                            lines += 1;
                        }
                    }
                }
            }
        }
        assert_eq!(lines, 6 * 6 * 6 * 6 * 3);
    }

    #[test]
    fn a_long_line_loses_the_end_of_the_model_and_then_calls() {
        let fields = ExchangeFields {
            model: "claude-sonnet-4-5-20250929".to_owned(),
            repair: "moved=1, placeholder=2".to_owned(),
            rules: "developer_not_one_of_roles".to_owned(),
            broken_calls: format!("unanswered bash toolu_{}, orphan read toolu_2", "1".repeat(24)),
            dur_ms: 1234,
            ..fields()
        };
        assert_eq!(
            line("12:13:05Z", &fields),
            "12:13:05Z INFO 200 anthropic claude-sonnet-4… 1234 ms repaired moved=1, placeholder=2 \
             (bash toolu_111111… 0123456789ab"
        );
    }
}
