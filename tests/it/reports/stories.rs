//! Every report over the life of its session: first turn, second turn, second caller, second replica, restart, and a server
//! that accepts everything.

use std::sync::LazyLock;

use strict_provider::kept::judge_kept;

use super::{
    files::{self, Report, Right},
    server::{Exchange, Stage},
};
use crate::support::{judge, still};

static REPORTS: LazyLock<Vec<Report>> = LazyLock::new(files::all);

/// The faults of one report.
struct Faults<'r> {
    report: &'r Report,
    found: Vec<String>,
}

impl Faults<'_> {
    fn note(&mut self, situation: &str, fault: &str) {
        self.found.push(format!("{}: {situation}: {fault}", self.report.name));
    }

    /// Notes everything about an exchange that is not as it must be.
    fn check(&mut self, situation: &str, got: &Exchange, sends: usize, body: Option<&str>) {
        if (got.status, got.bodies.len()) != (200, sends) {
            let what = format!(
                "status {} after {} sends, wanted 200 after {sends}\n  answer {}\n  sent {}",
                got.status,
                got.bodies.len(),
                got.answer,
                got.last()
            );
            self.note(situation, &what);
        } else if let Some(body) = body.filter(|body| *body != got.last()) {
            self.note(situation, &format!("other bytes\n  {}\n  {body}", got.last()));
        }
    }

    /// Notes what was lost between the client and the server.
    fn check_kept(&mut self, situation: &str, client: &str, got: &Exchange) {
        let (format, _) = judge::reading(self.report.wire());
        let rules = self.report.kept_rules();
        if let Err(fault) = judge_kept(format, client.as_bytes(), got.last().as_bytes(), &rules) {
            self.note(situation, &format!("{fault}\n  {}", got.last()));
        }
    }
}

/// Has a caller's earlier exchange relayed, if the report has one.
async fn relay_earlier(stage: &Stage, report: &Report, key: &str) {
    if let Some(earlier) = &report.earlier {
        stage.replicas.world(0).script(still::json(200, &earlier.answer));
        let got = stage.send(0, key, &earlier.body).await;
        assert_eq!((got.status, got.bodies.len()), (200, 1), "{}", report.name);
    }
}

/// Tells one report to the proxy, in every situation. Returns the faults.
async fn tell(report: &'static Report) -> Vec<String> {
    let mut faults = Faults {
        report,
        found: Vec::new(),
    };
    let (body, grown) = (&*report.body, report.grown());
    let mut stage = Stage::strict(report);
    relay_earlier(&stage, report, "one").await;
    let first = stage.send(0, "one", body).await;
    if report.right == Right::Relayed {
        check_relayed(&mut faults, &mut stage, &first).await;
        return faults.found;
    }
    faults.check("first turn", &first, report.first_sends(), None);
    if !faults.found.is_empty() {
        return faults.found;
    }
    faults.check_kept("first turn", body, &first);
    let accepted = first.last();
    let (turn_sends, continues) = report.second_turn();
    let second = stage.send(0, "one", &grown).await;
    faults.check("second turn", &second, turn_sends, None);
    faults.check_kept("second turn", &grown, &second);
    let begins = second.last().starts_with(accepted.strip_suffix("]}").unwrap());
    if begins != continues {
        faults.note(
            "second turn",
            &format!("continues: {begins}\n  {}\n  {accepted}", second.last()),
        );
    }
    let later = report.later_sends();
    faults.check(
        "second replica",
        &stage.send(1, "one", body).await,
        later,
        Some(accepted),
    );
    let turn = stage.send(1, "one", &grown).await;
    faults.check("second turn, second replica", &turn, turn_sends, Some(second.last()));
    for (at, key) in [(0, "two"), (1, "three")] {
        relay_earlier(&stage, report, key).await;
        let other = stage.send(at, key, body).await;
        faults.check("second caller", &other, report.first_sends(), Some(accepted));
        if report.right == Right::Mended && report.earlier.is_none() && other.bodies[0] != body {
            faults.note("second caller", "it was mended before its own refusal");
        }
    }
    stage.replicas.restart();
    faults.check("restart", &stage.send(0, "one", body).await, later, Some(accepted));
    let turn = stage.send(0, "one", &grown).await;
    faults.check("second turn, restart", &turn, turn_sends, Some(second.last()));
    check_control(&mut faults, &grown).await;
    faults.found
}

/// Checks that the client gets the refusal as the server wrote it, each time, and that nothing is learned from it.
async fn check_relayed(faults: &mut Faults<'_>, stage: &mut Stage, first: &Exchange) {
    let (report, body) = (faults.report, &*faults.report.body);
    let (status, error) = &report.relayed();
    let is_relayed = |got: &Exchange| (got.status, &got.answer) == (*status, error) && got.bodies == [body];
    let again = [
        stage.send(0, "one", body).await,
        stage.send(1, "one", body).await,
        stage.send(1, "two", body).await,
    ];
    for got in [first].into_iter().chain(&again) {
        if !is_relayed(got) {
            faults.note("relayed", &format!("{got:?}"));
        }
    }
    let grown = report.grown();
    let next = stage.send(0, "one", &grown).await;
    match report.sends_once_seen() {
        Some(sends) => {
            faults.check("second turn, refusal seen", &next, sends, None);
            faults.check_kept("second turn, refusal seen", &grown, &next);
        }
        None if (next.status, &next.answer) == (*status, error) && next.bodies == [&*grown] => {}
        None => faults.note("second turn, relayed", &format!("{next:?}")),
    }
    stage.replicas.restart();
    let got = stage.send(0, "one", body).await;
    if !is_relayed(&got) {
        faults.note("relayed, restart", &format!("{got:?}"));
    }
    check_control(faults, &grown).await;
}

/// Checks that a server which accepts everything gets the client's bytes, unless every server refuses them.
async fn check_control(faults: &mut Faults<'_>, grown: &str) {
    let report = faults.report;
    let Some(report) = REPORTS.iter().find(|known| known.name == report.name) else {
        return;
    };
    let stage = Stage::accepting(report);
    for body in [&*report.body, grown] {
        let got = stage.send(0, "one", body).await;
        let wanted = (report.right != Right::AtOnce).then_some(body);
        faults.check("a server that accepts everything", &got, 1, wanted);
        if report.right == Right::AtOnce && got.last() == body {
            faults.note("a server that accepts everything", "the fault was not repaired at once");
        }
    }
}

/// Each report ends well, in each situation.
#[tokio::test(start_paused = true)]
async fn every_report_ends_well() {
    let mut faults = Vec::new();
    for report in &*REPORTS {
        faults.extend(tell(report).await);
    }
    assert!(faults.is_empty(), "{} faults:\n{}", faults.len(), faults.join("\n"));
}
