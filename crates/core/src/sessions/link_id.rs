//! The ids by which records name each other.

/// Characters of a uuid.
pub const UUID_CHARS: usize = 36;

/// The id of a record: the bytes of its uuid, or a hash of another id. All zero if there is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct LinkId([u8; 16]);

impl LinkId {
    /// Reads an id. The second value is `true` if it is a uuid as clients write it.
    pub(super) fn read(text: &[u8]) -> (Self, bool) {
        if text.is_empty() {
            return (Self::default(), false);
        }
        if let Some(bytes) = uuid_bytes(text) {
            return (Self(bytes), true);
        }
        let hash: [u8; 32] = blake3::hash(text).into();
        (Self(hash.first_chunk().copied().unwrap_or_default()), false)
    }

    /// Returns `true` if there is no id.
    pub(super) fn is_none(self) -> bool {
        self == Self::default()
    }

    /// Returns the first half of its bytes.
    pub(super) fn first_half(self) -> [u8; 8] {
        self.0.first_chunk().copied().unwrap_or_default()
    }

    /// Returns the uuid as clients write it.
    pub(super) fn to_uuid(self) -> String {
        let mut text = String::with_capacity(UUID_CHARS);
        for (place, byte) in self.0.iter().enumerate() {
            if matches!(place, 4 | 6 | 8 | 10) {
                text.push('-');
            }
            for digit in [byte >> 4, byte & 15] {
                text.extend(char::from_digit(u32::from(digit), 16));
            }
        }
        text
    }

    /// Derives a uuid of version 8 (free form) from this id, a purpose and a place. The same input gives the same one.
    pub(super) fn derive_id(self, purpose: &str, place: u64) -> Self {
        let mut hash = blake3::Hasher::new();
        hash.update(b"antiphon session record").update(purpose.as_bytes());
        hash.update(&self.0).update(&place.to_le_bytes());
        let hash: [u8; 32] = hash.finalize().into();
        let mut bytes: [u8; 16] = hash.first_chunk().copied().unwrap_or_default();
        // Version 8 and the variant of RFC 9562.
        if let Some(version) = bytes.get_mut(6) {
            *version = (*version & 0x0f) | 0x80;
        }
        if let Some(variant) = bytes.get_mut(8) {
            *variant = (*variant & 0x3f) | 0x80;
        }
        Self(bytes)
    }
}

/// Returns the bytes of a uuid in lower case with its dashes. `None` if the text is none.
fn uuid_bytes(text: &[u8]) -> Option<[u8; 16]> {
    if text.len() != UUID_CHARS {
        return None;
    }
    let (mut bytes, mut digits) = ([0_u8; 16], 0_usize);
    for (place, letter) in text.iter().enumerate() {
        if matches!(place, 8 | 13 | 18 | 23) {
            if *letter != b'-' {
                return None;
            }
            continue;
        }
        // Upper case would be written back as lower case, so it is no uuid of a client.
        let digit = match letter {
            b'0'..=b'9' => letter.saturating_sub(b'0'),
            b'a'..=b'f' => letter.saturating_sub(b'a').saturating_add(10),
            _ => return None,
        };
        let byte = bytes.get_mut(digits / 2)?;
        *byte = (*byte << 4) | digit;
        digits = digits.saturating_add(1);
    }
    // The id of no record is all zero.
    (bytes != [0; 16]).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_read_and_written() {
        let text = "093f9832-3651-4b19-9804-831472021c54";
        let (id, is_uuid) = LinkId::read(text.as_bytes());
        assert!(is_uuid);
        assert_eq!(id.to_uuid(), text);
        for other in [
            "a",
            "093F9832-3651-4b19-9804-831472021c54",
            "093f983203651-4b19-9804-831472021c54",
        ] {
            let (id, is_uuid) = LinkId::read(other.as_bytes());
            assert!(!is_uuid && !id.is_none(), "{other}");
        }
        assert!(LinkId::read(b"").0.is_none());
        let derived = id.derive_id("result", 7);
        assert_eq!(derived, id.derive_id("result", 7));
        assert_ne!(derived, id.derive_id("result", 8));
        assert_ne!(derived, id.derive_id("twice", 7));
        let text = derived.to_uuid();
        assert_eq!(text.as_bytes().get(14), Some(&b'8'));
        assert!(
            matches!(text.as_bytes().get(19), Some(b'8' | b'9' | b'a' | b'b')),
            "{text}"
        );
    }
}
