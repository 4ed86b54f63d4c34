//! The query of `GET outstanding`: which calls are listed, and where the page begins.

use crate::{
    api::{
        Problem, ProblemCode,
        query::{Query, read_flag, read_number},
    },
    auth::principal::KEY_PARAMETER,
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
        let mut query = Query::parse(query, ProblemCode::Malformed);
        // A credential, which identifies the caller.
        query.take(KEY_PARAMETER, "", |_| Some(()))?;
        let state = query.take("state", "state must be settled or open", |state| match state {
            b"settled" => Some(ListedState::Settled),
            b"open" => Some(ListedState::Open),
            _ => None,
        })?;
        let read = Self {
            state: state.unwrap_or(ListedState::Settled),
            session: query.take("session", "", |session| Some(session.to_vec()))?,
            after: query
                .take("after", "after must be the `next` of a page", read_number)?
                .unwrap_or_default(),
            limit: query.take_limit(ROWS.0, ROWS.1, "limit must be a number from 1 to 1000")?,
            has_content: query
                .take("content", "content must be true or false", read_flag)?
                .unwrap_or_default(),
        };
        query.finish("unknown query parameter (known here: state, session, after, limit, content)")?;
        Ok(read)
    }
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
