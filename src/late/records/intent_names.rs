//! Names of intents: of their records, for services, and for the systems behind a tool. Pure.
//!
//! The domain strings are hashed into names in ledger files: changing one makes existing records unreachable.

use std::{
    fmt::{self, Write as _},
    str::FromStr,
};

use crate::{
    digest::digest_of,
    ledger::{Index, Moment, RecordKey, RecordName},
};

/// The longest key that a service may choose, in bytes.
pub const CHOSEN_KEY_BYTES_MAX: usize = 255;
/// The prefix of a written id.
const ID_PREFIX: &str = "int_";
/// The prefix of a written claim.
const CLAIM_PREFIX: &str = "claim_";

/// The conversations that share an intent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IntentScope {
    /// Those of one session.
    Session,
    /// All of one user.
    User,
}

impl IntentScope {
    /// Every scope. Ledger files contain these positions, so a position is never reused.
    pub const ALL: [Self; 2] = [Self::Session, Self::User];

    /// Returns the name in answers.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Session => "session",
            Self::User => "user",
        }
    }
}

/// The value that tells the intents of a tool apart within their scope.
#[derive(Clone, Copy, Debug)]
pub(in crate::late) enum IntentSubject<'s> {
    /// The digest of the canonical input.
    Input(&'s [u8; 32]),
    /// A key that the service has chosen.
    ChosenKey(&'s [u8]),
}

/// Returns the name of an intent's record within its principal. `session` is `None` for the scope of the whole user.
pub(in crate::late) fn intent_name(session: Option<&[u8; 32]>, tool: &[u8], subject: IntentSubject<'_>) -> RecordName {
    let session = session.map_or(&[][..], |session| &session[..]);
    let (kind, subject) = match subject {
        IntentSubject::Input(digest) => (&b"input"[..], &digest[..]),
        IntentSubject::ChosenKey(key) => (&b"key"[..], key),
    };
    digest_of([&b"intent"[..], session, tool, kind, subject])
}

/// The id of an intent, as services and callers name it.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct IntentId(Index);

impl IntentId {
    /// Returns the id of a record. It reveals neither the principal nor the input.
    pub(in crate::late) fn of_key(key: &RecordKey) -> Self {
        let hash = digest_of([&b"intent id"[..], &key.principal, &key.name]);
        let (id, _) = hash.split_at(16);
        Self(id.try_into().unwrap_or_default())
    }

    /// Returns the index of the intent's record.
    pub(in crate::late) const fn index(self) -> Index {
        self.0
    }
}

impl fmt::Display for IntentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(ID_PREFIX)?;
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for IntentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The error for a text that is not the id of an intent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected int_ and 32 hexadecimal digits")]
pub struct IntentIdParseError;

impl FromStr for IntentId {
    type Err = IntentIdParseError;

    fn from_str(text: &str) -> Result<Self, IntentIdParseError> {
        let digits = text.strip_prefix(ID_PREFIX);
        // `from_str_radix` alone would accept a sign.
        let digits = digits.filter(|digits| digits.len() == 32 && digits.bytes().all(|byte| byte.is_ascii_hexdigit()));
        let number = digits.and_then(|digits| u128::from_str_radix(digits, 16).ok());
        number
            .map(|number| Self(number.to_be_bytes()))
            .ok_or(IntentIdParseError)
    }
}

/// A secret that proves who holds an intent: only the holder may extend, settle or cancel it.
#[derive(Clone, PartialEq, Eq)]
pub struct ClaimSecret(String);

impl ClaimSecret {
    /// Creates a claim from random bytes.
    pub(in crate::late) fn from_random(bytes: &[u8; 32]) -> Self {
        let (half, _) = bytes.split_at(16);
        Self(format!("{CLAIM_PREFIX}{}", hex_digits(half)))
    }

    /// Returns the text that the holder sends.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the hash of a claim as a holder sends it. Records contain only the hash.
    pub(in crate::late) fn hash_text(text: &[u8]) -> [u8; 32] {
        digest_of([&b"claim"[..], text])
    }
}

impl fmt::Debug for ClaimSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClaimSecret(***)")
    }
}

/// Returns the idempotency key of one run of an intent, for the systems behind the tool.
///
/// A run that a second holder takes over keeps its key, so that those systems recognise the repetition.
pub(in crate::late) fn idempotency_key(intent: &RecordKey, started_at: Moment) -> String {
    let run = started_at.as_nanos().to_le_bytes();
    let hash = digest_of([&b"idempotency key"[..], &intent.principal, &intent.name, &run]);
    let (half, _) = hash.split_at(16);
    hex_digits(half)
}

fn hex_digits(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut digits, byte| {
        // Writing into a String cannot fail.
        let _ = write!(digits, "{byte:02x}");
        digits
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{auth::Principal, ledger::RecordKind};

    #[test]
    fn an_id_is_read_as_it_is_written_and_nothing_else_is() {
        let id = IntentId::of_key(&RecordKey::new(
            RecordKind::Intent,
            Principal::from_bytes([1; 32]),
            [2; 32],
        ));
        let text = id.to_string();
        assert_eq!(text.parse(), Ok(id));
        for wrong in [
            "",
            "int_",
            &text[4..],
            &text[..35],
            &format!("{text}0"),
            &text.replace("int_", "int_+"),
        ] {
            assert_eq!(wrong.parse::<IntentId>(), Err(IntentIdParseError), "{wrong}");
        }
    }

    #[test]
    fn every_part_of_a_name_counts() {
        let name =
            |session: Option<[u8; 32]>, tool: &str, subject| intent_name(session.as_ref(), tool.as_bytes(), subject);
        let names = [
            name(None, "a", IntentSubject::Input(&[1; 32])),
            name(Some([1; 32]), "a", IntentSubject::Input(&[1; 32])),
            name(None, "b", IntentSubject::Input(&[1; 32])),
            name(None, "a", IntentSubject::Input(&[2; 32])),
            name(None, "a", IntentSubject::ChosenKey(&[1; 32])),
        ];
        for (place, one) in names.iter().enumerate() {
            assert!(!names[..place].contains(one));
        }
    }
}
