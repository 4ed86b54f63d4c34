//! Sources of profiles' credentials: programs, the credentials endpoint of a container, and files.

use std::time::Duration;

use super::{
    VariableLookup,
    file::{CommandWord, ProfileSection, ServerSection},
    lowering::Lowering,
    problem::ConfigProblem,
    variables::{AWS_FULL_URI, AWS_RELATIVE_URI, AWS_TOKEN, AWS_TOKEN_FILE},
};
use crate::{
    auth::Secret,
    keys::{
        credential_source::CredentialSource,
        credential_source::{
            AwsScope, CommandLine, ContainerEndpoint, ContainerToken, SecretFile, SecretPart, TOKEN_REFRESH,
        },
    },
};

/// Shortest interval between two readings of a file.
const POLL_MIN: Duration = Duration::from_millis(100);

/// Variables of AWS containers.
#[derive(Debug, Default)]
pub(super) struct ContainerEnvironment {
    relative: Option<String>,
    full: Option<String>,
    token: Option<Secret>,
    token_file: Option<String>,
}

impl ContainerEnvironment {
    /// Reads the variables.
    pub(super) fn from_variables(variable: &VariableLookup<'_>) -> Self {
        Self {
            relative: variable(AWS_RELATIVE_URI),
            full: variable(AWS_FULL_URI),
            token: variable(AWS_TOKEN).map(|token| Secret::new(token.trim().to_owned())),
            token_file: variable(AWS_TOKEN_FILE),
        }
    }

    /// Returns the endpoint of the container.
    pub(super) fn container_endpoint(&self) -> Result<ContainerEndpoint, ConfigProblem> {
        let (name, full) = match (&self.relative, &self.full) {
            (Some(_), _) => (AWS_RELATIVE_URI, ""),
            (None, Some(full)) => (AWS_FULL_URI, full.as_str()),
            (None, None) => {
                let flaw = ConfigProblem::of_value(format!("neither {AWS_RELATIVE_URI} nor {AWS_FULL_URI} is set"));
                return Err(flaw.with_hint(
                    "ECS and EKS Pod Identity set them; elsewhere write \
                     aws_credential_process = [\"aws\", \"configure\", \"export-credentials\", \"--format\", \"process\"]",
                ));
            }
        };
        let uri = ContainerEndpoint::parse_uri(self.relative.as_deref(), full)
            .map_err(|error| ConfigProblem::of_value(format!("{name} {error}")))?;
        // The file first, as the AWS SDKs do: EKS replaces its content.
        let file = self.token_file.as_ref().map(|path| ContainerToken::File(path.into()));
        let token = file.or_else(|| self.token.clone().map(ContainerToken::Text));
        Ok(ContainerEndpoint { uri, token })
    }
}

/// Returns the command of `key`. Reports one that names no program.
pub(super) fn lower_command(lowering: &mut Lowering, key: &str, words: &[CommandWord]) -> Option<CommandLine> {
    let mut command: Vec<String> = Vec::new();
    for (i, _) in words.iter().enumerate() {
        let key = format!("{key}[{i}]");
        // A word that is not a string already has its own problem.
        let word = lowering.secrets.get(&key).map(|word| word.reveal().to_owned());
        let fits = |word: &String| !word.contains('\0') && (i > 0 || !word.is_empty());
        if word.as_ref().is_some_and(|word| !fits(word)) {
            lowering.report_problem(
                &key,
                ConfigProblem::of_value("expected the name of a program or an argument"),
            );
        }
        command.push(word.filter(fits)?);
    }
    if command.is_empty() {
        let flaw = ConfigProblem::of_value("names no program");
        lowering.report_problem(
            key,
            flaw.with_hint("write the program and each argument: [\"gcloud\", \"auth\", …]"),
        );
        return None;
    }
    let program = command.remove(0);
    Some(CommandLine {
        program,
        arguments: command,
    })
}

/// Returns the refresh interval of a profile's token.
pub(super) fn lower_token_refresh(lowering: &mut Lowering, key: &str, section: &ProfileSection) -> Duration {
    let Some(interval) = &section.token_refresh else {
        return TOKEN_REFRESH;
    };
    if section.token_command.is_none() {
        let flaw = ConfigProblem::of_value("only tokens of a token_command are refreshed");
        lowering.report_problem(key, flaw.with_hint("write token_command, or remove this line"));
    }
    interval.value_or_default()
}

/// Returns the interval at which files are read again; `None` if they are not.
pub(super) fn secret_poll(section: &ServerSection) -> Option<Duration> {
    let poll = section.secret_poll.value_or_default();
    // A shorter interval would only cost work.
    (!poll.is_zero()).then_some(poll.max(POLL_MIN))
}

/// Returns the source of a profile whose credential is in files; `None` if none is, or if they are not read again.
pub(super) fn file_source(section: &ProfileSection, poll: Option<Duration>) -> Option<CredentialSource> {
    let parts = [
        (&section.api_key_file, SecretPart::Whole),
        (&section.bearer_file, SecretPart::Whole),
        (&section.aws_access_key_id_file, SecretPart::AwsKeyId),
        (&section.aws_secret_access_key_file, SecretPart::AwsSecretKey),
        (&section.aws_session_token_file, SecretPart::AwsSessionToken),
    ];
    let file = |(path, part): (&Option<String>, SecretPart)| {
        let path = path.as_ref()?.into();
        Some(SecretFile { path, part })
    };
    let files: Vec<SecretFile> = parts.into_iter().filter_map(file).collect();
    let poll = poll.filter(|_| !files.is_empty())?;
    Some(CredentialSource::Files { files, poll })
}

/// Returns the source of AWS keys that a program or the endpoint of a container supplies.
pub(super) fn lower_aws_source(
    lowering: &mut Lowering,
    key: &str,
    section: &ProfileSection,
    scope: AwsScope,
    container: &ContainerEnvironment,
) -> Option<CredentialSource> {
    if let Some(words) = &section.aws_credential_process {
        let command = lower_command(lowering, &format!("{key}.aws_credential_process"), words)?;
        return Some(CredentialSource::AwsProcess { command, scope });
    }
    let key = format!("{key}.aws_container_credentials");
    let endpoint = lowering.value_or_report(&key, container.container_endpoint())?;
    Some(CredentialSource::AwsContainer { endpoint, scope })
}
