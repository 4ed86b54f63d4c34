//! Whole exchanges under callgrind: their instructions, which depend on no other load of the machine.

use std::{
    env, fs,
    net::SocketAddr,
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
    starts("valgrind") && starts("taskset")
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

/// Returns the instructions of one exchange: the difference between two runs of a process.
///
/// `start` starts it under the program that it gets.
pub fn instructions(start: impl Fn(&[String]) -> Child, request: &[u8], answer: &[u8]) -> f64 {
    let [warm, all] = [WARM, WARM + COUNTED].map(|each| run(&start, request, answer, each));
    (all - warm) / (COUNTED * CONNECTIONS) as f64
}

/// Returns the instructions of a process that serves `each` requests on every connection, with its start and its end.
fn run(start: impl Fn(&[String]) -> Child, request: &[u8], answer: &[u8], each: usize) -> f64 {
    let log = env::temp_dir().join(format!("antiphon-bench-{}.callgrind", process::id()));
    let log_file = format!("--log-file={}", log.display());
    // On the one core it has one worker.
    let program = ["env", TUNABLES, "valgrind"];
    let options = ["--tool=callgrind", "--callgrind-out-file=/dev/null", &log_file];
    let program: Vec<String> = program.iter().chain(&options).map(|&part| part.to_owned()).collect();
    let child = start(&program);
    serve(child.address, request, answer, each);
    child.terminate();
    let told = fs::read_to_string(&log).unwrap();
    fs::remove_file(&log).unwrap();
    let collected = told.lines().find_map(|line| line.split_once("Collected : "));
    let collected = collected.and_then(|(_, number)| number.trim().parse().ok());
    collected.expect("callgrind's count")
}

fn serve(address: SocketAddr, request: &[u8], answer: &[u8], each: usize) {
    thread::scope(|scope| {
        for _ in 0..CONNECTIONS {
            scope.spawn(|| {
                let mut client = Client::connect(address);
                for _ in 0..each {
                    assert_eq!(client.ask(request), answer, "another answer");
                }
            });
        }
    });
}
