//! Commands that do not read the base URL variables, or need more than them.
//!
//! In values, `{NAME}` stands for the base URL of the upstream NAME, and `$NAME` for the value of a variable. A value
//! applies only if all of them exist.

use std::{
    ffi::{OsStr, OsString},
    fs::{self, File},
    io::Read as _,
    path::Path,
};

/// Longest start of a client's settings file that is read, in bytes.
const SETTINGS_BYTES_MAX: u64 = 256 * 1024;

/// A command with the settings that it needs beyond the base URL variables.
#[derive(Debug)]
pub(super) struct KnownClient {
    /// Name of the program.
    pub(super) program: &'static str,
    /// Arguments directly after the program's name. The first list that applies is used.
    pub(super) arguments: &'static [&'static [&'static str]],
    /// Variables. For each name, the first row that applies is used.
    pub(super) variables: &'static [ClientVariable],
    /// Setting that only the user can make, since the command reads it from a file.
    pub(super) missing_setting: Option<&'static str>,
    /// Flag and value with which that setting is not missing.
    pub(super) unless_flag: Option<(&'static str, &'static str)>,
    /// Choice of the user without which that setting is missing. `None` if it always is.
    pub(super) choice: Option<FileChoice>,
    /// Text of an extension of pi, which it loads with `-e`.
    pub(super) extension: Option<&'static str>,
    /// First arguments of commands that ask no model, and that no other argument may precede.
    pub(super) local_commands: &'static [&'static str],
    /// Name of the upstream that another login needs, and advice for a run without a good answer.
    pub(super) other_login: Option<(&'static str, &'static str)>,
}

/// A variable of one command.
#[derive(Debug)]
pub(super) struct ClientVariable {
    pub(super) name: &'static str,
    pub(super) value: &'static str,
    /// Variables that must have these values. An empty value stands for any.
    pub(super) only_with: &'static [(&'static str, &'static str)],
    /// `true` if a value of the user is kept.
    pub(super) is_default: bool,
}

/// A choice that a command reads from a settings file.
#[derive(Debug)]
pub(super) struct FileChoice {
    /// Variable without which the command needs no choice.
    only_with: &'static str,
    /// Variables that name the folder, the first one first. The working folder counts too.
    folders: &'static [&'static str],
    /// Path of the file in the folder.
    path: &'static str,
    /// Key of the choice in the file.
    key: &'static str,
}

/// A command without special settings.
const NO_SETTINGS: KnownClient = KnownClient {
    program: "",
    arguments: &[],
    variables: &[],
    missing_setting: None,
    unless_flag: None,
    choice: None,
    extension: None,
    local_commands: &[],
    other_login: None,
};

/// Variable by which Copilot CLI is told to ask a model of the user's own provider.
const COPILOT_MODEL: (&str, &str) = ("COPILOT_MODEL", "");
/// Variable that makes Copilot CLI speak Anthropic's format.
const COPILOT_ANTHROPIC: (&str, &str) = ("COPILOT_PROVIDER_TYPE", "anthropic");

/// Commands that need more than the base URL variables.
const CLIENTS: [KnownClient; 9] = [
    KnownClient {
        program: "codex",
        // An upstream of this name means that the user has logged in with ChatGPT.
        arguments: &[
            &["-c", "openai_base_url=\"{chatgpt}\""],
            &["-c", "openai_base_url=\"{openai}\""],
        ],
        other_login: Some((
            "chatgpt",
            "with a ChatGPT login: antiphon run --upstream chatgpt=https://chatgpt.com/backend-api/codex -- codex",
        )),
        ..NO_SETTINGS
    },
    KnownClient {
        program: "copilot",
        variables: &[
            copilot("COPILOT_PROVIDER_BASE_URL", "{anthropic}", true),
            copilot("COPILOT_PROVIDER_BASE_URL", "{openai}", false),
            copilot("COPILOT_PROVIDER_API_KEY", "$ANTHROPIC_API_KEY", true),
            copilot("COPILOT_PROVIDER_API_KEY", "$OPENAI_API_KEY", false),
            copilot("COPILOT_PROVIDER_TYPE", "openai", false),
        ],
        missing_setting: Some(
            "copilot asks GitHub's own service unless COPILOT_MODEL names a model of yours: \
             COPILOT_MODEL=gpt-5.2 OPENAI_API_KEY=… antiphon run -- copilot",
        ),
        ..NO_SETTINGS
    },
    KnownClient {
        program: "gemini",
        // An upstream of this name means that the user has logged in with Google.
        variables: &[ClientVariable {
            name: "CODE_ASSIST_ENDPOINT",
            value: "{code-assist}",
            only_with: &[],
            is_default: false,
        }],
        // With any base URL it takes a login for a gateway that its own check refuses. No variable or flag chooses another.
        missing_setting: Some(
            "gemini refuses a base URL until a login is chosen: with GEMINI_API_KEY, write this to ~/.gemini/settings.json: \
             {\"security\":{\"auth\":{\"selectedType\":\"gemini-api-key\"}}}",
        ),
        choice: Some(FileChoice {
            only_with: "GEMINI_API_KEY",
            folders: &["GEMINI_CLI_HOME", "HOME", "USERPROFILE"],
            path: ".gemini/settings.json",
            key: "\"selectedType\"",
        }),
        other_login: Some((
            "code-assist",
            "with GEMINI_API_KEY, ~/.gemini/settings.json must choose it: \
             {\"security\":{\"auth\":{\"selectedType\":\"gemini-api-key\"}}}; with a Google login: \
             antiphon run --upstream code-assist=https://cloudcode-pa.googleapis.com -- gemini",
        )),
        ..NO_SETTINGS
    },
    KnownClient {
        program: "opencode",
        variables: &[ClientVariable {
            name: "OPENCODE_CONFIG_CONTENT",
            value: r#"{"provider":{"anthropic":{"options":{"baseURL":"{anthropic}/v1"}},"openai":{"options":{"baseURL":"{openai}"}},"google":{"options":{"baseURL":"{gemini}/v1beta"}}}}"#,
            only_with: &[],
            is_default: true,
        }],
        ..NO_SETTINGS
    },
    KnownClient {
        program: "pi",
        extension: Some(
            r#"export default function (pi) {
  pi.registerProvider("anthropic", { baseUrl: "{anthropic}" });
  pi.registerProvider("openai", { baseUrl: "{openai}" });
  pi.registerProvider("google", { baseUrl: "{gemini}/v1beta" });
}
"#,
        ),
        local_commands: &["install", "uninstall", "remove", "update", "list", "config"],
        ..NO_SETTINGS
    },
    from_file(
        "cline",
        "cline reads no variable: cline auth openai-native -k KEY -m MODEL -b {openai}",
    ),
    from_file(
        "cn",
        "cn (Continue) reads no variable: put apiBase: {anthropic}/v1/ beside the model in ~/.continue/config.yaml",
    ),
    KnownClient {
        unless_flag: Some(("--provider", "openai-api")),
        ..from_file(
            "hermes",
            "hermes reads the variables only with --provider openai-api. Without it, put provider: openai-api and \
             base_url: {openai} under model: in ~/.hermes/config.yaml",
        )
    },
    from_file(
        "openclaw",
        "openclaw reads no variable: put \"baseUrl\": \"{anthropic}\" and \"api\": \"anthropic-messages\" under \
         models.providers.anthropic in ~/.openclaw/openclaw.json",
    ),
];

/// Returns a variable of Copilot CLI. It is set only if the user names a model, since others use GitHub's service.
const fn copilot(name: &'static str, value: &'static str, is_anthropic: bool) -> ClientVariable {
    ClientVariable {
        name,
        value,
        only_with: if is_anthropic {
            &[COPILOT_MODEL, COPILOT_ANTHROPIC]
        } else {
            &[COPILOT_MODEL]
        },
        is_default: true,
    }
}

/// Returns a command that reads its base URL from a file only.
const fn from_file(program: &'static str, missing_setting: &'static str) -> KnownClient {
    KnownClient {
        program,
        missing_setting: Some(missing_setting),
        ..NO_SETTINGS
    }
}

/// The settings of one run of a command.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct AppliedSettings {
    /// Arguments directly after the program's name.
    pub(super) arguments: Vec<String>,
    pub(super) variables: Vec<(String, String)>,
    /// Setting that only the user can make. `None` if the command can be pointed at the proxy.
    pub(super) missing_setting: Option<String>,
    /// `true` if that setting has an address of the proxy, which must then outlive the command.
    pub(super) needs_lasting_proxy: bool,
    /// Text of an extension that the command loads with `-e`.
    pub(super) extension: Option<String>,
    /// Advice for another login, whose upstream is not configured.
    pub(super) login_advice: Option<&'static str>,
}

impl AppliedSettings {
    /// Returns `true` if the command gets nothing but the base URL variables.
    pub(super) fn is_empty(&self) -> bool {
        self.arguments.is_empty() && self.variables.is_empty() && self.extension.is_none()
    }
}

/// Returns the settings for a command with its arguments. `urls` are the base URLs by upstream, and `lasting_urls` those
/// of the configured address, for settings that stay in a file.
pub(super) fn settings_for(
    command: &[OsString],
    urls: &[(String, String)],
    lasting_urls: &[(String, String)],
    variable: &dyn Fn(&str) -> Option<String>,
) -> AppliedSettings {
    let Some(client) = command.first().and_then(|program| find_client(program)) else {
        return AppliedSettings::default();
    };
    let first = command.get(1).and_then(|argument| argument.to_str());
    if first.is_some_and(|first| client.local_commands.contains(&first)) {
        return AppliedSettings::default();
    }
    let fill = |template: &str| fill_template(template, urls, variable);
    let arguments = client.arguments.iter().find_map(|words| {
        let filled: Option<Vec<String>> = words.iter().map(|word| fill(word)).collect();
        filled
    });
    let mut variables: Vec<(String, String)> = Vec::new();
    for row in client.variables {
        let is_meant = row.only_with.iter().all(|(name, wanted)| {
            let value = variable(name);
            value.is_some_and(|value| wanted.is_empty() || value == *wanted)
        });
        let is_kept = row.is_default && variable(row.name).is_some();
        let is_known = variables.iter().any(|(name, _)| name == row.name);
        if is_meant && !is_kept && !is_known {
            variables.extend(fill(row.value).map(|value| (row.name.to_owned(), value)));
        }
    }
    // A command with variables lacks something only if none of them applies.
    let is_set = client.variables.iter().any(|row| variable(row.name).is_some())
        || !variables.is_empty()
        || client.unless_flag.is_some_and(|flag| has_flag(command, flag))
        || client.choice.as_ref().is_some_and(|choice| !choice.is_open(variable));
    let missing = client.missing_setting.filter(|_| !is_set);
    AppliedSettings {
        arguments: arguments.unwrap_or_default(),
        missing_setting: missing.and_then(|text| fill_template(text, lasting_urls, variable)),
        needs_lasting_proxy: missing.is_some_and(|text| text.contains('{')),
        extension: client.extension.and_then(fill),
        login_advice: client
            .other_login
            .filter(|(upstream, _)| urls.iter().all(|(name, _)| name != upstream))
            .map(|(_, advice)| advice),
        variables,
    }
}

/// Returns `true` if a command has a flag with this value, in one argument or in two.
fn has_flag(command: &[OsString], (flag, value): (&str, &str)) -> bool {
    let joined = format!("{flag}={value}");
    let is_pair = |pair: &[OsString]| matches!(pair, [name, given] if name == flag && given == value);
    command.iter().any(|argument| *argument == *joined) || command.windows(2).any(is_pair)
}

impl FileChoice {
    /// Returns `true` if the command needs the choice, and the user has not made it.
    fn is_open(&self, variable: &dyn Fn(&str) -> Option<String>) -> bool {
        let home = self.folders.iter().find_map(|name| variable(name));
        let folders = home.iter().map(String::as_str).chain(["."]);
        variable(self.only_with).is_some()
            && !folders
                .map(|folder| read_start(&Path::new(folder).join(self.path)))
                .any(|text| text.contains(self.key))
    }
}

/// Returns the start of a text file. Empty if it cannot be read.
fn read_start(path: &Path) -> String {
    let mut text = Vec::new();
    // Any other kind of file could block the start.
    if fs::metadata(path).is_ok_and(|known| known.is_file())
        && let Ok(file) = File::open(path)
    {
        drop(file.take(SETTINGS_BYTES_MAX).read_to_end(&mut text));
    }
    String::from_utf8_lossy(&text).into_owned()
}

/// Returns the row of a program, by its name without folder and ending.
fn find_client(program: &OsStr) -> Option<&'static KnownClient> {
    let stem = Path::new(program).file_stem()?;
    CLIENTS.iter().find(|client| OsStr::new(client.program) == stem)
}

/// Names that `{NAME}` may have.
const UPSTREAM_NAMES: [&str; 5] = ["anthropic", "openai", "gemini", "chatgpt", "code-assist"];

/// Replaces `{NAME}` and a whole `$NAME`. `None` if one of them does not exist.
fn fill_template(
    template: &str,
    urls: &[(String, String)],
    variable: &dyn Fn(&str) -> Option<String>,
) -> Option<String> {
    if let Some(name) = template.strip_prefix('$') {
        return variable(name);
    }
    let mut filled = template.to_owned();
    for name in UPSTREAM_NAMES {
        let mark = format!("{{{name}}}");
        if filled.contains(&mark) {
            let (_, url) = urls.iter().find(|(known, _)| known == name)?;
            filled = filled.replace(&mark, url);
        }
    }
    Some(filled)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(program: &str, upstreams: &[&str], set: &[(&str, &str)]) -> AppliedSettings {
        let url = |name: &&str| ((*name).to_owned(), format!("http://h/{name}"));
        let urls: Vec<_> = upstreams.iter().map(url).collect();
        let variable = |name: &str| {
            let (_, value) = set.iter().find(|(known, _)| *known == name)?;
            Some((*value).to_owned())
        };
        let command: Vec<OsString> = program.split(' ').map(OsString::from).collect();
        settings_for(&command, &urls, &urls, &variable)
    }

    #[test]
    fn codex_gets_its_base_url_as_an_argument() {
        for (program, upstreams, wanted) in [
            (
                "codex",
                &["openai"][..],
                &["-c", "openai_base_url=\"http://h/openai\""][..],
            ),
            (
                "/usr/bin/codex.js",
                &["openai", "chatgpt"],
                &["-c", "openai_base_url=\"http://h/chatgpt\""],
            ),
            ("codex", &["anthropic"], &[]),
            ("codexx", &["openai"], &[]),
        ] {
            assert_eq!(
                settings(program, upstreams, &[]).arguments,
                wanted,
                "{program} {upstreams:?}"
            );
        }
    }

    #[test]
    fn copilot_is_set_only_with_a_model_and_never_overridden() {
        let named = |set: &[(&str, &str)]| settings("copilot", &["openai", "anthropic"], set);
        let none = named(&[("OPENAI_API_KEY", "k")]);
        assert!(none.variables.is_empty() && none.missing_setting.is_some(), "{none:?}");
        let variables = |set: &[(&str, &str)]| {
            let found = named(set);
            assert_eq!(found.missing_setting, None);
            let words = found.variables.iter().map(|(name, value)| format!("{name}={value}"));
            words.collect::<Vec<_>>().join(" ")
        };
        assert_eq!(
            variables(&[("COPILOT_MODEL", "m"), ("OPENAI_API_KEY", "k")]),
            "COPILOT_PROVIDER_BASE_URL=http://h/openai COPILOT_PROVIDER_API_KEY=k COPILOT_PROVIDER_TYPE=openai"
        );
        assert_eq!(
            variables(&[
                ("COPILOT_MODEL", "m"),
                ("COPILOT_PROVIDER_TYPE", "anthropic"),
                ("COPILOT_PROVIDER_API_KEY", "own"),
                ("OPENAI_API_KEY", "k")
            ]),
            "COPILOT_PROVIDER_BASE_URL=http://h/anthropic"
        );
    }

    #[test]
    fn a_command_that_reads_files_only_gets_advice() {
        for program in ["cline", "cn", "hermes", "openclaw"] {
            let found = settings(program, &["openai", "anthropic"], &[]);
            let advice = found.missing_setting.unwrap_or_default();
            assert!(
                advice.contains("http://h/") && !advice.contains('{'),
                "{program}: {advice}"
            );
            assert!(found.needs_lasting_proxy, "{program}");
        }
    }

    #[test]
    fn pi_gets_its_extension_unless_it_asks_no_model() {
        for (command, wanted) in [
            ("pi", true),
            ("pi -p hello", true),
            ("pi install x", false),
            ("pi list", false),
        ] {
            let found = settings(command, &["anthropic", "openai", "gemini"], &[]);
            assert_eq!(found.extension.is_some(), wanted, "{command}");
        }
    }

    #[test]
    fn every_template_names_known_upstreams() {
        for client in &CLIENTS {
            let arguments = client.arguments.iter().flat_map(|words| words.iter().copied());
            let values = client.variables.iter().map(|row| row.value);
            let texts = client.missing_setting.into_iter().chain(client.extension);
            let templates: Vec<&str> = arguments.chain(values).chain(texts).collect();
            assert!(!templates.is_empty(), "{}", client.program);
            for template in templates {
                let mut rest = template.to_owned();
                for name in UPSTREAM_NAMES {
                    rest = rest.replace(&format!("{{{name}}}"), "");
                }
                // What is left in braces must be code or JSON, and no name.
                let is_name = |text: &str| {
                    let name = text.split('}').next().unwrap_or_default();
                    text.contains('}')
                        && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-')
                        && !name.is_empty()
                };
                assert!(!rest.split('{').skip(1).any(is_name), "{}: {rest}", client.program);
            }
        }
    }
}
