//! Processes as `ps` and `lsof` list them, which every macOS has.
#![cfg_attr(
    not(target_os = "macos"),
    expect(dead_code, reason = "only its parsers are tested elsewhere")
)]

use std::{path::PathBuf, process::Command, time::Duration};

use super::{ProcessFacts, runs_claude};
use crate::clock;

/// Lists the processes of this user. Only those of Claude Code have a working folder.
pub(super) fn list_processes() -> Result<Vec<ProcessFacts>, String> {
    let listed = read_output("ps", &["-xww", "-o", "pid=,etime=,command="])?;
    let now = clock::system_time();
    let mut found: Vec<ProcessFacts> = listed.lines().filter_map(|line| read_line(line, now)).collect();
    for facts in found.iter_mut().filter(|facts| facts.is_claude) {
        let pid = facts.pid.to_string();
        let told = read_output("lsof", &["-a", "-d", "cwd", "-p", &pid, "-Fn"])?;
        facts.working_folder = told.lines().find_map(|line| line.strip_prefix('n')).map(PathBuf::from);
        // It may have resumed any session, unless it has ended meanwhile.
        if facts.working_folder.is_none() && !read_output("ps", &["-o", "pid=", "-p", &pid])?.trim().is_empty() {
            return Err(format!("lsof does not tell the folder of process {pid}"));
        }
    }
    if found.iter().any(|facts| facts.pid == std::process::id()) {
        Ok(found)
    } else {
        Err("ps does not list this user's processes".to_owned())
    }
}

/// Returns what a program writes.
fn read_output(program: &str, arguments: &[&str]) -> Result<String, String> {
    let out = Command::new(program).args(arguments).output();
    let out = out.map_err(|error| format!("{program} cannot be run: {error}"))?;
    Ok(String::from_utf8_lossy(&out.stdout).into_owned())
}

/// Reads a line of `ps`: the id, the time since the start, and the command line.
fn read_line(line: &str, now: Duration) -> Option<ProcessFacts> {
    let (pid, rest) = line.trim_start().split_once(char::is_whitespace)?;
    let (elapsed, command) = rest.trim_start().split_once(char::is_whitespace)?;
    let started_at = now.saturating_sub(elapsed_time(elapsed)?);
    Some(ProcessFacts {
        pid: pid.parse().ok()?,
        start: started_at.as_secs().to_string(),
        started_at: Some(started_at),
        is_claude: runs_claude("", command.split_ascii_whitespace()),
        ..ProcessFacts::default()
    })
}

/// Reads a time such as `02-03:04:05`: days, hours, minutes and seconds.
fn elapsed_time(text: &str) -> Option<Duration> {
    let (days, clock) = text.split_once('-').unwrap_or(("0", text));
    let mut seconds: u64 = 0;
    for part in clock.split(':') {
        seconds = seconds.checked_mul(60)?.checked_add(part.parse().ok()?)?;
    }
    let days: u64 = days.parse().ok()?;
    Some(Duration::from_secs(days.checked_mul(24 * 3600)?.checked_add(seconds)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_ps_are_read() {
        for (text, seconds) in [
            ("05", Some(5)),
            ("01:05", Some(65)),
            ("2-03:04:05", Some(183_845)),
            ("x", None),
        ] {
            assert_eq!(elapsed_time(text), seconds.map(Duration::from_secs), "{text}");
        }
        let now = Duration::from_secs(1000);
        let facts = read_line("  77    01:40 /opt/homebrew/bin/claude --resume", now).unwrap();
        assert_eq!((facts.pid, facts.is_claude), (77, true));
        assert_eq!(facts.started_at, Some(Duration::from_secs(900)));
        assert_eq!(read_line("garbage", now), None);
    }
}
