//! A file in the system's temporary folder that is removed when the command has ended.

use std::{
    fs::{self, OpenOptions},
    io::{self, Write as _},
    path::{Path, PathBuf},
};

use crate::upstream::random_bytes;

/// A file that is removed when the command has ended.
#[derive(Debug)]
pub(super) struct TemporaryFile(PathBuf);

impl TemporaryFile {
    /// Writes a new file that only this user may read. Its name cannot be guessed.
    pub(super) fn write_new(ending: &str, text: &str) -> io::Result<Self> {
        let random: [u8; 32] = random_bytes().map_err(io::Error::other)?;
        let name = format!("antiphon-{}.{ending}", &blake3::Hash::from_bytes(random).to_hex()[..16]);
        let path = std::env::temp_dir().join(name);
        let mut options = OpenOptions::new();
        options.write(true).create_new(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let failed = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
        let mut file = options.open(&path).map_err(failed)?;
        let written = file.write_all(text.as_bytes()).map_err(failed);
        // The drop removes the file, also if it could not be written.
        let temporary = Self(path);
        written.map(|()| temporary)
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for TemporaryFile {
    fn drop(&mut self) {
        // The system clears the folder of temporary files if this fails.
        drop(fs::remove_file(&self.0));
    }
}
