//! The tries of messages, on paused time, with a receiver in this process and a ledger that stands still.

use std::{sync::Arc, time::Duration};

use antiphon::{
    auth::{Caller, Principal, WebhookKey},
    clock,
    late::{
        CancelAnswer, Dispatcher, LateSettings, LateStore, Messages, ObservedCall, ServiceSettings, ToolSettings,
        records::RecordedCallState,
    },
    ledger::{CommitOutcome, CommitStep, Ledger, RecordKind},
    repair::{Tier, input_hash},
    server::Tasks,
    session::SessionStrength,
    upstream::{InProcessDialer, InProcessIo, ProxyEnvironment, Sender, UpstreamSettings},
    webhooks,
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    sync::mpsc,
    time::{Instant, timeout},
};

use crate::{
    ledger::pinned_answers::SwitchableLedger,
    support::{
        late::{running, service},
        wire::spawn,
    },
};

const ID: &str = "toolu_01AaBb9dE3fG7hJ2";
const HOUR: Duration = Duration::from_secs(3_600);

fn settings() -> LateSettings {
    let hold = ToolSettings {
        tier: Tier::Revertible,
        cancel_url: Some("http://127.0.0.1:9/cancel".to_owned()),
        ..ToolSettings::default()
    };
    LateSettings {
        settling: Duration::ZERO,
        services: vec![ServiceSettings {
            key: Some(WebhookKey::parse("whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=").unwrap()),
            ..service("booking", None, None)
        }],
        tools: [("hold".to_owned(), hold)].into(),
        ..LateSettings::default()
    }
}

/// A client whose every connection leads to a receiver in this process. It has the ledger stand still, tells of the
/// message, and accepts it.
fn sender_to(told: mpsc::UnboundedSender<()>, ledger: &Arc<SwitchableLedger>, tasks: &Tasks) -> Sender {
    let ledger = Arc::clone(ledger);
    let dial = InProcessDialer::new(move |_| {
        let (told, ledger) = (told.clone(), Arc::clone(&ledger));
        Box::pin(async move {
            let (ours, mut theirs) = tokio::io::duplex(64 * 1024);
            drop(spawn(async move {
                let mut bytes = [0; 16 * 1024];
                while theirs.read(&mut bytes).await.is_ok_and(|read| read > 0) {
                    ledger.slow_down(HOUR);
                    told.send(()).unwrap();
                    let answer = theirs.write_all(b"HTTP/1.1 200 x\r\ncontent-length: 2\r\n\r\n{}").await;
                    answer.unwrap();
                }
            }));
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

/// Returns a store with a recorded call that can be undone, and its caller.
async fn with_call(ledger: &Arc<SwitchableLedger>) -> (LateStore, Caller) {
    let shared: Arc<dyn Ledger> = Arc::<SwitchableLedger>::clone(ledger);
    let late = running(&shared, settings());
    let caller = Caller::of_account(Principal::of_token(late.principal_key(), "ann"));
    late.callers().store_verified(caller).await.unwrap();
    let call = ObservedCall {
        lane: None,
        session: None,
        session_label: None,
        strength: SessionStrength::Strong,
        id: ID.as_bytes().to_vec(),
        tool: b"hold".to_vec(),
        input: Some(input_hash(b"{}")),
        intent_input: None,
        origin: None,
        is_emitted: true,
    };
    late.record_calls(caller, [call]);
    late.flush_jobs().await;
    (late, caller)
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
        let sender = sender_to(told, &ledger, &tasks);
        tasks.spawn_background(webhooks::send_messages(Dispatcher::of_store(&late), sender));
        late.cancels().request(caller, ID.as_bytes()).await.unwrap();
        heard.recv().await.unwrap();
        let began = Instant::now();
        tokio::time::sleep(Duration::from_secs(works_after)).await;
        ledger.slow_down(Duration::ZERO);
        let again = timeout(HOUR, heard.recv()).await;
        assert_eq!(again, Ok(Some(())));
        assert!(began.elapsed() < Duration::from_secs(60), "{:?}", began.elapsed());
        ledger.slow_down(Duration::ZERO);
        let waiting = Messages::of_store(&late).list(None, 9, clock::unix_time()).await;
        let tries: Vec<u32> = waiting.unwrap().messages.iter().map(|message| message.tries).collect();
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
    assert_eq!(answer, CancelAnswer::State(RecordedCallState::CancelRequested));
    let waiting = Messages::of_store(&late).list(None, 9, now).await.unwrap();
    assert_eq!(waiting.messages.len(), 1);
}
