//! The `antiphon` binary: passes the arguments to the command line and returns its exit code.

use std::process::ExitCode;

// Without it 4 MiB bodies cost 1.6 times the CPU: the system allocator returns their pages and faults them in again.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    antiphon::cli::main(std::env::args_os())
}
