//! Protection against configuration files and files of rows that other users of the machine may write.
//!
//! Configurations are checked at default paths only, where nobody named them: they decide where keys are sent.

use std::path::Path;

/// Permission of the group and of others to write.
#[cfg(unix)]
const WRITABLE_BY_OTHERS: u32 = 0o022;

/// Returns the reason why a named file must not be used: its group or others may write it. `None` if they may not.
#[cfg(unix)]
pub(super) fn writable_reason(path: &Path) -> Option<String> {
    use std::os::unix::fs::MetadataExt as _;

    let mode = std::fs::metadata(path).ok()?.mode() & 0o7777;
    (mode & WRITABLE_BY_OTHERS != 0).then(|| {
        let path = path.display();
        format!("other users may write {path} (mode {mode:o}): chmod go-w {path}")
    })
}

/// Returns `None`: Windows has other permissions.
#[cfg(not(unix))]
pub(super) const fn writable_reason(_path: &Path) -> Option<String> {
    None
}

/// Returns the reason why a file must not be used without being named. `None` if only this user or root may write it.
#[cfg(unix)]
pub(super) fn distrust_reason(path: &Path) -> Option<String> {
    use std::os::unix::fs::MetadataExt as _;

    let own = rustix::process::geteuid().as_raw();
    // Links are resolved: the target and its folder matter as much as the link's folder.
    let target = std::fs::canonicalize(path).ok();
    let places = [
        Some(path),
        path.parent(),
        target.as_deref(),
        target.as_deref().and_then(Path::parent),
    ];
    places.into_iter().flatten().find_map(|place| {
        let metadata = std::fs::metadata(place).ok()?;
        let (owner, mode) = (metadata.uid(), metadata.mode() & 0o7777);
        if owner != 0 && owner != own {
            return Some(format!("{} belongs to another user (uid {owner})", place.display()));
        }
        (mode & WRITABLE_BY_OTHERS != 0).then(|| {
            let place = place.display();
            format!("other users may write {place} (mode {mode:o}): chmod go-w {place}")
        })
    })
}

/// Returns `None`: a user's folder for settings belongs to that user on Windows.
#[cfg(not(unix))]
pub(super) const fn distrust_reason(_path: &Path) -> Option<String> {
    None
}

#[cfg(all(test, unix))]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt as _};

    use super::*;

    #[test]
    fn files_and_folders_of_others_are_distrusted() {
        for (file_mode, folder_mode, is_trusted) in [
            (0o600, 0o700, true),
            (0o644, 0o755, true),
            (0o664, 0o755, false),
            (0o646, 0o755, false),
            (0o600, 0o775, false),
            (0o600, 0o1777, false),
        ] {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("antiphon.toml");
            fs::write(&path, "").unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(file_mode)).unwrap();
            fs::set_permissions(folder.path(), fs::Permissions::from_mode(folder_mode)).unwrap();
            let reason = distrust_reason(&path);
            assert_eq!(
                reason.is_none(),
                is_trusted,
                "{file_mode:o} {folder_mode:o}: {reason:?}"
            );
        }
    }
}
