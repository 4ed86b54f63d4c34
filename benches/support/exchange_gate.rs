//! The costs of whole exchanges, and the gate: how far they may differ from the figures of `exchange-instructions.txt`.

use std::{fs, path::Path, process::Command};

use antiphon::wire::Format;

use crate::{
    bodies::{Shape, sized},
    loopback::{
        Child, Who,
        child::{built_binary, other_binary},
        counted::{self, Counted},
        request, unread, upstream,
    },
    support::{Options, Table, number},
};

/// The committed figures: the compiler, and the costs of each exchange.
const FIGURES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/exchange-instructions.txt");
/// The costs that are gated: the name, and the limit of the difference as a part of the committed figure. Processor time
/// follows the code that runs more than its instructions.
const GATED: [(&str, f64); 3] = [
    ("instructions", 0.03),
    ("bytes of code", 0.05),
    ("misses of code", 0.05),
];

/// An exchange that is counted.
#[derive(Clone, Copy)]
struct Exchange {
    name: &'static str,
    who: Who,
    shape: Shape,
    bytes: usize,
    /// `false` on a path whose bodies are not read.
    is_read: bool,
}

const fn exchange(name: &'static str, who: Who, shape: Shape, bytes: usize, is_read: bool) -> Exchange {
    Exchange {
        name,
        who,
        shape,
        bytes,
        is_read,
    }
}

const EXCHANGES: [Exchange; 9] = [
    exchange("bare pass-through, 4 KiB", Who::Floor, Shape::Balanced, 4 << 10, true),
    exchange("bare pass-through, 64 KiB", Who::Floor, Shape::Balanced, 64 << 10, true),
    exchange(
        "working floor, 4 KiB",
        Who::WorkingFloor,
        Shape::Balanced,
        4 << 10,
        true,
    ),
    exchange(
        "working floor, 64 KiB",
        Who::WorkingFloor,
        Shape::Balanced,
        64 << 10,
        true,
    ),
    exchange("not inspected, 4 KiB", Who::Ours, Shape::Balanced, 4 << 10, false),
    exchange("healthy, 4 KiB", Who::Ours, Shape::Balanced, 4 << 10, true),
    exchange("healthy, 64 KiB", Who::Ours, Shape::Balanced, 64 << 10, true),
    exchange("orphan, 4 KiB", Who::Ours, Shape::Orphan, 4 << 10, true),
    exchange("orphan, 64 KiB", Who::Ours, Shape::Orphan, 64 << 10, true),
];

/// Counts every exchange, prints the table, and compares it with the committed figures. Returns `false` if one differs.
pub(crate) fn count_exchanges(options: Options) -> bool {
    if !counted::has_callgrind() {
        println!("skipped: the exchanges need valgrind and taskset");
        return true;
    }
    counted::stay_on_one_core();
    let upstream = Child::upstream();
    let committed = fs::read_to_string(FIGURES).unwrap_or_default();
    let mut table = Table::new(
        "One exchange",
        &[
            "exchange",
            "instructions",
            "committed",
            "bytes of code",
            "committed",
            "misses of code",
            "committed",
            "copying bytes",
        ],
    );
    let (mut figures, mut differing) = (String::new(), Vec::new());
    for exchange in EXCHANGES {
        let counted = exchange.count(&upstream);
        let mut columns = Vec::new();
        let costs = [counted.instructions, counted.code_bytes, counted.code_misses];
        for ((cost, limit), counted) in GATED.into_iter().zip(costs.map(f64::round)) {
            let name = format!("{}: {cost}", exchange.name);
            figures.push_str(&format!("{name} = {counted}\n"));
            let known = committed_figure(&committed, &name).unwrap_or(f64::NAN);
            columns.extend([counted, known]);
            // Also without a committed figure.
            if known.is_nan() || (counted / known - 1.0).abs() > limit {
                differing.push(format!(
                    "{name}: {counted}, committed {known}: more than {} % away",
                    limit * 100.0
                ));
            }
        }
        columns.push(counted.copying);
        table.row(exchange.name.to_owned(), columns.into_iter().map(number));
    }
    table.print(options.markdown);
    if let Some(binary) = other_binary() {
        println!("skipped: the comparison, since the binary is {}", binary.display());
        return true;
    }
    let compiler = compiler();
    if std::env::var_os("UPDATE_FIGURES").is_some() {
        let head = "Costs of one exchange. With `UPDATE_FIGURES=1` the command in docs/performance.md writes them.\n";
        fs::write(Path::new(FIGURES), format!("{head}compiler = {compiler}\n{figures}")).unwrap();
        return true;
    }
    if !committed.lines().any(|line| line == format!("compiler = {compiler}")) {
        println!("skipped: the committed figures are of another build than {compiler}");
        return true;
    }
    for line in &differing {
        println!("failed: {line}");
    }
    differing.is_empty()
}

fn committed_figure(committed: &str, name: &str) -> Option<f64> {
    let mut lines = committed.lines();
    let figure = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(" = "))?;
    figure.parse().ok()
}

impl Exchange {
    fn count(self, upstream: &Child) -> Counted {
        let body = sized(Format::Anthropic, self.shape, self.bytes);
        let request = if self.is_read {
            request(self.who, Format::Anthropic, upstream::TAKE, &body)
        } else {
            unread(Format::Anthropic, &body)
        };
        let start = |program: &[String]| match self.who {
            Who::Floor => Child::floor_under(upstream.address, program),
            Who::WorkingFloor => Child::working_floor_under(upstream.address, program),
            _ => Child::antiphon_under(upstream.address, program),
        };
        counted::count(start, &request, upstream::ANSWER)
    }
}

/// Returns the version of the compiler, the profile, and how the C library is linked.
fn compiler() -> String {
    let ran = Command::new("rustc").arg("--version").output().unwrap();
    let version = String::from_utf8_lossy(&ran.stdout).trim().to_owned();
    let binary = built_binary();
    let profile = binary.parent().and_then(Path::file_name);
    let linked = if cfg!(target_feature = "crt-static") {
        "static"
    } else {
        "dynamic"
    };
    format!("{version}, profile {}, {linked}", profile.unwrap_or_default().display())
}
