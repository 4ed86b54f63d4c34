//! The tries of messages, on paused time, with a receiver in this process and a ledger that stands still.

use std::{
    collections::BTreeMap,
    ops::Range,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use antiphon::{
    auth::{Caller, Principal},
    clock,
    late::webhooks,
    late::{CancelOutcome, LateSettings, LateStore, ObservedCall, ToolSettings, records::RecordedCallState},
    ledger::{CommitOutcome, CommitStep, Ledger, RecordKind},
    repair::input_hash,
    server::Tasks,
    session::SessionStrength,
    upstream::{InProcessDialer, InProcessIo, ProxyEnvironment, Sender, UpstreamSettings},
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream},
    sync::mpsc,
    time::{Instant, sleep, timeout},
};

use crate::{
    ledger::switchable::SwitchableLedger,
    support::{
        late::{numbered_id, running, undoing},
        wire::spawn,
    },
};

const ID: &str = "toolu_01AaBb9dE3fG7hJ2";
const HOUR: Duration = Duration::from_secs(3_600);
const SECOND: Duration = Duration::from_secs(1);
/// The messages that are on their way to one receiver at once.
const AT_ONCE: usize = 8;

/// A message as it arrived: the port of its receiver, its id, and the time.
type Heard = (u16, String, Instant);

/// The way in which a receiver treats its messages.
#[derive(Clone, Copy, Debug)]
enum Manner {
    /// It answers each after this time.
    Answers(Duration),
    /// It answers the first message of each connection, and closes the connection when it has read the second.
    Closes,
}

/// A client whose connections lead to receivers in this process, by their ports. `hear` gets each message.
fn sender_to(
    manner: impl Fn(u16) -> Manner + Send + Sync + 'static,
    hear: impl Fn(Heard) + Clone + Send + Sync + 'static,
    tasks: &Tasks,
) -> Sender {
    let dial = InProcessDialer::new(move |target| {
        let port = target.port_u16().unwrap();
        let (manner, hear) = (manner(port), hear.clone());
        Box::pin(async move {
            let (ours, theirs) = tokio::io::duplex(64 * 1024);
            drop(spawn(receive(theirs, manner, move |id| {
                hear((port, id, Instant::now()));
            })));
            Ok(Box::new(ours) as Box<dyn InProcessIo>)
        })
    });
    let timeouts = Duration::from_secs(60);
    let settings = UpstreamSettings {
        connect_timeout: timeouts,
        tls_timeout: timeouts,
        send_timeout: timeouts,
        pool_idle_timeout: timeouts,
        pool_idle_max: 8,
        proxies: ProxyEnvironment::default(),
    };
    Sender::with_dial(&settings, tasks.pool_tasks(), dial)
}

/// Reads the messages of one connection.
async fn receive(mut stream: DuplexStream, manner: Manner, hear: impl Fn(String)) {
    for number in 0.. {
        let Some(id) = read_message(&mut stream).await else {
            return;
        };
        hear(id);
        match manner {
            Manner::Answers(pause) => sleep(pause).await,
            Manner::Closes if number > 0 => return,
            Manner::Closes => {}
        }
        let answer = b"HTTP/1.1 200 x\r\ncontent-length: 2\r\n\r\n{}";
        if stream.write_all(answer).await.is_err() {
            return;
        }
    }
}

/// Reads one message. Returns its `webhook-id`.
async fn read_message(stream: &mut DuplexStream) -> Option<String> {
    let (mut bytes, mut chunk) = (Vec::new(), [0; 4_096]);
    loop {
        let read = stream.read(&mut chunk).await.ok().filter(|read| *read > 0)?;
        bytes.extend_from_slice(&chunk[..read]);
        let text = std::str::from_utf8(&bytes).unwrap();
        let Some((head, body)) = text.split_once("\r\n\r\n") else {
            continue;
        };
        let field = |name: &str| {
            let mut lines = head.lines().filter_map(|line| line.split_once(": "));
            lines.find(|(known, _)| *known == name).unwrap().1
        };
        if body.len() >= field("content-length").parse().unwrap() {
            return Some(field("webhook-id").to_owned());
        }
    }
}

/// As [`undoing`], with one more tool for each port: its receiver.
fn undoing_at(ports: Range<u16>) -> LateSettings {
    let mut settings = undoing();
    let tools = ports.map(|port| {
        let undone_at = ToolSettings {
            cancel_url: Some(format!("http://127.0.0.1:{port}/cancel")),
            ..settings.tools["hold"].clone()
        };
        (tool_at(port), undone_at)
    });
    let tools: Vec<_> = tools.collect();
    settings.tools.extend(tools);
    settings
}

fn tool_at(port: u16) -> String {
    format!("tool {port}")
}

/// Returns a store with these recorded calls, which can be undone, and their caller.
async fn with_calls(
    ledger: &Arc<SwitchableLedger>,
    settings: LateSettings,
    calls: &[(String, String)],
) -> (LateStore, Caller) {
    let shared: Arc<dyn Ledger> = Arc::<SwitchableLedger>::clone(ledger);
    let late = running(&shared, settings);
    let caller = Caller::of_account(Principal::of_token(late.principal_key(), "ann"));
    late.callers().mark_verified(caller);
    late.flush_updates().await;
    let observed = calls.iter().map(|(id, tool)| ObservedCall {
        lane: None,
        session: None,
        session_label: None,
        strength: SessionStrength::Strong,
        id: id.as_bytes().to_vec(),
        tool: tool.as_bytes().to_vec(),
        input: Some(input_hash(b"{}")),
        intent_input: None,
        origin: None,
        is_emitted: true,
    });
    late.calls().record_calls(caller, observed.collect::<Vec<_>>());
    late.flush_updates().await;
    (late, caller)
}

async fn with_call(ledger: &Arc<SwitchableLedger>) -> (LateStore, Caller) {
    with_calls(ledger, undoing(), &[(ID.to_owned(), "hold".to_owned())]).await
}

/// Calls whose receivers are these ports, `each` for every one.
fn calls_at(ports: Range<u16>, each: usize) -> Vec<(String, String)> {
    let of_port = ports.flat_map(|port| (0..each).map(move |number| (port, number)));
    of_port
        .map(|(port, number)| (numbered_id(usize::from(port) * 100 + number), tool_at(port)))
        .collect()
}

async fn asks_for_all(late: &LateStore, caller: Caller, calls: &[(String, String)]) {
    for (id, _) in calls {
        let asked = late.cancels().request(caller, id.as_bytes()).await.unwrap();
        assert_eq!(asked, CancelOutcome::State(RecordedCallState::CancelRequested));
    }
}

/// A try whose end the ledger never notes does not count for ever: its message is sent again. It counts as failed if the
/// ledger works again by then.
#[tokio::test(start_paused = true)]
async fn a_try_that_does_not_end_is_begun_again() {
    for (works_after, failed) in [(20, 1), (32, 0)] {
        let ledger = SwitchableLedger::new();
        let (late, caller) = with_call(&ledger).await;
        let (told, mut heard) = mpsc::unbounded_channel();
        let tasks = Tasks::on_current_runtime();
        // Each message has the ledger stand still.
        let stands_still = Arc::clone(&ledger);
        let hear = move |_| {
            stands_still.slow_down(HOUR);
            told.send(()).unwrap();
        };
        let sender = sender_to(|_| Manner::Answers(Duration::ZERO), hear, &tasks);
        tasks.spawn_background(webhooks::send_messages(late.dispatcher(), sender));
        late.cancels().request(caller, ID.as_bytes()).await.unwrap();
        heard.recv().await.unwrap();
        let began = Instant::now();
        sleep(Duration::from_secs(works_after)).await;
        ledger.slow_down(Duration::ZERO);
        let again = timeout(HOUR, heard.recv()).await;
        assert_eq!(again, Ok(Some(())));
        assert!(began.elapsed() < Duration::from_secs(60), "{:?}", began.elapsed());
        ledger.slow_down(Duration::ZERO);
        let waiting = late.outbox().list(None, 9, clock::unix_time()).await;
        let tries: Vec<u32> = waiting.unwrap().rows.iter().map(|message| message.tries).collect();
        assert_eq!(tries, [failed], "works after {works_after} s");
    }
}

/// A message that no version can read is never sent: the owner's request takes its place.
#[tokio::test(start_paused = true)]
async fn a_request_replaces_a_message_that_cannot_be_decoded() {
    let ledger = SwitchableLedger::new();
    let (late, caller) = with_call(&ledger).await;
    late.cancels().request(caller, ID.as_bytes()).await.unwrap();
    let (principal, now) = (*caller.principal().as_bytes(), clock::unix_time());
    let stored = ledger.list_after(RecordKind::Outgoing, principal, 0, 9, now).await;
    let (_, message) = stored.unwrap().remove(0);
    let broken = CommitStep::Replace {
        key: message.key,
        version: message.version,
        value: "x".into(),
        expires_at: message.expires_at,
    };
    let done = ledger.commit(vec![broken], now).await.unwrap();
    assert_eq!(done, CommitOutcome::Done);
    let answer = late.cancels().request(caller, ID.as_bytes()).await.unwrap();
    assert_eq!(answer, CancelOutcome::State(RecordedCallState::CancelRequested));
    let waiting = late.outbox().list(None, 9, now).await.unwrap();
    assert_eq!(waiting.rows.len(), 1);
}

/// Receivers that are slow or hang get their messages at their own pace. One that works waits for none of them, and
/// none of their messages counts as overdue.
#[tokio::test(start_paused = true)]
async fn a_receiver_that_hangs_or_is_slow_holds_up_no_other() {
    const EACH: usize = 64;
    const GOOD: u16 = 90;
    // The time that each of eight messages takes: until the answer, or until the timeout of a try. Of more receivers
    // each gets fewer messages at once.
    for (pause, slow_ports, pace) in [
        (3 * SECOND, 1..5, Some(3 * SECOND)),
        (HOUR, 1..5, Some(10 * SECOND)),
        (3 * SECOND, 1..14, None),
        (HOUR, 1..14, None),
    ] {
        let ledger = SwitchableLedger::new();
        let (slow, good) = (calls_at(slow_ports.clone(), EACH), calls_at(GOOD..GOOD + 1, 24));
        let mut settings = undoing_at(slow_ports.clone());
        settings.tools.extend(undoing_at(GOOD..GOOD + 1).tools);
        let (late, caller) = with_calls(&ledger, settings, &[&slow[..], &good].concat()).await;
        let (told, mut heard) = mpsc::unbounded_channel();
        let tasks = Tasks::on_current_runtime();
        let manner = move |port| Manner::Answers(if port == GOOD { Duration::ZERO } else { pause });
        let sender = sender_to(manner, move |heard| told.send(heard).unwrap(), &tasks);
        let dispatcher = late.dispatcher();
        asks_for_all(&late, caller, &slow).await;
        tasks.spawn_background(webhooks::send_messages(dispatcher.clone(), sender));
        let began = Instant::now();
        let mut first_heard: BTreeMap<(u16, String), Instant> = BTreeMap::new();
        for asked in good.chunks(2).chain(std::iter::repeat(&[][..])).take(100) {
            sleep(SECOND).await;
            let at = Instant::now();
            asks_for_all(&late, caller, asked).await;
            sleep(Duration::from_millis(50)).await;
            let mut arrived = 0;
            while let Ok((port, id, time)) = heard.try_recv() {
                arrived += usize::from(port == GOOD && time >= at);
                first_heard.entry((port, id)).or_insert(time);
            }
            assert_eq!(
                arrived,
                asked.len(),
                "after {:?}, of receivers beside {pause:?}",
                at - began
            );
            assert_eq!(dispatcher.overdue(), 0, "after {:?} beside {pause:?}", at - began);
        }
        for (port, pace) in slow_ports.filter_map(|port| pace.map(|pace| (port, pace))) {
            let times = first_heard.iter().filter(|((at, _), _)| *at == port);
            let mut times: Vec<Duration> = times.map(|(_, time)| *time - began).collect();
            times.sort();
            assert_eq!(times.len(), EACH, "{port}");
            for (number, time) in times.into_iter().enumerate() {
                let due = pace * u32::try_from(number / AT_ONCE).unwrap();
                assert!(
                    time <= due + SECOND / 2,
                    "{port}: number {number} after {time:?}, beside {pause:?}"
                );
            }
        }
    }
}

/// Messages are overdue if nobody sends them.
#[tokio::test(start_paused = true)]
async fn a_message_that_nobody_sends_is_overdue() {
    let ledger = SwitchableLedger::new();
    let (late, caller) = with_call(&ledger).await;
    late.cancels().request(caller, ID.as_bytes()).await.unwrap();
    let dispatcher = late.dispatcher();
    sleep(29 * SECOND).await;
    assert_eq!(dispatcher.overdue(), 0);
    sleep(2 * SECOND).await;
    assert_eq!(dispatcher.overdue(), 1);
}

/// Messages are overdue while the ledger, from which they are read, fails at each look.
#[tokio::test(start_paused = true)]
async fn a_message_that_a_failing_ledger_keeps_is_overdue() {
    let ledger = SwitchableLedger::new();
    let (late, caller) = with_call(&ledger).await;
    late.cancels().request(caller, ID.as_bytes()).await.unwrap();
    ledger.fails.store(true, Ordering::Relaxed);
    let tasks = Tasks::on_current_runtime();
    let (told, mut heard) = mpsc::unbounded_channel();
    let at_once = |_| Manner::Answers(Duration::ZERO);
    let sender = sender_to(at_once, move |heard| told.send(heard).unwrap(), &tasks);
    let dispatcher = late.dispatcher();
    tasks.spawn_background(webhooks::send_messages(dispatcher.clone(), sender));
    sleep(29 * SECOND).await;
    assert_eq!(dispatcher.overdue(), 0);
    for _ in 0..60 {
        sleep(7 * SECOND).await;
        assert!(dispatcher.overdue() > 0);
    }
    ledger.fails.store(false, Ordering::Relaxed);
    heard.recv().await.unwrap();
    sleep(SECOND).await;
    assert_eq!(dispatcher.overdue(), 0);
}

/// A connection that a receiver closes instead of answering its second message costs no try, however many were pooled.
#[tokio::test(start_paused = true)]
async fn a_message_that_a_used_connection_has_lost_is_sent_again_at_once() {
    let ledger = SwitchableLedger::new();
    let (first, second) = (calls_at(1..2, AT_ONCE), calls_at(2..3, AT_ONCE));
    let mut settings = undoing_at(1..3);
    // Both have one receiver.
    let shared = settings.tools[&tool_at(1)].clone();
    settings.tools.insert(tool_at(2), shared);
    let (late, caller) = with_calls(&ledger, settings, &[&first[..], &second].concat()).await;
    let (told, mut heard) = mpsc::unbounded_channel();
    let tasks = Tasks::on_current_runtime();
    let sender = sender_to(|_| Manner::Closes, move |heard| told.send(heard).unwrap(), &tasks);
    tasks.spawn_background(webhooks::send_messages(late.dispatcher(), sender));
    for (calls, arrivals) in [(&first, AT_ONCE), (&second, 2 * AT_ONCE)] {
        asks_for_all(&late, caller, calls).await;
        sleep(SECOND).await;
        let ids: Vec<String> = std::iter::from_fn(|| heard.try_recv().ok())
            .map(|(_, id, _)| id)
            .collect();
        assert_eq!(ids.len(), arrivals, "{ids:?}");
        let waiting = late.outbox().list(None, 99, clock::unix_time()).await;
        assert_eq!(waiting.unwrap().rows.len(), 0, "each was received");
    }
}
