//! Pages of the records of every caller, for lists of operators.

use super::{LateError, LateStore, operator_list::ListCursor};
use crate::ledger::{Moment, ROWS_MAX, Record, RecordKind};

/// Principals of which one page reads the records.
const PRINCIPALS_MAX: usize = 256;

/// Returns up to `limit` rows that `pick` makes of records of a kind, after the cursor, and the cursor of the next page.
///
/// A page may have fewer rows and a next one all the same: it reads a limited number of records.
pub(super) async fn read_page<T>(
    late: &LateStore,
    kind: RecordKind,
    after: Option<ListCursor>,
    limit: usize,
    now: Moment,
    pick: impl Fn(&Record) -> Option<T>,
) -> Result<(Vec<T>, Option<ListCursor>), LateError> {
    let ledger = &late.0.ledger;
    let mut rows = Vec::new();
    let mut cursor = after;
    for _ in 0..PRINCIPALS_MAX {
        let ListCursor { principal, place } = match cursor {
            Some(cursor) => cursor,
            None => match ledger.list_principals(kind, None, 1).await?.first() {
                Some(first) => ListCursor {
                    principal: *first,
                    place: 0,
                },
                None => return Ok((rows, None)),
            },
        };
        let page = ledger.list_after(kind, principal, place, ROWS_MAX, now).await?;
        let is_last = page.len() < ROWS_MAX;
        for (place, record) in page {
            cursor = Some(ListCursor { principal, place });
            rows.extend(pick(&record));
            if rows.len() >= limit {
                return Ok((rows, cursor));
            }
        }
        if is_last {
            match ledger.list_principals(kind, Some(principal), 1).await?.first() {
                Some(next) => {
                    cursor = Some(ListCursor {
                        principal: *next,
                        place: 0,
                    });
                }
                None => return Ok((rows, None)),
            }
        }
    }
    Ok((rows, cursor))
}
