//! Parsers for the times to wait that providers write: Go durations, dates, and English.

use std::{
    fmt::Write as _,
    time::{Duration, UNIX_EPOCH},
};

/// Parses a duration as Go prints it: `1s`, `6m0s`, `120ms`, `11.054s`, `1h2m3.5s`.
pub(super) fn parse_go_duration(text: &str) -> Option<Duration> {
    let mut rest = text.trim();
    if rest.is_empty() {
        return None;
    }
    let mut total = 0.0;
    while !rest.is_empty() {
        let digits = rest.find(|letter: char| !letter.is_ascii_digit() && letter != '.')?;
        let (number, after) = rest.split_at_checked(digits)?;
        let letters = after
            .find(|letter: char| letter.is_ascii_digit())
            .unwrap_or(after.len());
        let (unit, after) = after.split_at_checked(letters)?;
        let scale = match unit {
            "ns" => 1e-9,
            "us" | "µs" => 1e-6,
            "ms" => 1e-3,
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3600.0,
            "d" => 86_400.0,
            _ => return None,
        };
        total += number.parse::<f64>().ok()? * scale;
        rest = after;
    }
    // Fails for a sum that overflows, instead of a panic on the provider's input.
    Duration::try_from_secs_f64(total).ok()
}

/// Finds the wait that a message names: "try again in 11.054s", "retry in 2 minutes". The text is in lower case.
pub(super) fn find_wait(message: &str) -> Option<Duration> {
    // OpenAI writes the first, Google the second.
    let after = ["try again in ", "retry in "]
        .iter()
        .find_map(|words| message.split_once(words));
    let (_, after) = after?;
    let mut words = after.split_whitespace();
    let first = words.next()?.trim_end_matches(['.', ',', ';', ')']);
    // OpenAI writes Go durations into prose.
    if let Some(found) = parse_go_duration(first) {
        return Some(found);
    }
    let number: f64 = first.parse().ok()?;
    let scale = match words.next()?.trim_matches(|letter: char| !letter.is_ascii_alphabetic()) {
        "second" | "seconds" | "s" => 1.0,
        "minute" | "minutes" => 60.0,
        "hour" | "hours" => 3600.0,
        "day" | "days" => 86_400.0,
        _ => return None,
    };
    Duration::try_from_secs_f64(number * scale).ok()
}

/// Finds the date in "you will regain access on 2026-12-01 at 00:00 utc", as time since 1970. The text is in lower
/// case.
pub(super) fn find_regain_date(message: &str) -> Option<Duration> {
    let (_, after) = message.split_once("regain access on ")?;
    let day = after.get(..10)?;
    let clock = after
        .get(10..)
        .and_then(|rest| rest.trim_start().strip_prefix("at "))
        .and_then(|rest| rest.get(..5))
        .filter(|clock| clock.as_bytes().get(2) == Some(&b':'))
        // A date without a time begins at midnight.
        .unwrap_or("00:00");
    parse_rfc3339(&format!("{day}T{clock}:00Z"))
}

/// Returns the end of the next month, as time since 1970; `None` if the present has no date.
pub(super) fn end_of_next_month(since_1970: Duration) -> Option<Duration> {
    let mut date = String::new();
    // Checked, because a wrong system clock must not panic.
    let present = UNIX_EPOCH.checked_add(since_1970)?;
    write!(date, "{}", humantime::format_rfc3339_seconds(present)).ok()?;
    let year: u32 = date.get(..4)?.parse().ok()?;
    let month: u32 = date.get(5..7)?.parse().ok()?;
    let (year, month) = match month {
        // The end of the next month is the first day of the month after it.
        11 | 12 => (year + 1, month - 10),
        _ => (year, month + 2),
    };
    parse_rfc3339(&format!("{year:04}-{month:02}-01T00:00:00Z"))
}

/// Parses an RFC 3339 instant as time since 1970.
pub(super) fn parse_rfc3339(text: &str) -> Option<Duration> {
    let text = text.trim().to_ascii_uppercase();
    // humantime accepts UTC in the form `Z` only; providers write no other zone.
    let utc = text
        .strip_suffix("+00:00")
        .map(|text| format!("{text}Z"))
        .unwrap_or(text);
    humantime::parse_rfc3339(&utc).ok()?.duration_since(UNIX_EPOCH).ok()
}

/// Parses an HTTP date as time since 1970.
pub(super) fn parse_http_date(text: &str) -> Option<Duration> {
    httpdate::parse_http_date(text.trim())
        .ok()?
        .duration_since(UNIX_EPOCH)
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_spelling_is_read() {
        for (text, millis) in [
            ("1s", Some(1000)),
            ("6m0s", Some(360_000)),
            ("120ms", Some(120)),
            ("11.054s", Some(11_054)),
            ("1h2m3.5s", Some(3_723_500)),
            ("34s", Some(34_000)),
            ("", None),
            ("5", None),
            ("5x", None),
            ("-1s", None),
            ("1e400s", None),
        ] {
            let read = parse_go_duration(text).map(|found| (found + Duration::from_micros(500)).as_millis());
            assert_eq!(read, millis, "{text}");
        }
        for (text, seconds) in [
            ("rate limit reached … please try again in 11.054s. visit", Some(11)),
            ("try again in 2 minutes", Some(120)),
            ("try again in 1 hour.", Some(3600)),
            ("try again later", None),
            ("try again in a while", None),
        ] {
            assert_eq!(find_wait(text).map(|found| found.as_secs()), seconds, "{text}");
        }
        let day = Some(1_796_083_200);
        for (text, at) in [
            ("you will regain access on 2026-12-01 at 00:00 utc.", day),
            ("you will regain access on 2026-12-01.", day),
            ("you will regain access on 2026-12-01 at 12:30 utc", Some(1_796_128_200)),
            ("you will regain access on monday", None),
            ("you will regain access on ", None),
        ] {
            assert_eq!(find_regain_date(text).map(|found| found.as_secs()), at, "{text}");
        }
        assert_eq!(parse_rfc3339("2026-12-01T00:00:00Z").map(|found| found.as_secs()), day);
        assert_eq!(
            parse_rfc3339("2026-12-01t00:00:00+00:00").map(|found| found.as_secs()),
            day
        );
        assert_eq!(
            parse_http_date("Tue, 01 Dec 2026 00:00:00 GMT").map(|found| found.as_secs()),
            day
        );
        assert_eq!((parse_rfc3339("soon"), parse_http_date("soon")), (None, None));
    }

    #[test]
    fn the_next_month_ends_where_the_one_after_it_begins() {
        for (present, end) in [
            ("2026-01-01T00:00:00Z", "2026-03-01T00:00:00Z"),
            ("2026-01-31T23:59:59Z", "2026-03-01T00:00:00Z"),
            ("2026-10-15T12:00:00Z", "2026-12-01T00:00:00Z"),
            ("2026-11-30T12:00:00Z", "2027-01-01T00:00:00Z"),
            ("2026-12-01T00:00:00Z", "2027-02-01T00:00:00Z"),
        ] {
            assert_eq!(
                end_of_next_month(parse_rfc3339(present).unwrap()),
                parse_rfc3339(end),
                "{present}"
            );
        }
        assert_eq!(end_of_next_month(Duration::MAX), None);
        assert_eq!(end_of_next_month(Duration::from_secs(1 << 50)), None);
    }
}
