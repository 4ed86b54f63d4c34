//! Whole exchanges under callgrind: their instructions, the code that they run, and its misses in the first-level cache.
//! None of it depends on other load of the machine.

use std::{
    collections::{HashMap, HashSet},
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

/// The simulated caches of a processor, so that the figures do not depend on the one at hand: size, ways, line.
const CACHES: [&str; 3] = ["--I1=32768,8,64", "--D1=32768,8,64", "--LL=8388608,16,64"];
/// Bytes of a line of the caches.
const LINE_BYTES: u64 = 64;

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

/// The costs of one exchange.
pub struct Counted {
    pub instructions: f64,
    /// Bytes of the cache lines whose code ran at least half as often as there were exchanges.
    pub code_bytes: f64,
    /// Fetches of code that missed the simulated first-level cache.
    pub code_misses: f64,
    /// Instructions of the C library's functions that copy bytes. 0 if the binary contains no names of functions.
    pub copying: f64,
}

/// Counts the costs of one exchange. `start` starts the process under the program that it gets.
pub fn count(start: impl Fn(&[String]) -> Child, request: &[u8], answer: &[u8]) -> Counted {
    let file = env::temp_dir().join(format!("antiphon-bench-{}.callgrind", process::id()));
    let out = format!("--callgrind-out-file={}", file.display());
    // On the one core it has one worker.
    let mut program = vec!["env", TUNABLES, "valgrind", "--quiet", "--tool=callgrind", &out];
    program.extend(["--cache-sim=yes", "--dump-instr=yes", "--compress-pos=no"]);
    program.extend(CACHES);
    let program: Vec<String> = program.into_iter().map(str::to_owned).collect();
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
    let exchanges = (COUNTED * CONNECTIONS) as f64;
    let costs = Costs::read(&text);
    let lines = costs.runs_of_line.values().filter(|&&runs| runs * 2.0 >= exchanges);
    Counted {
        instructions: costs.instructions / exchanges,
        code_bytes: (lines.count() as u64 * LINE_BYTES) as f64,
        code_misses: costs.code_misses / exchanges,
        copying: costs.copying / exchanges,
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

/// The costs of a dump of callgrind.
#[derive(Default)]
struct Costs {
    instructions: f64,
    code_misses: f64,
    /// Instructions of `memcpy` and `memmove` themselves.
    copying: f64,
    /// How often the code of a cache line ran: as often as its most frequent instruction. By the line's number.
    runs_of_line: HashMap<u64, f64>,
}

impl Costs {
    /// Reads a dump with `positions: instr line`. Every line of costs has an address, a source line, and the events in the
    /// order of the head, without zeros at the end.
    fn read(dump: &str) -> Self {
        let mut events = dump
            .lines()
            .find_map(|line| line.strip_prefix("events: "))
            .expect("events")
            .split(' ');
        let miss_index = events.position(|event| event == "I1mr").expect("misses of code");
        let mut costs = Self::default();
        let mut copying = HashSet::new();
        let (mut is_copying, mut is_call) = (false, false);
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
            } else if let Some(address) = line.strip_prefix("0x")
                && !std::mem::take(&mut is_call)
            {
                let mut columns = address.split(' ');
                let address = columns
                    .next()
                    .and_then(|hex| u64::from_str_radix(hex, 16).ok())
                    .expect("an address");
                let events: Vec<f64> = columns.skip(1).filter_map(|count| count.parse().ok()).collect();
                let event = |index: usize| events.get(index).copied().unwrap_or(0.0);
                costs.instructions += event(0);
                costs.code_misses += event(miss_index);
                costs.copying += if is_copying { event(0) } else { 0.0 };
                let runs = costs.runs_of_line.entry(address / LINE_BYTES).or_default();
                *runs = runs.max(event(0));
            }
        }
        costs
    }
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
