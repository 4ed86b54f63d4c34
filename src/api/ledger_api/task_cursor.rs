//! The cursor of the list of tasks: `calls:` or `intents:` and a place.

use crate::{
    api::{
        Problem, ProblemCode,
        query::{Query, read_number},
    },
    late::TaskCursor,
};

/// Writes a cursor for `next`.
pub(super) fn write_cursor(cursor: TaskCursor) -> String {
    match cursor {
        TaskCursor::Calls(place) => format!("calls:{place}"),
        TaskCursor::Intents(place) => format!("intents:{place}"),
    }
}

/// Reads the cursor of a query.
pub(super) fn read_cursor(query: Option<&str>) -> Result<TaskCursor, Problem> {
    const AFTER: &str = "the only query parameter is after: the `next` of a page";
    let mut query = Query::parse(query, ProblemCode::Malformed);
    let cursor = query.take("after", AFTER, |text| parse_cursor(std::str::from_utf8(text).ok()?))?;
    query.finish(AFTER)?;
    Ok(cursor.unwrap_or(TaskCursor::Intents(0)))
}

fn parse_cursor(text: &str) -> Option<TaskCursor> {
    let (kind, place) = text.split_once(':')?;
    let place = read_number(place.as_bytes())?;
    match kind {
        "calls" => Some(TaskCursor::Calls(place)),
        "intents" => Some(TaskCursor::Intents(place)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_is_read_as_it_was_written() {
        for cursor in [
            TaskCursor::Calls(0),
            TaskCursor::Calls(17),
            TaskCursor::Intents(u64::MAX),
        ] {
            let query = format!("after={}", write_cursor(cursor));
            assert_eq!(read_cursor(Some(&query)).unwrap(), cursor);
        }
        assert_eq!(read_cursor(None).unwrap(), TaskCursor::Intents(0));
        for query in [
            "after=",
            "after=calls",
            "after=calls:+1",
            "after=tasks:1",
            "before=calls:1",
        ] {
            assert!(read_cursor(Some(query)).is_err(), "{query}");
        }
    }
}
