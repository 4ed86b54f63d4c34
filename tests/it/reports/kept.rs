//! The judge of what is kept can fail: mangled bodies that it must refuse.

use serde::Deserialize;
use strict_provider::kept::{KeptRules, judge_kept};

use crate::support::judge;

const FILE: &str = include_str!("../../reports/mangled.toml");

/// A body that is not what its client wrote.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Mangled {
    name: String,
    wire: String,
    #[serde(default)]
    may_lose: Vec<String>,
    #[serde(default)]
    must_keep: Vec<String>,
    client: String,
    sent: String,
    /// The beginning of the judge's complaint. None if the body is right.
    fault: Option<String>,
}

#[derive(Debug, Deserialize)]
struct MangledBodies {
    mangled: Vec<Mangled>,
}

#[test]
fn mangled_bodies_are_found() {
    let MangledBodies { mangled } = toml::from_str(FILE).unwrap();
    assert!(mangled.len() >= 12, "{}", mangled.len());
    for body in mangled {
        let rules = KeptRules {
            may_lose: body.may_lose,
            must_keep: body.must_keep,
            ..KeptRules::default()
        };
        let (format, _) = judge::reading(body.wire.parse().unwrap());
        let found = judge_kept(format, body.client.as_bytes(), body.sent.as_bytes(), &rules);
        match body.fault {
            None => assert_eq!(found, Ok(()), "{}", body.name),
            Some(fault) => {
                let found = found.expect_err(&body.name);
                assert!(found.starts_with(&fault), "{}: {found}", body.name);
            }
        }
    }
}
