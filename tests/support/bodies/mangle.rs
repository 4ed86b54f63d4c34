//! Damage to histories, as crashes, cuts and careless clients cause it.

use antiphon_core::wire::{Dialect, Format, Wire};

use super::{Block, CallKind, Conversation, Json, Message, Rng, Role, Said, healthy, text};

/// A kind of damage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Break {
    DropResult,
    DropCall,
    MoveLater,
    MoveEarlier,
    DuplicateEqual,
    DuplicateDifferent,
    UserInGap,
    SystemInGap,
    WordsFirst,
    SplitResults,
    Swap,
    ReuseId,
    CutHead,
    CutTail,
    StripId,
    EmptyId,
    BadId,
    ResultInAssistant,
    BlankText,
    EmptyCalls,
    BadInput,
    DoubleCall,
    Interleave,
    ServerHalf,
    /// Responses: an output of another kind than its call.
    WrongKind,
    /// Gemini: the model's text and its calls in two contents.
    SplitCall,
    /// Anthropic: model text after one of its calls.
    WordsAfterCall,
    /// Anthropic: user text in a message with results.
    WordsBesideResults,
}

impl Break {
    /// Every kind of damage.
    pub const ALL: [Self; 28] = [
        Self::DropResult,
        Self::DropCall,
        Self::MoveLater,
        Self::MoveEarlier,
        Self::DuplicateEqual,
        Self::DuplicateDifferent,
        Self::UserInGap,
        Self::SystemInGap,
        Self::WordsFirst,
        Self::SplitResults,
        Self::Swap,
        Self::ReuseId,
        Self::CutHead,
        Self::CutTail,
        Self::StripId,
        Self::EmptyId,
        Self::BadId,
        Self::ResultInAssistant,
        Self::BlankText,
        Self::EmptyCalls,
        Self::BadInput,
        Self::DoubleCall,
        Self::Interleave,
        Self::ServerHalf,
        Self::WrongKind,
        Self::SplitCall,
        Self::WordsAfterCall,
        Self::WordsBesideResults,
    ];

    /// Applies the damage. Returns `false` if the conversation has nothing to damage in this way.
    fn apply(self, talk: &mut Conversation, rng: &mut Rng) -> bool {
        match self {
            Self::DropResult => results(talk, rng).is_some_and(|at| take(talk, at).is_result()),
            Self::DropCall => callers(talk, rng).is_some_and(|at| !talk.messages.remove(at).blocks.is_empty()),
            Self::MoveLater => shift(talk, rng, true),
            Self::MoveEarlier => shift(talk, rng, false),
            Self::DuplicateEqual => double_result(talk, rng, false),
            Self::DuplicateDifferent => double_result(talk, rng, true),
            Self::UserInGap => gap(talk, rng, Role::User),
            Self::SystemInGap => gap(talk, rng, Role::System),
            Self::WordsFirst => words_first(talk, rng),
            Self::SplitResults => split(talk, rng),
            Self::Swap => swap(talk, rng),
            Self::ReuseId => reuse(talk, rng),
            Self::CutHead => cut(talk, rng, true),
            Self::CutTail => cut(talk, rng, false),
            Self::StripId => strip(talk, rng, None),
            Self::EmptyId => strip(talk, rng, Some("")),
            Self::BadId => bad_id(talk, rng),
            Self::ResultInAssistant => misfile(talk, rng),
            Self::BlankText => blank(talk, rng),
            Self::EmptyCalls => empty_calls(talk, rng),
            Self::BadInput => bad_input(talk, rng),
            Self::DoubleCall => double_call(talk, rng),
            Self::Interleave => interleave(talk, rng),
            Self::ServerHalf => server_half(talk, rng),
            Self::WrongKind => wrong_kind(talk, rng),
            Self::SplitCall => split_call(talk, rng),
            Self::WordsAfterCall => words_after_call(talk, rng),
            Self::WordsBesideResults => words_beside_results(talk, rng),
        }
    }
}

/// Returns a healthy conversation with one to three kinds of damage, and the kinds.
pub fn mangle(seed: u64, wire: Wire) -> (Conversation, Vec<Break>) {
    let mut talk = healthy(seed, wire);
    let mut rng = Rng::new(seed.rotate_left(17) ^ 0xB4EA);
    let mut done = Vec::new();
    let wanted = *rng.pick(&[1, 1, 1, 2, 3]);
    for _ in 0..40 {
        if done.len() == wanted {
            break;
        }
        let before = talk.messages.clone();
        let kind = *rng.pick(&Break::ALL);
        if kind.apply(&mut talk, &mut rng) && !talk.messages.is_empty() {
            done.push(kind);
        } else {
            talk.messages = before;
        }
    }
    (talk, done)
}

/// Indexes of a message and of a block in it.
type Place = (usize, usize);

fn find(talk: &Conversation, rng: &mut Rng, wanted: impl Fn(&Message, &Block) -> bool) -> Option<Place> {
    let mut places = Vec::new();
    for (m, message) in talk.messages.iter().enumerate() {
        let hits = message
            .blocks
            .iter()
            .enumerate()
            .filter(|(_, block)| wanted(message, block));
        places.extend(hits.map(|(b, _)| (m, b)));
    }
    (!places.is_empty()).then(|| *rng.pick(&places))
}

fn results(talk: &Conversation, rng: &mut Rng) -> Option<Place> {
    find(talk, rng, |_, block| block.is_result())
}

/// Returns a message with calls.
fn callers(talk: &Conversation, rng: &mut Rng) -> Option<usize> {
    find(talk, rng, |_, block| matches!(block, Block::Call { .. })).map(|(message, _)| message)
}

/// Removes a block, and its message if nothing else is left.
fn take(talk: &mut Conversation, (m, b): Place) -> Block {
    let block = talk.messages[m].blocks.remove(b);
    if talk.messages[m].blocks.is_empty() {
        talk.messages.remove(m);
    }
    block
}

/// Inserts a result before message `at`, or appends it to the user message there.
fn put(talk: &mut Conversation, rng: &mut Rng, at: usize, result: Block) {
    let at = at.min(talk.messages.len());
    let joins = talk.joins() && rng.chance(50);
    match talk
        .messages
        .get_mut(at)
        .filter(|message| joins && message.role == Role::User)
    {
        Some(message) => message.blocks.push(result),
        None => talk.messages.insert(at, Message::new(talk.answering(), vec![result])),
    }
}

fn shift(talk: &mut Conversation, rng: &mut Rng, later: bool) -> bool {
    let Some(from) = results(talk, rng) else { return false };
    let result = take(talk, from);
    let by = rng.within(1, 6);
    let to = if later { from.0 + by } else { from.0.saturating_sub(by) };
    put(talk, rng, to, result);
    true
}

fn double_result(talk: &mut Conversation, rng: &mut Rng, different: bool) -> bool {
    let Some((m, b)) = results(talk, rng) else { return false };
    let mut copy = talk.messages[m].blocks[b].clone();
    let tag = talk.tag("result");
    if let Block::Result { said, .. } = &mut copy
        && different
    {
        *said = Said::Text(tag);
    }
    let by = rng.below(4);
    put(talk, rng, m + 1 + by, copy);
    true
}

fn gap(talk: &mut Conversation, rng: &mut Rng, role: Role) -> bool {
    let able = match talk.wire.format {
        Format::Anthropic => matches!(talk.wire.dialect, Dialect::Standard | Dialect::DeepSeek),
        Format::OpenAiChat | Format::OpenAiResponses => talk.wire.dialect != Dialect::Mistral,
        Format::Gemini => false,
    };
    if role == Role::System && !able {
        return false;
    }
    let Some(at) = callers(talk, rng) else { return false };
    let words = talk.tag(if role == Role::User { "user" } else { "system" });
    talk.messages.insert(at + 1, Message::say(role, words));
    true
}

fn words_first(talk: &mut Conversation, rng: &mut Rng) -> bool {
    let Some((m, b)) = results(talk, rng).filter(|_| talk.joins()) else {
        return false;
    };
    if talk.messages[m].role != Role::User {
        return false;
    }
    let words = talk.tag("user");
    talk.messages[m].blocks.insert(b, Block::Text(words, false));
    true
}

fn split(talk: &mut Conversation, rng: &mut Rng) -> bool {
    let several = |message: &Message, block: &Block| block.is_result() && message.blocks.len() > 1;
    let Some((m, b)) = find(talk, rng, several) else {
        return false;
    };
    let tail = talk.messages[m].blocks.split_off(b.max(1));
    let words = talk.tag("user");
    talk.messages.insert(m + 1, Message::new(Role::User, tail));
    if rng.chance(50) {
        talk.messages.insert(m + 1, Message::say(Role::User, words));
    }
    true
}

fn swap(talk: &mut Conversation, rng: &mut Rng) -> bool {
    if talk.messages.len() < 3 {
        return false;
    }
    let at = rng.within(1, talk.messages.len() - 2);
    let pair = &mut talk.messages[at..=at + 1];
    pair.swap(0, 1);
    pair.iter().all(|message| message.role != Role::System)
}

fn reuse(talk: &mut Conversation, rng: &mut Rng) -> bool {
    let (Some(first), Some(second)) = (callers(talk, rng), callers(talk, rng)) else {
        return false;
    };
    let id = |at: usize| talk.messages[at].calls().next().map(str::to_owned);
    let (Some(old), Some(new)) = (id(first), id(second)) else {
        return false;
    };
    rename(talk, &old, &new);
    first != second
}

/// Replaces the id of a call and its results.
fn rename(talk: &mut Conversation, old: &str, new: &str) {
    for block in talk.messages.iter_mut().flat_map(|message| &mut message.blocks) {
        match block {
            Block::Call { id, .. } | Block::Result { id: Some(id), .. } if id == old => new.clone_into(id),
            _ => {}
        }
    }
}

fn cut(talk: &mut Conversation, rng: &mut Rng, head: bool) -> bool {
    let length = talk.messages.len();
    let by = rng.within(1, 4).min(length - 1);
    if head {
        talk.messages.drain(..by);
        let systems = talk
            .messages
            .iter()
            .take_while(|message| message.role == Role::System)
            .count();
        talk.messages.drain(..systems);
    } else {
        talk.messages.truncate(length - by);
    }
    by > 0
}

fn strip(talk: &mut Conversation, rng: &mut Rng, left: Option<&str>) -> bool {
    let Some((m, b)) = results(talk, rng) else { return false };
    if let Block::Result { id, .. } = &mut talk.messages[m].blocks[b] {
        *id = left.map(str::to_owned);
    }
    true
}

fn bad_id(talk: &mut Conversation, rng: &mut Rng) -> bool {
    let ids: Vec<String> = talk
        .messages
        .iter()
        .flat_map(Message::calls)
        .map(str::to_owned)
        .collect();
    if ids.is_empty() {
        return false;
    }
    let old = rng.pick(&ids).clone();
    let number = rng.below(1000);
    let new = match (talk.wire.format, talk.wire.dialect) {
        (Format::Anthropic, Dialect::Standard | Dialect::Bedrock) => format!("functions.Bash:{number}"),
        (Format::OpenAiChat, Dialect::Standard) => format!("call_{}|fc_{number}", "0123456789".repeat(4)),
        (Format::OpenAiResponses, Dialect::Standard) => format!("call_{}|fc_{number}", "0123456789".repeat(6)),
        (Format::OpenAiChat, Dialect::Mistral) => format!("call_{number}-x"),
        (Format::Anthropic | Format::OpenAiChat | Format::OpenAiResponses | Format::Gemini, _) => return false,
    };
    rename(talk, &old, &new);
    true
}

fn misfile(talk: &mut Conversation, rng: &mut Rng) -> bool {
    // Signed content must not be edited.
    let able = talk.joins() && !talk.signs();
    let Some(from) = results(talk, rng).filter(|_| able) else {
        return false;
    };
    let id = match &talk.messages[from.0].blocks[from.1] {
        Block::Result { id: Some(id), .. } => id.clone(),
        _ => return false,
    };
    let Some(to) = talk
        .messages
        .iter()
        .position(|message| message.calls().any(|call| call == id))
    else {
        return false;
    };
    if talk.messages[to].thinks() {
        return false;
    }
    let result = take(talk, from);
    let to = to.min(talk.messages.len() - 1);
    talk.messages[to].blocks.push(result);
    if rng.chance(40) {
        let words = talk.tag("assistant");
        talk.messages[to].blocks.push(Block::Text(words, false));
    }
    true
}

fn blank(talk: &mut Conversation, rng: &mut Rng) -> bool {
    if !talk.anthropic() || talk.wire.dialect == Dialect::DeepSeek {
        return false;
    }
    let Some((m, _)) = find(talk, rng, |message, _| message.role == Role::User) else {
        return false;
    };
    let words = *rng.pick(&["", " ", "\n\t "]);
    talk.messages[m].blocks.push(Block::Text(words.into(), false));
    true
}

fn empty_calls(talk: &mut Conversation, rng: &mut Rng) -> bool {
    let silent = |message: &Message, _: &Block| message.role == Role::Assistant && message.calls().next().is_none();
    let able = match talk.wire.format {
        Format::OpenAiChat => true,
        Format::Anthropic | Format::OpenAiResponses | Format::Gemini => false,
    };
    let Some((m, _)) = find(talk, rng, silent).filter(|_| able) else {
        return false;
    };
    talk.messages[m].empty_calls = true;
    true
}

fn bad_input(talk: &mut Conversation, rng: &mut Rng) -> bool {
    if !talk.anthropic() || talk.wire.dialect == Dialect::DeepSeek {
        return false;
    }
    let calm = |message: &Message, block: &Block| matches!(block, Block::Call { .. }) && !message.thinks();
    let Some((m, b)) = find(talk, rng, calm) else {
        return false;
    };
    let whole = format!("{{\"path\": \"{}\"}}", talk.tag("input"));
    if let Block::Call { input, .. } = &mut talk.messages[m].blocks[b] {
        *input = match rng.below(5) {
            0 => Json::Null,
            1 => Json::List(Vec::new()),
            2 => Json::List(vec![text(&whole)]),
            3 => Json::Number("7".to_owned()),
            _ => text(&whole),
        };
    }
    true
}

fn double_call(talk: &mut Conversation, rng: &mut Rng) -> bool {
    let Some((m, b)) = find(talk, rng, |_, block| matches!(block, Block::Call { .. })) else {
        return false;
    };
    let copy = talk.messages[m].blocks[b].clone();
    talk.messages[m].blocks.insert(b + 1, copy);
    true
}

/// Merges two consecutive loops into two loops that write one log at the same time.
fn interleave(talk: &mut Conversation, rng: &mut Rng) -> bool {
    let first: Vec<usize> = (0..talk.messages.len())
        .filter(|at| talk.messages[*at].calls().next().is_some())
        .collect();
    let pairs: Vec<(usize, usize)> = first.windows(2).map(|pair| (pair[0], pair[1])).collect();
    if pairs.is_empty() {
        return false;
    }
    let (one, two) = *rng.pick(&pairs);
    let second = talk.messages.remove(two);
    talk.messages.insert(one + 1, second);
    if rng.chance(60) {
        let words = talk.tag("user");
        talk.messages.insert(one + 1, Message::say(Role::User, words));
    }
    true
}

fn server_half(talk: &mut Conversation, rng: &mut Rng) -> bool {
    let half = |message: &Message, block: &Block| {
        matches!(block, Block::ServerCall { .. } | Block::ServerResult { .. }) && !message.thinks()
    };
    talk.anthropic() && find(talk, rng, half).is_some_and(|at| !take(talk, at).is_result())
}

fn wrong_kind(talk: &mut Conversation, rng: &mut Rng) -> bool {
    let able = match talk.wire.format {
        Format::OpenAiResponses => true,
        Format::Anthropic | Format::OpenAiChat | Format::Gemini => false,
    };
    let Some((m, b)) = results(talk, rng).filter(|_| able) else {
        return false;
    };
    if let Block::Result { kind, .. } = &mut talk.messages[m].blocks[b] {
        *kind = match kind {
            CallKind::Function => CallKind::Custom,
            _ => CallKind::Function,
        };
    }
    true
}

fn split_call(talk: &mut Conversation, rng: &mut Rng) -> bool {
    let able = match talk.wire.format {
        Format::Gemini => !talk.signs(),
        Format::Anthropic | Format::OpenAiChat | Format::OpenAiResponses => false,
    };
    let led = |message: &Message, block: &Block| {
        matches!(block, Block::Call { .. }) && !message.thinks() && matches!(message.blocks[0], Block::Text(..))
    };
    let Some((m, _)) = find(talk, rng, led).filter(|_| able) else {
        return false;
    };
    let tail = talk.messages[m].blocks.split_off(1);
    talk.messages.insert(m + 1, Message::new(Role::Assistant, tail));
    true
}

fn words_after_call(talk: &mut Conversation, rng: &mut Rng) -> bool {
    let is_call = |_: &Message, block: &Block| matches!(block, Block::Call { .. });
    let Some((m, b)) = find(talk, rng, is_call).filter(|_| talk.anthropic()) else {
        return false;
    };
    let words = talk.tag("assistant");
    talk.messages[m].blocks.insert(b + 1, Block::Text(words, false));
    if rng.chance(15) {
        let thought = talk.tag("thought");
        talk.messages[m].blocks.insert(b + 1, Block::Thinking(thought));
    }
    true
}

fn words_beside_results(talk: &mut Conversation, rng: &mut Rng) -> bool {
    let in_a_gap = |message: &Message, block: &Block| message.role == Role::User && block.is_result();
    let Some((m, _)) = find(talk, rng, in_a_gap).filter(|_| talk.anthropic()) else {
        return false;
    };
    let words = talk.tag("user");
    talk.messages[m].blocks.push(Block::Text(words, false));
    true
}
