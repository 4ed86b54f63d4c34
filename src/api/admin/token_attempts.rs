//! Wrong tokens by client address: after ten in a minute, further attempts are refused for the rest of that minute.

use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

use crate::{auth::TokenHash, clock, server::client_network};

/// Time over which the attempts of an address are counted.
const WINDOW: Duration = Duration::from_secs(60);
/// Wrong tokens of one address in a window.
const WRONG_MAX: usize = 10;
/// Addresses that are counted. With more, the oldest is forgotten.
const ADDRESSES_MAX: usize = 1024;

/// The result of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TokenAttempt {
    /// The token is right.
    Right,
    /// The token is wrong.
    Wrong,
    /// The address must wait for this long.
    TooMany(Duration),
}

/// Wrong tokens of all addresses. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(super) struct TokenAttempts(Arc<Mutex<HashMap<IpAddr, WrongTokens>>>);

/// The wrong tokens of one address, since its first in a window.
#[derive(Debug)]
struct WrongTokens {
    began: Instant,
    attempts: usize,
    /// Different tokens, at most [`WRONG_MAX`].
    tokens: Vec<TokenHash>,
}

impl TokenAttempts {
    /// Compares a token with the right one. `None` as address if it is not known.
    ///
    /// After ten different wrong tokens, the right one has to wait too: otherwise a guess would still be worth a try. One
    /// wrong token that is sent again and again is no guess, so it delays only itself: a stale token of one program must
    /// not lock out an operator at the same address.
    pub(super) fn judge_token(&self, address: Option<IpAddr>, given: TokenHash, right: &TokenHash) -> TokenAttempt {
        let address = client_network(address.unwrap_or(IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED)));
        let now = clock::now();
        let mut addresses = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let wrong = addresses.get(&address).filter(|wrong| wrong.time_left(now).is_some());
        if let Some(wrong) = wrong
            && wrong.tokens.len() >= WRONG_MAX
        {
            return TokenAttempt::TooMany(wrong.time_left(now).unwrap_or_default());
        }
        // `matches` takes constant time, so that timing reveals nothing about the token.
        if given.matches(right) {
            return TokenAttempt::Right;
        }
        if wrong.is_none() {
            make_room(&mut addresses, now);
            addresses.insert(address, WrongTokens::new(now));
        }
        let Some(wrong) = addresses.get_mut(&address) else {
            return TokenAttempt::Wrong;
        };
        wrong.record(given);
        match wrong.time_left(now) {
            Some(left) if wrong.attempts > WRONG_MAX => TokenAttempt::TooMany(left),
            _ => TokenAttempt::Wrong,
        }
    }
}

impl WrongTokens {
    const fn new(began: Instant) -> Self {
        Self {
            began,
            attempts: 0,
            tokens: Vec::new(),
        }
    }

    /// Returns the rest of the window; `None` if it is over.
    fn time_left(&self, now: Instant) -> Option<Duration> {
        let left = WINDOW.saturating_sub(now.duration_since(self.began));
        (!left.is_zero()).then_some(left)
    }

    fn record(&mut self, token: TokenHash) {
        self.attempts = self.attempts.saturating_add(1);
        if !self.tokens.iter().any(|known| known.matches(&token)) {
            self.tokens.push(token);
        }
    }
}

/// Forgets addresses whose window is over if the table is full, and else the oldest.
fn make_room(addresses: &mut HashMap<IpAddr, WrongTokens>, now: Instant) {
    if addresses.len() < ADDRESSES_MAX {
        return;
    }
    addresses.retain(|_, wrong| wrong.time_left(now).is_some());
    if addresses.len() >= ADDRESSES_MAX {
        let oldest = addresses.iter().min_by_key(|(_, wrong)| wrong.began);
        if let Some(oldest) = oldest.map(|(address, _)| *address) {
            addresses.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_table_of_addresses_is_bounded() {
        let attempts = TokenAttempts::default();
        let (wrong, right) = (TokenHash::hash_token(b"wrong"), TokenHash::hash_token(b"right"));
        let size = || attempts.0.lock().unwrap().len();
        for number in 0..3 * u32::try_from(ADDRESSES_MAX).unwrap() {
            let address = IpAddr::from(number.to_be_bytes());
            assert_eq!(attempts.judge_token(Some(address), wrong, &right), TokenAttempt::Wrong);
            tokio::time::advance(Duration::from_millis(1)).await;
            assert!(size() <= ADDRESSES_MAX);
        }
        assert_eq!(size(), ADDRESSES_MAX);
        tokio::time::advance(WINDOW).await;
        attempts.judge_token(None, wrong, &right);
        assert_eq!(size(), 1, "windows that are over are removed together");
    }

    #[tokio::test(start_paused = true)]
    async fn the_addresses_of_one_ipv6_network_count_together() {
        let attempts = TokenAttempts::default();
        let right = TokenHash::hash_token(b"right");
        for number in 0..=WRONG_MAX {
            let address = format!("2001:db8::{number}").parse().unwrap();
            let given = TokenHash::hash_token(number.to_string().as_bytes());
            let judged = attempts.judge_token(Some(address), given, &right);
            let is_refused = matches!(judged, TokenAttempt::TooMany(_));
            assert_eq!(is_refused, number == WRONG_MAX, "{number}: {judged:?}");
        }
        let other = "2001:db8:0:1::1".parse().unwrap();
        assert_eq!(attempts.judge_token(Some(other), right, &right), TokenAttempt::Right);
    }
}
