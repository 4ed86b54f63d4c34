//! The buffer in which a request body is collected.

use std::io;

use memmap2::MmapMut;

/// Bytes of a body, as far as they have come, with room for more.
#[derive(Debug)]
pub struct BodyBuffer {
    storage: Storage,
    len: usize,
}

#[derive(Debug)]
enum Storage {
    /// From the allocator: its length is the capacity's used part.
    Allocated(Vec<u8>),
    /// From the system, to which it goes back when the buffer is dropped.
    Mapped(MmapMut),
}

impl Default for BodyBuffer {
    fn default() -> Self {
        Self {
            storage: Storage::Allocated(Vec::new()),
            len: 0,
        }
    }
}

impl BodyBuffer {
    /// Returns the number of bytes.
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Returns `true` if there are no bytes.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the number of bytes for which there is room.
    pub fn capacity(&self) -> usize {
        match &self.storage {
            Storage::Allocated(bytes) => bytes.capacity(),
            Storage::Mapped(map) => map.len(),
        }
    }

    /// Enlarges the storage to `capacity` bytes. Reports missing memory as an error, where a vector aborts the process.
    ///
    /// With `is_mapped` the memory comes from the system directly.
    pub fn grow(&mut self, capacity: usize, is_mapped: bool) -> io::Result<()> {
        match &mut self.storage {
            Storage::Allocated(bytes) if !is_mapped => bytes
                .try_reserve_exact(capacity.saturating_sub(bytes.len()))
                .map_err(|_| io::ErrorKind::OutOfMemory.into()),
            _ => {
                let mut map = MmapMut::map_anon(capacity.max(self.len))?;
                if let Some(start) = map.get_mut(..self.len) {
                    start.copy_from_slice(self.as_ref());
                }
                self.storage = Storage::Mapped(map);
                Ok(())
            }
        }
    }

    /// Adds bytes for which there is room.
    ///
    /// # Errors
    ///
    /// Adds nothing if there is none.
    pub fn push(&mut self, data: &[u8]) -> io::Result<()> {
        let len = self.len.saturating_add(data.len());
        if len > self.capacity() {
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        match &mut self.storage {
            Storage::Allocated(bytes) => bytes.extend_from_slice(data),
            Storage::Mapped(map) => {
                if let Some(to) = map.get_mut(self.len..len) {
                    to.copy_from_slice(data);
                }
            }
        }
        self.len = len;
        Ok(())
    }
}

impl AsRef<[u8]> for BodyBuffer {
    fn as_ref(&self) -> &[u8] {
        match &self.storage {
            Storage::Allocated(bytes) => bytes,
            Storage::Mapped(map) => map.get(..self.len).unwrap_or_default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_stay_while_the_room_changes() {
        let mut buffer = BodyBuffer::default();
        assert!(buffer.is_empty() && buffer.push(b"x").is_err());
        let mut wanted = Vec::new();
        for (capacity, is_mapped) in [(3, false), (10, false), (5000, true), (9000, true), (20_000, false)] {
            buffer.grow(capacity, is_mapped).unwrap();
            assert!(buffer.capacity() >= capacity);
            let data = vec![capacity.to_le_bytes()[0]; capacity - buffer.len()];
            buffer.push(&data).unwrap();
            wanted.extend(data);
            assert_eq!((buffer.as_ref(), buffer.len()), (&wanted[..], capacity));
        }
        assert!(matches!(buffer.storage, Storage::Mapped(_)), "it stays mapped");
    }

    #[test]
    fn missing_memory_is_an_error() {
        for is_mapped in [false, true] {
            let mut buffer = BodyBuffer::default();
            assert!(buffer.grow(usize::MAX / 4, is_mapped).is_err());
            assert_eq!(buffer.capacity(), 0);
        }
    }
}
