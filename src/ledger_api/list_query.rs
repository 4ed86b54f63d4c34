//! The query of `GET outstanding`: which calls are listed, and where the page begins.

use std::str::FromStr;

use crate::{
    api::Problem,
    auth::principal::{KEY_PARAMETER, decode_query},
};

/// Rows of a page, and the most that a caller may ask for.
const ROWS: (usize, usize) = (1000, 1000);

/// The calls that a page lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, utoipa::ToSchema)]
#[schema(rename_all = "lowercase")]
pub(super) enum ListedState {
    /// Calls whose posted result waits for the caller.
    Settled,
    /// Calls that still run.
    Open,
}

/// A query of `GET outstanding`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ListQuery {
    pub(super) state: ListedState,
    /// The name of the session. `None` for the calls of all sessions.
    pub(super) session: Option<Vec<u8>>,
    /// The cursor after which the page begins: 0 for the first.
    pub(super) after: u64,
    pub(super) limit: usize,
    /// `true` if results come with their contents.
    pub(super) has_content: bool,
}

impl ListQuery {
    /// Reads a query. Refuses unknown parameters: a misspelt filter would return other calls than the wanted ones.
    pub(super) fn parse(query: Option<&str>) -> Result<Self, Problem> {
        let mut read = Self {
            state: ListedState::Settled,
            session: None,
            after: 0,
            limit: ROWS.0,
            has_content: false,
        };
        let pairs = query.unwrap_or_default().split('&').filter(|pair| !pair.is_empty());
        for pair in pairs {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let (name, value) = (decode_query(name), decode_query(value));
            match (&*name, &*value) {
                (b"state", b"settled") => read.state = ListedState::Settled,
                (b"state", b"open") => read.state = ListedState::Open,
                (b"state", _) => return Err(Problem::malformed("state must be settled or open")),
                (b"session", session) => read.session = Some(session.to_vec()),
                (b"after", cursor) => {
                    let cursor = parse_number(cursor);
                    read.after = cursor.ok_or(Problem::malformed("after must be the `next` of a page"))?;
                }
                (b"limit", limit) => {
                    let limit = parse_number(limit).filter(|limit| (1..=ROWS.1).contains(limit));
                    read.limit = limit.ok_or(Problem::malformed("limit must be a number from 1 to 1000"))?;
                }
                (b"content", b"true") => read.has_content = true,
                (b"content", b"false") => read.has_content = false,
                (b"content", _) => return Err(Problem::malformed("content must be true or false")),
                // A credential, which identifies the caller.
                (name, _) if name == KEY_PARAMETER.as_bytes() => {}
                _ => {
                    return Err(Problem::malformed(
                        "unknown query parameter (known here: state, session, after, limit, content)",
                    ));
                }
            }
        }
        Ok(read)
    }
}

/// Parses a number that consists of digits only.
fn parse_number<N: FromStr>(text: &[u8]) -> Option<N> {
    let text = std::str::from_utf8(text).ok()?;
    // `parse` alone would accept a sign.
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| is_number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_is_read_or_refused() {
        let read = ListQuery::parse(Some("state=open&session=a%20b&after=7&limit=2&content=true")).unwrap();
        assert!(read.state == ListedState::Open && read.has_content);
        assert_eq!((read.session, read.after, read.limit), (Some(b"a b".to_vec()), 7, 2));
        assert_eq!(ListQuery::parse(None).unwrap().limit, 1000);
        for wrong in [
            "state=acked",
            "limit=0",
            "limit=1001",
            "limit=+1",
            "after=x",
            "after=%2B7",
            "sesion=a",
            "content=1",
        ] {
            assert!(ListQuery::parse(Some(wrong)).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_query_is_decoded_as_forms_are() {
        let read = ListQuery::parse(Some("st%61te=%6Fpen&session=a+b%2Bc&limit=%32")).unwrap();
        assert_eq!(read.state, ListedState::Open);
        assert_eq!((read.session, read.limit), (Some(b"a b+c".to_vec()), 2));
    }

    #[test]
    fn a_credential_in_the_query_is_no_filter() {
        let read = ListQuery::parse(Some("key=AIza&limit=3")).unwrap();
        assert_eq!((read.session, read.limit), (None, 3));
    }
}
