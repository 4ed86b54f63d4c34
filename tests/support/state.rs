//! State directories: each process has its own, so that no two share a ledger.

use std::{
    path::{Path, PathBuf},
    process::Command,
    sync::atomic::{AtomicU64, Ordering},
};

/// Returns an empty directory that no other test uses.
pub fn directory() -> PathBuf {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("state-{}-{number}", std::process::id()));
    drop(std::fs::remove_dir_all(&path));
    std::fs::create_dir_all(&path).unwrap();
    path
}

/// Gives a command its own state and configuration directories.
pub fn apart(command: &mut Command) -> &mut Command {
    command
        .env("XDG_STATE_HOME", directory())
        .env("XDG_CONFIG_HOME", directory())
        .env_remove("HOME")
}
