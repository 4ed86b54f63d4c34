//! The bytes of a file up to a known end, whose holes are passed without being read.

use std::{
    fs::{File, Metadata},
    io::{self, Read},
};

use crate::sessions::SkipHoles;

/// A file that is read from its beginning on, at the place of the file itself.
#[derive(Debug)]
pub(super) struct FileInput<'f> {
    file: &'f File,
    at: u64,
    end: u64,
    /// `true` if the file may have holes, and its system tells them.
    is_sparse: bool,
}

impl<'f> FileInput<'f> {
    /// Creates the input of a file that stands at its beginning. Bytes that come after its present length are not read.
    pub(super) fn new(file: &'f File, metadata: &Metadata) -> Self {
        Self {
            file,
            at: 0,
            end: metadata.len(),
            is_sparse: takes_less_room(metadata),
        }
    }
}

impl Read for FileInput<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let rest = usize::try_from(self.end.saturating_sub(self.at)).unwrap_or(usize::MAX);
        let wanted = buffer.len().min(rest);
        let read = self.file.read(buffer.get_mut(..wanted).unwrap_or_default())?;
        self.at = self.at.saturating_add(u64::try_from(read).unwrap_or(u64::MAX));
        Ok(read)
    }
}

impl SkipHoles for FileInput<'_> {
    fn skip_hole(&mut self) -> io::Result<u64> {
        if !self.is_sparse || self.at >= self.end {
            return Ok(0);
        }
        let Some(data) = next_data(self.file, self.at) else {
            // Its system does not tell, so the hole is read.
            self.is_sparse = false;
            return Ok(0);
        };
        let start = self.at;
        self.at = data.clamp(start, self.end);
        Ok(self.at.saturating_sub(start))
    }
}

/// Returns `true` if a file takes less room on the disk than it has bytes.
#[cfg(any(target_os = "linux", target_os = "macos"))]
fn takes_less_room(metadata: &Metadata) -> bool {
    use std::os::unix::fs::MetadataExt as _;

    /// Bytes of a block in these counts, on every disk.
    const BLOCK: u64 = 512;
    metadata.blocks().saturating_mul(BLOCK) < metadata.len()
}

/// Moves a file to the next byte at or after a place that is in no hole, and returns its place. `None` if that is not told.
#[cfg(any(target_os = "linux", target_os = "macos"))]
fn next_data(file: &File, at: u64) -> Option<u64> {
    match rustix::fs::seek(file, rustix::fs::SeekFrom::Data(at)) {
        Ok(data) => Some(data),
        // Nothing but a hole is left.
        Err(rustix::io::Errno::NXIO) => Some(u64::MAX),
        Err(_) => None,
    }
}

#[cfg(not(any(target_os = "linux", target_os = "macos")))]
fn takes_less_room(_metadata: &Metadata) -> bool {
    false
}

#[cfg(not(any(target_os = "linux", target_os = "macos")))]
fn next_data(_file: &File, _at: u64) -> Option<u64> {
    None
}

#[cfg(all(test, any(target_os = "linux", target_os = "macos")))]
mod tests {
    use std::io::{Seek as _, SeekFrom, Write as _};

    use super::*;

    #[test]
    fn holes_are_passed_and_their_neighbors_are_read() {
        const HOLE: u64 = 1 << 30;
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"begin").unwrap();
        file.seek(SeekFrom::Start(HOLE)).unwrap();
        file.write_all(b"middle").unwrap();
        file.set_len(3 * HOLE).unwrap();
        file.rewind().unwrap();
        let metadata = file.metadata().unwrap();
        let mut input = FileInput::new(&file, &metadata);
        let (mut read, mut passed, mut words) = (0, 0, Vec::<u8>::new());
        let mut buffer = vec![0; 4096];
        loop {
            passed += input.skip_hole().unwrap();
            let count = input.read(&mut buffer).unwrap();
            if count == 0 {
                break;
            }
            read += count as u64;
            words.extend(buffer[..count].iter().filter(|byte| **byte != 0));
        }
        assert_eq!(read + passed, 3 * HOLE);
        assert!(read < 1 << 20, "{read} bytes were read");
        assert_eq!(words, b"beginmiddle");
        // Without its end nothing is read of what comes later.
        file.rewind().unwrap();
        file.set_len(4 * HOLE).unwrap();
        let mut input = FileInput::new(&file, &metadata);
        while input.skip_hole().unwrap() + input.read(&mut buffer).unwrap() as u64 > 0 {}
        assert_eq!(input.at, 3 * HOLE);
    }
}
