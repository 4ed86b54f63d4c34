//! The error table, rows e1 to e17, over the wire. Each error comes as a status, in a stream before any
//! output, and after output. Profile `a` always gets the error. `b` is of the same organisation, `c` of another.

use std::time::Duration;

use antiphon::clock::unix_time;

use crate::support::{
    pool::{Rest, cooldowns, failures, family, is_about, key, keys, of_session, world},
    still::{
        Answer, Step, World, error,
        events::{anthropic, chat, gemini, responses},
        say, secs, sse,
    },
};

/// A dialect and its request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Api {
    Messages,
    /// Messages without streaming.
    Whole,
    Responses,
    Chat,
    Gemini,
    Bedrock,
}

use Api::{Bedrock, Chat, Gemini, Messages, Responses, Whole};

impl Api {
    const fn upstream(self) -> &'static str {
        match self {
            Messages | Whole => "anthropic",
            Responses | Chat => "openai",
            Gemini => "gemini",
            Bedrock => "bedrock",
        }
    }

    const fn model(self) -> &'static str {
        match self {
            Bedrock => "anthropic.m",
            _ => "m",
        }
    }

    fn ask(self, turn: usize) -> Vec<u8> {
        let (path, body) = match self {
            Messages => (
                "/anthropic/v1/messages",
                r#"{"model":"m","max_tokens":16,"stream":true,"messages":[{"role":"user","content":"hi N"}]}"#,
            ),
            Whole => (
                "/anthropic/v1/messages",
                r#"{"model":"m","max_tokens":16,"messages":[{"role":"user","content":"hi N"}]}"#,
            ),
            Responses => ("/openai/v1/responses", r#"{"model":"m","stream":true,"input":"hi N"}"#),
            Chat => (
                "/openai/v1/chat/completions",
                r#"{"model":"m","stream":true,"messages":[{"role":"user","content":"hi N"}]}"#,
            ),
            Gemini => (
                "/gemini/v1beta/models/m:streamGenerateContent?alt=sse",
                r#"{"contents":[{"role":"user","parts":[{"text":"hi N"}]}]}"#,
            ),
            Bedrock => (
                "/bedrock/model/anthropic.m/invoke",
                r#"{"anthropic_version":"bedrock-2023-05-31","max_tokens":16,"messages":[{"role":"user","content":"hi N"}]}"#,
            ),
        };
        of_session("s1", path, &[], &body.replace('N', &turn.to_string()))
    }

    /// Returns the events before the first output, the first output, and the end.
    fn words(self) -> [String; 3] {
        match self {
            Messages => [
                anthropic::start() + &anthropic::ping(),
                anthropic::text_start(0) + &anthropic::text(0, "hello"),
                anthropic::stop(0) + &anthropic::end("end_turn"),
            ],
            Responses => [
                responses::start() + &responses::in_progress(),
                responses::text_start(0) + &responses::text(0, "hello"),
                responses::end(),
            ],
            Chat => [String::new(), chat::start() + &chat::text("hello"), chat::end("stop")],
            Gemini => [String::new(), gemini::text("hello"), gemini::end("STOP")],
            Whole | Bedrock => panic!("not a stream"),
        }
    }

    /// Returns a successful answer.
    fn fine(self) -> Vec<Step> {
        match self {
            Whole | Bedrock => error(200, &[], r#"{"type":"message","content":[]}"#),
            _ => vec![sse(), say(self.words().concat()), Step::End],
        }
    }
}

/// The scope of a cooldown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum For {
    /// The profile.
    Own,
    /// The profile, for the requested model.
    OwnModel,
    /// The organisation.
    Quota,
    /// The organisation, for the requested model.
    QuotaModel,
}

use For::{Own, OwnModel, Quota, QuotaModel};

/// Reason, scope, whether it disables, and seconds. Zero seconds stand for `{DATE}`.
type Rested = (&'static str, For, bool, u64);

const AUTH: Rested = ("auth", Own, false, 30);
const UNPAID: Rested = ("billing", Own, true, 5 * 3600);
const fn limit(seconds: u64) -> Rested {
    ("rate_limit", QuotaModel, false, seconds)
}
const fn quota(seconds: u64) -> Rested {
    ("quota", Own, true, seconds)
}
const PERMISSION: Rested = ("permission", OwnModel, false, 600);

/// The profiles used, seconds between the sends, the cooldown of `a`, and breaker failures.
type Follows = (&'static str, &'static [f64], Option<Rested>, u32);

const SURFACES: Follows = ("a", &[], None, 0);
const fn moves(rests: Rested) -> Follows {
    ("ab", &[0.0], Some(rests), 0)
}
const fn leaves(rests: Rested) -> Follows {
    ("ac", &[0.0], Some(rests), 0)
}
/// One other profile is tried, and none cools down.
const UNPROVEN: Follows = ("ab", &[0.0], None, 0);
const TWICE: Follows = ("aa", &[0.5], None, 1);
const THRICE: Follows = ("aaa", &[0.5, 1.0], None, 1);

type Fields = &'static [(&'static str, &'static str)];
/// Row, dialect, status, headers, body, and the expected outcome.
type Row = (&'static str, Api, u16, Fields, &'static str, Follows);

/// `{DATE}` is midnight UTC in three days, `{HOUR}` the Unix time in an hour.
#[rustfmt::skip]
const STATUSES: &[Row] = &[
    ("e1", Messages, 401, &[("request-id", "req_1"), ("x-should-retry", "false")], r#"{"type":"error","error":{"type":"authentication_error","message":"invalid x-api-key"},"request_id":"req_1"}"#, moves(AUTH)),
    ("e1", Responses, 401, &[("x-request-id", "req_1")], r#"{"error":{"message":"Incorrect API key provided: sk-proj-****. You can find your API key at https://platform.openai.com/account/api-keys.","type":"invalid_request_error","param":null,"code":"invalid_api_key"}}"#, moves(AUTH)),
    ("e1", Gemini, 401, &[], r#"{"error":{"code":401,"message":"Request had invalid authentication credentials.","status":"UNAUTHENTICATED"}}"#, moves(AUTH)),
    ("e1", Gemini, 400, &[], r#"{"error":{"code":400,"message":"API key not valid. Please pass a valid API key.","status":"INVALID_ARGUMENT","details":[{"@type":"type.googleapis.com/google.rpc.ErrorInfo","reason":"API_KEY_INVALID","domain":"googleapis.com"}]}}"#, moves(AUTH)),
    ("e1", Bedrock, 403, &[("x-amzn-errortype", "UnrecognizedClientException:http://internal.amazon.com/coral/com.amazon.coral.service/")], r#"{"message":"The security token included in the request is invalid."}"#, moves(AUTH)),
    ("e2", Messages, 402, &[], r#"{"type":"error","error":{"type":"billing_error","message":"Your account has a billing issue."}}"#, moves(UNPAID)),
    ("e2", Chat, 402, &[], r#"{"error":{"message":"Insufficient Balance","type":"unknown_error","param":null,"code":"invalid_request_error"}}"#, moves(UNPAID)),
    ("e3", Messages, 400, &[], r#"{"type":"error","error":{"type":"invalid_request_error","message":"Your credit balance is too low to access the Anthropic API. Please go to Plans & Billing to upgrade or purchase credits."}}"#, moves(UNPAID)),
    ("e4", Messages, 400, &[], r#"{"type":"error","error":{"type":"invalid_request_error","message":"You have reached your specified API usage limits. You will regain access on {DATE} at 00:00 UTC."}}"#, leaves(("spend_limit", Quota, true, 0))),
    ("e3", Messages, 400, &[], r#"{"type":"error","error":{"type":"invalid_request_error","message":"Your credit balance is too low to access the Claude API. Please go to Plans & Billing to upgrade or purchase credits."}}"#, moves(UNPAID)),
    ("e4", Messages, 400, &[], r#"{"type":"error","error":{"type":"invalid_request_error","message":"You have reached your specified workspace API usage limits. You will regain access on {DATE}."}}"#, leaves(("spend_limit", Quota, true, 0))),
    ("e4", Messages, 400, &[], r#"{"type":"error","error":{"type":"invalid_request_error","message":"You have reached your specified workspace API usage limits. You will regain access soon."}}"#, leaves(("spend_limit", Quota, true, 5 * 3600))),
    ("e5", Responses, 429, &[], r#"{"error":{"message":"You exceeded your current quota, please check your plan and billing details.","type":"insufficient_quota","param":null,"code":"insufficient_quota"}}"#, moves(quota(5 * 3600))),
    ("e5", Responses, 429, &[], r#"{"error":{"type":"usage_limit_reached","message":"The usage limit has been reached","plan_type":"plus","resets_in_seconds":7200}}"#, moves(quota(7200))),
    ("e5", Responses, 429, &[], r#"{"error":{"type":"usage_limit_reached","message":"The usage limit has been reached","resets_at":{HOUR}}}"#, moves(quota(3600))),
    ("e5", Gemini, 429, &[], r#"{"error":{"code":429,"message":"You exceeded your current quota.","status":"RESOURCE_EXHAUSTED","details":[{"@type":"type.googleapis.com/google.rpc.QuotaFailure","violations":[{"quotaId":"GenerateRequestsPerDayPerProjectPerModel-FreeTier"}]}]}}"#, moves(("quota", OwnModel, false, 5 * 3600))),
    ("e5", Gemini, 429, &[], r#"{"error":{"code":429,"message":"You exceeded your current quota.","status":"RESOURCE_EXHAUSTED","details":[{"@type":"type.googleapis.com/google.rpc.QuotaFailure","violations":[{"quotaId":"GenerateRequestsPerDayPerProject"}]}]}}"#, moves(quota(5 * 3600))),
    ("e6", Messages, 403, &[], r#"{"type":"error","error":{"type":"permission_error","message":"Your API key does not have permission to use the specified resource."}}"#, moves(PERMISSION)),
    ("e6", Chat, 403, &[], r#"{"error":{"message":"Project `proj_1` does not have access to model `m`","type":"invalid_request_error","param":null,"code":"model_not_found"}}"#, moves(PERMISSION)),
    ("e6", Gemini, 403, &[], r#"{"error":{"code":403,"message":"The caller does not have permission","status":"PERMISSION_DENIED"}}"#, moves(PERMISSION)),
    ("e6", Bedrock, 403, &[("x-amzn-errortype", "AccessDeniedException")], r#"{"message":"You don't have access to the model with the specified model ID."}"#, moves(PERMISSION)),
    ("e6", Responses, 401, &[], r#"{"error":{"message":"You have insufficient permissions for this operation. Missing scopes: api.responses.write.","type":"invalid_request_error","param":null,"code":"missing_scope"}}"#, ("ab", &[0.0], None, 0)),
    ("e6", Chat, 403, &[], r#"{"error":{"message":"You have insufficient permissions for this operation. Missing scopes: model.request.","type":"invalid_request_error","param":null,"code":null}}"#, ("ab", &[0.0], None, 0)),
    ("e7", Messages, 429, &[("retry-after", "5")], r#"{"type":"error","error":{"type":"rate_limit_error","message":"This request would exceed your organization's rate limit of 50 requests per minute."}}"#, ("aac", &[5.0, 0.0], Some(limit(5)), 0)),
    ("e7", Responses, 429, &[("retry-after-ms", "1500"), ("retry-after", "2")], r#"{"error":{"message":"Rate limit reached for m in organization org-x on tokens per min (TPM).","type":"tokens","param":null,"code":"rate_limit_exceeded"}}"#, ("aac", &[2.0, 0.0], Some(limit(2)), 0)),
    ("e8", Messages, 429, &[("retry-after", "30"), ("anthropic-ratelimit-requests-remaining", "0")], r#"{"type":"error","error":{"type":"rate_limit_error","message":"This request would exceed your organization's rate limit."}}"#, leaves(limit(30))),
    ("e8", Messages, 429, &[], r#"{"type":"error","error":{"type":"rate_limit_error","message":"Error"}}"#, leaves(limit(30))),
    ("e8", Messages, 429, &[("anthropic-ratelimit-unified-status", "rejected"), ("anthropic-ratelimit-unified-5h-status", "rejected"), ("anthropic-ratelimit-unified-5h-reset", "{HOUR}")], r#"{"type":"error","error":{"type":"rate_limit_error","message":"Error"}}"#, leaves(("rate_limit", Quota, false, 3600))),
    ("e8", Messages, 429, &[("anthropic-ratelimit-unified-status", "rejected"), ("anthropic-ratelimit-unified-7d_opus-status", "rejected"), ("anthropic-ratelimit-unified-7d_opus-reset", "{HOUR}")], r#"{"type":"error","error":{"type":"rate_limit_error","message":"Error"}}"#, leaves(limit(3600))),
    ("e8", Responses, 429, &[("x-ratelimit-remaining-tokens", "0"), ("x-ratelimit-reset-tokens", "6m0s")], r#"{"error":{"message":"Rate limit reached","type":"tokens","param":null,"code":"rate_limit_exceeded"}}"#, leaves(limit(360))),
    ("e8", Chat, 429, &[], r#"{"error":{"message":"Rate limit reached for m. Please try again in 20s. Visit https://platform.openai.com/account/rate-limits.","type":"tokens","param":null,"code":"rate_limit_exceeded"}}"#, leaves(limit(20))),
    ("e8", Gemini, 429, &[], r#"{"error":{"code":429,"message":"Resource has been exhausted.","status":"RESOURCE_EXHAUSTED","details":[{"@type":"type.googleapis.com/google.rpc.QuotaFailure","violations":[{"quotaId":"GenerateRequestsPerMinutePerProjectPerModel"}]},{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"34s"}]}}"#, leaves(limit(34))),
    ("e8", Bedrock, 400, &[("x-amzn-errortype", "ServiceQuotaExceededException:http://internal.amazon.com/coral/com.amazon.bedrock/")], r#"{"message":"Your request exceeds the service quota for your account."}"#, leaves(limit(30))),
    ("e8", Bedrock, 429, &[("x-amzn-errortype", "ThrottlingException")], r#"{"message":"Too many requests, please wait before trying again."}"#, leaves(limit(30))),
    ("e1", Gemini, 400, &[], r#"{"error":{"code":400,"message":"API key expired. Please renew the API key.","status":"INVALID_ARGUMENT","details":[{"@type":"type.googleapis.com/google.rpc.ErrorInfo","reason":"API_KEY_INVALID","domain":"googleapis.com"}]}}"#, moves(AUTH)),
    ("e1", Gemini, 403, &[], r#"{"error":{"code":403,"message":"Your API key was reported as leaked. Please use another API key.","status":"PERMISSION_DENIED"}}"#, moves(AUTH)),
    // OpenRouter's errors have the status as a number.
    ("e1", Chat, 401, &[], r#"{"error":{"message":"User not found.","code":401}}"#, moves(AUTH)),
    // Nothing in these answers is about the key. Another key is tried once, and no key cools down.
    ("e1", Messages, 401, &[], "<html>sign in</html>", UNPROVEN),
    ("e1", Messages, 401, &[], "", UNPROVEN),
    ("e1", Chat, 401, &[], r#"{"error":"Unauthorized"}"#, UNPROVEN),
    ("e1", Responses, 401, &[], r#"{"error":{"message":"Your IP is not authorized","type":"invalid_request_error","param":null,"code":"ip_not_authorized"}}"#, UNPROVEN),
    ("e2", Chat, 402, &[], r#"{"error":{"message":"Insufficient credits. Add more using https://openrouter.ai/credits","code":402}}"#, moves(UNPAID)),
    ("e2", Messages, 402, &[], "<html>payment required</html>", UNPROVEN),
    ("e2", Messages, 402, &[], "", UNPROVEN),
    // Blocks of a country, an address or the content hit every key.
    ("e6", Messages, 403, &[], "<html>Attention Required! | Cloudflare</html>", SURFACES),
    ("e6", Messages, 403, &[], "", SURFACES),
    ("e6", Messages, 403, &[], r#"{"error":{"type":"forbidden","message":"Request not allowed"}}"#, SURFACES),
    ("e6", Responses, 403, &[], r#"{"error":{"code":"unsupported_country_region_territory","message":"Country, region, or territory not supported","param":null,"type":"request_forbidden"}}"#, SURFACES),
    ("e6", Chat, 403, &[], r#"{"error":{"message":"openai/gpt-5 requires moderation. Your input was flagged for \"violence\".","code":403,"metadata":{"reasons":["violence"],"flagged_input":"…"}}}"#, SURFACES),
    ("e6", Chat, 403, &[], r#"{"error":{"message":"Content violates usage guidelines.","code":"content_policy_violation"}}"#, SURFACES),
    ("e6", Chat, 403, &[], r#"{"error":{"message":"Something else","type":"x","code":null}}"#, UNPROVEN),
    // A limit without a name counts if a header names a wait, and then for a minute at most.
    ("e8", Messages, 429, &[], "<html>error code: 1015</html>", ("ac", &[0.0], None, 0)),
    ("e8", Messages, 429, &[("retry-after", "40")], "<html>error code: 1015</html>", leaves(limit(40))),
    ("e8", Messages, 429, &[("retry-after", "86400")], "<html>error code: 1015</html>", leaves(("rate_limit", QuotaModel, false, 60))),
    ("e8", Chat, 429, &[("x-ratelimit-remaining-tokens", "0"), ("x-ratelimit-reset-tokens", "6m0s")], "", leaves(limit(60))),
    ("e8", Messages, 429, &[("anthropic-ratelimit-unified-status", "rejected"), ("anthropic-ratelimit-unified-5h-status", "rejected"), ("anthropic-ratelimit-unified-5h-reset", "{HOUR}")], "", leaves(limit(60))),
    ("e8", Chat, 429, &[("retry-after", "40")], r#"{"error":{"message":"Rate limit exceeded","code":429}}"#, leaves(limit(40))),
    ("e8", Gemini, 429, &[], r#"{"error":{"code":429,"message":"You exceeded your current quota. Please retry in 34.07s.","status":"RESOURCE_EXHAUSTED"}}"#, leaves(limit(34))),
    ("e9", Chat, 429, &[], r#"{"error":{"message":"The engine is currently overloaded, please try again later","type":"engine_overloaded_error"}}"#, THRICE),
    // Refusals of this request alone: a smaller one would pass with the same key.
    ("e16", Chat, 402, &[], r#"{"error":{"message":"This request requires more credits, or fewer max_tokens. You requested up to 65536 tokens, but can only afford 30104.","code":402}}"#, SURFACES),
    ("e16", Chat, 429, &[("retry-after", "30")], r#"{"error":{"message":"Request too large for m in organization org-x on tokens per min (TPM): Limit 30000, Requested 53000. The input or output tokens must be reduced in order to run successfully.","type":"tokens","param":null,"code":"rate_limit_exceeded"}}"#, SURFACES),
    ("e16", Messages, 429, &[("retry-after", "3600")], r#"{"type":"error","error":{"type":"rate_limit_error","message":"Extra usage is required for long context requests."}}"#, SURFACES),
    ("e9", Messages, 529, &[("request-id", "req_1")], r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#, THRICE),
    ("e9", Responses, 503, &[], r#"{"error":{"message":"Our servers are currently overloaded. Please try again later.","type":"service_unavailable_error","param":null,"code":"server_is_overloaded"}}"#, THRICE),
    ("e9", Chat, 503, &[], r#"{"error":{"message":"Slow down","type":"server_error","param":null,"code":"slow_down"}}"#, THRICE),
    ("e9", Gemini, 503, &[], r#"{"error":{"code":503,"message":"The model is overloaded. Please try again later.","status":"UNAVAILABLE"}}"#, THRICE),
    ("e9", Bedrock, 503, &[("x-amzn-errortype", "ServiceUnavailableException")], r#"{"message":"Too many connections, please wait before trying again."}"#, THRICE),
    ("e9", Messages, 529, &[("retry-after", "30")], r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#, ("ab", &[0.0], None, 0)),
    ("e10", Messages, 500, &[], r#"{"type":"error","error":{"type":"api_error","message":"Internal server error"}}"#, TWICE),
    ("e10", Chat, 502, &[], "<html>bad gateway</html>", TWICE),
    ("e10", Gemini, 500, &[], r#"{"error":{"code":500,"message":"An internal error has occurred.","status":"INTERNAL"}}"#, TWICE),
    ("e10", Messages, 504, &[], r#"{"error":{"message":"upstream request timeout"}}"#, TWICE),
    ("e10", Responses, 520, &[], "error code: 520", TWICE),
    ("e10", Responses, 524, &[], "error code: 524", TWICE),
    ("e10", Bedrock, 500, &[("x-amzn-errortype", "InternalServerException")], r#"{"message":"x"}"#, TWICE),
    ("e11", Messages, 504, &[], r#"{"type":"error","error":{"type":"timeout_error","message":"Request timed out"}}"#, ("aa", &[0.5], None, 0)),
    ("e11", Whole, 504, &[], r#"{"type":"error","error":{"type":"timeout_error","message":"Request timed out"}}"#, SURFACES),
    ("e11", Chat, 408, &[], r#"{"error":{"message":"Request timed out","type":"timeout","param":null,"code":null}}"#, ("aa", &[0.5], None, 0)),
    ("e11", Gemini, 504, &[], r#"{"error":{"code":504,"message":"Deadline expired","status":"DEADLINE_EXCEEDED"}}"#, ("aa", &[0.5], None, 0)),
    ("e11", Bedrock, 408, &[("x-amzn-errortype", "ModelTimeoutException")], r#"{"message":"The request took too long to process."}"#, SURFACES),
    ("e12", Messages, 400, &[], r#"{"type":"error","error":{"type":"invalid_request_error","message":"messages.0.content: Input should be a valid list"}}"#, SURFACES),
    ("e12", Messages, 422, &[], r#"{"detail":[{"loc":["body","messages"],"msg":"field required","type":"value_error.missing"}]}"#, SURFACES),
    ("e12", Responses, 400, &[], r#"{"error":{"message":"No tool output found for function call call_1.","type":"invalid_request_error","param":"input","code":null}}"#, SURFACES),
    // The client's text, echoed: it must not cause a cooldown.
    ("e12", Messages, 400, &[], r#"{"type":"error","error":{"type":"invalid_request_error","message":"credit balance is too low: Extra inputs are not permitted"}}"#, SURFACES),
    ("e12", Messages, 400, &[], r#"{"type":"error","error":{"type":"invalid_request_error","message":"Unexpected value(s) `You have reached your specified API usage limits.` for the `anthropic-beta` header."}}"#, SURFACES),
    ("e12", Chat, 400, &[], r#"{"error":{"message":"Unknown parameter: 'credit balance is too low'.","type":"invalid_request_error","param":"credit balance is too low","code":"unknown_parameter"}}"#, SURFACES),
    ("e12", Responses, 400, &[], r#"{"error":{"message":"Your credit balance is too low to access the Anthropic API.","type":"invalid_request_error","param":null,"code":null}}"#, SURFACES),
    ("e12", Gemini, 400, &[], r#"{"error":{"code":400,"message":"Invalid JSON payload received. Unknown name \"api key not valid\": Cannot find field.","status":"INVALID_ARGUMENT"}}"#, SURFACES),
    ("e12", Bedrock, 400, &[("x-amzn-errortype", "ValidationException")], r#"{"message":"Your credit balance is too low to access the Anthropic API."}"#, SURFACES),
    ("e12", Gemini, 400, &[], r#"{"error":{"code":400,"message":"Please ensure that the number of function response parts is equal to the number of function call parts.","status":"INVALID_ARGUMENT"}}"#, SURFACES),
    ("e12", Bedrock, 400, &[("x-amzn-errortype", "ValidationException")], r#"{"message":"messages: roles must alternate"}"#, SURFACES),
    ("e13", Messages, 400, &[], r#"{"type":"error","error":{"type":"invalid_request_error","message":"messages.1.content.0: Invalid `signature` in `thinking` block"}}"#, SURFACES),
    ("e13", Messages, 400, &[], r#"{"type":"error","error":{"type":"invalid_request_error","message":"messages.1.content.0: this `thinking` block is bound to a different conversation"}}"#, SURFACES),
    ("e13", Responses, 400, &[], r#"{"error":{"message":"The encrypted content could not be verified. Reason: Encrypted content organization_id did not match the target organization.","type":"invalid_request_error","param":null,"code":"invalid_encrypted_content"}}"#, SURFACES),
    ("e13", Gemini, 400, &[], r#"{"error":{"code":400,"message":"Corrupted thought signature.","status":"INVALID_ARGUMENT"}}"#, SURFACES),
    ("e14", Messages, 404, &[], r#"{"type":"error","error":{"type":"not_found_error","message":"model: m"}}"#, SURFACES),
    ("e14", Chat, 404, &[], r#"{"error":{"message":"The model `m` does not exist or you do not have access to it.","type":"invalid_request_error","param":null,"code":"model_not_found"}}"#, SURFACES),
    ("e14", Gemini, 404, &[], r#"{"error":{"code":404,"message":"models/m is not found","status":"NOT_FOUND"}}"#, SURFACES),
    ("e15", Responses, 409, &[], r#"{"error":{"message":"Conflict","type":"invalid_request_error","param":null,"code":"conflict"}}"#, ("aa", &[0.5], None, 0)),
    ("e16", Messages, 413, &[], r#"{"type":"error","error":{"type":"request_too_large","message":"Request exceeds the maximum size"}}"#, SURFACES),
    ("e16", Messages, 400, &[], r#"{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: 210000 tokens > 200000 maximum"}}"#, SURFACES),
    ("e16", Chat, 400, &[], r#"{"error":{"message":"This model's maximum context length is 8192 tokens.","type":"invalid_request_error","param":"messages","code":"context_length_exceeded"}}"#, SURFACES),
    ("e17", Chat, 400, &[], r#"{"error":{"message":"The response was filtered due to the prompt triggering content management policy.","type":null,"param":"prompt","code":"content_filter","status":400}}"#, SURFACES),
];

/// As [`STATUSES`], with the error as data of a stream event. The status is what the client gets before commit. The
/// last field is the body that it gets, if that is not the data itself.
type EventRow = (&'static str, Api, &'static str, u16, Follows, Option<&'static str>);

#[rustfmt::skip]
const EVENTS: &[EventRow] = &[
    ("e1", Messages, r#"{"type":"error","error":{"type":"authentication_error","message":"OAuth token has expired."}}"#, 401, moves(AUTH), None),
    ("e1", Responses, r#"{"type":"error","code":"invalid_api_key","message":"Incorrect API key provided","param":null,"sequence_number":1}"#, 401, moves(AUTH), None),
    ("e1", Gemini, r#"{"error":{"code":401,"message":"Request had invalid authentication credentials.","status":"UNAUTHENTICATED"}}"#, 401, moves(AUTH), None),
    ("e2", Messages, r#"{"type":"error","error":{"type":"billing_error","message":"Your account has a billing issue."}}"#, 402, moves(UNPAID), None),
    ("e3", Messages, r#"{"type":"error","error":{"type":"invalid_request_error","message":"Your credit balance is too low to access the Anthropic API."}}"#, 400, moves(UNPAID), None),
    ("e4", Messages, r#"{"type":"error","error":{"type":"invalid_request_error","message":"You have reached your specified API usage limits. You will regain access on {DATE} at 00:00 UTC."}}"#, 400, leaves(("spend_limit", Quota, true, 0)), None),
    ("e5", Responses, r#"{"type":"response.failed","response":{"id":"resp_1","object":"response","status":"failed","error":{"code":"insufficient_quota","message":"You exceeded your current quota"}}}"#, 429, moves(quota(5 * 3600)), None),
    ("e5", Responses, r#"{"type":"error","error":{"type":"usage_limit_reached","message":"The usage limit has been reached","resets_in_seconds":7200}}"#, 429, moves(quota(7200)), None),
    ("e6", Messages, r#"{"type":"error","error":{"type":"permission_error","message":"Your API key does not have permission."}}"#, 403, moves(PERMISSION), None),
    ("e8", Messages, r#"{"type":"error","error":{"type":"rate_limit_error","message":"Number of tokens has exceeded your rate limit"}}"#, 429, leaves(limit(30)), None),
    ("e8", Responses, r#"{"type":"response.failed","response":{"id":"resp_1","object":"response","status":"failed","error":{"code":"rate_limit_exceeded","message":"Rate limit reached for m. Please try again in 21.5s."}}}"#, 429, leaves(limit(21)), None),
    ("e8", Chat, r#"{"error":{"message":"Rate limit reached. Please try again in 40s.","type":"tokens","param":null,"code":"rate_limit_exceeded"}}"#, 429, leaves(limit(40)), None),
    ("e8", Gemini, r#"{"error":{"code":429,"message":"Resource has been exhausted.","status":"RESOURCE_EXHAUSTED","details":[{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"34s"}]}}"#, 429, leaves(limit(34)), None),
    ("e9", Messages, r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"},"request_id":"req_1"}"#, 529, THRICE, None),
    ("e9", Responses, r#"{"type":"response.failed","response":{"id":"resp_1","object":"response","status":"failed","error":{"code":"server_is_overloaded","message":"Overloaded"}}}"#, 503, THRICE, Some(r#"{"error":{"code":"server_is_overloaded","message":"Overloaded"}}"#)),
    ("e9", Responses, r#"{"type":"error","code":"slow_down","message":"Slow down","param":null,"sequence_number":2}"#, 503, THRICE, Some(r#"{"error":{"code":"slow_down","message":"Slow down","param":null,"type":"server_error"}}"#)),
    ("e9", Gemini, r#"{"error":{"code":503,"message":"The model is overloaded.","status":"UNAVAILABLE"}}"#, 503, THRICE, None),
    ("e10", Messages, r#"{"type":"error","error":{"type":"api_error","message":"Internal server error"}}"#, 500, TWICE, None),
    ("e10", Chat, r#"{"error":{"message":"The server had an error","type":"server_error","param":null,"code":null}}"#, 500, TWICE, None),
    ("e11", Messages, r#"{"type":"error","error":{"type":"timeout_error","message":"Request timed out"}}"#, 504, ("aa", &[0.5], None, 0), None),
    ("e12", Messages, r#"{"type":"error","error":{"type":"invalid_request_error","message":"messages.0: all messages must have non-empty content"}}"#, 400, SURFACES, None),
    ("e12", Messages, r#"{"type":"error","error":{"type":"invalid_request_error","message":"messages.0.credit balance is too low: Extra inputs are not permitted"}}"#, 400, SURFACES, None),
    ("e12", Chat, r#"{"error":{"message":"Your credit balance is too low to access the Anthropic API.","type":"invalid_request_error","param":null,"code":"invalid_request_error"}}"#, 400, SURFACES, None),
    ("e12", Responses, r#"{"type":"response.failed","response":{"id":"resp_1","object":"response","status":"failed","error":{"code":"invalid_prompt","message":"Invalid prompt"}}}"#, 400, SURFACES, Some(r#"{"error":{"code":"invalid_prompt","message":"Invalid prompt"}}"#)),
    ("e13", Responses, r#"{"type":"error","error":{"type":"invalid_request_error","code":"invalid_encrypted_content","message":"The encrypted content could not be verified."}}"#, 400, SURFACES, None),
    ("e14", Messages, r#"{"type":"error","error":{"type":"not_found_error","message":"model: m"}}"#, 404, SURFACES, None),
    ("e16", Responses, r#"{"type":"response.failed","response":{"id":"resp_1","object":"response","status":"failed","error":{"code":"context_length_exceeded","message":"Your input exceeds the context window of this model."}}}"#, 400, SURFACES, Some(r#"{"error":{"code":"context_length_exceeded","message":"Your input exceeds the context window of this model."}}"#)),
    ("e17", Chat, r#"{"error":{"message":"The response was filtered","type":null,"param":"prompt","code":"content_filter"}}"#, 400, SURFACES, None),
];

/// Fills in the times. Returns the seconds until `{DATE}` too.
fn fill_times(text: &str) -> (String, u64) {
    let now = unix_time().as_secs();
    let date = (now / 86_400 + 3) * 86_400;
    let day = humantime::format_rfc3339_seconds(std::time::UNIX_EPOCH + secs(date)).to_string();
    let text = text
        .replace("{DATE}", &day[..10])
        .replace("{HOUR}", &(now + 3600).to_string());
    (text, date - now)
}

/// Returns a world in which `a` plays these steps and every other profile succeeds.
fn world_where_a_plays(api: Api, steps: Vec<Step>) -> World {
    let world = world(&family());
    world.otherwise(move |request| if key(request) == "a" { steps.clone() } else { api.fine() });
    world
}

/// Returns the data as an event of this dialect.
fn event(api: Api, data: &str) -> String {
    let kind = serde_json::from_str::<serde_json::Value>(data).unwrap()["type"].clone();
    match (api, kind.as_str()) {
        (Messages | Responses, Some(kind)) => format!("event: {kind}\ndata: {data}\n\n"),
        _ => format!("data: {data}\n\n"),
    }
}

/// Checks the profiles used and the pauses between them.
fn check_attempts(name: &str, world: &World, (asked, pauses, ..): Follows) {
    let requests = world.requests();
    assert_eq!(keys(&requests), asked, "{name}: who was asked");
    for (pair, pause) in requests.windows(2).zip(pauses) {
        let waited = pair[1].at.saturating_sub(pair[0].at);
        let wanted = Duration::from_secs_f64(*pause);
        assert!(is_about(waited, wanted), "{name}: {waited:?} between sends");
        assert_eq!(
            pair[0].message.body, pair[1].message.body,
            "{name}: another body went up"
        );
    }
}

/// Checks cooldowns and breakers. `dated` is the number of seconds until `{DATE}`.
fn check_cooldowns(name: &str, world: &World, api: Api, dated: u64, (_, _, wanted, broken): Follows) {
    let upstream = api.upstream();
    let check = |rest: &Rest, through_another: bool| {
        let (reason, scope, disables, seconds) = wanted.unwrap();
        let seconds = if seconds == 0 { dated } else { seconds };
        let model = matches!(scope, OwnModel | QuotaModel).then(|| api.model().to_owned());
        assert_eq!(
            (rest.0, &rest.1, rest.2, rest.3),
            (reason, &model, disables, through_another),
            "{name}"
        );
        let left = secs(rest.4);
        assert!(
            left + secs(2) >= secs(seconds) && left <= secs(seconds).mul_f64(1.2),
            "{name}: {left:?}"
        );
    };
    let (a, b, c) = (
        cooldowns(world, upstream, "a"),
        cooldowns(world, upstream, "b"),
        cooldowns(world, upstream, "c"),
    );
    assert_eq!(a.len(), usize::from(wanted.is_some()), "{name}: {a:?}");
    for rest in &a {
        check(rest, false);
    }
    let shared = matches!(wanted, Some((_, Quota | QuotaModel, ..)));
    assert_eq!(b.len(), usize::from(shared), "{name}: {b:?}");
    for rest in &b {
        check(rest, true);
    }
    assert_eq!(c, [], "{name}");
    assert_eq!(failures(world, upstream), broken, "{name}: breaker");
    for other in ["anthropic", "openai", "gemini", "bedrock"]
        .iter()
        .filter(|name| **name != upstream)
    {
        for label in ["a", "b", "c"] {
            assert_eq!(cooldowns(world, other, label), [], "{name}: {other} {label}");
        }
    }
}

/// Checks the attempt and profile headers of an answer.
fn check_notes(name: &str, answer: &Answer, (asked, _, wanted, _): Follows) {
    let is_overload = name.starts_with("e9");
    let attempts = asked.len().to_string();
    assert_eq!(answer.header("x-antiphon-attempts"), Some(attempts.as_str()), "{name}");
    let last = &asked[asked.len() - 1..];
    let words = match wanted {
        _ if last == "a" => "a".to_owned(),
        Some((reason, ..)) => format!("{last}; from=a; reason={reason}"),
        None if is_overload => format!("{last}; from=a; reason=overloaded"),
        None => format!("{last}; from=a"),
    };
    assert_eq!(answer.header("x-antiphon-profile"), Some(words.as_str()), "{name}");
}

#[tokio::test(start_paused = true)]
async fn an_error_status_has_the_outcome_of_its_row() {
    for (row, api, status, fields, body, follows) in STATUSES {
        let (body, dated) = fill_times(body);
        let name = format!("{row} {api:?} {status} {body:.60}");
        let fields: Vec<(&str, String)> = fields
            .iter()
            .map(|(name, value)| (*name, fill_times(value).0))
            .collect();
        let fields: Vec<(&str, &str)> = fields.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let html = body.starts_with('<') || body.starts_with("error");
        let mut steps = error(*status, &fields, &body);
        if let (Step::Head(_, fields), true) = (&mut steps[0], html) {
            fields[0].1 = "text/html".to_owned();
        }
        let world = world_where_a_plays(*api, steps);
        let answer = world.ask(api.ask(0)).await;
        check_attempts(&name, &world, *follows);
        check_cooldowns(&name, &world, *api, dated, *follows);
        check_notes(&name, &answer, *follows);
        if follows.0.ends_with('a') {
            assert_eq!((answer.status(), answer.text()), (*status, body.as_str()), "{name}");
            for (field, value) in fields {
                assert_eq!(answer.all(field), [value], "{name}");
            }
        } else {
            assert_eq!((answer.status(), answer.complete), (200, true), "{name}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_error_before_output_is_treated_as_a_status() {
    for (row, api, data, status, follows, body) in EVENTS {
        let (data, dated) = fill_times(data);
        let name = format!("{row} {api:?} {data:.90}");
        let [before, ..] = api.words();
        let steps = vec![sse(), say(before + &event(*api, &data)), Step::End];
        let world = world_where_a_plays(*api, steps);
        let answer = world.ask(api.ask(0)).await;
        check_attempts(&name, &world, *follows);
        check_cooldowns(&name, &world, *api, dated, *follows);
        check_notes(&name, &answer, *follows);
        if follows.0.ends_with('a') {
            assert_eq!(
                (answer.status(), answer.header("content-type")),
                (*status, Some("application/json")),
                "{name}"
            );
            match body {
                Some(body) => assert_eq!(
                    answer.json(),
                    serde_json::from_str::<serde_json::Value>(body).unwrap(),
                    "{name}"
                ),
                None => assert_eq!(answer.text(), data, "{name}"),
            }
        } else {
            assert_eq!((answer.status(), answer.complete), (200, true), "{name}");
            assert!(!answer.text().contains("\"error\":{"), "{name}: {}", answer.text());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_error_after_output_is_passed_on_and_affects_only_the_next_request() {
    for (row, api, data, _, follows, _) in EVENTS {
        let (data, dated) = fill_times(data);
        let name = format!("{row} {api:?} {data:.90}");
        let [before, word, _] = api.words();
        let said = before + &word + &event(*api, &data);
        let world = world_where_a_plays(*api, vec![sse(), say(said.clone()), Step::End]);
        let answer = world.ask(api.ask(0)).await;
        assert_eq!(
            (answer.status(), answer.text(), answer.complete),
            (200, said.as_str(), true),
            "{name}"
        );
        assert_eq!(keys(&world.requests()), "a", "{name}: sent again after its first word");
        assert_eq!(answer.header("x-antiphon-profile"), Some("a"), "{name}");
        world.settle().await;
        // Without a retry, no second profile can be affected. A text about the account may be an echo by now.
        let wanted = &follows.2.filter(|_| !matches!(*row, "e3" | "e4"));
        let broken = u32::from(matches!(*row, "e9" | "e10"));
        check_cooldowns(&name, &world, *api, dated, ("a", &[], *wanted, broken));
        // The lane stays with its profile unless that profile cools down.
        world.ask(api.ask(1)).await;
        let next = if wanted.is_some() { &follows.0[1..] } else { "a" };
        assert_eq!(keys(&world.requests()), format!("a{next}"), "{name}: the next request");
    }
}
