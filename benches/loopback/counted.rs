//! Whole exchanges under callgrind: their instructions, which depend on no other load of the machine.

use std::{
    collections::HashSet,
    env, fs,
    process::{self, Command},
    thread,
};

use super::{Child, Client};

/// Connections of a closed loop: enough that the process under callgrind never waits for a client.
const CONNECTIONS: usize = 16;
/// Requests of a connection before the count begins: caches, tables and connections are as they stay.
const WARM: usize = 30;
/// Requests of a connection that are counted.
const COUNTED: usize = 40;
/// Lets the string functions of the C library move bytes in loops. Callgrind counts each byte of a `rep movsb` as an
/// instruction, and the length from which it is used depends on the processor.
const TUNABLES: &str =
    "GLIBC_TUNABLES=glibc.cpu.x86_rep_movsb_threshold=1073741824:glibc.cpu.x86_rep_stosb_threshold=1073741824";

/// Returns `true` if callgrind can be started.
pub fn has_callgrind() -> bool {
    let starts = |name: &str| Command::new(name).arg("--version").output().is_ok();
    starts("valgrind") && starts("callgrind_control") && starts("taskset")
}

/// Keeps this process and those that it starts from now on on one core.
///
/// A request then is in the socket as a whole before the proxy reads it. On two cores the number of reads would depend on
/// the load of the machine.
pub fn stay_on_one_core() {
    let id = process::id().to_string();
    let pinned = Command::new("taskset")
        .args(["-a", "-c", "-p", "0", &id])
        .output()
        .unwrap();
    assert!(pinned.status.success(), "taskset");
}

/// The instructions of one exchange.
pub struct Counted {
    pub instructions: f64,
    /// Those of the C library's functions that copy bytes. 0 if the binary contains no names of functions.
    pub copying: f64,
}

/// Counts the instructions of one exchange. `start` starts the process under the program that it gets.
pub fn count(start: impl Fn(&[String]) -> Child, request: &[u8], answer: &[u8]) -> Counted {
    let file = env::temp_dir().join(format!("antiphon-bench-{}.callgrind", process::id()));
    let out = format!("--callgrind-out-file={}", file.display());
    // On the one core it has one worker.
    let program = ["env", TUNABLES, "valgrind", "--quiet", "--tool=callgrind", &out];
    let program: Vec<String> = program.iter().map(|&part| part.to_owned()).collect();
    let child = start(&program);
    let mut clients: Vec<Client> = (0..CONNECTIONS).map(|_| Client::connect(child.address)).collect();
    serve(&mut clients, request, answer, WARM);
    // The start and the end of the process vary with the load of the machine, so they are not counted.
    control("--zero", &child);
    serve(&mut clients, request, answer, COUNTED);
    control("--dump", &child);
    drop(child);
    let dump = file.with_extension("callgrind.1");
    let text = fs::read_to_string(&dump).unwrap();
    fs::remove_file(dump).unwrap();
    drop(fs::remove_file(file));
    let summary = text.lines().find_map(|line| line.strip_prefix("summary: "));
    let all: f64 = summary
        .and_then(|count| count.trim().parse().ok())
        .expect("callgrind's count");
    let exchanges = (COUNTED * CONNECTIONS) as f64;
    Counted {
        instructions: all / exchanges,
        copying: copying(&text) / exchanges,
    }
}

/// Sends a command to callgrind, and waits until it is done.
fn control(command: &str, child: &Child) {
    let ran = Command::new("callgrind_control")
        .args([command, &child.id().to_string()])
        .output()
        .unwrap();
    assert!(ran.status.success(), "callgrind_control {command}");
}

/// Returns the instructions of `memcpy` and `memmove` themselves in a dump of callgrind.
fn copying(dump: &str) -> f64 {
    let mut copying = HashSet::new();
    let (mut is_copying, mut is_call, mut sum) = (false, false, 0.0);
    for line in dump.lines() {
        // A name appears once, with its number. Later the number stands for it.
        if let Some((number, name)) = line.split_once("fn=(").and_then(|(_, rest)| rest.split_once(')')) {
            if name.contains("memcpy") || name.contains("memmove") {
                copying.insert(number);
            }
            if line.starts_with("fn=") {
                is_copying = copying.contains(number);
            }
        } else if line.starts_with("calls=") {
            // The next line has the costs of what is called.
            is_call = true;
        } else if let Some((_, cost)) = line.split_once(' ')
            && !std::mem::take(&mut is_call)
            && is_copying
        {
            sum += cost.trim().parse().unwrap_or(0.0);
        }
    }
    sum
}

/// Sends `each` requests on every connection.
fn serve(clients: &mut [Client], request: &[u8], answer: &[u8], each: usize) {
    thread::scope(|scope| {
        for client in clients {
            scope.spawn(move || {
                for _ in 0..each {
                    assert_eq!(client.ask(request), answer, "another answer");
                }
            });
        }
    });
}
