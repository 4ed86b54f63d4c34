//! Names under which nothing is published: no document may tell a reader to fetch them, since anybody could register them.

use std::{fs, path::Path};

/// The names, and where they are published.
const NAMES: &str = include_str!("../../../deploy/release/names.toml");

/// Key of a name, then the texts that fetch it or lead to it.
const FETCHES: &[(&str, &[&str])] = &[
    (
        "npm",
        &[
            "npx antiphon",
            "npm i antiphon",
            "npm install antiphon",
            "npm i -g antiphon",
            "npm install -g antiphon",
            "pnpm add antiphon",
            "yarn add antiphon",
            "bunx antiphon",
            "npmjs.com/package",
        ],
    ),
    (
        "pypi",
        &[
            "pip install antiphon",
            "pipx install antiphon",
            "pipx run antiphon",
            "uvx antiphon",
            "uv tool install antiphon",
            "uv add antiphon",
            "pypi.org/project/antiphon",
        ],
    ),
    (
        "crates",
        &[
            "cargo install antiphon",
            "cargo add antiphon",
            "cargo binstall antiphon",
            "crates.io/crates/antiphon",
            "docs.rs/antiphon",
        ],
    ),
    ("homebrew", &["brew install antiphon", "brew tap antiphon"]),
    (
        "image",
        &["docker pull", "podman pull", "ghcr.io/", "quay.io/", "docker.io/"],
    ),
    (
        "repository",
        &[
            "img.shields.io",
            "badge.svg",
            "github.com/antiphon",
            "/antiphon.git",
            "git clone http",
            "releases/latest",
        ],
    ),
    (
        "maintainer",
        &[
            "apt install antiphon",
            "apt-get install antiphon",
            "dnf install antiphon",
            "yay -S antiphon",
            "winget install",
            "scoop install",
            "choco install",
        ],
    ),
];

/// The documents: files, and folders with all that is in them.
const DOCUMENTS: [&str; 9] = [
    "README.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "Dockerfile",
    "Cargo.toml",
    "config.example.toml",
    "docs",
    "deploy",
];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Returns the text of each file below a path. Images have none.
fn read_texts(path: &Path, found: &mut Vec<(String, String)>) {
    if path.is_dir() {
        for entry in fs::read_dir(path).unwrap() {
            read_texts(&entry.unwrap().path(), found);
        }
    } else if let Ok(text) = fs::read_to_string(path) {
        let name = path.strip_prefix(root()).unwrap().display().to_string();
        found.push((name, text));
    }
}

fn documents() -> Vec<(String, String)> {
    let mut found = Vec::new();
    for document in DOCUMENTS {
        let path = root().join(document);
        assert!(path.exists(), "{document} is gone: adapt the list");
        read_texts(&path, &mut found);
    }
    found
}

/// Returns the texts of a document that fetch a name which nobody has published.
fn find_fetches(text: &str, names: &toml::Table) -> Vec<&'static str> {
    let is_empty = |key: &str| names[key].as_str().is_none_or(str::is_empty);
    let unpublished = FETCHES.iter().filter(|(key, _)| is_empty(key));
    // A line break or an option between the words changes nothing.
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let fetches = unpublished.flat_map(|(_, fetches)| *fetches);
    fetches.copied().filter(|fetch| text.contains(fetch)).collect()
}

#[test]
fn no_document_fetches_an_unpublished_name() {
    let names = NAMES.parse().unwrap();
    for (path, text) in documents() {
        let fetches = find_fetches(&text, &names);
        assert!(
            fetches.is_empty(),
            "{path}: {fetches:?} with an empty name in deploy/release/names.toml"
        );
    }
}

#[test]
fn a_fetch_is_found_exactly_while_its_name_is_empty() {
    let mut names: toml::Table = NAMES.parse().unwrap();
    for (key, fetches) in FETCHES {
        for fetch in *fetches {
            names.insert((*key).to_owned(), "".into());
            let text = format!("To begin:\n{}\n", fetch.replacen(' ', "\n  ", 1));
            assert_eq!(find_fetches(&text, &names), [*fetch]);
            names.insert((*key).to_owned(), "example".into());
            assert!(find_fetches(&text, &names).is_empty());
        }
    }
    for local in [
        "npm i ./antiphon-linux-x64-0.1.0.tgz",
        "pip install ./antiphon-0.1.0.whl",
        "apt install ./antiphon.deb",
    ] {
        names.insert("npm".to_owned(), "".into());
        assert!(find_fetches(local, &names).is_empty(), "{local}");
    }
}

#[test]
fn relative_links_lead_somewhere() {
    let texts = documents()
        .into_iter()
        .filter(|(path, _)| Path::new(path).extension().is_some_and(|end| end == "md"));
    for (path, text) in texts {
        let folder = root().join(&path).parent().unwrap().to_path_buf();
        for link in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let target = link.split(['#', ' ']).next().unwrap_or_default();
            let is_file = !target.is_empty() && !target.contains("://") && !target.starts_with("mailto:");
            assert!(!is_file || folder.join(target).exists(), "{path}: {link} leads nowhere");
        }
    }
}
