//! Indices into the lists of a conversation and its pairing. Each list has a type of its own, so that indices cannot be
//! mixed up.

use std::ops::{Index, IndexMut, Range};

use crate::{
    conversation::{
        Part,
        pairing::{CallRow, ResultRow},
        turns::Turn,
    },
    work,
};

macro_rules! index_type {
    ($(#[$doc:meta])* $name:ident of $item:ty $(where $life:lifetime)?) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(usize);

        impl $name {
            /// Returns the index of the item at `index`, counted from 0.
            pub const fn new(index: usize) -> Self {
                Self(index)
            }

            /// Returns the position in the list, counted from 0.
            pub const fn index(self) -> usize {
                self.0
            }

            /// Returns the index of the next item.
            #[must_use]
            pub const fn next(self) -> Self {
                Self(self.0.saturating_add(1))
            }

            /// Returns the indices of a range of positions, in order.
            pub fn all(range: Range<usize>) -> impl DoubleEndedIterator<Item = Self> + ExactSizeIterator + Clone {
                range.map(|index| {
                    work::count(1);
                    Self(index)
                })
            }
        }

        impl$(<$life>)? Index<$name> for Vec<$item> {
            type Output = $item;

            fn index(&self, at: $name) -> &Self::Output {
                work::count(1);
                &self.as_slice()[at.0]
            }
        }

        impl$(<$life>)? IndexMut<$name> for Vec<$item> {
            fn index_mut(&mut self, at: $name) -> &mut Self::Output {
                work::count(1);
                &mut self.as_mut_slice()[at.0]
            }
        }
    };
}

index_type! {
    /// Index into [`Conversation::parts`](crate::conversation::Conversation::parts).
    PartId of Part<'a> where 'a
}
index_type! {
    /// Index into [`Pairing::turns`](crate::conversation::pairing::Pairing::turns).
    TurnId of Turn
}
index_type! {
    /// Index into [`Pairing::calls`](crate::conversation::pairing::Pairing::calls).
    CallRowId of CallRow
}
index_type! {
    /// Index into [`Pairing::results`](crate::conversation::pairing::Pairing::results).
    ResultRowId of ResultRow
}
