//! The limit of connections of one client address.

use std::{
    net::{IpAddr, Ipv6Addr},
    str::FromStr,
    time::Duration,
};

use tokio::time::Instant;

use super::owner_limit::{OwnerLimit, OwnerPlace};
use crate::clock;

/// Shortest time between two log lines about refused connections.
const LOG_INTERVAL: Duration = Duration::from_secs(60);
/// Bits of an IPv6 address that name the network of one client, who may use all addresses of it.
const CLIENT_NETWORK_BITS: u32 = 64;

/// Bits in front of an IPv4 address that is written as IPv6: `::ffff:192.0.2.0`.
const MAPPED_BITS: u32 = u128::BITS - u32::BITS;

/// An address, or all addresses with the same first bits: `10.0.0.0/8`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressRange {
    first: IpAddr,
    bits: u32,
}

/// The error for a text that is no address and no range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AddressRangeParseError {
    /// No address, or more bits than an address has.
    #[error("expected an address, or a range such as 10.0.0.0/8")]
    Malformed,
    /// Something else than digits after the slash.
    #[error("expected digits alone after the slash, as in 10.0.0.0/8")]
    PrefixLength,
    /// An IPv4 address as IPv6, with a prefix that is no range of IPv4.
    #[error("expected an IPv4 range such as 192.0.2.0/24 for addresses that begin with ::ffff:")]
    Mapped,
}

impl AddressRange {
    /// Returns `true` if the range contains an address.
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.first, address.to_canonical()) {
            (IpAddr::V4(first), IpAddr::V4(address)) => {
                let shift = u32::BITS.saturating_sub(self.bits);
                first.to_bits().checked_shr(shift) == address.to_bits().checked_shr(shift)
            }
            (IpAddr::V6(first), IpAddr::V6(address)) => {
                let shift = u128::BITS.saturating_sub(self.bits);
                first.to_bits().checked_shr(shift) == address.to_bits().checked_shr(shift)
            }
            _ => false,
        }
    }
}

impl FromStr for AddressRange {
    type Err = AddressRangeParseError;

    fn from_str(text: &str) -> Result<Self, AddressRangeParseError> {
        let (first, bits) = text
            .split_once('/')
            .map_or((text, None), |(first, bits)| (first, Some(bits)));
        let written: IpAddr = first.parse().map_err(|_| AddressRangeParseError::Malformed)?;
        let bits_max = if written.is_ipv4() { u32::BITS } else { u128::BITS };
        let bits = match bits {
            Some(bits) => parse_bits(bits, bits_max)?,
            None => bits_max,
        };
        // Clients' addresses are compared as IPv4, so a range of mapped ones would contain none.
        let first = written.to_canonical();
        let bits = if first.is_ipv4() == written.is_ipv4() {
            bits
        } else {
            bits.checked_sub(MAPPED_BITS).ok_or(AddressRangeParseError::Mapped)?
        };
        Ok(Self { first, bits })
    }
}

/// Parses the length of a prefix.
fn parse_bits(text: &str, bits_max: u32) -> Result<u32, AddressRangeParseError> {
    // The parser of numbers also takes a sign.
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(AddressRangeParseError::PrefixLength);
    }
    let bits = text.parse().ok().filter(|bits| *bits <= bits_max);
    bits.ok_or(AddressRangeParseError::Malformed)
}

/// Returns the address by which a client is counted: for IPv6 that of its network.
pub fn client_network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let network = u128::MAX << (u128::BITS - CLIENT_NETWORK_BITS);
            Ipv6Addr::from_bits(address.to_bits() & network).into()
        }
        address @ IpAddr::V4(_) => address,
    }
}

/// The place of a connection among those of its address. `None` inside if the address has no limit.
#[derive(Debug)]
pub(super) struct AddressPlace(#[expect(dead_code, reason = "its drop frees the place")] Option<OwnerPlace<IpAddr>>);

/// The limit of connections of one address, for all addresses but loopback and trusted ones.
#[derive(Debug)]
pub(super) struct AddressLimit {
    places: OwnerLimit<IpAddr>,
    trusted: Vec<AddressRange>,
    // Refused since the last log line.
    refused: u64,
    last_logged: Option<Instant>,
}

impl AddressLimit {
    /// Creates a limit of `max` connections of one address. `trusted` addresses have none.
    pub(super) fn new(max: usize, trusted: Vec<AddressRange>) -> Self {
        Self {
            places: OwnerLimit::new(usize::MAX, max),
            trusted,
            refused: 0,
            last_logged: None,
        }
    }

    /// Takes a place for a connection from `address`. Returns `None` if the address has as many as it may.
    pub(super) fn take_place(&self, address: IpAddr) -> Option<AddressPlace> {
        let address = address.to_canonical();
        // Many clients share the address of a proxy. Those of this machine are the operator's own.
        if address.is_loopback() || self.trusted.iter().any(|range| range.contains(address)) {
            return Some(AddressPlace(None));
        }
        let place = self.places.take_place(client_network(address))?;
        Some(AddressPlace(Some(place)))
    }

    /// Records a refused connection. Returns the number of refused ones if it is time for a log line.
    pub(super) fn record_refusal(&mut self) -> Option<u64> {
        self.refused = self.refused.saturating_add(1);
        let now = clock::now();
        let is_due = self.last_logged.is_none_or(|logged| now - logged >= LOG_INTERVAL);
        is_due.then(|| {
            self.last_logged = Some(now);
            std::mem::take(&mut self.refused)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn a_range_contains_the_addresses_with_its_first_bits() {
        for (range, inside, outside) in [
            ("10.0.0.0/8", "10.255.1.2", "11.0.0.0"),
            ("192.168.1.7", "192.168.1.7", "192.168.1.8"),
            ("192.168.1.9/30", "192.168.1.11", "192.168.1.12"),
            ("0.0.0.0/0", "203.0.113.9", "2001:db8::1"),
            ("10.0.0.0/8", "::ffff:10.1.2.3", "::ffff:11.1.2.3"),
            ("::ffff:192.0.2.0/120", "192.0.2.9", "192.0.3.0"),
            ("::ffff:192.0.2.0/120", "::ffff:192.0.2.9", "2001:db8::1"),
            ("::ffff:192.0.2.7", "192.0.2.7", "192.0.2.8"),
            ("::ffff:0.0.0.0/96", "203.0.113.9", "2001:db8::1"),
            ("fd00::/8", "fdff::1", "fe00::1"),
            ("2001:db8::1", "2001:db8::1", "2001:db8::2"),
            ("::/0", "2001:db8::1", "10.0.0.1"),
        ] {
            let parsed: AddressRange = range.parse().unwrap();
            assert!(parsed.contains(address(inside)), "{range} {inside}");
            assert!(!parsed.contains(address(outside)), "{range} {outside}");
        }
        for (bad, error) in [
            ("", AddressRangeParseError::Malformed),
            ("10.0.0.0/33", AddressRangeParseError::Malformed),
            ("10.0.0.0/99999999999", AddressRangeParseError::Malformed),
            ("::/129", AddressRangeParseError::Malformed),
            ("localhost", AddressRangeParseError::Malformed),
            ("10.0.0/8", AddressRangeParseError::Malformed),
            ("10.0.0.0/", AddressRangeParseError::PrefixLength),
            ("10.0.0.0/-1", AddressRangeParseError::PrefixLength),
            ("10.0.0.0/+8", AddressRangeParseError::PrefixLength),
            ("fd00::/+8", AddressRangeParseError::PrefixLength),
            ("10.0.0.0/8/8", AddressRangeParseError::PrefixLength),
            ("::ffff:192.0.2.0/95", AddressRangeParseError::Mapped),
            ("::ffff:192.0.2.0/24", AddressRangeParseError::Mapped),
        ] {
            assert_eq!(bad.parse::<AddressRange>(), Err(error), "{bad:?}");
        }
    }

    #[test]
    fn each_address_has_its_own_limit_and_gets_its_places_back() {
        let limit = AddressLimit::new(2, vec!["10.0.0.0/8".parse().unwrap()]);
        let mut places: Vec<_> = (0..2)
            .map(|_| limit.take_place(address("203.0.113.9")).unwrap())
            .collect();
        assert!(limit.take_place(address("203.0.113.9")).is_none());
        assert!(
            limit.take_place(address("::ffff:203.0.113.9")).is_none(),
            "the same address in IPv6"
        );
        assert!(limit.take_place(address("203.0.113.10")).is_some());
        places.pop();
        let _place = limit.take_place(address("203.0.113.9")).unwrap();
        assert!(limit.take_place(address("203.0.113.9")).is_none());
        // All addresses of one network are one client.
        let _networks = ["2001:db8:0:1::1", "2001:db8:0:1::2"].map(|text| limit.take_place(address(text)).unwrap());
        assert!(limit.take_place(address("2001:db8:0:1:ffff::3")).is_none());
        assert!(limit.take_place(address("2001:db8:0:2::1")).is_some());
    }

    #[test]
    fn loopback_and_trusted_addresses_have_no_limit() {
        let limit = AddressLimit::new(1, vec!["10.0.0.0/8".parse().unwrap()]);
        for text in ["127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1", "10.1.2.3"] {
            let places: Vec<_> = (0..5).map(|_| limit.take_place(address(text))).collect();
            assert!(places.iter().all(Option::is_some), "{text}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn refusals_are_logged_once_a_minute() {
        let mut limit = AddressLimit::new(1, Vec::new());
        assert_eq!(limit.record_refusal(), Some(1));
        for _ in 0..100 {
            assert_eq!(limit.record_refusal(), None);
        }
        tokio::time::advance(LOG_INTERVAL).await;
        assert_eq!(limit.record_refusal(), Some(101));
    }
}
