//! New ids for ids that the provider rejects. They depend only on the old id and, for a repeated id, on its ordinal.

use crate::{
    conversation::rules::{IdRule, is_word},
    work,
};

/// Returns the id that replaces `old` under `rule`. `ordinal` is 1, or higher for an id that repeats.
pub(super) fn legal_id(old: &[u8], rule: IdRule, ordinal: usize) -> String {
    work::count(old.len());
    if rule == IdRule::Nine {
        return nine_characters(old, ordinal);
    }
    let kept = if rule.accepts(old) {
        String::from_utf8_lossy(old).into_owned()
    } else {
        replace_illegal(old, rule)
    };
    if ordinal < 2 {
        return kept;
    }
    let numbered = format!("{kept}_{ordinal}");
    // The ordinal adds legal characters only, so it can break no rule but a length limit.
    if rule.accepts(numbered.as_bytes()) {
        numbered
    } else {
        format!("{}_{ordinal}", replace_illegal(numbered.as_bytes(), rule))
    }
}

/// Replaces illegal characters by `_`, then adds `_` and six characters of the hash of the old id.
fn replace_illegal(old: &[u8], rule: IdRule) -> String {
    // Two ids that differ only in illegal characters must stay different, which the hash ensures.
    let legal = |letter: char| u8::try_from(letter).is_ok_and(is_word);
    let text = String::from_utf8_lossy(old);
    let kept = text.chars().map(|letter| if legal(letter) { letter } else { '_' });
    // 24 + `_` + 6 leaves room for an ordinal under OpenAI's limit of 40.
    let kept: String = if matches!(rule, IdRule::Within(_)) {
        kept.take(24).collect()
    } else {
        kept.collect()
    };
    format!("{kept}_{}", &hash_hex(old)[..6])
}

/// Returns nine letters and digits, as Mistral requires.
fn nine_characters(old: &[u8], ordinal: usize) -> String {
    if ordinal < 2 {
        return hash_hex(old)[..9].to_owned();
    }
    let mut numbered = old.to_vec();
    numbered.extend(format!("#{ordinal}").bytes());
    hash_hex(&numbered)[..9].to_owned()
}

/// Returns the tool name that replaces `old`: at most 64 letters, digits, `_` and `-`.
pub(super) fn legal_name(old: &[u8]) -> String {
    work::count(old.len());
    let legal = |letter: char| u8::try_from(letter).is_ok_and(is_word);
    let text = String::from_utf8_lossy(old);
    let kept = text.chars().map(|letter| if legal(letter) { letter } else { '_' });
    // 57 + `_` + 6 is the limit of OpenAI and Bedrock. The hash keeps names apart that differ only in what is replaced.
    let kept: String = kept.take(57).collect();
    format!("{kept}_{}", &hash_hex(old)[..6])
}

fn hash_hex(bytes: &[u8]) -> String {
    blake3::hash(bytes).to_hex().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_ids_are_taken_and_depend_on_the_old_id_alone() {
        let rows: &[(&str, IdRule, usize)] = &[
            ("functions.Bash:0", IdRule::Word, 1),
            ("functions.Bash:0", IdRule::Word, 3),
            ("", IdRule::Word, 1),
            ("", IdRule::NotEmpty, 2),
            ("call|fc_123456789012345678901234567890123456789", IdRule::Within(40), 1),
            ("call_89012345678901234567890123456789012", IdRule::Within(40), 2),
            ("2968-LWy3uasib", IdRule::Nine, 1),
            ("aB3dE6gH9", IdRule::Nine, 2),
            ("übergröße", IdRule::Word, 12),
        ];
        for (old, rule, ordinal) in rows {
            let new = legal_id(old.as_bytes(), *rule, *ordinal);
            assert!(rule.accepts(new.as_bytes()), "{old} → {new}");
            assert_eq!(new, legal_id(old.as_bytes(), *rule, *ordinal));
            assert_ne!(new, legal_id(old.as_bytes(), *rule, ordinal + 1));
        }
        assert_eq!(legal_id(b"toolu_1", IdRule::Word, 2), "toolu_1_2");
    }
}
