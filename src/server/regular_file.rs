//! Reading of files that an operator has named: only regular ones, since any other may block its reader for ever.

use std::{
    fs::{self, File},
    io::{self, Read as _},
    path::Path,
};

/// Largest file with a secret, a certificate, a key or the configuration, in bytes: 1 MiB.
pub(crate) const FILE_BYTES_MAX: usize = 1024 * 1024;

/// Reads a regular file that contains text.
///
/// # Errors
///
/// Fails for anything else, such as a pipe or a directory, and for a file with more than [`FILE_BYTES_MAX`] bytes.
pub(crate) fn read_regular(path: &Path) -> io::Result<String> {
    read_text(open_regular(path)?)
}

/// Opens a regular file.
///
/// # Errors
///
/// Fails for anything else, such as a pipe or a directory, also if it has just taken the place of a file. The kind of the
/// error is then [`io::ErrorKind::InvalidInput`].
pub(crate) fn open_regular(path: &Path) -> io::Result<File> {
    // Before the opening too, which may have an effect on a device.
    check_kind(&fs::metadata(path)?)?;
    open_checked(path)
}

/// Opens a file, and checks what was opened.
fn open_checked(path: &Path) -> io::Result<File> {
    let file = open_at_once(path)?;
    check_kind(&file.metadata()?)?;
    Ok(file)
}

/// Reads an open file that contains text.
///
/// # Errors
///
/// Fails for more than [`FILE_BYTES_MAX`] bytes.
pub(crate) fn read_text(file: File) -> io::Result<String> {
    let limit = u64::try_from(FILE_BYTES_MAX).unwrap_or(u64::MAX).saturating_add(1);
    let mut text = String::new();
    file.take(limit).read_to_string(&mut text)?;
    if text.len() > FILE_BYTES_MAX {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, "it has more than 1 MiB"));
    }
    Ok(text)
}

fn check_kind(metadata: &fs::Metadata) -> io::Result<()> {
    if metadata.is_file() {
        Ok(())
    } else {
        Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file"))
    }
}

/// Opens a file. Does not wait for the other end of a pipe that has just taken its place.
#[cfg(unix)]
fn open_at_once(path: &Path) -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt as _;

    let flags = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
    match File::options().read(true).custom_flags(flags).open(path) {
        // No pipe: another process, such as a file server, has a lease on the file and is asked to give it up.
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => File::open(path),
        opened => opened,
    }
}

/// Opens a file.
#[cfg(not(unix))]
fn open_at_once(path: &Path) -> io::Result<File> {
    File::open(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_regular_files_up_to_the_limit_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        for (bytes, is_read) in [(0, true), (FILE_BYTES_MAX, true), (FILE_BYTES_MAX + 1, false)] {
            fs::write(&path, "x".repeat(bytes)).unwrap();
            assert_eq!(read_regular(&path).is_ok(), is_read, "{bytes}");
        }
        let error = read_regular(folder.path()).unwrap_err();
        assert_eq!(error.to_string(), "it is not a regular file");
    }

    /// The look at the path before may have seen a file in the place of this pipe, to which nobody writes.
    #[cfg(unix)]
    #[test]
    fn an_opened_pipe_is_refused_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pipe");
        let made = std::process::Command::new("mkfifo").arg(&path).status().unwrap();
        assert!(made.success());
        for opened in [open_checked(&path), open_regular(&path)] {
            assert_eq!(opened.unwrap_err().kind(), io::ErrorKind::InvalidInput);
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_file_without_an_end_is_refused() {
        let error = read_text(File::open("/dev/zero").unwrap()).unwrap_err();
        assert_eq!(error.to_string(), "it has more than 1 MiB");
    }
}
