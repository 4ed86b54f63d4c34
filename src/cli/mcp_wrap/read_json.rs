//! The servers in a file of JSON, with or without comments.

use std::time::Duration;

use serde_json::Value;

use super::{
    client_files::{ANY_KEY, ClientFile},
    json_comments::blank_comments,
    server_entry::{CommandMembers, EntryTimeout, Launch, LaunchFault, MemberKey, ServerEntry, TextToken, TokenList},
};
use crate::{
    cli::input::describe_fault,
    splice::Span,
    wire::json::{Json, JsonKind, Member, validate},
};

/// The members with which entries name a server elsewhere.
const URL_KEYS: [&str; 3] = ["url", "httpUrl", "serverUrl"];

/// The longest time that `antiphon mcp --client-timeout` takes: 7 days.
const LONGEST_MILLIS: u64 = 7 * 24 * 60 * 60 * 1000;

/// Text of a file, as plain JSON of the same length.
#[derive(Debug)]
pub(super) struct JsonText {
    plain: Vec<u8>,
}

impl JsonText {
    /// Reads the text. The error names the fault and its place.
    pub(super) fn read(text: &str) -> Result<Self, String> {
        let plain = blank_comments(text.as_bytes());
        let root = Json::new(&plain).root_span();
        let is_object = root.is_ok_and(|root| Json::new(&plain).kind(root) == JsonKind::Object);
        if validate(&plain).is_err() {
            return Err(describe_fault(&plain));
        }
        if !is_object {
            return Err("it is JSON, but not an object".to_owned());
        }
        Ok(Self { plain })
    }

    /// Returns the servers of a kind of file, in their order. `None` if it has no place for them.
    pub(super) fn servers(&self, kind: &ClientFile) -> Result<Option<Vec<ServerEntry>>, String> {
        let json = Json::new(&self.plain);
        let mut lists = Vec::new();
        for way in kind.ways {
            let Ok(root) = json.root_span() else { continue };
            find_objects(json, root, way, None, &mut lists)?;
        }
        if lists.is_empty() {
            return Ok(None);
        }
        let mut servers = Vec::new();
        for (project, list) in lists {
            let mut members = Vec::new();
            let walked = json.for_each_member_span(list, |member| members.push(member));
            walked.map_err(|unreadable| unreadable.to_string())?;
            let mut of_list: Vec<ServerEntry> = Vec::new();
            for member in members {
                let entry = read_entry(json, member, project.clone(), kind);
                // Of a repeated name the last one counts for clients.
                of_list.retain(|other| other.name != entry.name);
                of_list.push(entry);
            }
            servers.extend(of_list);
        }
        Ok(Some(servers))
    }
}

/// Finds the objects at the end of a way, with the key that stood for any on it.
fn find_objects(
    json: Json<'_>,
    from: Span,
    way: &[&str],
    project: Option<String>,
    found: &mut Vec<(Option<String>, Span)>,
) -> Result<(), String> {
    let Some((key, rest)) = way.split_first() else {
        found.push((project, from));
        return Ok(());
    };
    let mut next = Vec::new();
    if *key == ANY_KEY {
        let walked = json.for_each_member(from, |key, value| {
            next.push((Some(String::from_utf8_lossy(key).into_owned()), value));
        });
        walked.map_err(|unreadable| unreadable.to_string())?;
    } else {
        next.extend(json.member(from, key).map(|value| (project, value)));
    }
    for (project, value) in next {
        if json.kind(value) != JsonKind::Object {
            // An entry of another kind beside projects concerns nobody here.
            if *key == ANY_KEY {
                continue;
            }
            return Err(format!("its member {key:?} is not an object"));
        }
        find_objects(json, value, rest, project, found)?;
    }
    Ok(())
}

fn read_entry(json: Json<'_>, member: Member, project: Option<String>, kind: &ClientFile) -> ServerEntry {
    ServerEntry {
        name: read_text(json, member.key),
        project,
        launch: read_launch(json, member.value),
        timeout: read_timeout(json, member.value, kind),
    }
}

fn read_text(json: Json<'_>, span: Span) -> String {
    String::from_utf8_lossy(&json.decode_string(span)).into_owned()
}

fn read_launch(json: Json<'_>, entry: Span) -> Result<Launch, LaunchFault> {
    if json.kind(entry) != JsonKind::Object {
        return Err(LaunchFault::NoObject);
    }
    if URL_KEYS.iter().any(|key| json.member(entry, key).is_some()) {
        return Err(LaunchFault::Remote);
    }
    let (mut command, mut args) = (None, None);
    let walked = json.for_each_member_span(entry, |member| match &*json.decode_string(member.key) {
        b"command" => command = Some(member),
        b"args" => args = Some(member),
        _ => {}
    });
    walked.map_err(|_| LaunchFault::NoObject)?;
    let Some(command) = command else {
        return Err(LaunchFault::NoCommand);
    };
    match json.kind(command.value) {
        JsonKind::Array => {
            let list = read_list(json, command.value).filter(|list| !list.items.is_empty());
            list.map(Launch::List).ok_or(LaunchFault::UnusableCommand)
        }
        JsonKind::String if !json.string_inside(command.value).is_empty() => {
            let args = match args {
                Some(args) => {
                    let list = read_list(json, args.value).ok_or(LaunchFault::UnusableArgs)?;
                    Some((key_of(args), list))
                }
                None => None,
            };
            Ok(Launch::Members(CommandMembers {
                key: key_of(command),
                command: read_token(json, command.value),
                args,
                is_by_lines: false,
            }))
        }
        _ => Err(LaunchFault::UnusableCommand),
    }
}

const fn key_of(member: Member) -> MemberKey {
    MemberKey {
        whole: member.key,
        last: member.key,
    }
}

fn read_token(json: Json<'_>, span: Span) -> TextToken {
    TextToken {
        span,
        text: read_text(json, span),
    }
}

/// Returns a list of strings. `None` if it is anything else.
fn read_list(json: Json<'_>, span: Span) -> Option<TokenList> {
    if json.kind(span) != JsonKind::Array {
        return None;
    }
    let items = json.elements(span).into_iter();
    let items = items.map(|item| json.only_string(item).map(|item| read_token(json, item)));
    Some(TokenList {
        span,
        items: items.collect::<Option<_>>()?,
    })
}

fn read_timeout(json: Json<'_>, entry: Span, kind: &ClientFile) -> EntryTimeout {
    let Some(key) = kind.timeout else {
        return EntryTimeout::Unset;
    };
    let Some(value) = json.member(entry, key.key) else {
        return EntryTimeout::Unset;
    };
    let number = serde_json::from_slice::<Value>(json.bytes(value));
    match number.ok().as_ref().and_then(Value::as_f64) {
        Some(units) => to_timeout(units, kind),
        None => EntryTimeout::Unreadable,
    }
}

/// Returns the time of so many units.
pub(super) fn to_timeout(units: f64, kind: &ClientFile) -> EntryTimeout {
    let Some(key) = kind.timeout else {
        return EntryTimeout::Unset;
    };
    let time = Duration::try_from_secs_f64(units * key.unit_secs);
    // Half a millisecond more, so that 4.1 s are not 4,099 ms.
    let rounded = time.ok().and_then(|time| time.checked_add(Duration::from_micros(500)));
    let millis = rounded.and_then(|time| u64::try_from(time.as_millis()).ok());
    match millis {
        None | Some(0) => EntryTimeout::Unreadable,
        // A time without an end is none, and the wrapper takes no longer one.
        Some(millis) if millis < key.least_millis || millis > LONGEST_MILLIS => EntryTimeout::Unset,
        Some(millis) => EntryTimeout::Millis(millis),
    }
}
