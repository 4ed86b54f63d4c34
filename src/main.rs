//! The `antiphon` binary: arguments in, exit code out. Nothing else.

use std::process::ExitCode;

fn main() -> ExitCode {
    antiphon::cli::main(std::env::args_os())
}
