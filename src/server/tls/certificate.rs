//! Facts of a certificate that rustls does not tell: the end of its validity, and its names of every kind.
//!
//! Nothing here decides on trust: rustls has verified a client's certificate before its names are read.

use std::time::Duration;

use crate::auth::CertificateName;

/// Tags of DER elements.
const INTEGER: u8 = 0x02;
const OCTET_STRING: u8 = 0x04;
const OBJECT_ID: u8 = 0x06;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
const SEQUENCE: u8 = 0x30;
/// Tags of the optional parts of a certificate.
const VERSION: u8 = 0xa0;
const EXTENSIONS: u8 = 0xa3;
/// Tags of the kinds of names.
const EMAIL_NAME: u8 = 0x81;
const DNS_NAME: u8 = 0x82;
const URI_NAME: u8 = 0x86;
/// The id of the extension with the names: 2.5.29.17.
const SUBJECT_ALT_NAME: &[u8] = &[0x55, 0x1d, 0x11];

/// Reads the next DER element: its tag and its content. `None` if there is no whole one.
fn read_element<'d>(input: &mut &'d [u8]) -> Option<(u8, &'d [u8])> {
    let (&[tag, first], rest) = input.split_first_chunk::<2>()?;
    let (length, rest) = match first {
        0..=0x7f => (usize::from(first), rest),
        // A certificate is far below 16 MiB, so three bytes of length are enough.
        0x81..=0x83 => {
            let (digits, rest) = rest.split_at_checked(usize::from(first - 0x80))?;
            let length = digits.iter().fold(0, |sum, digit| sum << 8 | usize::from(*digit));
            (length, rest)
        }
        _ => return None,
    };
    let (content, rest) = rest.split_at_checked(length)?;
    *input = rest;
    Some((tag, content))
}

/// Reads the next element, which must have this tag.
fn read_tagged<'d>(input: &mut &'d [u8], wanted: u8) -> Option<&'d [u8]> {
    read_element(input).and_then(|(tag, content)| (tag == wanted).then_some(content))
}

/// Returns the part of a certificate that begins with its validity.
fn from_validity(mut certificate: &[u8]) -> Option<&[u8]> {
    let mut outer = read_tagged(&mut certificate, SEQUENCE)?;
    let mut signed = read_tagged(&mut outer, SEQUENCE)?;
    // A certificate of version 1 does not name its version.
    if signed.first() == Some(&VERSION) {
        read_tagged(&mut signed, VERSION)?;
    }
    let _serial = read_tagged(&mut signed, INTEGER)?;
    let _algorithm = read_tagged(&mut signed, SEQUENCE)?;
    let _issuer = read_tagged(&mut signed, SEQUENCE)?;
    Some(signed)
}

/// Returns the end of a certificate's validity, since 1970. `None` if it cannot be read.
pub(super) fn read_expiry(certificate: &[u8]) -> Option<Duration> {
    let mut signed = from_validity(certificate)?;
    let mut validity = read_tagged(&mut signed, SEQUENCE)?;
    let _begin = read_element(&mut validity)?;
    let (tag, text) = read_element(&mut validity)?;
    parse_time(tag, std::str::from_utf8(text).ok()?)
}

/// Parses a time of a certificate: `YYMMDDhhmmssZ` or `YYYYMMDDhhmmssZ`.
fn parse_time(tag: u8, text: &str) -> Option<Duration> {
    let (year, rest) = match tag {
        // RFC 5280: two digits from 50 mean the twentieth century.
        UTC_TIME => {
            let (year, rest) = text.split_at_checked(2)?;
            let century = if year < "50" { "20" } else { "19" };
            (format!("{century}{year}"), rest)
        }
        GENERALIZED_TIME => {
            let (year, rest) = text.split_at_checked(4)?;
            (year.to_owned(), rest)
        }
        _ => return None,
    };
    let digits = rest
        .strip_suffix('Z')
        .filter(|digits| digits.len() == 10 && digits.is_ascii())?;
    let pair = |at: usize| digits.get(at..at + 2);
    let (month, day, hour, minute, second) = (pair(0)?, pair(2)?, pair(4)?, pair(6)?, pair(8)?);
    let written = format!("{year}-{month}-{day}T{hour}:{minute}:{second}Z");
    let time = humantime::parse_rfc3339(&written).ok()?;
    time.duration_since(std::time::UNIX_EPOCH).ok()
}

/// Returns the names of a certificate. The work is bounded by its size, which rustls limits.
pub(super) fn read_names(certificate: &[u8]) -> Vec<CertificateName> {
    let names = find_names(certificate).unwrap_or_default();
    let mut names = names;
    let mut found = Vec::new();
    while let Some((kind, name)) = read_element(&mut names) {
        let Ok(name) = std::str::from_utf8(name) else { continue };
        found.extend(match kind {
            DNS_NAME => CertificateName::from_dns(name),
            URI_NAME => CertificateName::from_uri(name),
            EMAIL_NAME => CertificateName::from_email(name),
            _ => None,
        });
    }
    found
}

/// Returns the content of the extension with the names. `None` if there is none.
fn find_names(certificate: &[u8]) -> Option<&[u8]> {
    let mut signed = from_validity(certificate)?;
    let mut extensions = loop {
        let (tag, content) = read_element(&mut signed)?;
        if tag == EXTENSIONS {
            break content;
        }
    };
    let mut extensions = read_tagged(&mut extensions, SEQUENCE)?;
    loop {
        let mut extension = read_tagged(&mut extensions, SEQUENCE)?;
        if read_tagged(&mut extension, OBJECT_ID)? != SUBJECT_ALT_NAME {
            continue;
        }
        // The flag "critical" may stand before the value.
        loop {
            let (tag, mut value) = read_element(&mut extension)?;
            if tag == OCTET_STRING {
                return read_tagged(&mut value, SEQUENCE);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rcgen::{CertificateParams, KeyPair, SanType, date_time_ymd};

    use super::*;

    fn certificate(change: impl FnOnce(&mut CertificateParams)) -> Vec<u8> {
        let mut params = CertificateParams::default();
        change(&mut params);
        let key = KeyPair::generate().unwrap();
        params.self_signed(&key).unwrap().der().to_vec()
    }

    #[test]
    fn the_end_of_the_validity_is_read_in_both_forms() {
        for (year, wanted) in [
            (2031, 1_956_441_600),
            (2049, 2_524_521_600),
            (2050, 2_556_057_600),
            (2120, 4_765_046_400),
        ] {
            let der = certificate(|params| params.not_after = date_time_ymd(year, 12, 31));
            assert_eq!(read_expiry(&der), Some(Duration::from_secs(wanted)), "{year}");
        }
        assert_eq!(
            parse_time(UTC_TIME, "491231000000Z"),
            Some(Duration::from_secs(2_524_521_600))
        );
        for wrong in ["491331000000Z", "4912310000Z", "491231000000+", "", "é9123100000Z"] {
            assert_eq!(parse_time(UTC_TIME, wrong), None, "{wrong}");
        }
    }

    #[test]
    fn names_of_every_kind_are_read() {
        let der = certificate(|params| {
            params.subject_alt_names = vec![
                SanType::DnsName("CI.example.org".try_into().unwrap()),
                SanType::IpAddress([127, 0, 0, 1].into()),
                SanType::URI("spiffe://example.org/agent".try_into().unwrap()),
                SanType::Rfc822Name("ann@example.org".try_into().unwrap()),
            ];
        });
        let wanted = [
            CertificateName::from_dns("ci.example.org"),
            CertificateName::from_uri("spiffe://example.org/agent"),
            CertificateName::from_email("ann@example.org"),
        ];
        assert_eq!(read_names(&der), wanted.map(Option::unwrap));
        assert_eq!(read_names(&certificate(|_| {})), []);
    }

    proptest! {
        #[test]
        fn a_changed_certificate_is_read_without_a_panic(at in 0_usize..400, byte: u8, end in 0_usize..600) {
            let mut der = certificate(|params| {
                params.subject_alt_names = vec![SanType::DnsName("ci.example.org".try_into().unwrap())];
            });
            if let Some(place) = der.get_mut(at) {
                *place = byte;
            }
            der.truncate(end);
            drop((read_names(&der), read_expiry(&der)));
        }
    }
}
