//! Legibility limits that may only become stricter. `tests/house/measure.py` prints each figure and its places.

use std::collections::{BTreeMap, BTreeSet};

use super::architecture::{Source, sources};

/// Type names that every module may define.
const SHARED_NAMES: [&str; 3] = ["Error", "Args", "Settings"];
/// Largest number of other type names that are defined more than once.
const REPEATED_NAMES_MAX: usize = 5;
/// Largest share of doc comments that open with a question word, in percent.
const QUESTIONS_MAX_PERCENT: usize = 1;
/// Largest share of functions with one-word names, in percent.
const ONE_WORD_MAX_PERCENT: usize = 25;
/// Fewest plain comments per 100 lines of code, in rooms whose steps need reasons.
const REASONS_MIN: usize = 3;
/// Rooms whose steps need reasons.
const REASONED: [&str; 3] = [
    "src/proxy/",
    "crates/core/src/repair/",
    "crates/core/src/conversation/pairing/",
];

const QUESTION_WORDS: [&str; 13] = [
    "What", "Who", "Whose", "Which", "Whom", "Whether", "Where", "When", "How", "Why", "Of", "As", "None",
];

#[test]
fn type_names_are_unique() {
    let mut homes: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for source in sources() {
        for name in defined_types(&source) {
            homes.entry(name).or_default().push(source.path.clone());
        }
    }
    homes.retain(|name, places| places.len() > 1 && !SHARED_NAMES.contains(&name.as_str()));
    assert!(
        homes.len() <= REPEATED_NAMES_MAX,
        "{} names stand for more than one type, {REPEATED_NAMES_MAX} may: {homes:#?}",
        homes.len()
    );
}

#[test]
fn methods_are_in_the_folder_of_their_type() {
    let all = sources();
    let mut homes: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for source in &all {
        for name in defined_types(source) {
            homes.entry(name).or_default().insert(source.path.clone());
        }
    }
    for source in &all {
        for name in source.code.lines().filter_map(inherent_impl) {
            let is_home = |home: &String| source.path == *home || source.path.starts_with(&folder_of(home));
            assert!(
                homes.get(&name).is_none_or(|places| places.iter().any(is_home)),
                "{} has an impl of {name}, which is defined outside of its folder",
                source.path
            );
        }
    }
}

/// Returns the folder of a file's types: the one that contains it, or its own for a file directly in a `src`.
fn folder_of(path: &str) -> String {
    let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
    if folder.ends_with("src") {
        format!("{}/", path.trim_end_matches(".rs"))
    } else {
        format!("{folder}/")
    }
}

#[test]
fn doc_comments_open_with_a_verb_or_a_noun() {
    let (mut all, mut asked) = (0, Vec::new());
    for source in sources() {
        let mut is_first = true;
        let lines = source.text.lines().map(str::trim);
        for line in lines.take_while(|line| *line != "#[cfg(test)]") {
            let Some(doc) = line.strip_prefix("///") else {
                is_first = true;
                continue;
            };
            if std::mem::replace(&mut is_first, false) {
                all += 1;
                let word = doc.split_whitespace().next().unwrap_or_default();
                if QUESTION_WORDS.contains(&word.trim_end_matches(|letter: char| !letter.is_alphabetic())) {
                    asked.push(format!("{}: {doc}", source.path));
                }
            }
        }
    }
    assert!(
        asked.len() * 100 <= all * QUESTIONS_MAX_PERCENT,
        "{} of {all}: {asked:#?}",
        asked.len()
    );
}

#[test]
fn function_names_have_two_words() {
    let (mut all, mut short) = (0, 0);
    for source in sources() {
        for name in source.code.lines().filter_map(function_name) {
            all += 1;
            short += usize::from(!name.contains('_'));
        }
    }
    assert!(
        short * 100 <= all * ONE_WORD_MAX_PERCENT,
        "{short} of {all} functions have names of one word"
    );
}

#[test]
fn bodies_have_comments_with_reasons() {
    for room in REASONED {
        let (mut code, mut reasons) = (0, 0);
        for source in sources().iter().filter(|source| source.path.starts_with(room)) {
            let body = source.text.split("#[cfg(test)]").next().unwrap_or_default();
            let is_reason = |line: &str| line.starts_with("//") && !line.starts_with("///") && !line.starts_with("//!");
            let lines = body.lines().map(str::trim).filter(|line| !line.is_empty());
            code += lines.clone().filter(|line| !line.starts_with("//")).count();
            reasons += lines.filter(|line| is_reason(line)).count();
        }
        assert!(
            reasons * 100 >= code * REASONS_MIN,
            "{room}: {reasons} plain comments in {code} lines of code"
        );
    }
}

#[test]
fn no_folder_has_an_import_circle() {
    let all = sources();
    let modules: BTreeSet<String> = all.iter().map(|source| module_of(&source.path)).collect();
    // Imports between the modules of each folder.
    let mut folders: BTreeMap<String, BTreeMap<String, BTreeSet<String>>> = BTreeMap::new();
    for source in &all {
        let own = module_of(&source.path);
        let parts: Vec<&str> = own.split("::").filter(|part| !part.is_empty()).collect();
        for path in imported_paths(&source.code) {
            let path = resolve(&parts, &path);
            // An import of a nested module counts for each folder that both are in.
            for depth in 1..parts.len().min(path.len()) {
                if parts[..depth] != path[..depth] {
                    break;
                }
                let (name, other) = (parts[depth], path[depth].as_str());
                let folder = parts[..depth].join("::");
                if name != other && modules.contains(&format!("{folder}::{other}")) {
                    let uses = folders.entry(folder).or_default();
                    uses.entry(name.to_owned()).or_default().insert(other.to_owned());
                }
            }
        }
    }
    assert!(
        folders.get("repair").is_some_and(|uses| uses.contains_key("plan")),
        "the reader of imports sees nothing"
    );
    for (folder, uses) in &folders {
        for module in uses.keys() {
            assert!(
                !reaches(uses, module, module, &mut BTreeSet::new()),
                "{folder}: {module} imports itself in a circle"
            );
        }
    }
}

fn reaches(uses: &BTreeMap<String, BTreeSet<String>>, from: &str, to: &str, seen: &mut BTreeSet<String>) -> bool {
    uses.get(from).is_some_and(|modules| {
        modules
            .iter()
            .any(|module| module == to || (seen.insert(module.clone()) && reaches(uses, module, to, seen)))
    })
}

/// Skips `pub`, `pub(…)` and the keywords that may precede an item.
fn after_visibility(line: &str) -> &str {
    let mut rest = line.trim_start();
    if let Some(after) = rest.strip_prefix("pub") {
        rest = after
            .strip_prefix('(')
            .and_then(|after| after.split_once(')'))
            .map_or(after, |(_, rest)| rest);
        rest = rest.trim_start();
    }
    for word in ["const ", "async ", "unsafe "] {
        rest = rest.strip_prefix(word).unwrap_or(rest);
    }
    rest
}

fn identifier(text: &str) -> String {
    let letters = text.chars();
    letters
        .take_while(|letter| letter.is_alphanumeric() || *letter == '_')
        .collect()
}

fn function_name(line: &str) -> Option<String> {
    after_visibility(line).strip_prefix("fn ").map(identifier)
}

/// Returns the structs, enums, traits and aliases of a file. Associated types of a trait impl are left out.
fn defined_types(source: &Source) -> Vec<String> {
    let defined = |line: &str| {
        let rest = after_visibility(line);
        let is_nested = line.starts_with(' ') && rest.starts_with("type ");
        let kinds = ["struct ", "enum ", "trait ", "type ", "union "];
        let name = kinds.iter().find_map(|kind| rest.strip_prefix(kind)).map(identifier)?;
        (!is_nested && name.starts_with(|letter: char| letter.is_uppercase())).then_some(name)
    };
    source.code.lines().filter_map(defined).collect()
}

/// Returns the type of an inherent impl that begins the line.
fn inherent_impl(line: &str) -> Option<String> {
    let mut rest = line.strip_prefix("impl")?;
    if line.contains(" for ") {
        return None;
    }
    if rest.starts_with('<') {
        let mut depth = 0_i32;
        let end = rest.char_indices().find_map(|(at, letter)| {
            depth += match letter {
                '<' => 1,
                '>' => -1,
                _ => 0,
            };
            (depth == 0).then_some(at + 1)
        })?;
        rest = &rest[end..];
    }
    let path = rest.trim_start();
    let path: String = path
        .chars()
        .take_while(|letter| letter.is_alphanumeric() || "_:".contains(*letter))
        .collect();
    path.rsplit("::")
        .next()
        .map(ToOwned::to_owned)
        .filter(|name| !name.is_empty())
}

/// Returns the module path of a file: `src/a/b.rs` and `src/a/b/mod.rs` are both `a::b`.
fn module_of(path: &str) -> String {
    let (_, inner) = path.rsplit_once("src/").unwrap();
    let stem = inner.trim_end_matches(".rs");
    stem.trim_end_matches("/mod").replace('/', "::")
}

/// Returns every path in `use` trees, and every other path that begins with `crate`, `super` or `self`.
fn imported_paths(code: &str) -> Vec<Vec<String>> {
    let mut found = Vec::new();
    let mut rest = code;
    let mut others = String::new();
    while let Some(at) = rest.find("use ") {
        let is_word = rest[..at].chars().next_back().is_none_or(char::is_whitespace);
        others.push_str(&rest[..at]);
        rest = &rest[at + "use ".len()..];
        if is_word && let Some((tree, after)) = rest.split_once(';') {
            flatten(tree, &[], &mut found);
            rest = after;
        }
    }
    others.push_str(rest);
    for root in ["crate::", "super::", "self::"] {
        for (at, _) in others.match_indices(root) {
            let before = others[..at].chars().next_back();
            if before.is_some_and(|letter| letter.is_alphanumeric() || letter == '_' || letter == ':') {
                continue;
            }
            let path: String = others[at..]
                .chars()
                .take_while(|letter| letter.is_alphanumeric() || "_:".contains(*letter))
                .collect();
            found.push(
                path.split("::")
                    .filter(|part| !part.is_empty())
                    .map(ToOwned::to_owned)
                    .collect(),
            );
        }
    }
    found
}

/// Expands a use tree: `a::{b, c::d}` becomes `a::b` and `a::c::d`.
fn flatten(tree: &str, before: &[String], found: &mut Vec<Vec<String>>) {
    let (head, group) = match tree.split_once('{') {
        Some((head, group)) => (head, Some(group)),
        None => (tree, None),
    };
    let names = head
        .split("::")
        .map(|name| name.split(" as ").next().unwrap_or_default().trim());
    let path: Vec<String> = before
        .iter()
        .cloned()
        .chain(names.filter(|name| !name.is_empty()).map(ToOwned::to_owned))
        .collect();
    let Some(group) = group.and_then(|group| group.rsplit_once('}')) else {
        found.push(path);
        return;
    };
    let (mut depth, mut item) = (0_i32, String::new());
    for letter in group.0.chars().chain([',']) {
        match letter {
            ',' if depth == 0 => {
                let item = std::mem::take(&mut item);
                if !item.trim().is_empty() {
                    flatten(&item, &path, found);
                }
                continue;
            }
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        item.push(letter);
    }
}

/// Returns a path as seen from the crate root.
fn resolve(own: &[&str], path: &[String]) -> Vec<String> {
    let own = |ups: usize| own[..own.len().saturating_sub(ups)].iter().map(ToString::to_string);
    match path.first().map(String::as_str) {
        Some("crate") => path[1..].to_vec(),
        Some("self") => own(0).chain(path[1..].iter().cloned()).collect(),
        Some("super") => {
            let ups = path.iter().take_while(|name| *name == "super").count();
            own(ups).chain(path[ups..].iter().cloned()).collect()
        }
        _ => Vec::new(),
    }
}
