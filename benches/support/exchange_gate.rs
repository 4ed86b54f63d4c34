//! The instructions of whole exchanges, and the gate: they may differ from the figures beside this file by 3 %.

use std::{fs, path::Path, process::Command};

use antiphon::wire::Format;

use crate::{
    loopback::{
        Child, Who,
        child::other_binary,
        counted::{self, Counted},
        request, unread, upstream,
    },
    shared::bodies::{Shape, sized},
    support::{Options, Table, number},
};

/// The committed figures: the compiler, and the instructions of each exchange.
const FIGURES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/exchange-instructions.txt");
/// Limit of the difference, as a part of the committed figure.
const DIFFERENCE_MAX: f64 = 0.03;

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
    let figure = |name: &str| {
        let line = committed
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(" = "));
        line.and_then(|figure| figure.parse::<f64>().ok())
    };
    let mut table = Table::new(
        "Instructions of one exchange",
        &["exchange", "counted", "committed", "copying bytes"],
    );
    let (mut figures, mut differing) = (String::new(), Vec::new());
    for exchange in EXCHANGES {
        let Counted { instructions, copying } = exchange.count(&upstream);
        let counted = instructions.round();
        figures.push_str(&format!("{} = {counted}\n", exchange.name));
        let known = figure(exchange.name).unwrap_or(f64::NAN);
        table.row(exchange.name.to_owned(), [counted, known, copying].map(number));
        // Also without a committed figure.
        if known.is_nan() || (counted / known - 1.0).abs() > DIFFERENCE_MAX {
            differing.push(format!("{}: {counted}, committed {known}", exchange.name));
        }
    }
    table.print(options.markdown);
    if let Some(binary) = other_binary() {
        println!("skipped: the comparison, since the binary is {}", binary.display());
        return true;
    }
    let compiler = compiler();
    if std::env::var_os("UPDATE_FIGURES").is_some() {
        let head = "Instructions of one exchange. `UPDATE_FIGURES=1 cargo bench --bench instructions` writes them.\n";
        fs::write(Path::new(FIGURES), format!("{head}compiler = {compiler}\n{figures}")).unwrap();
        return true;
    }
    if !committed.lines().any(|line| line == format!("compiler = {compiler}")) {
        println!("skipped: the committed figures are of another compiler than {compiler}");
        return true;
    }
    for line in &differing {
        println!("failed: {line}: more than 3 % away");
    }
    differing.is_empty()
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

/// Returns the version of the compiler and the profile.
fn compiler() -> String {
    let ran = Command::new("rustc").arg("--version").output().unwrap();
    let version = String::from_utf8_lossy(&ran.stdout).trim().to_owned();
    let profile = Path::new(env!("CARGO_BIN_EXE_antiphon"))
        .parent()
        .and_then(Path::file_name);
    format!("{version}, profile {}", profile.unwrap_or_default().display())
}
