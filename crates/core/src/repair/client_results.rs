//! Results that a client sends after the last turn, to be stored for later requests.

use std::{collections::HashMap, fmt};

use super::{
    call_key::call_context_hash,
    canonical::{input_hash, message_hash},
    id_strength::is_strong,
    result_block::cut_block,
};
use crate::{
    conversation::{CallDetails, Outline, OutlineCall, OutlineResult},
    splice::Span,
    wire::{Format, json::Json},
    work,
};

/// Largest result in bytes that is stored. The proxy cannot restore longer ones.
const BROUGHT_BYTES_MAX: usize = 256 * 1024;

/// A result that a client sent after the last turn.
#[derive(Clone, PartialEq, Eq)]
pub struct ClientResult {
    /// Id of its call, or the tool if there is no id.
    pub id: Box<[u8]>,
    /// Name of the tool.
    pub tool: Vec<u8>,
    /// Context hash of its call. `None` unless its id is reusable.
    pub input: Option<[u8; 32]>,
    /// Number of calls of its id before it.
    pub occurrence: usize,
    /// The result, as returned by [`cut_block`].
    pub block: String,
}

impl fmt::Debug for ClientResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Brought({} bytes)", self.block.len())
    }
}

/// The calls of each id that have no result yet. Pairing matches repeated ids first in, first out, and a stored result
/// must belong to the same call.
///
/// A sorted list instead of a map: a turn mostly has one call, and may have any number.
struct CallQueues<'a> {
    /// By id, and in the order of the body within one id.
    sorted: Vec<&'a OutlineCall>,
    /// Calls of an id that are taken, at the place of its first call.
    taken: Vec<usize>,
}

impl<'a> CallQueues<'a> {
    fn new(calls: &'a [OutlineCall]) -> Self {
        let mut sorted: Vec<&OutlineCall> = calls.iter().collect();
        sorted.sort_by(|one, other| {
            work::count(1);
            one.id.cmp(&other.id)
        });
        let taken = vec![0; sorted.len()];
        Self { sorted, taken }
    }

    /// Takes the first call of an id.
    fn take_first(&mut self, id: &[u8]) -> Option<&'a OutlineCall> {
        work::count(1);
        let first = self.sorted.partition_point(|call| *call.id < *id);
        let taken = self.taken.get_mut(first)?;
        let call = self.sorted.get(first.saturating_add(*taken))?;
        (*call.id == *id).then(|| {
            *taken = taken.saturating_add(1);
            *call
        })
    }
}

/// Returns the real results after the last turn whose calls are in the body.
///
/// Results with reusable ids are included only if the lane distinguishes their calls (`in_lane`).
pub fn client_results(body: &[u8], format: Format, outline: &Outline, in_lane: bool) -> Vec<ClientResult> {
    let json = Json::new(body);
    // Calls of one turn mostly share the message before them. Each message is hashed once, whatever the order.
    let mut hashes: HashMap<Span, [u8; 32]> = HashMap::new();
    let mut said_before = |call: &OutlineCall| {
        if call.before.is_empty() {
            return [0; 32];
        }
        let hash = || message_hash(call.before.of(body));
        *hashes.entry(call.before).or_insert_with(hash)
    };
    let mut calls = CallQueues::new(&outline.last_calls);
    let paired = outline
        .last_results
        .iter()
        .map(|result| (result, calls.take_first(&result.id)));
    let real = paired.filter(|(result, _)| {
        // A text that reports a lost result must never be restored as the result.
        let fits = result.at.len() <= BROUGHT_BYTES_MAX;
        fits && !result.lost && !result.id.is_empty()
    });
    let one = |(result, call): (&OutlineResult, Option<&OutlineCall>)| {
        let call = call?;
        let CallDetails { name, input, .. } = format.call_details(body, call.at);
        let tool = json.decode_string(name?).into_owned();
        let again = !is_strong(&result.id, &tool);
        // Another conversation of the caller may use the same id for another call.
        if again && !in_lane {
            return None;
        }
        Some(ClientResult {
            id: result.id.clone(),
            input: again.then(|| {
                let input = input_hash(input.map_or(b"", |span| json.bytes(span)));
                call_context_hash(&input, &said_before(call))
            }),
            occurrence: call.occurrence,
            tool,
            block: cut_block(body, result.at)?,
        })
    };
    real.filter_map(one).collect()
}
