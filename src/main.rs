//! The `antiphon` binary: arguments in, exit code out. Nothing else.

use std::process::ExitCode;

// 4 MiB bodies cost 1.6 times the CPU without it: page faults of blocks given back and taken again.
#[cfg(feature = "mimalloc")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    antiphon::cli::main(std::env::args_os())
}
