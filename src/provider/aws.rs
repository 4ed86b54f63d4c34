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
    // Anyone may own `bedrock-runtime.s3.amazonaws.com`, which is a bucket.
    let is_region = region.matches('-').count() >= 2;
    let (_, service) = SERVICES.iter().find(|(first, _)| *first == service && is_region)?;
    Some((service, region))
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
            ("bedrock-runtime.s3.amazonaws.com", None, "bedrock"),
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
