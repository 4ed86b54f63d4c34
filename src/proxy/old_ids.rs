//! Restores the client's own ids in a provider's refusal that names the new ids of a repaired request.
#![cfg_attr(
    not(test),
    warn(clippy::indexing_slicing, clippy::string_slice, clippy::arithmetic_side_effects)
)]

use bytes::Bytes;

use crate::work;

/// Maximum length of a restored id in bytes. A longer id stays replaced, which bounds the work and the answer.
const ID_BYTES_MAX: usize = 1024;

/// Returns `text` with every new id replaced by the client's own.
///
/// `renamed` contains pairs of a new id and the client's own. If several new ids begin at one place, the longest is
/// replaced. Restored ids are not searched again. A text without new ids is returned as the same handle.
pub(super) fn restore_old_ids(text: Bytes, renamed: &[(String, String)]) -> Bytes {
    let ids = NewIds::new(renamed);
    let mut out = Vec::new();
    let (mut copied, mut at) = (0, 0);
    while let Some(rest) = text.get(at..).filter(|rest| !rest.is_empty()) {
        work::count(1);
        let Some(id) = ids.longest_match(rest) else {
            at = at.saturating_add(1);
            continue;
        };
        out.extend_from_slice(text.get(copied..at).unwrap_or_default());
        out.extend_from_slice(id.old);
        at = at.saturating_add(id.new.len());
        copied = at;
    }
    // Nothing was replaced, since no id is empty: the text needs no copy.
    if copied == 0 {
        return text;
    }
    out.extend_from_slice(text.get(copied..).unwrap_or_default());
    Bytes::from(out)
}

/// New ids of one request.
struct NewIds<'r> {
    /// Ids sorted by the new id, each once.
    ids: Vec<NewId<'r>>,
    /// For each byte, `true` if a new id begins with it.
    first_bytes: [bool; 256],
}

/// New id that a repair gave, and the client's own.
struct NewId<'r> {
    new: &'r [u8],
    old: &'r [u8],
    /// Index of the longest other new id with which this one begins.
    longest_prefix: Option<usize>,
}

impl<'r> NewIds<'r> {
    /// Sorts the ids, and finds for each the longest other id with which it begins.
    fn new(renamed: &'r [(String, String)]) -> Self {
        let fits = |id: &str| id.len() <= ID_BYTES_MAX;
        let mut pairs: Vec<(&[u8], &[u8])> = renamed
            .iter()
            .filter(|(new, old)| !new.is_empty() && fits(new) && fits(old))
            .map(|(new, old)| (new.as_bytes(), old.as_bytes()))
            .collect();
        // The sort is stable: of equal new ids the first pair stays.
        pairs.sort_by_key(|(new, _)| *new);
        pairs.dedup_by_key(|(new, _)| *new);
        let mut ids: Vec<NewId<'r>> = Vec::with_capacity(pairs.len());
        let mut begins = [false; 256];
        for (new, old) in pairs {
            if let Some(slot) = new.first().and_then(|first| begins.get_mut(usize::from(*first))) {
                *slot = true;
            }
            // In sorted order an id follows its longest head, or other ids that begin with this head too.
            let mut head = ids.len().checked_sub(1);
            while let Some(other) = head.and_then(|head| ids.get(head)) {
                work::count(1);
                if new.starts_with(other.new) {
                    break;
                }
                head = other.longest_prefix;
            }
            ids.push(NewId {
                new,
                old,
                longest_prefix: head,
            });
        }
        Self {
            ids,
            first_bytes: begins,
        }
    }

    /// Returns the longest new id that `text` begins with.
    fn longest_match(&self, text: &[u8]) -> Option<&NewId<'r>> {
        // Most bytes of a text begin no id: one look at a table skips them.
        let first = text.first()?;
        if !*self.first_bytes.get(usize::from(*first))? {
            return None;
        }
        // The last id that does not sort after the text is the match, or begins with the match.
        let text = text.get(..text.len().min(ID_BYTES_MAX)).unwrap_or_default();
        let after = self.ids.partition_point(|id| {
            work::count(1);
            id.new <= text
        });
        let mut found = self.ids.get(after.checked_sub(1)?)?;
        let shared = found
            .new
            .iter()
            .zip(text)
            .take_while(|(one, other)| one == other)
            .count();
        work::count(shared);
        // Each head is shorter, and an id that the text begins with is never longer than the shared part.
        while found.new.len() > shared {
            work::count(1);
            found = self.ids.get(found.longest_prefix?)?;
        }
        Some(found)
    }
}

#[cfg(test)]
mod tests {
    use memchr::memmem;
    use proptest::prelude::*;

    use super::*;

    fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        let own = |(new, old): &(&str, &str)| ((*new).to_owned(), (*old).to_owned());
        pairs.iter().map(own).collect()
    }

    #[test]
    fn ids_are_put_back_in_one_pass() {
        let rows = [
            (vec![("a1", "a12"), ("a12", "b")], "a1 a12 a1x", "a12 b a12x"),
            // Of ids that begin at one place the longest counts, or a shorter one if the longest is cut off.
            (
                vec![("t_1", "t 1!"), ("t_11", "t 11!")],
                "t_11,t_1,t_1",
                "t 11!,t 1!,t 1!",
            ),
            (vec![("t", "T"), ("t_1_9", "N")], "t_1_8 t_1_9 t_", "T_1_8 N T_"),
            (vec![("t", "T"), ("t_1", "O"), ("t_1_8", "E")], "t_1_9", "O_9"),
            // Restored ids are not searched again.
            (vec![("a", "ab"), ("b", "a")], "aba", "abaab"),
            (vec![("x", "first"), ("x", "second")], "x", "first"),
            (vec![("", "never")], "x", "x"),
            (vec![], "x", "x"),
        ];
        for (renamed, text, wanted) in rows {
            let text = Bytes::from_static(text.as_bytes());
            assert_eq!(restore_old_ids(text, &pairs(&renamed)), wanted, "{renamed:?}");
        }
    }

    /// Ids that begin alike, and a text of all of them, as of a server that echoes what it validates.
    #[cfg(debug_assertions)]
    #[test]
    fn many_ids_cost_one_pass_over_the_text() {
        let steps = |count: usize| {
            let new = |index| format!("t_{index}_{}", "a".repeat(index % 7));
            let renamed: Vec<_> = (0..count).map(|index| (new(index), format!("t {index}!"))).collect();
            let text = (0..count).map(new).collect::<Vec<_>>().join(",");
            let (steps, restored) = work::measure(|| restore_old_ids(Bytes::from(text), &renamed));
            assert!(restored.ends_with(format!("t {}!", count - 1).as_bytes()));
            steps
        };
        let (less, more) = (steps(500), steps(4_000));
        assert!(more <= 12 * less, "{less}, then {more} steps");
    }

    #[test]
    fn a_text_without_new_ids_is_the_same_handle() {
        let text = Bytes::from_static(b"nothing is named");
        let same = restore_old_ids(text.clone(), &pairs(&[("toolu_1_2", "toolu_1")]));
        assert_eq!(same.as_ptr(), text.as_ptr());
    }

    #[test]
    fn ids_of_any_length_in_the_text_stay_within_bounds() {
        let long = "x".repeat(ID_BYTES_MAX + 1);
        for (new, old) in [(long.as_str(), "o"), ("n", long.as_str())] {
            let text = Bytes::from(format!("n {long}"));
            assert_eq!(restore_old_ids(text.clone(), &pairs(&[(new, old)])), text);
        }
    }

    /// Does the same as [`restore_old_ids`], by a search for every id at every step.
    fn slowly(text: &[u8], renamed: &[(String, String)]) -> Vec<u8> {
        let (mut out, mut rest) = (Vec::new(), text);
        let found = |rest: &[u8]| {
            let all = renamed.iter().filter(|(new, _)| !new.is_empty());
            let all =
                all.filter_map(|(new, old)| Some((memmem::find(rest, new.as_bytes())?, new.clone(), old.clone())));
            all.min_by_key(|(at, new, _)| (*at, std::cmp::Reverse(new.len())))
        };
        while let Some((at, new, old)) = found(rest) {
            out.extend_from_slice(&rest[..at]);
            out.extend_from_slice(old.as_bytes());
            rest = &rest[at + new.len()..];
        }
        out.extend_from_slice(rest);
        out
    }

    proptest! {
        #[test]
        fn a_slow_search_finds_the_same(
            renamed in prop::collection::vec(("[ab_]{0,5}", "[abc]{0,3}"), 0..8),
            text in "[ab_ ]{0,40}",
        ) {
            let wanted = slowly(text.as_bytes(), &renamed);
            prop_assert_eq!(restore_old_ids(Bytes::from(text), &renamed).to_vec(), wanted);
        }
    }
}
