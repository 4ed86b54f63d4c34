//! The relay with what it acts on: the queues to client and server, the folder of runs, the proxy.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use tokio::{
    sync::mpsc::UnboundedSender,
    task::{AbortHandle, JoinSet},
    time::Instant,
};

use super::{
    client_pipes::send_note,
    outlet::{Outlet, QueueLoad},
};
use crate::{
    cli::mcp::{
        arguments::WrapperArgs,
        call_ledger::{CONFIGURED, is_known_soon, post_result, report_running, try_post, withdraw_result},
        left_over::post_left_over,
        relay::{CallRelay, OnceTools, PostReply, RelayEffect, RelayEvent, RelaySettings, RunHash, RunNumber},
        run_claims::RunClaims,
        run_folder::RunFolder,
    },
    clock,
    config::{default_mcp_path, process_environment},
    repair::Tier,
};

/// Most servers of a user that go on without their clients.
const KEEPERS_MAX: usize = 64;

/// The relay with what it acts on.
pub(super) struct Desk {
    relay: CallRelay,
    began: Instant,
    folder: RunFolder,
    answers: UnboundedSender<RelayEvent>,
    to_server: Option<Outlet>,
    to_client: Option<Outlet>,
    /// The load of the client's queue, also after its input has ended. `None` once it no longer reads.
    on_its_way: Option<Arc<QueueLoad>>,
    log: Outlet,
    /// Requests to the proxy. They end with the keeper.
    requests: JoinSet<()>,
    /// The posts of results that may still go elsewhere.
    posts: BTreeMap<RunNumber, AbortHandle>,
    /// Posts of what the client may not have read, for which the keeper waits a moment.
    last_posts: JoinSet<()>,
    claims: RunClaims,
}

impl Desk {
    /// Opens the folder of runs, and creates the relay.
    pub(super) fn open(
        args: &WrapperArgs,
        (server, server_name): (RunHash, String),
        answers: UnboundedSender<RelayEvent>,
        to_server: Outlet,
        to_client: Outlet,
        log: Outlet,
    ) -> Self {
        let path = default_mcp_path(&process_environment);
        let folder = match path.as_deref().map(RunFolder::open) {
            Some(Ok(folder)) => folder,
            Some(Err(error)) => {
                send_note(
                    &log,
                    &format!("runs are joined within this process only: cannot use the state folder: {error}"),
                );
                RunFolder::in_memory()
            }
            None => RunFolder::in_memory(),
        };
        let revertible = args.tier.iter().filter(|given| given.tier == Tier::Revertible);
        let tiers = args.tier.iter().map(|given| (given.tool.clone(), given.tier));
        let claims = RunClaims::new(tiers.collect(), server, folder.user_name());
        let settings = RelaySettings {
            server,
            answer_after: args.answer_after.unwrap_or_default(),
            client_timeout: args.client_timeout,
            revertible: revertible.map(|tier| tier.tool.clone()).collect(),
            once: OnceTools::of_names(&args.once),
            server_name,
        };
        Self {
            relay: CallRelay::new(settings),
            began: clock::now(),
            folder,
            answers,
            to_server: Some(to_server),
            on_its_way: Some(to_client.load()),
            to_client: Some(to_client),
            log,
            requests: JoinSet::new(),
            posts: BTreeMap::new(),
            last_posts: JoinSet::new(),
            claims,
        }
    }

    /// Tells the relay of an event, and does what it wants.
    pub(super) fn handle(&mut self, event: RelayEvent) {
        let mut events = VecDeque::from([event]);
        while let Some(event) = events.pop_front() {
            for effect in self.relay.handle_event(self.began.elapsed(), event) {
                events.extend(self.perform(effect));
            }
        }
    }

    /// Tells the relay that the client's pipe has everything that was sent, once it has.
    pub(super) fn note_written(&mut self) {
        if self.on_its_way.is_some() && self.relay.has_sent() && self.unwritten_load().is_none() {
            self.handle(RelayEvent::AllWritten);
        }
    }

    /// Tells other processes that this one waits for its proxy without a server and without a client.
    pub(super) fn mark_waiting(&mut self) {
        if let Some((tool, call_id)) = self.relay.unposted_run() {
            self.folder.mark_waiting(&tool, call_id.as_deref());
        }
    }

    /// Posts the results that ended processes have left over, as long as this one lives.
    pub(super) fn post_left_over(&mut self) {
        self.spawn_boxed(post_left_over(CONFIGURED));
    }

    /// Does what the relay wants. Returns the event that answers it at once.
    fn perform(&mut self, effect: RelayEffect) -> Option<RelayEvent> {
        match effect {
            // A server that reads no more answers no more, which the relay learns at its end.
            RelayEffect::ToServer(line) => drop(send_to(self.to_server.as_ref(), line)),
            RelayEffect::ToClient(line) => {
                let unwritten = send_to(self.to_client.as_ref(), line).err();
                return unwritten.map(RelayEvent::Unwritten);
            }
            RelayEffect::Say(text) => self.say(&text),
            RelayEffect::Look(hash) => return Some(RelayEvent::Found(hash, self.folder.look(&hash))),
            RelayEffect::Mark(hash, tool, call_id) => self.folder.mark(hash, &tool, call_id.as_deref()),
            RelayEffect::Unmark(hash) => self.folder.unmark(&hash),
            RelayEffect::Keep(hash, kept) => {
                if let Err(error) = self.folder.keep(hash, kept) {
                    self.say(&format!("cannot keep a result for a retry: {error}"));
                }
            }
            RelayEffect::Forget(hash, call_id) => self.folder.forget(&hash, call_id.as_deref()),
            RelayEffect::Ask(number, call_id) => {
                let answers = self.answers.clone();
                self.spawn_boxed(async move {
                    let is_known = is_known_soon(&call_id).await;
                    // An error means that the keeper has ended.
                    drop(answers.send(RelayEvent::CallKnown(number, is_known)));
                });
            }
            RelayEffect::Heartbeat(call_id) => {
                // The next one is sent whatever becomes of this one.
                self.spawn_boxed(async move {
                    let _ = report_running(&call_id).await;
                });
            }
            RelayEffect::Post(number, hash, call_id, body) => {
                let answers = self.answers.clone();
                let kept = self.folder.kept_file(&hash, Some(&call_id));
                let post = self.spawn_boxed(async move {
                    let failed = || drop(answers.send(RelayEvent::Posted(number, PostReply::Failing)));
                    let reply = post_result(&call_id, &body, kept.as_ref(), failed).await;
                    drop(answers.send(RelayEvent::Posted(number, reply)));
                });
                self.posts.retain(|_, post| !post.is_finished());
                self.posts.insert(number, post);
            }
            RelayEffect::StopPost(number) => drop(self.posts.remove(&number).map(|post| post.abort())),
            RelayEffect::PostIfMissing(call_id, body) => {
                self.last_posts.spawn(Box::pin(async move {
                    // Without a proxy the client has most likely read it, so there is no second try.
                    let _ = try_post(&CONFIGURED, &call_id, &body).await;
                }));
            }
            RelayEffect::Claim(number, run) => {
                let work = self.claims.claim(number, run, self.answers.clone());
                self.spawn_boxed(work);
            }
            RelayEffect::Order(number, order) => self.claims.order(number, order),
            RelayEffect::Withdraw(number, call_id) => {
                let answers = self.answers.clone();
                self.spawn_boxed(async move {
                    let reply = withdraw_result(&call_id).await;
                    drop(answers.send(RelayEvent::Withdrawn(number, reply)));
                });
            }
        }
        None
    }

    fn say(&self, text: &str) {
        send_note(&self.log, text);
    }

    /// Starts a request on the heap, since its future contains those of the HTTP client.
    fn spawn_boxed(&mut self, request: impl Future<Output = ()> + Send + 'static) -> AbortHandle {
        // Those that have ended go first.
        while self.requests.try_join_next().is_some() {}
        self.requests.spawn(Box::pin(request))
    }

    /// Returns the load of the server's queue if that is full.
    pub(super) fn server_load(&self) -> Option<Arc<QueueLoad>> {
        self.to_server
            .as_ref()
            .filter(|outlet| !outlet.has_room())
            .map(Outlet::load)
    }

    /// Returns the load of the client's queue if that is full.
    pub(super) fn client_load(&self) -> Option<Arc<QueueLoad>> {
        self.to_client
            .as_ref()
            .filter(|outlet| !outlet.has_room())
            .map(Outlet::load)
    }

    /// Returns the load of the client's queue if the answer to a watched call is in it.
    pub(super) fn unwritten_load(&self) -> Option<Arc<QueueLoad>> {
        self.on_its_way
            .clone()
            .filter(|load| self.relay.has_sent() && !load.is_empty())
    }

    /// Ends the server's input.
    pub(super) fn close_server(&mut self) {
        self.to_server = None;
    }

    /// Forgets the client: nothing is written to it any more.
    pub(super) fn close_client(&mut self) {
        self.to_client = None;
    }

    /// Notes that the client has what it will ever get.
    pub(super) fn stop_waiting_for_client(&mut self) {
        self.on_its_way = None;
    }

    /// Returns `true` unless the client was forgotten.
    pub(super) const fn has_client(&self) -> bool {
        self.to_client.is_some()
    }

    /// Returns `true` if so many servers go on without their clients that this one may not.
    pub(super) fn is_crowded(&self) -> bool {
        let is_crowded = self.is_running() && self.folder.count_keepers() >= KEEPERS_MAX;
        if is_crowded {
            self.say(&format!(
                "{KEEPERS_MAX} servers go on without their clients, so this one is ended: see `antiphon mcp ps`"
            ));
        }
        is_crowded
    }

    /// Returns `true` if a run goes on in the server.
    pub(super) fn is_running(&self) -> bool {
        self.relay.is_running()
    }

    /// Returns `true` if no run goes on, and every result is where it belongs.
    pub(super) fn is_idle(&self) -> bool {
        self.relay.is_idle()
    }

    /// Returns the time at which the relay has something to do.
    pub(super) fn next_wake(&self) -> Option<Instant> {
        self.relay.next_wake().and_then(|at| self.began.checked_add(at))
    }

    /// Waits until the last posts are answered, for this time at most.
    pub(super) async fn finish_posts(&mut self, limit: Duration) {
        let posts = async { while self.last_posts.join_next().await.is_some() {} };
        drop(tokio::time::timeout(limit, posts).await);
    }

    /// Waits until client and log have what was sent to them.
    pub(super) async fn finish_writing(&self, limit: Duration) {
        if let Some(outlet) = &self.to_client {
            outlet.load().await_empty(limit).await;
            self.log.load().await_empty(limit).await;
        }
    }
}

/// Sends a line. Returns it if nobody reads there any more.
fn send_to(outlet: Option<&Outlet>, line: Bytes) -> Result<(), Bytes> {
    outlet.map_or(Ok(()), |outlet| outlet.send(line))
}
