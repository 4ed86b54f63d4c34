//! The token for commands of the proxy's own user, such as `antiphon once`: a file that only this user may read.
//!
//! The file outlives the proxy. A new token at each start would make the command lose sight of its earlier runs.

use std::{
    fs::{self, DirBuilder, OpenOptions},
    io::{self, Write as _},
    path::{Path, PathBuf},
};

use crate::auth::Secret;

/// Longest token in a file, in bytes.
const TOKEN_BYTES_MAX: u64 = 1024;
/// Shortest token in a file, in bytes. A shorter one was cut off, or could be guessed.
const TOKEN_BYTES_MIN: usize = 32;

/// Error for a token that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum LocalTokenError {
    /// The file cannot be read or written.
    #[error("{path}: {cause}")]
    Io {
        /// The file.
        path: PathBuf,
        /// The cause.
        cause: io::Error,
    },
    /// Another user may know the token.
    #[error("{path}: other users may read it or own it: remove the file, and restart the proxy")]
    Exposed {
        /// The file.
        path: PathBuf,
    },
    /// The file has no token.
    #[error("{path}: it has no token: remove the file, and restart the proxy")]
    Empty {
        /// The file.
        path: PathBuf,
    },
}

/// Reads the token. `None` if there is no file.
pub fn read_local_token(path: &Path) -> Result<Option<Secret>, LocalTokenError> {
    let failed = |cause| LocalTokenError::Io {
        path: path.to_owned(),
        cause,
    };
    let metadata = match fs::symlink_metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed(error)),
    };
    if !metadata.is_file() || is_exposed(&metadata) {
        return Err(LocalTokenError::Exposed { path: path.to_owned() });
    }
    if metadata.len() > TOKEN_BYTES_MAX {
        return Err(LocalTokenError::Empty { path: path.to_owned() });
    }
    let text = fs::read_to_string(path).map_err(failed)?;
    let token = text.trim();
    if token.len() < TOKEN_BYTES_MIN {
        return Err(LocalTokenError::Empty { path: path.to_owned() });
    }
    Ok(Some(Secret::new(token.to_owned())))
}

/// Reads the token, or writes a new one from random bytes.
pub fn open_local_token(path: &Path, random: [u8; 32]) -> Result<Secret, LocalTokenError> {
    if let Some(token) = read_local_token(path)? {
        return Ok(token);
    }
    let failed = |cause| LocalTokenError::Io {
        path: path.to_owned(),
        cause,
    };
    write_token(path, random).map_err(failed)?;
    // Read again: another proxy may have written its own token first.
    read_local_token(path)?.ok_or_else(|| failed(io::ErrorKind::NotFound.into()))
}

/// Writes a new token, unless there is one. No reader ever sees a part of it.
fn write_token(path: &Path, random: [u8; 32]) -> io::Result<()> {
    let token = blake3::Hash::from_bytes(random).to_hex();
    if let Some(folder) = path.parent() {
        let mut builder = DirBuilder::new();
        builder.recursive(true);
        #[cfg(unix)]
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        builder.create(folder)?;
    }
    let mut draft = path.as_os_str().to_owned();
    draft.push(format!(".{}", std::process::id()));
    let draft = PathBuf::from(draft);
    let written = write_private(&draft, &token).and_then(|()| match fs::hard_link(&draft, path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => fs::rename(&draft, path),
        _ => Ok(()),
    });
    // Absent after a rename.
    drop(fs::remove_file(&draft));
    written
}

fn write_private(path: &Path, token: &str) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    writeln!(options.open(path)?, "antiphon_local_{token}")
}

/// Returns `true` if another user may read or replace the content.
#[cfg(unix)]
fn is_exposed(metadata: &fs::Metadata) -> bool {
    use std::os::unix::fs::MetadataExt as _;

    /// Every permission of the group and of others.
    const OF_OTHERS: u32 = 0o077;

    metadata.uid() != rustix::process::geteuid().as_raw() || metadata.mode() & OF_OTHERS != 0
}

/// Returns `false`: a user's folder belongs to that user on Windows.
#[cfg(not(unix))]
const fn is_exposed(_metadata: &fs::Metadata) -> bool {
    false
}

#[cfg(all(test, unix))]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_token_is_written_once_and_stays_the_same() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("antiphon").join("token");
        assert!(read_local_token(&path).unwrap().is_none());
        let first = open_local_token(&path, [1; 32]).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let again = open_local_token(&path, [2; 32]).unwrap();
        assert_eq!(first.reveal(), again.reveal());
        // The draft is gone.
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
    }

    #[test]
    fn a_token_that_others_may_know_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        open_local_token(&path, [1; 32]).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        let refused = read_local_token(&path).unwrap_err();
        assert!(matches!(refused, LocalTokenError::Exposed { .. }), "{refused}");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        fs::write(&path, "short\n").unwrap();
        let refused = open_local_token(&path, [1; 32]).unwrap_err();
        assert!(matches!(refused, LocalTokenError::Empty { .. }), "{refused}");
    }
}
