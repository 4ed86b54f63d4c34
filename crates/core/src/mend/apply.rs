//! Making mends: those that a refusal demands, and those that earlier ones have taught.

use bytes::Bytes;

use super::{
    body::MendBody,
    candidate::{BlockHash, Candidate, MendChange},
    kinds::{find_candidates, stronger_demand, takes_content, word_of},
    mend_list::Mend,
    place, texts,
};
use crate::{
    conversation::Role,
    splice::{Edit, EditList},
    wire::{
        Demand, Learning, MendReach, Unreadable, Wire,
        json::{self, ListElement},
    },
    work,
};

/// The most blocks that one refusal teaches. A history with more of them is accepted after some tries.
const BLOCKS_MAX: usize = 256;

/// A mended body.
#[derive(Clone, Debug)]
pub struct Mended {
    /// The body.
    pub body: Bytes,
    /// The mends that were made, each with the number of its places.
    pub made: Vec<(Mend, usize)>,
    /// The blocks that were mended and are mended from then on: those of a demand that teaches blocks, and those that the
    /// user has written newly.
    pub blocks: Vec<BlockHash>,
    /// Blocks that the demand is about and that the user has written newly: they stay.
    pub kept: Vec<BlockHash>,
}

impl Mended {
    fn unchanged(body: &Bytes) -> Self {
        Self {
            body: body.clone(),
            made: Vec::new(),
            blocks: Vec::new(),
            kept: Vec::new(),
        }
    }
}

/// Makes these mends wherever they fit. `is_refused` returns `true` for blocks that a provider has refused before: those
/// are mended too, even if the user has written them newly.
///
/// Without a place for any of them the body is the same handle. Fails if the body is no JSON.
pub fn mend_body(
    body: &Bytes,
    wire: Wire,
    mends: &[Mend],
    is_refused: &dyn Fn(&BlockHash) -> bool,
) -> Result<Mended, Unreadable> {
    let mut mended = Mended::unchanged(body);
    let mut mends = mends.iter().peekable();
    json::validate(body)?;
    // Read again only after a change.
    while mends.peek().is_some() {
        let present = mended.body.clone();
        let Some(read) = MendBody::read(&present, wire)? else {
            break;
        };
        for mend in mends.by_ref() {
            let is_chosen = |candidate: &Candidate| {
                let is_refused = candidate.hash.as_ref().is_some_and(is_refused);
                let fits = !mend.only_refused && !is_guarded(&read, candidate, mend);
                is_of_class(candidate, &mend.class) && (is_refused || fits)
            };
            let chosen: Vec<Candidate> = find_candidates(&read, mend).into_iter().filter(is_chosen).collect();
            if mended.make(mend, &read, chosen) {
                break;
            }
        }
    }
    Ok(mended)
}

/// Makes the mend that a refusal demands of a body. `ids` are those that the refusal names.
///
/// Without a place for it the body is the same handle. Fails if the body is no JSON.
pub fn meet_demand(
    body: &Bytes,
    wire: Wire,
    demand: &Demand,
    ids: &[String],
    is_refused: &dyn Fn(&BlockHash) -> bool,
) -> Result<Mended, Unreadable> {
    let mut mended = Mended::unchanged(body);
    json::validate(body)?;
    let Some(read) = MendBody::read(body, wire)? else {
        return Ok(mended);
    };
    mended.meet(&read, demand, ids, is_refused);
    if mended.made.is_empty() && mended.kept.is_empty() {
        // What is still refused once nothing is left to correct is broken.
        if let Some(stronger) = stronger_demand(demand) {
            mended.meet(&read, &stronger, ids, is_refused);
        }
    }
    Ok(mended)
}

/// Chooses the places at which a demanded mend acts.
///
/// Returns them with the class of objects to which the mend is limited from then on. It is empty for all classes.
fn choose(body: &MendBody<'_>, mend: &Mend, demand: &Demand, ids: &[String]) -> (Vec<Candidate>, Box<str>) {
    let mut found = find_candidates(body, mend);
    let place = demand.place.as_deref();
    let indices = place.map(place::indices).unwrap_or_default();
    let is_named = |candidate: &Candidate| {
        let path = path_of(body, candidate);
        // A place may name what the candidate is in, or what is in the candidate.
        !indices.is_empty() && path.zip(&indices).all(|(at, index)| at == *index)
    };
    // An item may take others along: they bear its id too.
    let is_by_id = !ids.is_empty() && found.iter().any(|candidate| !candidate.id.is_empty());
    if is_by_id {
        found.retain(|candidate| ids.iter().any(|id| **id == *candidate.id));
    }
    let class = named_class(&found, place.map(place::names).as_deref(), is_named);
    found.retain(|candidate| is_of_class(candidate, &class));
    if demand.reach == MendReach::Named && !is_by_id {
        if found.iter().any(is_named) {
            found.retain(is_named);
        } else if indices.is_empty() && found.len() > 1 {
            // The provider has accepted what is older.
            found.retain(|candidate| candidate.message >= body.newest);
        }
        // Which of several it is, nobody can tell.
        found.truncate(usize::from(found.len() == 1));
    }
    (found, class)
}

/// Returns the class of the object that a place names: what is wrong in one object is wrong in all of its class.
///
/// `names` are those of the place. Empty if the place names no class.
fn named_class(found: &[Candidate], names: Option<&[&str]>, is_named: impl Fn(&Candidate) -> bool) -> Box<str> {
    let mut named = found.iter().filter(|candidate| is_named(candidate));
    // At a place there may be objects inside of others: its last name says which.
    let innermost = names.into_iter().flatten().rev().find_map(|name| {
        let mut named = named.clone();
        named.find(|candidate| place::is_same_name(name, &candidate.class))
    });
    // Providers count after their own translation: then only the names of the place say what is meant.
    let by_name = || {
        let names = names?;
        found.iter().find(|candidate| names.contains(&&*candidate.class))
    };
    let object = innermost.or_else(|| named.next()).or_else(by_name);
    object.map(|candidate| candidate.class.clone()).unwrap_or_default()
}

/// Returns `true` if a candidate is of this class. The empty one has all.
fn is_of_class(candidate: &Candidate, class: &str) -> bool {
    class.is_empty() || *candidate.class == *class
}

/// Returns the indices of a candidate: its message's, that of the result around it if there is one, and its own.
fn path_of(body: &MendBody<'_>, candidate: &Candidate) -> impl Iterator<Item = usize> {
    let list = candidate.block.and_then(|block| body.lists.get(block.list));
    let around = list.and_then(|list| list.result_at);
    let own = candidate.block.map(|block| block.at);
    [Some(candidate.message), around, own].into_iter().flatten()
}

/// Returns `true` if a candidate is what the user says newly, and the mend would lose it.
pub(super) fn is_guarded(body: &MendBody<'_>, candidate: &Candidate, mend: &Mend) -> bool {
    let list = candidate.block.and_then(|block| body.lists.get(block.list));
    takes_content(mend) && list.is_some_and(|list| body.is_users_newest(list))
}

impl Mended {
    /// Makes the mend of a demand where the refusal says.
    fn meet(&mut self, read: &MendBody<'_>, demand: &Demand, ids: &[String], is_refused: &dyn Fn(&BlockHash) -> bool) {
        let word = word_of(demand);
        let Some(mend) = Mend::new(demand.kind, &word) else {
            return;
        };
        let (found, class) = choose(read, &mend, demand, ids);
        // A class is the client's own word, and may be longer than what is remembered.
        let Some(mut mend) = Mend::of_class(demand.kind, &word, &class) else {
            return;
        };
        let is_refused = |candidate: &Candidate| candidate.hash.as_ref().is_some_and(is_refused);
        let (kept, mut chosen): (Vec<Candidate>, Vec<Candidate>) = found
            .into_iter()
            .partition(|candidate| is_guarded(read, candidate, &mend) && !is_refused(candidate));
        self.kept = kept.iter().filter_map(|candidate| candidate.hash).collect();
        mend.only_refused = demand.learning == Learning::Block;
        if mend.only_refused {
            chosen.truncate(BLOCKS_MAX);
        }
        // Without its hash, what the user has written newly would stay when the mend is made again.
        let is_remembered = |candidate: &&Candidate| mend.only_refused || is_guarded(read, candidate, &mend);
        let remembered = chosen.iter().filter(is_remembered).take(BLOCKS_MAX);
        self.blocks = remembered.filter_map(|candidate| candidate.hash).collect();
        self.make(&mend, read, chosen);
    }

    /// Makes one mend at the chosen places of the body as it was read. Returns `false` if nothing changes.
    fn make(&mut self, mend: &Mend, read: &MendBody<'_>, chosen: Vec<Candidate>) -> bool {
        let count = chosen.len();
        // Edits that overlap would be a bug of a mend: then the body stays as it is.
        let Ok(edits) = EditList::new(edits_of(read, chosen), read.bytes.len()) else {
            return false;
        };
        if edits.is_empty() {
            return false;
        }
        let edited: Bytes = edits.apply(read.bytes).to_vec().into();
        // So would a body that is no JSON any more.
        if json::validate(&edited).is_err() {
            return false;
        }
        self.body = edited;
        self.made.push((mend.clone(), count));
        true
    }
}

/// Returns the edits that carry out the changes of these candidates.
fn edits_of(body: &MendBody<'_>, chosen: Vec<Candidate>) -> Vec<Edit> {
    let mut edits = Vec::new();
    let mut gone_messages = vec![false; body.messages.len()];
    let mut gone_blocks: Vec<Vec<usize>> = vec![Vec::new(); body.lists.len()];
    work::count(chosen.len());
    for candidate in chosen {
        match (candidate.change, candidate.block) {
            (MendChange::Edit(own), _) => edits.extend(own),
            (MendChange::Remove, Some(block)) => {
                if let Some(gone) = gone_blocks.get_mut(block.list) {
                    gone.push(block.at);
                }
            }
            (MendChange::Remove, None) => {
                if let Some(gone) = gone_messages.get_mut(candidate.message) {
                    *gone = true;
                }
            }
        }
    }
    for (list, gone) in body.lists.iter().zip(gone_blocks) {
        if gone.is_empty() {
            continue;
        }
        let author = body
            .messages
            .get(list.message)
            .map_or(Role::User, |message| message.author);
        let spans: Vec<_> = list.blocks.iter().map(|block| block.span).collect();
        let mut stays = vec![true; spans.len()];
        work::count(spans.len().saturating_add(gone.len()));
        for at in gone {
            if let Some(stays) = stays.get_mut(at) {
                *stays = false;
            }
        }
        let kept = stays
            .into_iter()
            .enumerate()
            .filter_map(|(at, stays)| stays.then_some(at));
        let mut wanted: Vec<ListElement> = kept.map(|at| ListElement::Kept(at, Vec::new())).collect();
        if wanted.is_empty() {
            wanted.push(ListElement::New(body.constant_block(author, texts::EMPTY)));
        }
        edits.extend(json::rebuild_list(list.span, &spans, wanted));
    }
    if gone_messages.contains(&true) {
        let kept = (0..body.messages.len()).filter(|at| !gone_messages.get(*at).copied().unwrap_or_default());
        let wanted = kept.map(|at| ListElement::Kept(at, Vec::new())).collect();
        edits.extend(json::rebuild_list(body.history, &body.message_spans(), wanted));
    }
    edits
}
