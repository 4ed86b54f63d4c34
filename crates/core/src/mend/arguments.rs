//! The arguments of mends in rows: which of them make sense. A row with any other would never change a body.

use super::{kinds, required_members};
use crate::wire::{MendKind, MendVariable, RowMend};

/// The fault of a mend's argument.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ArgumentFault {
    /// The mend takes none.
    #[error("{0} takes no argument")]
    Unneeded(&'static str),
    /// The mend needs one of these.
    #[error("{mend} needs an argument: {expected}")]
    Missing {
        /// The mend.
        mend: &'static str,
        /// The words and variables that may stand there.
        expected: String,
    },
    /// The mend does not know this word.
    #[error("{mend} does not take {word:?}: write {expected}")]
    Unknown {
        /// The mend.
        mend: &'static str,
        /// The word.
        word: String,
        /// The words and variables that may stand there.
        expected: String,
    },
    /// The format requires the member.
    #[error(
        "drop_member does not take {0:?} away: a format requires it, or it holds content or pairs calls and results"
    )]
    Required(String),
    /// The role is one that every server knows.
    #[error("rename_role does not rename {0:?}, which every server knows")]
    KnownRole(String),
}

/// The argument that a kind of mend takes.
#[derive(Clone, Copy, Debug)]
enum Taken {
    Nothing,
    /// Any word, or one of these variables.
    Any(&'static [MendVariable]),
    /// One of these words, or one of these variables.
    Words(&'static [&'static str], &'static [MendVariable]),
    /// A number, or a variable that is one.
    Number {
        is_needed: bool,
    },
}

/// Returns the argument that a kind takes.
const fn taken_by(kind: MendKind) -> Taken {
    use MendVariable::{Member, Name};
    match kind {
        MendKind::RenameRole | MendKind::DropMember => Taken::Any(&[Member, Name]),
        MendKind::DropBeta => Taken::Any(&[Name, Member]),
        MendKind::DropReasoning => Taken::Words(&kinds::REASONING_WORDS, &[]),
        MendKind::QuoteBlock => Taken::Words(&kinds::BLOCK_WORDS, &[]),
        MendKind::DropParameter => Taken::Words(&kinds::PARAMETERS, &[Member, Name]),
        MendKind::LimitMarkers => Taken::Number { is_needed: true },
        MendKind::LowerMaxTokens => Taken::Number { is_needed: false },
        MendKind::SystemFirst
        | MendKind::DropItemId
        | MendKind::MediaType
        | MendKind::LegalNames
        | MendKind::TextContent
        | MendKind::FillContent
        | MendKind::MergeNeighbours
        | MendKind::NameResults
        | MendKind::EndWithUser
        | MendKind::TrimEnd
        | MendKind::LoneSurrogates
        | MendKind::ThinkingOff => Taken::Nothing,
    }
}

impl Taken {
    /// Returns what may stand there, for people.
    fn expected(self) -> String {
        let variables = |list: &[MendVariable]| list.iter().map(|variable| format!("<{}>", variable.name())).collect();
        let words: Vec<String> = match self {
            Self::Nothing => Vec::new(),
            Self::Any(list) => [vec!["a word".to_owned()], variables(list)].concat(),
            Self::Words(words, list) => {
                [words.iter().map(|word| (*word).to_owned()).collect(), variables(list)].concat()
            }
            Self::Number { .. } => vec!["a number".to_owned(), "<number>".to_owned()],
        };
        words.join(" or ")
    }
}

/// Returns the arguments that a kind of mend takes, for people. Empty if it takes none.
pub fn arguments_of(kind: MendKind) -> String {
    taken_by(kind).expected()
}

/// Checks the argument of a row's mend.
pub fn check_argument(mend: &RowMend) -> Result<(), ArgumentFault> {
    let (name, taken) = (mend.kind.name(), taken_by(mend.kind));
    let expected = || taken.expected();
    let unknown = |word: &str| ArgumentFault::Unknown {
        mend: name,
        word: word.to_owned(),
        expected: expected(),
    };
    let fits = match (taken, mend.word(), mend.variable()) {
        (Taken::Nothing | Taken::Number { is_needed: false }, None, None) => true,
        (Taken::Nothing, _, _) => return Err(ArgumentFault::Unneeded(name)),
        (_, None, None) => {
            return Err(ArgumentFault::Missing {
                mend: name,
                expected: expected(),
            });
        }
        (Taken::Any(_), Some(word), _) => return check_word(mend.kind, word),
        (Taken::Words(words, _), Some(word), _) => words.contains(&word),
        (Taken::Number { .. }, Some(word), _) => word.parse::<u64>().is_ok(),
        (Taken::Any(list) | Taken::Words(_, list), None, Some(variable)) => list.contains(&variable),
        (Taken::Number { .. }, None, Some(variable)) => variable == MendVariable::Number,
    };
    if fits {
        return Ok(());
    }
    let variable = mend.variable().map(|variable| format!("<{}>", variable.name()));
    Err(unknown(mend.word().or(variable.as_deref()).unwrap_or_default()))
}

/// Checks a word that may be any but those that the mend never changes.
fn check_word(kind: MendKind, word: &str) -> Result<(), ArgumentFault> {
    if kind == MendKind::DropMember && required_members::is_required_everywhere(word) {
        return Err(ArgumentFault::Required(word.to_owned()));
    }
    if kind == MendKind::RenameRole && kinds::KNOWN_ROLES.contains(&word) {
        return Err(ArgumentFault::KnownRole(word.to_owned()));
    }
    Ok(())
}
