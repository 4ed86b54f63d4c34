//! The places of client tokens whose number of exchanges at the same time is limited.

use std::{collections::BTreeMap, sync::Arc};

use tokio::sync::Semaphore;

use crate::auth::ClientTokens;

/// The places of every client token whose exchanges are limited, by the token's name.
#[derive(Debug, Default)]
pub(super) struct ClientPlaces(BTreeMap<String, TokenPlaces>);

/// The places of one client token.
#[derive(Debug)]
pub(super) struct TokenPlaces {
    pub(super) max: usize,
    pub(super) free: Arc<Semaphore>,
}

impl ClientPlaces {
    /// Creates the places for these tokens. Places of `old` stay in use if their number has not changed.
    pub(super) fn for_tokens(tokens: &ClientTokens, old: &Self) -> Self {
        let places = |name: &String, max: usize| {
            let known = old.0.get(name).filter(|known| known.max == max);
            // A semaphore has an upper limit, which no number of connections reaches.
            let fresh = || Arc::new(Semaphore::new(max.min(Semaphore::MAX_PERMITS)));
            let free = known.map_or_else(fresh, |known| Arc::clone(&known.free));
            TokenPlaces { max, free }
        };
        let limited = tokens.limits().iter().filter_map(|(name, limits)| {
            let max = limits.max_concurrent?;
            Some((name.clone(), places(name, max)))
        });
        Self(limited.collect())
    }

    /// Returns the places of the token with this name; `None` if their number is not limited.
    pub(super) fn find_places(&self, name: &str) -> Option<&TokenPlaces> {
        self.0.get(name)
    }
}
