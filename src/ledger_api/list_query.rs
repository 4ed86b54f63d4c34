//! The query of `GET outstanding`: which calls are listed, and where the page begins.

use super::response::ApiRefusal;
use crate::auth::principal::decode_segment;

/// Rows of a page, and the most that a caller may ask for.
const ROWS: (usize, usize) = (1000, 1000);

/// The calls that a page lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
    /// The cursor behind which the page begins: 0 for the first.
    pub(super) after: u64,
    pub(super) limit: usize,
}

impl ListQuery {
    /// Reads a query. Refuses unknown parameters: a misspelt filter would return other calls than the wanted ones.
    pub(super) fn parse(query: Option<&str>) -> Result<Self, ApiRefusal> {
        let mut read = Self {
            state: ListedState::Settled,
            session: None,
            after: 0,
            limit: ROWS.0,
        };
        let pairs = query.unwrap_or_default().split('&').filter(|pair| !pair.is_empty());
        for pair in pairs {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            match (name, value) {
                ("state", "settled") => read.state = ListedState::Settled,
                ("state", "open") => read.state = ListedState::Open,
                ("state", _) => return Err(ApiRefusal::malformed("state must be settled or open")),
                ("session", session) => read.session = Some(decode_segment(session).into_owned()),
                ("after", cursor) => {
                    let cursor = cursor.parse();
                    read.after = cursor.map_err(|_| ApiRefusal::malformed("after must be the `next` of a page"))?;
                }
                ("limit", limit) => {
                    let limit = limit.parse().ok().filter(|limit| (1..=ROWS.1).contains(limit));
                    read.limit = limit.ok_or(ApiRefusal::malformed("limit must be a number from 1 to 1000"))?;
                }
                _ => {
                    return Err(ApiRefusal::malformed(
                        "unknown query parameter (known here: state, session, after, limit)",
                    ));
                }
            }
        }
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_is_read_or_refused() {
        let read = ListQuery::parse(Some("state=open&session=a%20b&after=7&limit=2")).unwrap();
        assert_eq!(read.state, ListedState::Open);
        assert_eq!((read.session, read.after, read.limit), (Some(b"a b".to_vec()), 7, 2));
        assert_eq!(ListQuery::parse(None).unwrap().limit, 1000);
        for wrong in ["state=acked", "limit=0", "limit=1001", "after=x", "sesion=a"] {
            assert!(ListQuery::parse(Some(wrong)).is_err(), "{wrong}");
        }
    }
}
