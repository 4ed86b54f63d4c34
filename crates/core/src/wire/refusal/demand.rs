//! Demands of servers that go beyond the rules of a format: the mend of each row, and what a refusal says about it.
//!
//! A mend is one of a closed set of changes. Their effect is in `mend`; here are their names, which rows and records of
//! the ledger use.

use super::{fault::RowFault, meaning::TokenCounts};

/// The changes that meet a demand. Rows choose one by its name, and records of the ledger by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum MendKind {
    /// Messages with the role in the argument get the role `system`.
    RenameRole,
    /// Instructions stand at the beginning only: leading ones are joined, and a later one becomes marked text of the user.
    SystemFirst,
    /// The member in the argument goes from every object of the class of the one that the refusal names.
    DropMember,
    /// Reasoning goes: the argument says which.
    DropReasoning,
    /// The item id that the refusal names goes. The id of its call stays.
    DropItemId,
    /// The media type of images becomes that of their bytes.
    MediaType,
    /// Blocks of the type in the argument become marked text.
    QuoteBlock,
    /// Names of messages get `_` for each character that the provider forbids.
    LegalNames,
    /// A list of texts becomes one text.
    TextContent,
    /// Empty content gets a constant text, or an empty one beside calls.
    FillContent,
    /// Neighbours of one role become one message.
    MergeNeighbours,
    /// Tool messages get the name of their call.
    NameResults,
    /// A constant message of the user follows the last one of the assistant.
    EndWithUser,
    /// Blanks at the very end of the last message of the assistant go.
    TrimEnd,
    /// The oldest cache markers of messages go, until no more than the number in the refusal are left.
    LimitMarkers,
    /// Each half of a character becomes the replacement character.
    LoneSurrogates,
    /// Thinking is off while the present tool loop is open.
    ThinkingOff,
    /// `max_tokens` becomes what the provider's numbers leave for it.
    LowerMaxTokens,
    /// The token in the argument leaves the header `anthropic-beta`.
    DropBeta,
    /// The top-level parameter in the argument goes.
    DropParameter,
}

/// The facts about one kind of mend.
struct MendFacts {
    kind: MendKind,
    name: &'static str,
    /// The number in records of the ledger. Never used for another kind.
    number: u8,
    /// `true` if the body loses something that the model could read or the provider would have heeded.
    loses: bool,
    reach: MendReach,
}

/// The places at which a mend acts, of those that it fits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MendReach {
    /// All.
    All,
    /// The one that the refusal names; else the only one; else none.
    Named,
}

const fn facts(kind: MendKind, name: &'static str, number: u8, loses: bool, reach: MendReach) -> MendFacts {
    MendFacts {
        kind,
        name,
        number,
        loses,
        reach,
    }
}

/// Every kind, in the order in which mends of one body are made.
const FACTS: [MendFacts; 20] = {
    use MendKind::{
        DropBeta, DropItemId, DropMember, DropParameter, DropReasoning, EndWithUser, FillContent, LegalNames,
        LimitMarkers, LoneSurrogates, LowerMaxTokens, MediaType, MergeNeighbours, NameResults, QuoteBlock, RenameRole,
        SystemFirst, TextContent, ThinkingOff, TrimEnd,
    };
    use MendReach::{All, Named};
    [
        facts(RenameRole, "rename_role", 1, false, All),
        facts(SystemFirst, "system_first", 2, false, All),
        facts(DropMember, "drop_member", 3, true, All),
        facts(DropReasoning, "drop_reasoning", 4, true, All),
        facts(DropItemId, "drop_item_id", 5, false, Named),
        facts(MediaType, "media_type", 6, false, All),
        facts(QuoteBlock, "quote_block", 7, true, Named),
        facts(LegalNames, "legal_names", 8, false, All),
        facts(TextContent, "text_content", 9, false, All),
        facts(FillContent, "fill_content", 10, false, All),
        facts(MergeNeighbours, "merge_neighbours", 11, false, All),
        facts(NameResults, "name_results", 12, false, All),
        facts(EndWithUser, "end_with_user", 13, false, All),
        facts(TrimEnd, "trim_end", 14, false, All),
        facts(LimitMarkers, "limit_markers", 15, true, All),
        facts(LoneSurrogates, "lone_surrogates", 16, false, All),
        facts(ThinkingOff, "thinking_off", 17, true, All),
        facts(LowerMaxTokens, "lower_max_tokens", 18, true, All),
        facts(DropBeta, "drop_beta", 19, true, All),
        facts(DropParameter, "drop_parameter", 20, true, All),
    ]
};

impl MendKind {
    /// Returns every kind, in the order in which mends of one body are made.
    pub fn all() -> impl Iterator<Item = Self> {
        FACTS.iter().map(|facts| facts.kind)
    }

    /// Returns the kind with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        FACTS.iter().find(|facts| facts.name == name).map(|facts| facts.kind)
    }

    /// Returns the kind with this number in records of the ledger.
    pub fn from_number(number: u8) -> Option<Self> {
        FACTS
            .iter()
            .find(|facts| facts.number == number)
            .map(|facts| facts.kind)
    }

    /// Returns its name in rows.
    pub fn name(self) -> &'static str {
        self.facts().map_or("", |facts| facts.name)
    }

    /// Returns its number in records of the ledger.
    pub fn number(self) -> u8 {
        self.facts().map_or(0, |facts| facts.number)
    }

    /// Returns `true` if the body loses something that the model could read or the provider would have heeded.
    pub fn loses_content(self) -> bool {
        self.facts().is_some_and(|facts| facts.loses)
    }

    /// Returns `true` if it may take away what somebody has said. Wrong media types may belong to images that are broken.
    pub fn may_lose_content(self) -> bool {
        self.loses_content() || self == Self::MediaType
    }

    /// Returns `true` if an accepted mend of this kind can teach this.
    fn can_teach(self, learning: Learning) -> bool {
        match learning {
            // Only these tell one block from another.
            Learning::Block => matches!(self, Self::QuoteBlock | Self::DropReasoning | Self::DropItemId),
            Learning::Once => self != Self::DropBeta,
            Learning::Rule => true,
        }
    }

    /// Returns the places at which it acts unless a row says otherwise.
    pub fn reach(self) -> MendReach {
        self.facts().map_or(MendReach::Named, |facts| facts.reach)
    }

    /// Returns the facts about this kind. Each has some: a test walks over all.
    fn facts(self) -> Option<&'static MendFacts> {
        FACTS.iter().find(|facts| facts.kind == self)
    }
}

/// The lifetime of what a demand has taught, once the provider has accepted the mended body.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Learning {
    /// Nothing is learned: the mend is for this body only.
    Once,
    /// The blocks that were mended are mended in every later body.
    Block,
    /// Every later body of the caller for this server and model is mended.
    Rule,
}

impl Learning {
    const NAMES: [(&'static str, Self); 3] = [("once", Self::Once), ("block", Self::Block), ("rule", Self::Rule)];

    /// Returns its name in rows.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Once => "once",
            Self::Block => "block",
            Self::Rule => "rule",
        }
    }
}

/// The argument of a mend in a row.
#[derive(Clone, Debug, PartialEq, Eq)]
enum RowArgument {
    Nothing,
    /// The word itself.
    Word(Box<str>),
    /// The text of a variable, by its name.
    Variable(MendVariable),
}

/// A variable whose text a mend needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MendVariable {
    /// `<member>`
    Member,
    /// `<name>`
    Name,
    /// `<number>`
    Number,
}

impl MendVariable {
    /// Returns its name in patterns.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Member => "member",
            Self::Name => "name",
            Self::Number => "number",
        }
    }
}

/// The mend of a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowMend {
    /// Its kind.
    pub kind: MendKind,
    argument: RowArgument,
    /// The places at which it acts.
    pub reach: MendReach,
    /// The lifetime of what it teaches.
    pub learning: Learning,
}

/// The texts of a row that describe its mend.
#[derive(Clone, Copy, Debug)]
pub(super) struct MendTexts<'t> {
    pub(super) row: &'t str,
    /// Name and argument: `drop_member <member>`.
    pub(super) mend: &'t str,
    pub(super) fits: Option<&'t str>,
    pub(super) learn: Option<&'t str>,
}

impl RowMend {
    /// Compiles the mend of a row.
    pub(super) fn compile(texts: MendTexts<'_>) -> Result<Self, RowFault> {
        let unknown = |text: &str| RowFault::UnknownMendWord {
            row: texts.row.to_owned(),
            text: text.to_owned(),
        };
        let (name, argument) = texts.mend.split_once(' ').unwrap_or((texts.mend, ""));
        let kind = MendKind::from_name(name).ok_or_else(|| RowFault::UnknownMend {
            row: texts.row.to_owned(),
            text: name.to_owned(),
        })?;
        let argument = match argument {
            "" => RowArgument::Nothing,
            "<member>" => RowArgument::Variable(MendVariable::Member),
            "<name>" => RowArgument::Variable(MendVariable::Name),
            "<number>" => RowArgument::Variable(MendVariable::Number),
            word if !word.contains(['<', ' ']) => RowArgument::Word(word.into()),
            other => return Err(unknown(other)),
        };
        // One item of several, of which the others are right.
        let is_of_item = kind == MendKind::DropReasoning && argument == RowArgument::Word("item".into());
        let reach = match texts.fits {
            None if is_of_item => MendReach::Named,
            None => kind.reach(),
            Some("all") => MendReach::All,
            Some("named") => MendReach::Named,
            Some(other) => return Err(unknown(other)),
        };
        let learning = match texts.learn {
            // A rule would mend all others too.
            None if reach == MendReach::Named => Learning::Block,
            None => Learning::Rule,
            Some(text) => {
                let named = Learning::NAMES.iter().find(|(known, _)| *known == text);
                named.map(|(_, learning)| *learning).ok_or_else(|| unknown(text))?
            }
        };
        if (reach == MendReach::Named && learning != Learning::Block) || !kind.can_teach(learning) {
            return Err(RowFault::UnfitLearning(texts.row.to_owned()));
        }
        Ok(Self {
            kind,
            argument,
            reach,
            learning,
        })
    }

    /// Returns the word that is its argument. `None` if it has none, or the text of a variable.
    pub fn word(&self) -> Option<&str> {
        match &self.argument {
            RowArgument::Word(word) => Some(word),
            RowArgument::Nothing | RowArgument::Variable(_) => None,
        }
    }

    /// Returns the variable whose text is its argument. `None` if it has none, or a word.
    pub fn variable(&self) -> Option<MendVariable> {
        match &self.argument {
            RowArgument::Variable(variable) => Some(*variable),
            RowArgument::Nothing | RowArgument::Word(_) => None,
        }
    }

    /// Returns the demand of a refusal that this row has matched. `None` if it lacks the argument.
    pub(super) fn demand(&self, row: &str, slots: &MatchedTexts) -> Option<Demand> {
        let word = match &self.argument {
            RowArgument::Nothing => None,
            RowArgument::Word(word) => Some(word.clone()),
            RowArgument::Variable(MendVariable::Member) => Some(slots.member.clone()?),
            RowArgument::Variable(MendVariable::Name) => Some(slots.name.clone()?),
            RowArgument::Variable(MendVariable::Number) => Some(slots.numbers.first()?.to_string().into()),
        };
        Some(Demand {
            row: row.into(),
            kind: self.kind,
            word,
            place: slots.place.clone(),
            name: slots.name.clone(),
            numbers: slots.numbers.clone(),
            reach: self.reach,
            learning: self.learning,
        })
    }
}

/// The texts that the variables of a pattern have matched, apart from ids. Of several places the first counts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct MatchedTexts {
    pub(super) place: Option<Box<str>>,
    pub(super) member: Option<Box<str>>,
    pub(super) name: Option<Box<str>>,
    /// At most 8, with those of tokens.
    pub(super) numbers: Vec<u64>,
    pub(super) tokens: TokenCounts,
}

/// A demand of a server, as its refusal says it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Demand {
    /// The name of the row that has matched.
    pub row: Box<str>,
    /// The change that meets it.
    pub kind: MendKind,
    /// The argument of the mend: a type, a role, a member, or a number in decimal digits. `None` if it has none.
    pub word: Option<Box<str>>,
    /// The place in the body, as the provider counts it: `messages.3.content.0`. Providers count after their own
    /// translation, so that it is a hint. `None` if the text names none.
    pub place: Option<Box<str>>,
    /// The name that the text quotes: of a tool, or of a parameter. `None` if it quotes none.
    pub name: Option<Box<str>>,
    /// The numbers of the text, in its order.
    pub numbers: Vec<u64>,
    /// The places at which the mend acts.
    pub reach: MendReach,
    /// The lifetime of what it teaches.
    pub learning: Learning,
}
