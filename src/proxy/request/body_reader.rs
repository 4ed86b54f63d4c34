//! Reading of a request body: parsed once for its outline, paired with what this process knows of its caller.

use bytes::Bytes;

use super::{
    call_lookup::CallMemory,
    context::named_model,
    fact_lookup::{ShapeLookup, load_shapes},
};
use crate::{
    auth::Caller,
    conversation::Outline,
    provider::Route,
    proxy::{
        catch_core_panic::catch_read,
        continuity::RequestContinuity,
        data_path::DataPath,
        fact_memory::ForbiddenShape,
        fact_scope::FactScope,
        late_results::{LateTexts, OpenCallRecords},
    },
    recall::{FactKey, LedgerBudget},
    repair::{DisputedShape, LearnedRules, Paired, PairingContext, Parsed, RepairPolicy, parse},
    server::budget::BudgetClient,
    session::body_user,
    wire::{Unreadable, Wire},
};

/// Everything besides the body that its reading depends on.
#[derive(Clone, Copy)]
pub(super) struct BodyReader<'x> {
    pub(super) path: &'x DataPath,
    pub(super) route: &'x Route<'x>,
    pub(super) wire: Wire,
    pub(super) policy: &'x RepairPolicy,
    /// Client whose share of the budgets the body uses.
    pub(super) client: BudgetClient,
}

/// Body that was read, with the bytes it was read from: the client's, decoded, until something is inserted into them.
pub(super) struct ReadBody<'b> {
    pub(super) plain: &'b Bytes,
    pub(super) paired: Paired<'b>,
    /// Facts about the client's own bytes besides pairing.
    pub(super) outline: Outline,
    /// Rules that refusals have taught. Read once, so that they cannot change between two plans of one request.
    pub(super) learned: LearnedRules,
    /// Disputed shapes of the conversation, as the client wrote it.
    pub(super) shapes: Vec<(DisputedShape, FactKey)>,
    /// The conversation in each shape that a rule forbids.
    pub(super) forbidden_shapes: Vec<ForbiddenShape>,
    /// `true` if the ledger did not tell whether the provider has accepted the conversation in one of them.
    pub(super) is_shape_unread: bool,
    /// Continuity of the request. `None` if no values are stored for it.
    pub(super) continuity: Option<RequestContinuity>,
    /// Late results that were put at the end of its messages.
    pub(super) texts: LateTexts,
    /// `true` if the ledger did not tell in time whether late results belong into the body.
    pub(super) are_texts_unread: bool,
    /// Records of its open calls that were read ahead.
    pub(super) call_records: OpenCallRecords,
    /// `plain` without the values that the client had dropped. `None` if it got none back.
    pub(super) unfilled: Option<Bytes>,
}

impl ReadBody<'_> {
    /// Returns `true` if late texts or values were inserted into the client's bytes.
    pub(super) fn has_insertions(&self) -> bool {
        !self.texts.placed.is_empty() || self.unfilled.is_some()
    }

    /// Takes the outline of the body as it is now.
    pub(super) fn take_outline(&mut self) -> Outline {
        if self.has_insertions() {
            // They have moved the spans of the first outline.
            self.paired.outline()
        } else {
            std::mem::take(&mut self.outline)
        }
    }
}

/// A parsed body, with facts about it besides pairing.
type Scan<'b> = (Parsed<'b>, Outline);

/// A scan that was made before the body is read: for the user that it names. Boxed, because it is rare.
pub(super) type EarlyScan<'b> = Result<Box<Scan<'b>>, Unreadable>;

impl BodyReader<'_> {
    /// Scans a body. This is the only scan of the client's bytes: every pairing of them is made from it.
    fn scan<'b>(&self, plain: &'b Bytes) -> Result<Scan<'b>, Unreadable> {
        // One scan serves both: the outline names the user, and the user decides what is known for the pairing.
        catch_read(|| {
            let parsed = parse(plain, self.wire)?;
            let outline = parsed.outline();
            Ok((parsed, outline))
        })
    }

    /// Returns the caller whose facts a body needs before it is read. Notes the scan in `early` if that takes one.
    pub(super) fn user_of<'b>(&self, caller: Caller, plain: &'b Bytes, early: &mut Option<EarlyScan<'b>>) -> Caller {
        if !self.path.settings.principals.trust_body_user {
            return caller;
        }
        let scan = early.get_or_insert_with(|| self.scan(plain).map(Box::new));
        let narrowed = |scan: &Scan<'_>| self.narrowed_caller(caller, plain, &scan.1);
        scan.as_deref().map_or(caller, narrowed)
    }

    /// Reads a body, in the shape in which the provider has accepted its conversation. `early` is a scan of it, if there is
    /// one.
    ///
    /// Re-scopes the caller to the user that the body names if `trust_body_user` is set.
    pub(super) async fn read_body<'b>(
        &self,
        caller: Caller,
        plain: &'b Bytes,
        early: Option<EarlyScan<'b>>,
        ledger_budget: &mut LedgerBudget,
    ) -> Result<(Caller, Box<ReadBody<'b>>), Unreadable> {
        let scan = early.map_or_else(|| self.scan(plain), |early| early.map(|scan| *scan))?;
        let (user, read) = self.pair_scan(caller, plain, scan, true)?;
        let looked_up = load_shapes(self.path, user, &read.forbidden_shapes, ledger_budget).await;
        if looked_up == ShapeLookup::Known {
            return Ok((user, read));
        }
        // If it is unread, an edit could change an accepted prefix. Without one the provider refuses the body at worst.
        let follows_rules = looked_up == ShapeLookup::News;
        let scan = (read.paired.into_parsed(), read.outline);
        let (user, mut read) = self.pair_scan(caller, plain, scan, follows_rules)?;
        read.is_shape_unread = !follows_rules;
        Ok((user, read))
    }

    /// Returns the caller, narrowed to the user that the body names if bodies are trusted with that.
    fn narrowed_caller(&self, caller: Caller, plain: &[u8], outline: &Outline) -> Caller {
        let user = if self.path.settings.principals.trust_body_user {
            body_user(plain, outline)
        } else {
            None
        };
        user.map_or(caller, |user| {
            caller.with_user(&self.path.principal_key, user.as_bytes())
        })
    }

    /// Pairs a body. `follows_rules` is `false` if no learned rule about a disputed shape holds.
    fn pair_scan<'b>(
        &self,
        caller: Caller,
        plain: &'b Bytes,
        (parsed, outline): Scan<'b>,
        follows_rules: bool,
    ) -> Result<(Caller, Box<ReadBody<'b>>), Unreadable> {
        let caller = self.narrowed_caller(caller, plain, &outline);
        let model = named_model(self.route, plain, &outline);
        let scope = self.call_memory(caller).scope;
        let model = model.as_deref();
        let rules = self
            .path
            .facts
            .learned_rules(&self.path.recall, scope, model, || parsed.first_call_id());
        let (mut learned, forbidden_shapes) = (rules.learned, rules.forbidden_shapes);
        if !follows_rules {
            learned = DisputedShape::ALL.into_iter().fold(learned, LearnedRules::without);
        }
        let paired = self.pair_body(caller, learned, parsed)?;
        let has_shape = |shape: &DisputedShape| paired.has_shape(*shape);
        // Most bodies have no such shape, and then the first call is not searched.
        let key = |shape| Some((shape, scope.shape_key(model, paired.first_call_id()?, shape)));
        let shapes = DisputedShape::ALL
            .into_iter()
            .filter(has_shape)
            .filter_map(key)
            .collect();
        let read = ReadBody {
            plain,
            paired,
            outline,
            learned,
            shapes,
            forbidden_shapes,
            is_shape_unread: false,
            // Its owner is known only once the lane is.
            continuity: None,
            texts: LateTexts::default(),
            are_texts_unread: false,
            call_records: OpenCallRecords::default(),
            unfilled: None,
        };
        // Boxed, because it is moved several times until its body is planned.
        Ok((caller, Box::new(read)))
    }

    /// Pairs calls and results. Fails if there are findings but the body is not valid JSON.
    pub(super) fn pair_body<'b>(
        &self,
        caller: Caller,
        learned: LearnedRules,
        parsed: Parsed<'b>,
    ) -> Result<Paired<'b>, Unreadable> {
        let memory = self.call_memory(caller);
        catch_read(|| {
            let remote = memory.remote_calls(|| parsed.remote_references());
            let refused = memory.refused_thinking(&parsed);
            let paired = parsed.pair(PairingContext {
                learned,
                remote: &remote,
                refused_thinking: &refused,
                ..PairingContext::new(self.policy)
            });
            // The scan skips bytes that it need not understand. Findings in invalid JSON may be wrong.
            paired.check_json()?;
            Ok(paired)
        })
    }

    /// Scans and pairs the body into which the proxy has inserted something. `None` if that fails.
    pub(super) fn read_inserted<'b>(
        &self,
        caller: Caller,
        learned: LearnedRules,
        body: &'b Bytes,
        conversation: Option<[u8; 32]>,
    ) -> Option<Paired<'b>> {
        let parsed = catch_read(|| parse(body, self.wire)).ok()?;
        let mut paired = self.pair_body(caller, learned, parsed).ok()?;
        paired.set_conversation(conversation);
        Some(paired)
    }

    /// Returns what this process remembers for a caller at this upstream.
    pub(super) fn call_memory(&self, caller: Caller) -> CallMemory<'_> {
        CallMemory {
            facts: &self.path.facts,
            recall: &self.path.recall,
            scope: FactScope {
                server: self.route.server,
                caller,
            },
        }
    }
}
