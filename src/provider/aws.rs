//! Region and service of AWS signatures, derived from the host of an Amazon endpoint.

/// First labels of the hosts, with the service name in signatures.
const SERVICES: &[(&str, &str)] = &[
    ("bedrock-runtime", "bedrock"),
    ("bedrock-runtime-fips", "bedrock"),
    ("bedrock-mantle", "bedrock-mantle"),
];

/// Returns the service name in signatures for this host (no port); `bedrock` for an unknown host.
pub fn aws_service(host: &str) -> &'static str {
    parse_host(host).map_or("bedrock", |(service, _)| service)
}

/// Returns the region in this host (no port); `None` if it names none. Accepts `bedrock-runtime.REGION.amazonaws.com`,
/// also after the label of a VPC endpoint.
pub fn aws_region(host: &str) -> Option<&str> {
    parse_host(host).map(|(_, region)| region)
}

fn parse_host(host: &str) -> Option<(&'static str, &str)> {
    let amazon = ["amazonaws.com", "amazonaws.com.cn", "api.aws"];
    // The dot keeps out hosts like `notamazonaws.com`.
    let bare = |host: &str, end: &str| host.strip_suffix(end).is_some_and(|rest| rest.ends_with('.'));
    if !amazon.iter().any(|end| bare(host, end)) {
        return None;
    }
    let mut labels = host.split('.');
    let service = labels.find_map(|label| SERVICES.iter().find(|(first, _)| *first == label))?;
    // The region is the label after the service.
    labels.next().map(|region| (service.1, region))
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
            ("bedrock-runtime.us-east-1.example.com", None, "bedrock"),
            ("bedrock-runtime.us-east-1.notamazonaws.com", None, "bedrock"),
            ("localhost", None, "bedrock"),
        ];
        for (host, region, service) in rows {
            assert_eq!((aws_region(host), aws_service(host)), (region, service), "{host}");
        }
    }
}
