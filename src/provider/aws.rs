//! Region and service of AWS signatures, derived from the host of an Amazon endpoint.

/// First labels of the hosts, with the service name in signatures.
const SERVICES: &[(&str, &str)] = &[
    ("bedrock-runtime", "bedrock"),
    ("bedrock-runtime-fips", "bedrock"),
    ("bedrock-mantle", "bedrock-mantle"),
];

/// Domains of Amazon's endpoints. `api.aws` serves IPv6 too.
const DOMAINS: &[&str] = &["amazonaws.com", "amazonaws.com.cn", "amazonaws.eu", "api.aws"];

/// Returns the service name in signatures for this host (no port); `bedrock` for an unknown host.
pub fn aws_service(host: &str) -> &'static str {
    parse_host(host).map_or("bedrock", |(service, _)| service)
}

/// Returns the region in this host (no port); `None` if it names none. Accepts `bedrock-runtime.REGION.amazonaws.com`,
/// also after the label of a VPC endpoint.
pub fn aws_region(host: &str) -> Option<&str> {
    parse_host(host).map(|(_, region)| region)
}

/// Splits a host into service and region: `SERVICE.REGION.DOMAIN`, or `vpce-ID.SERVICE.REGION.vpce.DOMAIN`.
fn parse_host(host: &str) -> Option<(&'static str, &str)> {
    // The dot keeps out hosts like `notamazonaws.com`.
    let labels = |domain: &&str| host.strip_suffix(domain)?.strip_suffix('.');
    let labels: Vec<&str> = DOMAINS.iter().find_map(labels)?.split('.').collect();
    let (service, region) = match labels[..] {
        [service, region] => (service, region),
        [endpoint, service, region, "vpce"] if endpoint.starts_with("vpce-") => (service, region),
        _ => return None,
    };
    let (_, service) = SERVICES.iter().find(|(first, _)| *first == service)?;
    is_region(region).then_some((*service, region))
}

/// Returns `true` for a label with the form of a region, such as `us-gov-west-1`.
///
/// Anyone may own `bedrock-runtime.s3.amazonaws.com` and `bedrock-runtime.s3-us-west-2.amazonaws.com`, which are
/// buckets.
fn is_region(label: &str) -> bool {
    let pieces: Vec<&str> = label.split('-').collect();
    let are_all = |piece: &str, is_wanted: fn(&u8) -> bool| !piece.is_empty() && piece.as_bytes().iter().all(is_wanted);
    match pieces.as_slice() {
        [area, places @ .., number] => {
            (2..=4).contains(&area.len())
                && are_all(area, u8::is_ascii_lowercase)
                && !places.is_empty()
                && places.iter().all(|place| are_all(place, u8::is_ascii_lowercase))
                && are_all(number, u8::is_ascii_digit)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_tells_region_and_service() {
        let rows = [
            ("bedrock-runtime.us-east-1.amazonaws.com", Some("us-east-1"), "bedrock"),
            (
                "bedrock-runtime-fips.us-gov-west-1.amazonaws.com",
                Some("us-gov-west-1"),
                "bedrock",
            ),
            (
                "bedrock-runtime.cn-north-1.amazonaws.com.cn",
                Some("cn-north-1"),
                "bedrock",
            ),
            (
                "vpce-1.bedrock-runtime.eu-west-1.vpce.amazonaws.com",
                Some("eu-west-1"),
                "bedrock",
            ),
            ("bedrock-mantle.eu-west-1.api.aws", Some("eu-west-1"), "bedrock-mantle"),
            ("bedrock-runtime.us-east-1.api.aws", Some("us-east-1"), "bedrock"),
            (
                "bedrock-runtime.eusc-de-east-1.amazonaws.eu",
                Some("eusc-de-east-1"),
                "bedrock",
            ),
            (
                "vpce-1.bedrock-mantle.us-east-1.vpce.amazonaws.com",
                Some("us-east-1"),
                "bedrock-mantle",
            ),
            (
                "bedrock-runtime.us-iso-east-1.amazonaws.com",
                Some("us-iso-east-1"),
                "bedrock",
            ),
            (
                "bedrock-runtime.ap-southeast-2.amazonaws.com",
                Some("ap-southeast-2"),
                "bedrock",
            ),
            (
                "bedrock-runtime.il-central-1.amazonaws.com",
                Some("il-central-1"),
                "bedrock",
            ),
            (
                "bedrock-runtime.mx-central-1.amazonaws.com",
                Some("mx-central-1"),
                "bedrock",
            ),
            ("bedrock-runtime.s3.amazonaws.com", None, "bedrock"),
            ("bedrock-runtime.s3-us-west-2.amazonaws.com", None, "bedrock"),
            ("bedrock-mantle.s3-website-us-east-1.amazonaws.com", None, "bedrock"),
            ("bedrock-runtime.us--1.amazonaws.com", None, "bedrock"),
            ("bedrock-runtime.us-east.amazonaws.com", None, "bedrock"),
            ("x.bedrock-runtime.us-east-1.vpce.amazonaws.com", None, "bedrock"),
            ("bedrock-runtime.us-east-1.example.com", None, "bedrock"),
            ("bedrock-runtime.us-east-1.notamazonaws.com", None, "bedrock"),
            ("localhost", None, "bedrock"),
        ];
        for (host, region, service) in rows {
            assert_eq!((aws_region(host), aws_service(host)), (region, service), "{host}");
        }
    }
}
