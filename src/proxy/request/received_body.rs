//! A collected body, as it came and decoded, with the memory that it and its reading take.

use bytes::Bytes;

use super::{
    content_coding::{ContentCoding, Decoding},
    planned_body::Payload,
};
use crate::{
    proxy::heavy_body::is_heavy_pass,
    server::budget::{BodyPass, BodyShare, BudgetClient, Budgets, Overloaded, yield_if_heavy},
    splice::Segments,
    wire::{Unreadable, json::count_byte},
};

/// Bytes for each object in a body: its message or part, its findings, and the plan of their repair.
///
/// Measured: 200 bytes for a healthy one, up to 1 kB for an empty message that is repaired, and none for the objects
/// inside a call's input.
const OBJECT_BYTES: usize = 512;
/// Memory that is not counted: 256 KiB. Most bodies take less.
const UNCOUNTED_BYTES_MAX: usize = 256 * 1024;

/// A body as it was received, and without its coding. What is read of it borrows from its bytes.
#[derive(Debug)]
pub(super) struct ReceivedBody {
    /// The bytes as the client sent them.
    pub(super) raw: Bytes,
    pub(super) coding: ContentCoding,
    /// The bytes without their coding, or the reason for not reading them.
    pub(super) plain: Result<Bytes, Unreadable>,
    /// Bytes of memory that reading them takes beside the body: 0 if it is little.
    pub(super) reading_bytes: usize,
    /// That memory, until the body has been planned. `None` if it is little.
    pub(super) reading: Option<BodyShare>,
}

impl ReceivedBody {
    /// Decodes a collected body to at most `limit` bytes, and takes the memory for reading it. A large body is decoded as
    /// heavy work.
    ///
    /// Waits while the bodies of others fill the memory, without a place in heavy work: those may need one to free it.
    pub(super) async fn decode(
        raw: Bytes,
        coding: ContentCoding,
        budgets: &Budgets,
        client: BudgetClient,
        limit: usize,
    ) -> Result<Self, Overloaded> {
        let memory_max = budgets.memory.processing_bytes_max();
        let mut received = Self {
            plain: Ok(raw.clone()),
            raw,
            coding,
            reading_bytes: 0,
            reading: None,
        };
        if received.is_heavy() {
            // Boxed, because the future of every exchange would be larger otherwise.
            Box::pin(received.decode_heavy(budgets, client, limit, memory_max)).await?;
        } else {
            received.measure(memory_max);
        }
        if received.reading_bytes > 0 {
            let mut share = budgets.memory.open_scratch(client);
            share.grow_to(received.reading_bytes).await?;
            received.reading = Some(share);
        }
        Ok(received)
    }

    /// Returns `true` if even reading the body is heavy work: a compressed one may be a thousand times as long.
    pub(super) fn is_heavy(&self) -> bool {
        self.coding != ContentCoding::Identity || is_heavy_pass(self.raw.len())
    }

    /// Returns the bytes as the client sent them, to be sent like that.
    pub(super) fn as_it_came(&self) -> Payload {
        Payload::InMemory(Segments::whole(self.raw.clone()))
    }

    async fn decode_heavy(
        &mut self,
        budgets: &Budgets,
        client: BudgetClient,
        limit: usize,
        memory_max: u64,
    ) -> Result<(), Overloaded> {
        let mut share = None;
        if self.coding != ContentCoding::Identity {
            let plain = share.insert(budgets.memory.open_copy(client));
            // Its length is known only once it is decoded.
            plain
                .grow_to(self.coding.longest_plain(self.raw.len()).min(limit))
                .await?;
        }
        let decoded = async {
            if let Some(mut share) = share {
                self.plain = match decode_in_turns(self.coding, &self.raw, limit).await {
                    Ok(plain) => {
                        share.end_reading(plain.len())?;
                        Ok(share.into_bytes(plain))
                    }
                    Err(reason) => Err(reason),
                };
            }
            self.measure(memory_max);
            Ok(())
        };
        budgets.work.run(client, BodyPass::First, decoded).await?
    }

    /// Measures what reading the body takes. One that takes more than `memory_max` bytes with its reading is too large.
    fn measure(&mut self, memory_max: u64) {
        let plain = self.plain.as_ref();
        self.reading_bytes = plain.map_or(0, |plain| reading_bytes(plain));
        // Objects without end would need more memory than all bodies together may have.
        let copies = if self.coding == ContentCoding::Identity { 1 } else { 2 };
        let plain_len = plain.map_or(0, Bytes::len).saturating_mul(copies);
        if plain_len.saturating_add(self.reading_bytes) as u64 > memory_max {
            (self.plain, self.reading_bytes) = (Err(Unreadable::TooLarge), 0);
        }
    }
}

/// Decodes a body to at most `limit` bytes, and lets other heavy work take its turn in between.
async fn decode_in_turns(coding: ContentCoding, raw: &[u8], limit: usize) -> Result<Vec<u8>, Unreadable> {
    let mut decoding = Decoding::begin(coding, raw, limit)?;
    while decoding.decode_piece()? {
        yield_if_heavy().await;
    }
    decoding.finish()
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
        let limit = raw.len();
        let received = ReceivedBody::decode(raw, ContentCoding::Identity, &budgets, BudgetClient::Unknown, limit)
            .await
            .unwrap();
        let bytes = budgets.memory.memory_use().bytes;
        received.plain.as_ref().map_err(|reason| *reason)?;
        drop(received);
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
                let decoding = async {
                    let plain = decode_in_turns(ContentCoding::Gzip, &raw, plain_len).await;
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
