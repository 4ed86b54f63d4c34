//! The libraries of a release read and write as those of the tests do.

use std::process::Command;

/// Features of `serde_json` that only tests use. They change no number and no byte of a value.
const ONLY_IN_TESTS: &[&str] = &["indexmap", "preserve_order", "raw_value"];

/// A dependency of the tests can turn a feature on that a release lacks, so that the tests pass and the release fails.
#[test]
fn a_release_reads_numbers_as_the_tests_do() {
    let features = |edges: &str| -> Vec<String> {
        let tree = Command::new(env!("CARGO"))
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .args([
                "tree",
                "--locked",
                "--offline",
                "--prefix",
                "none",
                "--format",
                "{p} {f}",
            ])
            .args(["--package", "antiphon", "--edges", edges])
            .output()
            .unwrap();
        assert!(tree.status.success(), "{}", String::from_utf8_lossy(&tree.stderr));
        let lines = String::from_utf8(tree.stdout).unwrap();
        let line = lines.lines().find(|line| line.starts_with("serde_json v")).unwrap();
        let list = line.split(' ').nth(2).unwrap();
        list.split(',').map(str::to_owned).collect()
    };
    let of_release = features("normal");
    for feature in features("normal,dev") {
        assert!(
            of_release.contains(&feature) || ONLY_IN_TESTS.contains(&&*feature),
            "a release has no feature {feature} of serde_json, and the tests have it"
        );
    }
    assert!(of_release.iter().any(|feature| feature == "float_roundtrip"));
}
