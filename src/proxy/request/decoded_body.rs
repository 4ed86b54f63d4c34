//! A collected body, decoded, with the memory that it and its reading take.

use bytes::Bytes;

use super::content_coding::{ContentCoding, Decoding};
use crate::{
    proxy::heavy_body::is_heavy_pass,
    server::budget::{BodyShare, BudgetClient, Budgets, Overloaded, yield_if_heavy},
    wire::{Unreadable, json::count_byte},
};

/// Bytes for each object in a body: its message or part, its findings, and the plan of their repair.
///
/// Measured: 200 bytes for a healthy one, up to 1 kB for an empty message that is repaired, and none for the objects
/// inside a call's input.
const OBJECT_BYTES: usize = 512;
/// Memory that is not counted: 256 KiB. Most bodies take less.
const UNCOUNTED_BYTES_MAX: usize = 256 * 1024;

/// A body as the client sent it.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReceivedBody<'b> {
    pub(super) raw: &'b Bytes,
    pub(super) coding: ContentCoding,
}

/// A body without its coding.
#[derive(Debug)]
pub(super) struct DecodedBody {
    /// The bytes, or the reason for not reading them.
    pub(super) plain: Result<Bytes, Unreadable>,
    /// Bytes of memory that reading them takes beside the body: 0 if it is little.
    pub(super) reading_bytes: usize,
    /// That memory, until the body has been read. `None` if it is little.
    pub(super) reading: Option<BodyShare>,
}

impl ReceivedBody<'_> {
    /// Returns `true` if even reading the body is heavy work: a compressed one may be a thousand times as long.
    pub(super) fn is_heavy(self) -> bool {
        self.coding != ContentCoding::Identity || is_heavy_pass(self.raw.len())
    }

    /// Decodes the body to at most `limit` bytes, and takes the memory for reading it. A large body is decoded as heavy
    /// work.
    ///
    /// Waits while the bodies of others fill the memory, without a place in heavy work: those may need one to free it.
    pub(super) async fn decode(
        self,
        budgets: &Budgets,
        client: BudgetClient,
        limit: usize,
    ) -> Result<DecodedBody, Overloaded> {
        let memory_max = budgets.memory.processing_bytes_max();
        let mut decoded = if self.is_heavy() {
            // Boxed, because the future of every exchange would be larger otherwise.
            Box::pin(self.decode_heavy(budgets, client, limit, memory_max)).await?
        } else {
            DecodedBody::measured(Ok(self.raw.clone()), self.coding, memory_max)
        };
        if decoded.reading_bytes > 0 {
            let mut share = budgets.memory.open_scratch(client);
            share.grow_to(decoded.reading_bytes).await?;
            decoded.reading = Some(share);
        }
        Ok(decoded)
    }

    async fn decode_heavy(
        self,
        budgets: &Budgets,
        client: BudgetClient,
        limit: usize,
        memory_max: u64,
    ) -> Result<DecodedBody, Overloaded> {
        let mut share = None;
        if self.coding != ContentCoding::Identity {
            let plain = share.insert(budgets.memory.open_copy(client));
            // Its length is known only once it is decoded.
            plain
                .grow_to(self.coding.longest_plain(self.raw.len()).min(limit))
                .await?;
        }
        let decoded = async {
            let plain = match share {
                None => Ok(self.raw.clone()),
                Some(mut share) => match self.decode_in_turns(limit).await {
                    Ok(plain) => {
                        share.end_reading(plain.len())?;
                        Ok(share.into_bytes(plain))
                    }
                    Err(reason) => Err(reason),
                },
            };
            Ok(DecodedBody::measured(plain, self.coding, memory_max))
        };
        budgets.work.run(client, decoded).await?
    }

    /// Decodes the body, and lets other heavy work take its turn in between.
    async fn decode_in_turns(self, limit: usize) -> Result<Vec<u8>, Unreadable> {
        let mut decoding = Decoding::begin(self.coding, self.raw, limit)?;
        while decoding.decode_piece()? {
            yield_if_heavy().await;
        }
        decoding.finish()
    }
}

impl DecodedBody {
    /// Measures what reading `plain` takes. One that takes more than `memory_max` bytes with its reading is too large.
    fn measured(plain: Result<Bytes, Unreadable>, coding: ContentCoding, memory_max: u64) -> Self {
        let reading_bytes = plain.as_ref().map_or(0, |plain| reading_bytes(plain));
        // Objects without end would need more memory than all bodies together may have.
        let copies = if coding == ContentCoding::Identity { 1 } else { 2 };
        let plain_len = plain.as_ref().map_or(0, Bytes::len).saturating_mul(copies);
        if plain_len.saturating_add(reading_bytes) as u64 > memory_max {
            return Self::new(Err(Unreadable::TooLarge), 0);
        }
        Self::new(plain, reading_bytes)
    }

    const fn new(plain: Result<Bytes, Unreadable>, reading_bytes: usize) -> Self {
        Self {
            plain,
            reading_bytes,
            reading: None,
        }
    }
}

/// Returns the memory that reading `plain` takes beside the body. 0 if it is little.
fn reading_bytes(plain: &[u8]) -> usize {
    let counted = |objects: usize| {
        let bytes = objects.saturating_mul(OBJECT_BYTES);
        if bytes > UNCOUNTED_BYTES_MAX { bytes } else { 0 }
    };
    // An object has two bytes at least.
    if counted(plain.len() / 2) == 0 {
        return 0;
    }
    counted(count_byte(plain, b'{'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::budget::{BodyMemory, HeavyWork};

    /// Decodes a body beside 64 MiB of memory. Returns the bytes in use while it is read.
    async fn bytes_in_use(raw: &str) -> Result<u64, Unreadable> {
        let budgets = Budgets {
            work: HeavyWork::inline(),
            memory: BodyMemory::new(64 * 1024 * 1024),
        };
        let raw = Bytes::from(raw.to_owned());
        let received = ReceivedBody {
            raw: &raw,
            coding: ContentCoding::Identity,
        };
        let decoded = received
            .decode(&budgets, BudgetClient::Unknown, raw.len())
            .await
            .unwrap();
        let bytes = budgets.memory.memory_use().bytes;
        decoded.plain.as_ref().map_err(|reason| *reason)?;
        drop(decoded);
        assert_eq!(budgets.memory.memory_use().bytes, 0);
        Ok(bytes)
    }

    #[tokio::test]
    async fn a_body_of_many_objects_takes_memory_for_each() {
        assert_eq!(bytes_in_use(&"{}".repeat(500)).await, Ok(0));
        assert_eq!(bytes_in_use(&"x".repeat(1_000_000)).await, Ok(0));
        let objects = 20_000;
        assert_eq!(
            bytes_in_use(&"{}".repeat(objects)).await,
            Ok((objects * OBJECT_BYTES) as u64)
        );
        assert_eq!(bytes_in_use(&"{}".repeat(200_000)).await, Err(Unreadable::TooLarge));
    }

    /// A small compressed body may have a plain text that takes longer to decode than other bodies may wait.
    #[test]
    fn a_body_is_decoded_in_turns_with_other_heavy_work() {
        let plain_len = 8 * 1024 * 1024;
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        std::io::Write::write_all(&mut encoder, &vec![b'x'; plain_len]).unwrap();
        let raw = Bytes::from(encoder.finish().unwrap());
        let thread = std::thread::spawn(move || {
            let decode = async move {
                let (mut turns, is_decoded) = (0, std::cell::Cell::new(false));
                let received = ReceivedBody {
                    raw: &raw,
                    coding: ContentCoding::Gzip,
                };
                let decoding = async {
                    let plain = received.decode_in_turns(plain_len).await;
                    is_decoded.set(true);
                    plain.map(|plain| plain.len())
                };
                let other = async {
                    while !is_decoded.get() {
                        turns += 1;
                        tokio::task::yield_now().await;
                    }
                };
                (tokio::join!(decoding, other).0, turns)
            };
            crate::server::budget::mark_heavy_thread();
            tokio::runtime::Builder::new_current_thread()
                .build()
                .unwrap()
                .block_on(decode)
        });
        let (decoded, turns) = thread.join().unwrap();
        assert_eq!(decoded, Ok(plain_len));
        assert!(turns >= 16, "{turns}");
    }
}
