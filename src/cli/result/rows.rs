//! Rows of the ledger API's lists, read from the bytes of an answer.

use std::{borrow::Cow, time::Duration};

use bytes::Bytes;

use crate::{
    cli::{table::NO_VALUE, time_format::format_time},
    printable::printable_text,
    splice::Span,
    wire::json::{Json, JsonKind, compact_json, replace_lone_surrogates},
};

/// Names of the columns of the table.
pub(super) const COLUMNS: [&str; 6] = ["CALL", "TOOL", "SESSION", "STATE", "AGE", "DELIVERY"];

/// The rows of one answer.
#[derive(Debug)]
pub(super) struct ListedRows {
    pub(super) rows: Vec<ListedRow>,
    /// The cursor of the next page. `None` if this is the last.
    pub(super) next: Option<u64>,
}

/// A call as the API lists it, with its posted result if it has one.
#[derive(Debug)]
pub(super) struct ListedRow {
    /// The row's JSON.
    json: Bytes,
    pub(super) call_id: String,
    pub(super) tool: String,
    /// The name of the session. `None` if the caller named none.
    pub(super) session: Option<String>,
    pub(super) state: String,
    pub(super) delivery: String,
    /// Time since the result was posted, or since the call was recorded.
    pub(super) age: Duration,
    /// Size of the content in bytes. `None` if no result was posted.
    pub(super) bytes: Option<u64>,
    pub(super) is_error: bool,
    pub(super) is_withheld: bool,
}

impl ListedRows {
    /// Reads the rows of the list `name`. `None` if the answer has no such list.
    pub(super) fn read(answer: &Bytes, name: &str) -> Option<Self> {
        let json = Json::new(answer);
        let root = json.root_span().ok()?;
        let list = json
            .member(root, name)
            .filter(|list| json.kind(*list) == JsonKind::Array)?;
        let row = |span: Span| ListedRow::read(&answer.slice(span.start..span.end));
        let next = json.member_text(root, "next");
        Some(Self {
            rows: json.elements(list).into_iter().map(row).collect::<Option<_>>()?,
            next: std::str::from_utf8(&next).ok().and_then(|next| next.parse().ok()),
        })
    }
}

impl ListedRow {
    /// Reads one row. `None` if it is not one of the ledger API.
    fn read(row: &Bytes) -> Option<Self> {
        let json = Json::new(row);
        let root = json.root_span().ok()?;
        let text = |name: &str| {
            let span = json.string_member(root, name)?;
            Some(String::from_utf8_lossy(&json.decode_string(span)).into_owned())
        };
        let number = |name: &str| -> Option<u64> {
            let span = json.member(root, name)?;
            std::str::from_utf8(json.bytes(span)).ok()?.parse().ok()
        };
        let is_true = |name: &str| json.member(root, name).is_some_and(|span| json.bytes(span) == b"true");
        Some(Self {
            call_id: text("call_id")?,
            tool: text("tool")?,
            session: text("session"),
            state: text("state")?,
            delivery: text("delivery")?,
            age: Duration::from_secs(number("age")?),
            bytes: number("bytes"),
            is_error: is_true("is_error"),
            is_withheld: is_true("withheld"),
            json: row.clone(),
        })
    }

    /// Returns the row as JSON on one line.
    pub(super) fn json_line(&self) -> String {
        // A content has the line breaks with which it was posted.
        compact_json(&self.json)
    }

    /// Returns the content: a string without its quotes and escapes, and any other JSON as it was posted. `None` if the
    /// row has none.
    pub(super) fn content_bytes(&self) -> Option<Vec<u8>> {
        let json = Json::new(&self.json);
        let content = json.member(json.root_span().ok()?, "content")?;
        if json.kind(content) != JsonKind::String {
            return Some(json.bytes(content).to_vec());
        }
        // Half of a surrogate pair has no UTF-8, and providers get U+FFFD in its place too.
        let string: Cow<'_, str> = replace_lone_surrogates(std::str::from_utf8(json.bytes(content)).ok()?);
        let whole = Span::new(0, string.len());
        Some(Json::new(string.as_bytes()).decode_string(whole).into_owned())
    }
}

/// Returns the cells of a row.
pub(super) fn row_cells(row: &ListedRow) -> Vec<String> {
    vec![
        printable_text(&row.call_id),
        printable_text(&row.tool),
        row.session
            .as_deref()
            .map_or_else(|| NO_VALUE.to_owned(), printable_text),
        printable_text(&describe_state(row)),
        format_time(row.age),
        printable_text(&row.delivery),
    ]
}

/// Returns the state of a call, with the properties of its result that need attention.
pub(super) fn describe_state(row: &ListedRow) -> String {
    let mut state = row.state.clone();
    for (is_so, word) in [(row.is_error, ", error"), (row.is_withheld, ", withheld")] {
        if is_so {
            state.push_str(word);
        }
    }
    state
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROW: &str = r#""call_id":"c\n1","tool":"t","session":null,"state":"settled","delivery":"d","age":7"#;

    fn row(members: &str) -> ListedRow {
        let answer = Bytes::from(format!("{{\"results\":[{{{ROW}{members}}}]}}"));
        let mut rows = ListedRows::read(&answer, "results").unwrap();
        assert_eq!(rows.next, None);
        rows.rows.remove(0)
    }

    #[test]
    fn a_content_is_returned_as_it_was_posted() {
        for (posted, wanted) in [
            (r#""a\u0041\n\"""#, "aA\n\""),
            (r#""\ud800x\ud83d\ude00""#, "\u{fffd}x\u{1f600}"),
            ("{ \"a\": 1.0,\n \"b\": [1e2] }", "{ \"a\": 1.0,\n \"b\": [1e2] }"),
            ("null", "null"),
        ] {
            let row = row(&format!(
                ",\"is_error\":true,\"bytes\":3,\"withheld\":false,\"content\":{posted}"
            ));
            assert_eq!(String::from_utf8(row.content_bytes().unwrap()).unwrap(), wanted);
            assert!(!row.json_line().contains('\n'));
            assert_eq!((row.bytes, row.is_error, row.is_withheld), (Some(3), true, false));
        }
        let open = row("");
        assert_eq!((open.content_bytes(), open.session, open.bytes), (None, None, None));
        assert_eq!((&open.call_id[..], open.age.as_secs()), ("c\n1", 7));
    }

    #[test]
    fn a_page_names_the_next_one() {
        let answer = |next: &str| Bytes::from(format!("{{\"outstanding\":[],\"next\":{next}}}"));
        let next = |next: &str| ListedRows::read(&answer(next), "outstanding").unwrap().next;
        assert_eq!((next("\"17\""), next("null")), (Some(17), None));
        assert!(ListedRows::read(&answer("null"), "results").is_none());
    }
}
