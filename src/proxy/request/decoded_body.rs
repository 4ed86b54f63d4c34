//! A collected body, decoded, with the memory that it and its reading take.

use bytes::Bytes;

use super::content_coding::ContentCoding;
use crate::{
    budget::{BodyMemory, BodyShare, BudgetClient, Overloaded},
    wire::Unreadable,
};

/// Bytes for each object in a body: its message or part, its findings, and the plan of their repair.
///
/// Measured: 200 bytes for a healthy one, up to 1 kB for an empty message that is repaired, and none for the objects
/// inside a call's input.
const OBJECT_BYTES: usize = 512;
/// Memory that is not counted: 4 MiB. Most bodies take less.
const UNCOUNTED_BYTES_MAX: usize = 4 * 1024 * 1024;

/// A body without its coding.
#[derive(Debug)]
pub(super) struct DecodedBody {
    /// The bytes, or the reason for not reading them.
    pub(super) plain: Result<Bytes, Unreadable>,
    /// Memory for reading them. `None` if they take little.
    pub(super) reading: Option<BodyShare>,
}

impl DecodedBody {
    const fn unreadable(reason: Unreadable) -> Self {
        Self {
            plain: Err(reason),
            reading: None,
        }
    }
}

/// Decodes a body to at most `limit` bytes. Waits while the bodies of others fill the memory.
pub(super) async fn decode_body(
    memory: &BodyMemory,
    client: BudgetClient,
    (raw, coding): (&Bytes, ContentCoding),
    limit: usize,
) -> Result<DecodedBody, Overloaded> {
    let plain = if coding == ContentCoding::Identity {
        raw.clone()
    } else {
        let mut hold = memory.open_step(client);
        // Its length is known only once it is decoded.
        hold.grow_to(coding.longest_plain(raw.len()).min(limit)).await?;
        let plain = match coding.decode_body(raw, limit) {
            Ok(plain) => plain,
            Err(reason) => return Ok(DecodedBody::unreadable(reason)),
        };
        hold.end_reading(plain.len())?;
        hold.into_bytes(plain)
    };
    // Objects without end would need more memory than all bodies together may have.
    let Some(reading) = hold_for_reading(memory, client, &plain).await? else {
        return Ok(DecodedBody::unreadable(Unreadable::TooLarge));
    };
    Ok(DecodedBody {
        plain: Ok(plain),
        reading,
    })
}

/// Takes the memory for reading `plain`, until the hold is dropped: none for a body that takes little.
///
/// Returns `None` if the memory could never suffice.
async fn hold_for_reading(
    memory: &BodyMemory,
    client: BudgetClient,
    plain: &[u8],
) -> Result<Option<Option<BodyShare>>, Overloaded> {
    let is_little = |objects: usize| objects.saturating_mul(OBJECT_BYTES) <= UNCOUNTED_BYTES_MAX;
    // An object has two bytes at least.
    if is_little(plain.len() / 2) {
        return Ok(Some(None));
    }
    let objects = memchr::memchr_iter(b'{', plain).count();
    if is_little(objects) {
        return Ok(Some(None));
    }
    let bytes = objects.saturating_mul(OBJECT_BYTES);
    if bytes as u64 > memory.memory_use().bytes_max {
        return Ok(None);
    }
    let mut hold = memory.open_step(client);
    hold.grow_to(bytes).await?;
    hold.end_reading(bytes)?;
    Ok(Some(Some(hold)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_body_of_many_objects_holds_memory_for_each() {
        let memory = BodyMemory::new(64 * 1024 * 1024);
        let read = async |body: &[u8]| hold_for_reading(&memory, BudgetClient::Unknown, body).await.unwrap();
        assert!(read("{}".repeat(1000).as_bytes()).await.unwrap().is_none());
        assert!(read("x".repeat(1_000_000).as_bytes()).await.unwrap().is_none());
        let hold = read("{}".repeat(20_000).as_bytes()).await;
        assert_eq!(memory.memory_use().bytes, 20_000 * OBJECT_BYTES as u64);
        drop(hold);
        assert_eq!(memory.memory_use().bytes, 0);
        assert!(
            read("{}".repeat(200_000).as_bytes()).await.is_none(),
            "more than all memory"
        );
    }
}
