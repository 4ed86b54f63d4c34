//! Random walk over cancels: requests, dropped streams, closed sessions, results, restarts and steps of the clock, against
//! a model.
//!
//! The model is written from the rules of docs/cancels.md and shares no code with the store. A service gets what is due,
//! and answers it, fails, or is lost with the process before it could.
//!
//! `STEPS=` sets the number of steps, `SEED=<n>` replays another walk, `SEED=random` takes a new one.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use antiphon::{
    auth::{Caller, Principal},
    clock::unix_time,
    late::{
        CancelOutcome, Dispatcher, LateSettings, LateStore, ListedMessage, ObservedCall, PostOutcome, PostTerms,
        PreparedMessage, SendOutcome,
        matching::NamedCall,
        records::{PostRefusal, RecordedCallState},
    },
    ledger::Ledger,
    repair::input_hash,
    session::{CallEvidence, LaneId, SessionStrength, session_hash},
    telemetry::Telemetry,
};
use serde_json::Value;
use tokio::{sync::mpsc, time::Instant};

use crate::ledger::switchable::SwitchableLedger;
use crate::support::{
    bodies::Rng,
    late::{counted_by, over, undoing},
    seed::seed,
    wire::spawn,
};

const STEPS: u64 = 4_000;
const GRACE: Duration = Duration::from_secs(60);
const SILENCE: Duration = Duration::from_secs(300);
/// The time for which a step looks for messages that are due.
const LOOK: Duration = Duration::from_millis(20);
/// The longest time between an event and its effect, in the time of the walk.
const SLACK: Duration = Duration::from_millis(500);
const SESSIONS: [&str; 5] = ["a", "b", "c", "d", "e"];

/// A call in the model.
#[derive(Debug)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a fact of its own, and any may go with any"
)]
struct Modelled {
    session: usize,
    /// The time of the latest evidence that its conversation was left. `None` if a request went on with it since.
    left_at: Option<Instant>,
    /// `true` if the owner has asked for the cancel.
    is_requested: bool,
    /// `true` once the service was asked.
    is_asked: bool,
    /// `true` once the service has accepted the message.
    is_accepted: bool,
    /// `true` until the owner asks once more, or a process that knows nothing of the answer sees new evidence.
    is_done: bool,
    /// `true` once it has a result, was undone, or its tool goes on.
    is_ended: bool,
    is_cancelled: bool,
    is_refused: bool,
    /// The id of the message that the service has failed to accept, and the number of failures.
    failed: Option<(String, u32)>,
    /// All of its events, for the message of a failure.
    events: Vec<&'static str>,
}

struct Walk {
    ledger: Arc<SwitchableLedger>,
    telemetry: Telemetry,
    late: LateStore,
    dispatcher: Dispatcher,
    /// The messages that are due. The next one is looked for once this one was taken.
    due: mpsc::Receiver<PreparedMessage>,
    caller: Caller,
    rng: Rng,
    calls: BTreeMap<String, Modelled>,
    /// The last request of each session that went on with its conversation, as this process has seen it.
    heard: [Instant; SESSIONS.len()],
    started: Instant,
    counts: BTreeMap<&'static str, u64>,
}

fn settings() -> LateSettings {
    LateSettings {
        cancel_grace: GRACE,
        detach_after: SILENCE,
        ..undoing()
    }
}

impl Walk {
    async fn new(seed: u64) -> Self {
        let ledger = SwitchableLedger::new();
        let telemetry = Telemetry::default();
        let (late, dispatcher, due) = Self::open(&ledger, &telemetry).await;
        let caller = Self::caller(&late);
        let now = Instant::now();
        Self {
            ledger,
            telemetry,
            late,
            dispatcher,
            due,
            caller,
            rng: Rng::new(seed),
            calls: BTreeMap::new(),
            heard: [now; SESSIONS.len()],
            started: now,
            counts: BTreeMap::new(),
        }
    }

    fn caller(late: &LateStore) -> Caller {
        Caller::of_account(Principal::of_token(late.principal_key(), "ann"))
    }

    async fn open(
        ledger: &Arc<SwitchableLedger>,
        telemetry: &Telemetry,
    ) -> (LateStore, Dispatcher, mpsc::Receiver<PreparedMessage>) {
        let ledger: Arc<dyn Ledger> = Arc::<SwitchableLedger>::clone(ledger);
        let (late, writer) = over(&ledger, settings(), telemetry.clone());
        drop(spawn(writer.run()));
        late.callers().mark_verified(Self::caller(&late));
        late.flush_updates().await;
        let dispatcher = late.dispatcher();
        dispatcher.load().await;
        let (messages, due) = mpsc::channel(1);
        let sender = dispatcher.clone();
        // As the sender of the proxy does: nothing stops it while it prepares a message.
        drop(spawn(async move {
            while let Some(message) = sender.next_message().await {
                if messages.send(message).await.is_err() {
                    break;
                }
            }
        }));
        (late, dispatcher, due)
    }

    fn count(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }

    fn lane(&self, session: usize) -> LaneId {
        LaneId::main_lanes(&self.caller, SESSIONS[session])[0]
    }

    fn observe(&self, id: &str, session: usize, is_emitted: bool) -> ObservedCall {
        ObservedCall {
            lane: Some(self.lane(session)),
            session: Some(session_hash(self.caller.principal(), SESSIONS[session].as_bytes())),
            session_label: None,
            strength: SessionStrength::Strong,
            id: id.as_bytes().to_vec(),
            tool: b"hold".to_vec(),
            input: Some(input_hash(b"{}")),
            intent_input: None,
            origin: None,
            is_emitted,
        }
    }

    /// Returns an id as providers make them: no other conversation uses it.
    fn new_id(&mut self) -> String {
        const LETTERS: &[u8] = b"ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz123456789";
        let letters = (0..22).map(|_| char::from(LETTERS[self.rng.below(LETTERS.len())]));
        format!("toolu_01{}", letters.collect::<String>())
    }

    /// Returns an open call, if there is one.
    fn pick(&mut self) -> Option<String> {
        let open: Vec<String> = self
            .calls
            .iter()
            .filter(|(_, call)| !call.is_ended)
            .map(|(id, _)| id.clone())
            .collect();
        (!open.is_empty()).then(|| open[self.rng.below(open.len())].clone())
    }

    async fn step(&mut self) {
        match self.rng.below(100) {
            0..20 => self.emits_call(),
            20..40 => self.sends_request(),
            40..52 => self.is_left(),
            52..57 => self.owner_asks().await,
            57..65 => self.posts_result().await,
            65..68 => self.confirms().await,
            68..96 => {
                let steps = [1, 20, 45, 61, 310, 700].map(Duration::from_secs);
                let step = steps[self.rng.below(steps.len())];
                tokio::time::advance(step).await;
            }
            _ => self.restarts().await,
        }
        self.late.flush_updates().await;
        self.dispatch().await;
    }

    /// A request of a session shows all of its calls, and the model calls once more.
    fn emits_call(&mut self) {
        let session = self.rng.below(SESSIONS.len());
        self.notes_request(session, false);
        let id = self.new_id();
        self.late
            .calls()
            .record_calls(self.caller, [self.observe(&id, session, true)]);
        let call = Modelled {
            session,
            left_at: None,
            is_requested: false,
            is_asked: false,
            is_accepted: false,
            is_done: false,
            is_ended: false,
            is_cancelled: false,
            is_refused: false,
            failed: None,
            events: vec!["call"],
        };
        self.calls.insert(id, call);
        self.count("call");
    }

    fn sends_request(&mut self) {
        if self.rng.chance(30) {
            return self.stands_beside();
        }
        let (session, lacks) = (self.rng.below(SESSIONS.len()), self.rng.chance(30));
        self.notes_request(session, lacks);
    }

    /// Sends a request beside the conversation of a session, which changes nothing.
    fn stands_beside(&mut self) {
        let session = self.rng.below(SESSIONS.len());
        let request = (self.caller, self.lane(session));
        let cancels = self.late.cancels();
        cancels.note_request(request, b"a title", false, |_, _| CallEvidence::Unrelated);
        for call in self.calls.values_mut().filter(|call| call.session == session) {
            call.events.push("beside");
        }
        self.count("beside");
    }

    /// Sends a request of a session. It goes on without one of its calls if `lacks` is set.
    fn notes_request(&mut self, session: usize, lacks: bool) {
        let now = Instant::now();
        let open: Vec<String> = self
            .calls
            .iter()
            .filter(|(_, call)| call.session == session && !call.is_ended)
            .map(|(id, _)| id.clone())
            .collect();
        let gone = open.first().filter(|_| lacks).cloned();
        let shown: Vec<String> = open.into_iter().filter(|id| Some(id) != gone.as_ref()).collect();
        let body = shown.join(" ");
        let lane = self.lane(session);
        let judge = |id: &[u8], _: &dyn Fn() -> bool| {
            if gone.as_ref().is_some_and(|gone| gone.as_bytes() == id) {
                CallEvidence::Left
            } else {
                CallEvidence::GoesOn
            }
        };
        let cancels = self.late.cancels();
        cancels.note_request((self.caller, lane), body.as_bytes(), true, judge);
        let calls: Vec<ObservedCall> = shown.iter().map(|id| self.observe(id, session, false)).collect();
        self.late.calls().record_calls(self.caller, calls);
        self.heard[session] = now;
        for id in shown {
            let call = self.calls.get_mut(&id).unwrap();
            call.left_at = None;
            call.events.push("shown");
        }
        if let Some(id) = gone {
            let call = self.calls.get_mut(&id).unwrap();
            call.left_at = call.left_at.or(Some(now));
            call.events.push("lacking");
            self.count("went on");
        }
    }

    /// A client drops its stream, or closes its session.
    fn is_left(&mut self) {
        let session = self.rng.below(SESSIONS.len());
        if self.rng.chance(50) {
            self.late.cancels().note_dropped_stream(self.lane(session), |_| true);
        } else {
            self.late.calls().note_session_closed(self.caller, SESSIONS[session]);
        }
        let now = Instant::now();
        for call in self.calls.values_mut().filter(|call| call.session == session) {
            call.left_at = call.left_at.or(Some(now));
            call.events.push("left");
        }
        self.count("left");
    }

    async fn owner_asks(&mut self) {
        self.asks_for_a_refused_call().await;
        let Some(id) = self.pick() else { return };
        let failed = self.calls[&id].failed.clone();
        let before = self.waiting(failed.as_ref()).await;
        let answer = self.late.cancels().request(self.caller, id.as_bytes()).await.unwrap();
        assert_eq!(answer, CancelOutcome::State(RecordedCallState::CancelRequested), "{id}");
        if before.as_ref().is_some_and(|message| !message.is_dead) {
            assert_eq!(
                self.waiting(failed.as_ref()).await,
                before,
                "{id}: the message waits already"
            );
            self.count("requested while it is sent");
        }
        let call = self.calls.get_mut(&id).unwrap();
        if before.is_some_and(|message| message.is_dead) {
            call.failed = None;
        }
        (call.is_requested, call.is_done) = (true, false);
        call.events.push("requested");
        self.count("requested");
    }

    /// Returns the message that a service has failed to accept.
    async fn waiting(&self, failed: Option<&(String, u32)>) -> Option<ListedMessage> {
        let (id, failures) = failed?;
        let page = self.late.outbox().list(None, 10_000, unix_time());
        let message = page.await.unwrap().rows.into_iter().find(|message| message.id == *id)?;
        assert!(message.is_dead || message.tries == *failures, "{message:?}");
        Some(message)
    }

    /// A service that has refused is not asked again.
    async fn asks_for_a_refused_call(&mut self) {
        let refused = self.calls.iter().find(|(_, call)| call.is_refused);
        let Some(id) = refused.map(|(id, _)| id.clone()) else {
            return;
        };
        let answer = self.late.cancels().request(self.caller, id.as_bytes()).await.unwrap();
        assert_eq!(answer, CancelOutcome::State(RecordedCallState::CancelRefused), "{id}");
        self.count("refused before");
    }

    async fn posts_result(&mut self) {
        let ids: Vec<String> = self.calls.keys().cloned().collect();
        if !ids.is_empty() {
            let at = self.rng.below(ids.len());
            self.posts_result_of(&ids[at]).await;
        }
    }

    async fn posts_result_of(&mut self, id: &str) {
        let (late, call) = (self.late.clone(), self.calls.get_mut(id).unwrap());
        let service = late.services()[0].clone();
        let named = NamedCall {
            service: &service,
            call_id: id.as_bytes(),
            owner: None,
            session: None,
            described: None,
        };
        let outcome = late
            .calls()
            .post_result(&named, format!("\"result of {id}\""), false, PostTerms::default())
            .await
            .unwrap();
        if call.is_cancelled {
            assert!(
                matches!(outcome, PostOutcome::Refused(PostRefusal::Cancelled)),
                "{id}: {outcome:?}"
            );
            self.count("evidence");
        } else {
            assert!(matches!(outcome, PostOutcome::Settled { .. }), "{id}: {outcome:?}");
            (call.is_ended, call.is_refused) = (true, false);
            self.count("settled");
        }
    }

    /// The service of a call that it was asked to undo reports the end.
    async fn confirms(&mut self) {
        let Some(id) = self.pick().filter(|id| self.calls[id].is_asked) else {
            return;
        };
        let is_refused = self.rng.chance(50);
        let (late, call) = (self.late.clone(), self.calls.get_mut(&id).unwrap());
        let service = late.services()[0].clone();
        let named = NamedCall {
            service: &service,
            call_id: id.as_bytes(),
            owner: None,
            session: None,
            described: None,
        };
        let answer = late.cancels().confirm(&named, is_refused).await.unwrap();
        assert!(matches!(answer, CancelOutcome::State(_)), "{id}: {answer:?}");
        (call.is_ended, call.is_cancelled, call.is_refused) = (true, !is_refused, is_refused);
        self.count("confirmed");
    }

    async fn restarts(&mut self) {
        // Evidence is stored some milliseconds after it was seen.
        self.late.flush_updates().await;
        self.ledger = self.ledger.restart();
        (self.late, self.dispatcher, self.due) = Self::open(&self.ledger, &self.telemetry).await;
        let now = Instant::now();
        self.started = now;
        self.heard = [now; SESSIONS.len()];
        for call in self.calls.values_mut() {
            call.left_at = call.left_at.map(|_| now);
            call.is_done = false;
            call.events.push("restart");
        }
        self.count("restart");
    }

    /// Notes the sessions that were silent for too long.
    fn notes_silence(&mut self) {
        let now = Instant::now();
        for call in self.calls.values_mut().filter(|call| !call.is_ended) {
            let heard = self.heard[call.session];
            if call.left_at.is_none() && now.duration_since(heard) >= SILENCE {
                call.left_at = Some(now);
            }
        }
    }

    /// Sends what is due, and checks that it is exactly what the model expects.
    async fn dispatch(&mut self) {
        self.notes_silence();
        while let Ok(Some(message)) = tokio::time::timeout(LOOK, self.due.recv()).await {
            self.checks(&message);
            // The process dies before the answer is noted: the message is sent again.
            if self.rng.chance(5) {
                // Others are on their way, too.
                while let Ok(Some(other)) = tokio::time::timeout(LOOK, self.due.recv()).await {
                    self.checks(&other);
                }
                self.count("lost with the process");
                self.restarts().await;
                return;
            }
            self.answers(&message).await;
            // A silence may be noticed only now.
            self.late.flush_updates().await;
        }
        let lost = self.calls.iter().find(|(_, call)| self.is_overdue(call));
        assert!(lost.is_none(), "a cancel is lost: {lost:?}");
    }

    fn is_overdue(&self, call: &Modelled) -> bool {
        let due = |left: Instant| left.max(self.started) + GRACE + SLACK;
        let is_due = call.left_at.is_some_and(|left| Instant::now() >= due(left)) || call.is_requested;
        is_due && !call.is_asked && !call.is_ended
    }

    /// Checks that a message may be sent now.
    fn checks(&mut self, message: &PreparedMessage) {
        let said: Value = serde_json::from_str(&message.body).unwrap();
        let id = said["data"]["call_id"].as_str().unwrap().to_owned();
        let (now, started) = (Instant::now(), self.started);
        let call = self.calls.get_mut(&id).unwrap();
        assert!(!call.is_ended && !call.is_done, "{id} was not to be asked: {call:?}");
        let is_left = call
            .left_at
            .is_some_and(|left| now + SLACK >= left.max(started) + GRACE);
        assert!(
            call.is_asked || call.is_requested || is_left,
            "a live conversation was cancelled ({}): {id} {call:?} at {now:?}, heard {:?}",
            said["data"]["reason"],
            self.heard[call.session]
        );
        call.is_asked = true;
        call.events.push("asked");
        self.count("asked");
    }

    async fn answers(&mut self, message: &PreparedMessage) {
        let said: Value = serde_json::from_str(&message.body).unwrap();
        let id = said["data"]["call_id"].as_str().unwrap().to_owned();
        let (outcome, what) = match self.rng.below(10) {
            0..3 => (SendOutcome::Accepted(b"{\"state\":\"cancelled\"}".to_vec()), "undone"),
            3..5 => (SendOutcome::Accepted(b"{\"state\":\"refused\"}".to_vec()), "refused"),
            5..6 => (SendOutcome::Accepted(Vec::new()), "accepted"),
            _ => (SendOutcome::Failed, "failed"),
        };
        // The tool may end before the service has answered: its result wins.
        if self.rng.chance(10) {
            self.posts_result_of(&id).await;
            self.count("settled first");
        }
        self.dispatcher.finish(message, outcome).await;
        if self.calls[&id].is_ended {
            return;
        }
        let call = self.calls.get_mut(&id).unwrap();
        call.is_accepted |= what != "failed";
        call.is_done = what != "failed";
        call.is_ended |= matches!(what, "undone" | "refused");
        call.is_cancelled |= what == "undone";
        call.is_refused |= what == "refused";
        let failures = call.failed.take().map_or(0, |(_, failures)| failures);
        call.failed = (what == "failed").then(|| (message.id.clone(), failures + 1));
        call.events.push(what);
        self.count(what);
    }

    /// Lets every message arrive in the end. Returns the number of calls that never got their cancel accepted.
    async fn unsettled(&mut self) -> usize {
        for _ in 0..40 {
            tokio::time::advance(Duration::from_secs(3_601)).await;
            self.notes_silence();
            while let Ok(Some(message)) = tokio::time::timeout(LOOK, self.due.recv()).await {
                self.checks(&message);
                let said: Value = serde_json::from_str(&message.body).unwrap();
                let call = self.calls.get_mut(said["data"]["call_id"].as_str().unwrap()).unwrap();
                (call.is_accepted, call.is_ended) = (true, true);
                let undone = SendOutcome::Accepted(b"{\"state\":\"cancelled\"}".to_vec());
                self.dispatcher.finish(&message, undone).await;
            }
        }
        let asked = self.calls.values().filter(|call| call.is_asked && !call.is_ended);
        asked.filter(|call| !call.is_accepted).count()
    }
}

/// Plays a walk, which fails at the first contradiction. Returns the number of events by their names.
pub(crate) async fn play_walk(seed: u64, steps: u64) -> BTreeMap<&'static str, u64> {
    let mut walk = Walk::new(seed).await;
    for _ in 0..steps {
        walk.step().await;
    }
    let undone = walk.calls.values().filter(|call| call.is_cancelled).count();
    assert_eq!(counted_by(&walk.telemetry, "undone"), undone as u64);
    assert_eq!(walk.unsettled().await, 0, "cancels were lost");
    walk.counts
}

#[tokio::test(start_paused = true)]
async fn no_cancel_is_lost_and_no_live_conversation_is_cancelled() {
    let seed = seed();
    let steps = std::env::var("STEPS")
        .ok()
        .and_then(|steps| steps.parse().ok())
        .unwrap_or(STEPS);
    println!("SEED={seed} STEPS={steps}");
    let counts = play_walk(seed, steps).await;
    println!("{counts:?}");
    for what in [
        "call",
        "went on",
        "beside",
        "left",
        "requested",
        "settled",
        "settled first",
        "confirmed",
        "restart",
        "asked",
        "undone",
        "refused",
        "refused before",
        "requested while it is sent",
        "accepted",
        "failed",
        "evidence",
        "lost with the process",
    ] {
        assert!(
            counts.get(what).is_some_and(|count| *count > 0),
            "the walk never had: {what}"
        );
    }
}
