//! `antiphon mcp ps` and `antiphon mcp stop`: the runs that go on without their clients, from their marks.

use std::{
    io::{self, Write},
    process::ExitCode,
    time::Duration,
};

use anyhow::Context as _;
use rustix::process::{Pid, Signal, kill_process};

use super::run_folder::{RunFolder, RunMark};
use crate::{
    cli::time_format::format_time,
    clock,
    config::{default_mcp_path, process_environment},
    printable::printable_text,
};

/// Lists the runs.
pub(super) fn list_runs() -> anyhow::Result<ExitCode> {
    let marks = read_marks()?;
    let mut out = io::stdout().lock();
    for mark in marks {
        let age = clock::unix_time().saturating_sub(Duration::from_secs(mark.since));
        let call_id = if mark.call_id.is_empty() { "-" } else { &mark.call_id };
        writeln!(
            out,
            "{}  pid {}  {}  call {}  for {}",
            mark.id,
            mark.process,
            printable_text(&mark.tool),
            printable_text(call_id),
            format_time(age)
        )?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Ends the processes of all runs, or of those whose id begins so.
pub(super) fn stop_runs(id: Option<&str>) -> anyhow::Result<ExitCode> {
    let mut processes: Vec<u32> = read_marks()?
        .into_iter()
        .filter(|mark| id.is_none_or(|id| !id.is_empty() && mark.id.starts_with(id)))
        .map(|mark| mark.process)
        .collect();
    processes.sort_unstable();
    processes.dedup();
    if let Some(id) = id.filter(|_| processes.is_empty()) {
        drop(writeln!(
            io::stderr().lock(),
            "antiphon: no run has the id {}: see `antiphon mcp ps`",
            printable_text(id)
        ));
        return Ok(ExitCode::FAILURE);
    }
    for process in &processes {
        // The lock of its mark says that it is the keeper still. An error means that it has ended meanwhile.
        let process = i32::try_from(*process).ok().and_then(Pid::from_raw);
        let _ = process.map(|process| kill_process(process, Signal::TERM));
    }
    writeln!(io::stdout().lock(), "{} stopped", processes.len())?;
    Ok(ExitCode::SUCCESS)
}

fn read_marks() -> anyhow::Result<Vec<RunMark>> {
    let path = default_mcp_path(&process_environment).context("there is no home directory")?;
    let folder = RunFolder::open(&path).with_context(|| path.display().to_string())?;
    Ok(folder.list_marks())
}
