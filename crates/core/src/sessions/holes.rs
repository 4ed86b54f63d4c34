//! Files with holes: ranges that take no room on the disk, and that read as NUL bytes.

use std::io::{self, Read};

/// A file that tells its holes, so that none has to be read.
pub trait SkipHoles: Read {
    /// Passes the hole that begins at the present place, and returns its length in bytes. 0 if there is none.
    ///
    /// # Errors
    ///
    /// Those of the file.
    fn skip_hole(&mut self) -> io::Result<u64>;
}

impl<H: SkipHoles + ?Sized> SkipHoles for &mut H {
    fn skip_hole(&mut self) -> io::Result<u64> {
        (**self).skip_hole()
    }
}

/// A reader without holes.
#[derive(Debug)]
pub(super) struct WithoutHoles<R>(pub(super) R);

impl<R: Read> Read for WithoutHoles<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read(buffer)
    }
}

impl<R: Read> SkipHoles for WithoutHoles<R> {
    fn skip_hole(&mut self) -> io::Result<u64> {
        Ok(0)
    }
}
