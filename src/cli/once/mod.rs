//! `antiphon once -- CMD`: runs a command at most once, and replays the output of an earlier run.

mod arguments;
mod sealed_run;

use std::{
    io::{self, Write},
    pin::pin,
    process::ExitCode,
};

use anyhow::Context as _;

pub(super) use arguments::{AFTER_HELP, Args};

use http::{HeaderMap, HeaderName, HeaderValue, header::AUTHORIZATION};
use serde_json::json;

use super::{
    EXIT_HUNG_UP, EXIT_INTERRUPTED, EXIT_TERMINATED,
    api_client::{ApiClient, ApiUrl, SecretPlace},
    child::{CapturedOutput, ChildCommand, ChildEnd},
    claims::{ClaimReply, Claims, HeldClaim, LEASE, NoClaim, RunReport, describe_earlier},
    signals::{ReceivedSignal, Signals},
};
use crate::api::ledger_api;
use arguments::{IfUnavailable, StoredParts};
use sealed_run::{FinishedRun, KeptOutput, RunKeys};

/// Exit code for wrong usage, an unusable token, or a key that was used for other arguments.
pub(super) const EXIT_USAGE: u8 = 64;
/// Exit code if the proxy cannot be reached, has no durable ledger or no room in it, or gets too many requests.
const EXIT_UNAVAILABLE: u8 = 69;
/// Exit code if the output of an earlier run cannot be replayed.
const EXIT_NO_OUTPUT: u8 = 73;
/// Exit code if the command is running elsewhere.
const EXIT_IN_FLIGHT: u8 = 75;
/// Exit code if the command may have run.
const EXIT_UNKNOWN: u8 = 76;

/// Longest stored output of one stream, in bytes.
const STREAM_BYTES_MAX: usize = 64 * 1024;
/// Variable with the key for the systems behind the command.
const KEY_VARIABLE: &str = "ANTIPHON_IDEMPOTENCY_KEY";

const TOKEN: SecretPlace = SecretPlace {
    noun: "the token",
    variable: "ANTIPHON_TOKEN",
    flag: "--token-file",
};
/// The way out if the proxy does not know the token.
const UNKNOWN_TOKEN: &str = "ANTIPHON_TOKEN must be one of [client_tokens], or restart a proxy of an earlier version";
/// The header with a key in place of the input.
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
/// The header by which the user wants the effect once more.
const REPEAT: HeaderName = HeaderName::from_static(ledger_api::REPEAT_HEADER);

/// The proxy, with the keys of the caller and the hash of its command.
struct CommandClaims {
    claims: Claims,
    keys: RunKeys,
    command: String,
}

/// Runs the subcommand.
pub(super) fn run(args: &Args) -> ExitCode {
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return fail(EXIT_UNAVAILABLE, &format!("cannot start: {error}")),
    };
    // Boxed, since the future contains those of the HTTP client.
    let code = runtime.block_on(Box::pin(run_once(args)));
    // A read of a closed terminal must not delay the exit.
    runtime.shutdown_background();
    code
}

async fn run_once(args: &Args) -> ExitCode {
    let mut signals = match Signals::new() {
        Ok(signals) => signals,
        Err(error) => return fail(EXIT_UNAVAILABLE, &format!("cannot listen for signals: {error}")),
    };
    let claims = match prepare(args) {
        Ok(prepared) => prepared,
        Err(none) => return without_claim(args, &none, &mut signals).await,
    };
    let answer = tokio::select! {
        answer = claims.claim(args) => answer,
        signal = signals.next() => {
            let why = format!("{} did not run; if the proxy has granted the claim, it ends within 2 minutes", args.tool);
            return fail(interrupted(signal), &why);
        }
    };
    match answer {
        Ok(ClaimReply::Granted(held)) => run_held(args, &claims, &held, &mut signals).await,
        Ok(ClaimReply::Ran { sealed, failed, at }) => {
            let run = match sealed {
                Some(sealed) => claims.keys.open(&sealed, &claims.command).ok_or("cannot be decrypted"),
                None => Err("was never stored, or has been removed"),
            };
            replay(args, run, failed, at)
        }
        Err(none) => without_claim(args, &none, &mut signals).await,
    }
}

/// Finds the proxy and the token, and the hash that identifies the command.
fn prepare(args: &Args) -> Result<CommandClaims, NoClaim> {
    let url = ApiUrl::of_proxy(&args.proxy)?;
    let token = TOKEN.read_or_local(args.token_file.as_deref(), &url, "a client token")?;
    let keys = RunKeys::of_token(&token);
    let headers = HeaderMap::from_iter([(AUTHORIZATION, TOKEN.bearer_value(&token)?)]);
    let mut parts: Vec<Vec<u8>> = args
        .command
        .iter()
        .map(|part| part.as_encoded_bytes().to_vec())
        .collect();
    // The key names the effect, wherever the command runs.
    if !args.no_cwd && args.key.is_none() {
        let folder = std::env::current_dir()
            .map_err(|error| NoClaim::Unusable(format!("cannot read the working directory: {error}; see --no-cwd")))?;
        parts.insert(0, folder.into_os_string().into_encoded_bytes());
    }
    Ok(CommandClaims {
        claims: Claims::new(ApiClient::new(url, headers)?),
        command: keys.hash_command(parts.iter().map(Vec::as_slice)),
        keys,
    })
}

impl CommandClaims {
    /// Claims the effect of the command.
    async fn claim(&self, args: &Args) -> Result<ClaimReply, NoClaim> {
        let mut headers = HeaderMap::new();
        if let Some(key) = &args.key {
            let value = HeaderValue::from_str(key)
                .map_err(|_| NoClaim::Unusable("--key: expected 1 to 255 printable ASCII characters".to_owned()))?;
            headers.insert(IDEMPOTENCY_KEY, value);
        }
        if args.again {
            headers.insert(REPEAT, HeaderValue::from_static(ledger_api::REPEAT));
        }
        let body = json!({
            "tool": args.tool,
            "input": { "command": self.command },
            "window": args.window,
            "lease": LEASE,
            "retry_failed": args.retry_failed,
        });
        self.claims.claim(body.to_string(), headers).await
    }

    /// Reports the end of the command.
    async fn report_end(&self, held: &HeldClaim, run: &FinishedRun, failed: bool) -> Result<(), String> {
        match self.keys.seal(run, &self.command) {
            Some(sealed) => {
                let sealed = &sealed;
                self.claims.report(held, RunReport::Ended { sealed, failed }).await
            }
            None => Err("the system has no random bytes".to_owned()),
        }
    }
}

/// Runs the command with a claim, and stores its end.
async fn run_held(args: &Args, claims: &CommandClaims, held: &HeldClaim, signals: &mut Signals) -> ExitCode {
    let ended = run_with_heartbeats(args, &claims.claims, held, signals).await;
    let (end, output) = match ended {
        Ok(ended) => ended,
        Err(error) => return fail(EXIT_UNKNOWN, &format!("{error:#}; the command may have run")),
    };
    let run = FinishedRun {
        code: (args.store != StoredParts::None).then_some(end.code),
        output,
    };
    let reporting = async {
        if end.has_run {
            claims.report_end(held, &run, end.code != 0).await
        } else {
            claims.claims.report(held, RunReport::NotRun).await
        }
    };
    let reported = tokio::select! {
        reported = reporting => reported,
        _ = signals.next() => Err("a signal ended the wait for the proxy".to_owned()),
    };
    if let Err(cause) = reported {
        say(&format!(
            "the end of the run could not be stored: {cause}; another run may repeat it, or find its outcome unknown"
        ));
    }
    ExitCode::from(end.code)
}

/// Runs the command, and extends its claim until its end.
async fn run_with_heartbeats(
    args: &Args,
    claims: &Claims,
    held: &HeldClaim,
    signals: &mut Signals,
) -> anyhow::Result<(ChildEnd, KeptOutput)> {
    let key = (KEY_VARIABLE.to_owned(), held.idempotency_key.clone());
    let mut running = pin!(run_command(args, vec![key], signals));
    tokio::select! {
        ended = &mut running => return ended,
        () = claims.send_heartbeats(held) => {}
    }
    say(&format!(
        "the proxy heard nothing for longer than 2 minutes, and let another run of {} begin",
        args.tool
    ));
    running.await
}

/// Runs the command, and keeps its outputs if they are to be stored.
async fn run_command(
    args: &Args,
    variables: Vec<(String, String)>,
    signals: &mut Signals,
) -> anyhow::Result<(ChildEnd, KeptOutput)> {
    let (program, arguments) = args.command.split_first().context("there is no command")?;
    let command = ChildCommand {
        program: program.clone(),
        arguments: arguments.to_vec(),
        variables,
    };
    if args.store != StoredParts::Output {
        return Ok((command.run_to_end(signals).await?, KeptOutput::Unwanted));
    }
    let (end, captured): (ChildEnd, CapturedOutput) = command.run_captured(signals, STREAM_BYTES_MAX).await?;
    Ok((end, KeptOutput::of_captured(captured)))
}

/// Gives the end of an earlier run, or the reason why it cannot be read.
fn replay(args: &Args, run: Result<FinishedRun, &str>, failed: bool, at: u64) -> ExitCode {
    let head = describe_earlier(&args.tool, failed, at);
    let advice = if failed {
        "; --retry-failed runs it again"
    } else {
        "; --again runs it again"
    };
    let run = match run {
        Ok(run) => run,
        Err(why) => return fail(EXIT_NO_OUTPUT, &format!("{head}; its output {why}{advice}")),
    };
    let code = run.code.unwrap_or_else(|| u8::from(failed));
    match run.output {
        KeptOutput::TooLong => fail(
            EXIT_NO_OUTPUT,
            &format!("{head}; its output was too long to be stored, and its exit code was {code}{advice}"),
        ),
        KeptOutput::Unwanted => {
            say(&format!("{head}; its output was not stored{advice}"));
            ExitCode::from(code)
        }
        KeptOutput::Whole(stdout, stderr) => {
            // A reader that has seen enough is no failure.
            drop(
                io::stdout()
                    .lock()
                    .write_all(&stdout)
                    .and_then(|()| io::stdout().lock().flush()),
            );
            drop(io::stderr().lock().write_all(&stderr));
            say(&format!("{head}; this is its output{advice}"));
            ExitCode::from(code)
        }
    }
}

/// Reports why there is no claim, and runs the command if the user wants that all the same.
async fn without_claim(args: &Args, none: &NoClaim, signals: &mut Signals) -> ExitCode {
    let code = match none {
        NoClaim::OtherInput | NoClaim::UnknownToken | NoClaim::Unusable(_) => EXIT_USAGE,
        NoClaim::InFlight { .. } => EXIT_IN_FLIGHT,
        NoClaim::OutcomeUnknown { .. } => EXIT_UNKNOWN,
        NoClaim::Unavailable(_) if args.if_unavailable == IfUnavailable::Fail => EXIT_UNAVAILABLE,
        NoClaim::Unavailable(why) => {
            say(&format!("{why}; {} runs without protection", args.tool));
            return match run_command(args, Vec::new(), signals).await {
                Ok((end, _)) => ExitCode::from(end.code),
                Err(error) => fail(EXIT_UNKNOWN, &format!("{error:#}; the command may have run")),
            };
        }
    };
    fail(code, &none.describe(&args.tool, UNKNOWN_TOKEN))
}

/// Returns the exit code after a signal that the command did not get, as shells give it.
const fn interrupted(signal: ReceivedSignal) -> u8 {
    match signal {
        ReceivedSignal::Interrupt => EXIT_INTERRUPTED,
        ReceivedSignal::Terminate => EXIT_TERMINATED,
        ReceivedSignal::HangUp => EXIT_HUNG_UP,
    }
}

/// Reports a failure. Returns its exit code.
fn fail(code: u8, text: &str) -> ExitCode {
    say(text);
    ExitCode::from(code)
}

/// Writes a line to standard error. A closed one must not change the exit code.
fn say(line: &str) {
    drop(writeln!(io::stderr().lock(), "antiphon: {line}"));
}
