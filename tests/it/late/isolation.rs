//! Random walk: the late-result store never returns a result to another caller than its owner. An independent model
//! gives the expected answers.
//!
//! `SEED=<n>` replays another walk, `SEED=random` takes a new one.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use antiphon::{
    auth::PrincipalHash,
    auth::{Caller, Owner, Principal, PrincipalKey, PrincipalSettings},
    late::{
        CallQuery, Calls, FoundCall, LateSettings, LateStore, ObservedCall, PostOutcome, PostTerms, ToolSettings,
        matching::NamedCall,
        records::{PostRefusal, RecordedCallState},
    },
    ledger::{
        CommitOutcome, CommitStep, Index, Ledger, LedgerReply, LedgerSize, Moment, PlacedRecord, Record, RecordKey,
        RecordKind,
    },
    repair::Tier,
    session::{LaneId, SessionStrength},
};

use crate::support::{bodies::Rng, late, seed::seed};

/// A parked result, for however long.
const PARKED: PostOutcome = PostOutcome::Parked { until: Moment::ZERO };
/// The model compares contents, and no digests.
const NO_DIGEST: [u8; 32] = [0; 32];
const ROUNDS: u64 = 100;
const STEPS: usize = 200;

/// Call ids, and whether each is a strong id.
const IDS: [(&str, bool); 6] = [
    ("toolu_01A09q90qw90lq917835lq9", true),
    ("toolu01A09q90qw90lq917835lq9", true),
    ("call_FthC9qRpsL5kBpwwyw6c7j4k", true),
    ("call_0", false),
    ("call0", false),
    ("call_1", false),
];
const TOOLS: [&str; 2] = ["bash", "look"];
/// Account and user of each caller. The last caller is never verified.
const WHO: [(&str, Option<&str>); 6] = [
    ("a", None),
    ("b", None),
    ("c", None),
    ("c", Some("ann")),
    ("c", Some("ben")),
    ("d", None),
];
/// Accounts and tools that a service answers for. `None` means all.
type Terms = (Option<&'static [&'static str]>, Option<&'static [&'static str]>);

/// The configured services.
const SERVICES: [Terms; 4] = [
    (None, None),
    (Some(&["a"]), None),
    (None, Some(&["bash"])),
    (Some(&["b", "c"]), None),
];

/// A recorded call in the model.
#[derive(Clone, Debug)]
struct ModelCall {
    who: usize,
    id: usize,
    tool: usize,
    lane: usize,
    input: u8,
    content: Option<String>,
    state: RecordedCallState,
}

/// A post of a tool service.
#[derive(Clone, Debug)]
struct ModelPost {
    service: usize,
    id: usize,
    owner: Option<usize>,
    content: String,
}

#[derive(Default)]
struct Model {
    calls: Vec<ModelCall>,
    parked: Vec<ModelPost>,
    /// Owner of each posted content.
    landed: BTreeMap<String, usize>,
}

fn letters(id: usize) -> String {
    IDS[id].0.chars().filter(char::is_ascii_alphanumeric).collect()
}

impl Model {
    fn same(one: &ModelCall, other: &ModelCall) -> bool {
        let alike = one.who == other.who && letters(one.id) == letters(other.id);
        alike && (IDS[one.id].1 || (one.tool, one.lane, one.input) == (other.tool, other.lane, other.input))
    }

    fn record(&mut self, call: ModelCall) {
        let served = SERVICES.iter().any(|service| serves(service, &call));
        if WHO[call.who].0 == "d" || !served {
            return;
        }
        let letters_of = letters(call.id);
        if !self.calls.iter().any(|known| Self::same(known, &call)) {
            self.calls.push(call);
        }
        let parked = std::mem::take(&mut self.parked);
        for post in parked {
            if letters(post.id) != letters_of || self.place(&post).is_none() {
                self.parked.push(post);
            }
        }
    }

    fn post(&mut self, post: &ModelPost) -> PostOutcome {
        if let Some(posting) = self.place(post) {
            return posting;
        }
        if !IDS[post.id].1 {
            return PostOutcome::Unknown;
        }
        let known = self
            .parked
            .iter()
            .find(|known| (known.service, known.id, known.owner) == (post.service, post.id, post.owner));
        match known {
            Some(known) if known.content != post.content => PostOutcome::Refused(PostRefusal::Conflict),
            Some(_) => PARKED,
            None => {
                self.parked.push(post.clone());
                PARKED
            }
        }
    }

    fn place(&mut self, post: &ModelPost) -> Option<PostOutcome> {
        let open = |call: &ModelCall| {
            serves(&SERVICES[post.service], call) && post.owner.is_none_or(|owner| owner == call.who)
        };
        let fits = |call: &ModelCall| open(call) && letters(call.id) == letters(post.id);
        let all = self.calls.iter().enumerate();
        let found: Vec<usize> = all.filter(|(_, call)| fits(call)).map(|(place, _)| place).collect();
        let sure = IDS[post.id].1;
        match found[..] {
            [] => None,
            [place] if sure => {
                let call = &mut self.calls[place];
                Some(match &call.content {
                    Some(content) if *content == post.content => PostOutcome::Settled {
                        state: call.state,
                        is_new: false,
                        digest: NO_DIGEST,
                    },
                    Some(_) => PostOutcome::Refused(PostRefusal::Conflict),
                    None => {
                        call.state = RecordedCallState::Settled;
                        call.content = Some(post.content.clone());
                        self.landed.insert(post.content.clone(), call.who);
                        PostOutcome::Settled {
                            state: call.state,
                            is_new: true,
                            digest: NO_DIGEST,
                        }
                    }
                })
            }
            _ => Some(PostOutcome::Refused(PostRefusal::Ambiguous)),
        }
    }

    fn of(&self, wanted: &ModelCall) -> Option<&ModelCall> {
        self.calls.iter().find(|call| Self::same(call, wanted))
    }
}

fn serves((principals, tools): &Terms, call: &ModelCall) -> bool {
    principals.is_none_or(|names| names.contains(&WHO[call.who].0))
        && tools.is_none_or(|names| names.contains(&TOOLS[call.tool]))
}

/// A difference between the store and the model.
struct Deviation {
    /// `true` if a caller received another caller's result.
    is_crossing: bool,
    told: String,
}

struct World {
    ledger: Arc<dyn Ledger>,
    settings: LateSettings,
    late: LateStore,
    model: Model,
    rng: Rng,
    posts: Vec<ModelPost>,
    deviations: Vec<Deviation>,
}

impl World {
    fn new(ledger: Arc<dyn Ledger>, seed: u64) -> Self {
        let has_users = seed.is_multiple_of(2);
        let services = SERVICES.iter().enumerate();
        let settings = LateSettings {
            // The model has no time.
            settling: Moment::ZERO,
            services: services
                .map(|(i, (principals, tools))| late::service(&format!("s{i}"), *principals, *tools))
                .collect(),
            tools: BTreeMap::from([
                (
                    "bash".to_owned(),
                    ToolSettings {
                        tier: Tier::Durable,
                        ..ToolSettings::default()
                    },
                ),
                (
                    "look".to_owned(),
                    ToolSettings {
                        tier: Tier::Read,
                        ..ToolSettings::default()
                    },
                ),
            ]),
            principals: PrincipalSettings {
                trust_body_user: has_users,
                ..PrincipalSettings::default()
            },
            ..LateSettings::default()
        };
        let mut world = Self {
            late: late::running(&ledger, settings.clone()),
            ledger,
            settings,
            model: Model { ..Model::default() },
            rng: Rng::new(seed),
            posts: Vec::new(),
            deviations: Vec::new(),
        };
        world.mark_callers_verified();
        world
    }

    fn mark_callers_verified(&mut self) {
        for who in 0..WHO.len() - 1 {
            self.late.callers().mark_verified(self.who(who));
        }
    }

    fn key(&self) -> PrincipalKey {
        self.late.principal_key().clone()
    }

    fn who(&self, who: usize) -> Caller {
        let (account, user) = WHO[who];
        let account = Caller::of_account(Principal::of_token(&self.key(), account));
        user.map_or(account, |user| account.with_user(&self.key(), user.as_bytes()))
    }

    fn random_caller(&mut self) -> usize {
        // Without `trust_body_user` the callers with a user do not exist.
        let all = if self.settings.principals.has_users() {
            vec![0, 1, 2, 3, 4, 5]
        } else {
            vec![0, 1, 2, 5]
        };
        *self.rng.pick(&all)
    }

    fn call(&mut self) -> ModelCall {
        ModelCall {
            who: self.random_caller(),
            id: self.rng.below(IDS.len()),
            tool: self.rng.below(TOOLS.len()),
            lane: self.rng.below(2),
            input: u8::from(self.rng.chance(20)),
            content: None,
            state: RecordedCallState::Open,
        }
    }

    /// Returns a lane id that is equal for all principals, so that only the principal keeps callers apart.
    fn lane(lane: usize) -> LaneId {
        LaneId::main_lanes(&Caller::of_account(Principal::from_bytes([1; 32])), &lane.to_string())[0]
    }

    fn wanted(call: &ModelCall) -> CallQuery {
        CallQuery {
            id: IDS[call.id].0.as_bytes().to_vec(),
            tool: TOOLS[call.tool].as_bytes().to_vec(),
            input_hash: [call.input; 32],
            session: None,
        }
    }

    async fn step(&mut self) {
        match self.rng.below(100) {
            0..30 => self.record(),
            30..55 => self.post().await,
            55..62 => self.deliver(),
            62..68 => self.ack().await,
            68..80 => self.results().await,
            80..90 => self.lookup().await,
            90..98 => self.outstanding().await,
            _ => {
                self.late.flush_updates().await;
                self.late = late::running(&self.ledger, self.settings.clone());
                self.mark_callers_verified();
            }
        }
        self.late.flush_updates().await;
    }

    fn record(&mut self) {
        let call = self.call();
        let wanted = Self::wanted(&call);
        let opened = ObservedCall {
            lane: Some(Self::lane(call.lane)),
            session: None,
            session_label: None,
            strength: SessionStrength::Strong,
            id: wanted.id,
            tool: wanted.tool,
            input: Some(wanted.input_hash),
            intent_input: None,
            origin: None,
            is_emitted: true,
        };
        self.late.calls().record_calls(self.who(call.who), [opened]);
        self.model.record(call);
    }

    async fn post(&mut self) {
        let post = if self.rng.chance(25) && !self.posts.is_empty() {
            self.rng.pick(&self.posts.clone()).clone()
        } else {
            ModelPost {
                service: self.rng.below(SERVICES.len()),
                id: self.rng.below(IDS.len()),
                owner: self.rng.chance(50).then(|| self.random_caller()),
                content: format!("{{\"n\":{}}}", self.posts.len()),
            }
        };
        let owner: Option<Owner> = post.owner.map(|who| self.late.owner_of(self.who(who)));
        let named = NamedCall {
            service: &self.late.services()[post.service],
            call_id: IDS[post.id].0.as_bytes(),
            owner,
            session: None,
            described: None,
        };
        let posting = self
            .late
            .calls()
            .post_result(&named, post.content.clone(), false, PostTerms::default())
            .await
            .unwrap();
        let wanted = self.model.post(&post);
        let posting = match posting {
            PostOutcome::Parked { .. } => PARKED,
            PostOutcome::Settled { state, is_new, .. } => PostOutcome::Settled {
                state,
                is_new,
                digest: NO_DIGEST,
            },
            other => other,
        };
        if posting != wanted {
            self.other(format!("{post:?}: {posting:?}, but {wanted:?}"));
        }
        self.posts.push(post);
    }

    fn deliver(&mut self) {
        let call = self.call();
        let name = Calls::call_names(Some(Self::lane(call.lane)), &Self::wanted(&call))[0];
        self.late.calls().note_delivered(self.who(call.who), [name]);
        let found = self.model.calls.iter_mut().find(|known| Model::same(known, &call));
        if let Some(found) =
            found.filter(|found| matches!(found.state, RecordedCallState::Open | RecordedCallState::Settled))
        {
            found.state = RecordedCallState::Delivered;
        }
    }

    async fn ack(&mut self) {
        let call = self.call();
        let name = Calls::call_names(Some(Self::lane(call.lane)), &Self::wanted(&call))[0];
        let acked = self.late.calls().ack_result(self.who(call.who), name).await.unwrap();
        let found = self.model.calls.iter_mut().find(|known| Model::same(known, &call));
        let found = found.filter(|found| found.content.is_some());
        if acked != found.is_some() {
            self.deviations.push(Deviation {
                is_crossing: false,
                told: format!("{call:?} was acked: {acked}"),
            });
        } else if let Some(found) = found {
            found.state = RecordedCallState::Acked;
        }
    }

    async fn results(&mut self) {
        let call = self.call();
        let wanted = [Self::wanted(&call)];
        let lane = self.rng.chance(80).then(|| Self::lane(call.lane));
        let found = self
            .late
            .calls()
            .find_calls(self.who(call.who), lane, &wanted, near_deadline())
            .await;
        let found = match found.unwrap().remove(0) {
            Some(FoundCall::Posted(found)) => Some(found.content),
            Some(FoundCall::Open(_)) | None => None,
        };
        let known = self.model.of(&call).filter(|_| lane.is_some() || IDS[call.id].1);
        let expected = known.and_then(|call| call.content.clone());
        self.compare(call.who, found.as_ref(), expected.as_ref(), "results");
    }

    async fn lookup(&mut self) {
        let call = self.call();
        let ids = [IDS[call.id].0.as_bytes().to_vec()];
        let found = self.late.calls().look_up_calls(self.who(call.who), &ids).await.unwrap();
        let found = found.into_iter().next().unwrap();
        let found = found.map(|(_, content)| content);
        let own = self.model.calls.iter();
        let mut own = own.filter(|known| known.who == call.who && letters(known.id) == letters(call.id));
        let one = own.next().filter(|_| own.next().is_none());
        let expected = one.and_then(|call| call.content.clone());
        self.compare(call.who, found.as_ref(), expected.as_ref(), "lookup");
    }

    async fn outstanding(&mut self) {
        let who = self.random_caller();
        let caller = self.who(who);
        let found = self
            .late
            .calls()
            .list_calls(caller, antiphon::late::CallFilter::default(), 0, 999)
            .await
            .unwrap();
        let contents = self
            .late
            .calls()
            .read_contents(caller, &found.rows, near_deadline())
            .await;
        let found: BTreeSet<String> = contents.unwrap().into_iter().flatten().collect();
        let expected = self.model.calls.iter();
        let expected =
            expected.filter(|call| call.who == who && call.state == RecordedCallState::Settled && call.tool == 0);
        let expected: BTreeSet<String> = expected.filter_map(|call| call.content.clone()).collect();
        for content in found.union(&expected) {
            let (found, expected) = (found.get(content), expected.get(content));
            self.compare(who, found, expected, "outstanding");
        }
        self.late
            .calls()
            .load_posted(caller, false, near_deadline())
            .await
            .unwrap();
        let pending = self.late.calls().waiting_count(caller);
        if pending != expected.len() {
            self.other(format!(
                "{who} has {} outstanding, and {pending} pending",
                expected.len()
            ));
        }
    }

    fn compare(&mut self, who: usize, found: Option<&String>, expected: Option<&String>, what: &str) {
        if found == expected {
            return;
        }
        let told = format!("{what} of {who}: {found:?}, but {expected:?}");
        let foreign = found.is_some_and(|content| self.model.landed.get(content) != Some(&who));
        self.deviations.push(Deviation {
            is_crossing: foreign,
            told,
        });
    }

    fn other(&mut self, told: String) {
        self.deviations.push(Deviation {
            is_crossing: false,
            told,
        });
    }
}

/// Returns the deviations of one walk from the model.
async fn walk(ledger: Arc<dyn Ledger>, seed: u64) -> Vec<Deviation> {
    let mut world = World::new(ledger, seed);
    for _ in 0..STEPS {
        world.step().await;
    }
    world.deviations
}

#[tokio::test]
async fn a_result_reaches_only_its_owner() {
    let begin = seed();
    for seed in begin..begin + ROUNDS {
        let deviations = walk(late::memory(), seed).await;
        let told: Vec<&str> = deviations.iter().map(|deviation| &deviation.told[..]).collect();
        assert!(told.is_empty(), "SEED={seed}: {told:#?}");
    }
    println!("{} steps from SEED={begin}", ROUNDS * STEPS as u64);
}

#[tokio::test]
async fn a_ledger_that_ignores_principals_is_detected() {
    let mut crossings = 0;
    for seed in 0..10 {
        let deviations = walk(Arc::new(LedgerWithoutPrincipals(late::memory())), seed).await;
        crossings += deviations.iter().filter(|deviation| deviation.is_crossing).count();
    }
    assert!(crossings > 0, "the walk finds no crossing where there must be some");
}

/// A ledger that ignores the principal of every key.
#[derive(Debug)]
struct LedgerWithoutPrincipals(Arc<dyn Ledger>);

fn without_principal(key: RecordKey) -> RecordKey {
    RecordKey {
        principal: [0; 32],
        ..key
    }
}

impl Ledger for LedgerWithoutPrincipals {
    fn commit(&self, mut steps: Vec<CommitStep>, now: Moment) -> LedgerReply<'_, CommitOutcome> {
        for step in &mut steps {
            match step {
                CommitStep::Insert { key, .. } | CommitStep::Replace { key, .. } | CommitStep::Remove { key, .. } => {
                    *key = without_principal(*key);
                }
            }
        }
        self.0.commit(steps, now)
    }

    fn read(&self, keys: Vec<RecordKey>, now: Moment) -> LedgerReply<'_, Vec<Option<Record>>> {
        Box::pin(async move {
            let found = self
                .0
                .read(keys.iter().copied().map(without_principal).collect(), now)
                .await?;
            let named = found.into_iter().zip(keys);
            Ok(named
                .map(|(record, key)| record.map(|record| Record { key, ..record }))
                .collect())
        })
    }

    fn list_records(
        &self,
        kind: RecordKind,
        principal: PrincipalHash,
        limit: usize,
        now: Moment,
    ) -> LedgerReply<'_, Vec<Record>> {
        Box::pin(async move {
            let found = self.0.list_records(kind, [0; 32], limit, now).await?;
            let named = |record: Record| Record {
                key: RecordKey {
                    principal,
                    ..record.key
                },
                ..record
            };
            Ok(found.into_iter().map(named).collect())
        })
    }

    fn list_after(
        &self,
        kind: RecordKind,
        principal: PrincipalHash,
        after: u64,
        limit: usize,
        now: Moment,
    ) -> LedgerReply<'_, Vec<PlacedRecord>> {
        Box::pin(async move {
            let found = self.0.list_after(kind, [0; 32], after, limit, now).await?;
            let named = |(place, record): PlacedRecord| {
                let key = RecordKey {
                    principal,
                    ..record.key
                };
                (place, Record { key, ..record })
            };
            Ok(found.into_iter().map(named).collect())
        })
    }

    fn list_principals(
        &self,
        kind: RecordKind,
        after: Option<PrincipalHash>,
        limit: usize,
    ) -> LedgerReply<'_, Vec<PrincipalHash>> {
        self.0.list_principals(kind, after, limit)
    }

    fn find_by_index(&self, kind: RecordKind, index: Index, limit: usize, now: Moment) -> LedgerReply<'_, Vec<Record>> {
        self.0.find_by_index(kind, index, limit, now)
    }

    fn remove_unusable(&self, now: Moment) -> LedgerReply<'_, u64> {
        self.0.remove_unusable(now)
    }

    fn usage(&self) -> LedgerReply<'_, LedgerSize> {
        self.0.usage()
    }

    fn secret(&self) -> [u8; 32] {
        self.0.secret()
    }

    fn survives_restart(&self) -> bool {
        self.0.survives_restart()
    }

    fn is_exclusive(&self) -> bool {
        self.0.is_exclusive()
    }
}

/// Returns a deadline that a ledger in memory always meets.
fn near_deadline() -> tokio::time::Instant {
    antiphon::clock::now() + std::time::Duration::from_secs(1)
}
