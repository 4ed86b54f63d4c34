//! `antiphon config init`: writes a configuration file with every key commented out.

use std::{
    fs::{self, DirBuilder, OpenOptions},
    io::{self, Write},
    path::{Path, PathBuf},
    process::ExitCode,
};

use crate::config::{process_environment, user_config_path};

/// The example with every key, its default and the reason for it.
const EXAMPLE: &str = include_str!("../../config.example.toml");

/// Arguments of `antiphon config init`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// File to write [default: antiphon/antiphon.toml in the user's configuration directory]
    #[arg(long, value_name = "FILE")]
    path: Option<PathBuf>,
}

/// Error for a file that must not be written. Exit code 2.
#[derive(Debug, thiserror::Error)]
pub(super) enum InitError {
    /// The file exists.
    #[error("{} exists and stays as it is; name another file with --path", .0.display())]
    Exists(PathBuf),
    /// There is no home directory.
    #[error("no home directory for the configuration: name a file with --path")]
    NoPath,
    /// The file cannot be written.
    #[error("{}: {cause}", path.display())]
    Unwritable {
        /// Path of the file.
        path: PathBuf,
        /// Error of the system.
        cause: io::Error,
    },
}

/// Writes the file.
pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let path = args.path.clone().or_else(|| user_config_path(&process_environment));
    let path = path.ok_or(InitError::NoPath)?;
    let text = commented_example();
    write_new(&path, &text)?;
    writeln!(
        io::stdout().lock(),
        "wrote {}: every key with its default, commented out; check changes with: antiphon config check",
        path.display()
    )?;
    Ok(ExitCode::SUCCESS)
}

/// Returns the example with its keys commented out: `#key = …`, beside prose after `# `.
///
/// The headers of tables remain, so that a key needs no second edit.
fn commented_example() -> String {
    let line = |line: &str| {
        if line.is_empty() || line.starts_with(['#', '[']) {
            format!("{line}\n")
        } else {
            format!("#{line}\n")
        }
    };
    EXAMPLE.lines().map(line).collect()
}

/// Writes a new file that only its owner may read, since it may get keys. Creates its folder.
fn write_new(path: &Path, text: &str) -> Result<(), InitError> {
    let unwritable = |cause| InitError::Unwritable {
        path: path.to_owned(),
        cause,
    };
    let mut folders = DirBuilder::new();
    folders.recursive(true);
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    {
        std::os::unix::fs::DirBuilderExt::mode(&mut folders, 0o700);
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    }
    if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        folders.create(folder).map_err(unwritable)?;
    }
    let mut file = options.open(path).map_err(|cause| match cause.kind() {
        io::ErrorKind::AlreadyExists => InitError::Exists(path.to_owned()),
        _ => unwritable(cause),
    })?;
    file.write_all(text.as_bytes()).map_err(|cause| {
        // Half a file would be in the way of the next attempt.
        drop(fs::remove_file(path));
        unwritable(cause)
    })
}
