//! Amazon's binary event streams (`application/vnd.amazon.eventstream`), in which Bedrock streams its answers.
//!
//! A frame: its length, the length of its headers, a CRC32 of both; headers; payload; a CRC32 of all that. Numbers are
//! big-endian (Amazon Transcribe, "Event stream encoding", 2026-11).

#[cfg(feature = "server")]
use serde_json::Value;
use serde_json::json;

/// Type of a header whose value is a string.
const STRING: u8 = 7;
/// Bytes of a frame beside its headers and its payload.
const FIXED_BYTES: usize = 16;
/// Digits of base64.
const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Returns the frame of one event of an `InvokeModelWithResponseStream` answer.
pub fn chunk_frame(event: &[u8]) -> Vec<u8> {
    // Amazon pads each event, so that its length tells nothing about the text.
    let payload = json!({"bytes": encode_base64(event), "p": "abcdefghijklm"});
    let headers = [
        (":event-type", "chunk"),
        (":content-type", "application/json"),
        (":message-type", "event"),
    ];
    frame(&headers, payload.to_string().as_bytes())
}

/// Returns the frame of an exception that ends a stream, such as `throttlingException`.
pub fn exception_frame(name: &str, message: &str) -> Vec<u8> {
    let headers = [
        (":exception-type", name),
        (":content-type", "application/json"),
        (":message-type", "exception"),
    ];
    frame(&headers, json!({"message": message}).to_string().as_bytes())
}

/// Returns a frame with these headers and this payload.
pub fn frame(headers: &[(&str, &str)], payload: &[u8]) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in headers {
        block.push(u8::try_from(name.len()).unwrap_or(u8::MAX));
        block.extend_from_slice(name.as_bytes());
        block.push(STRING);
        block.extend_from_slice(&u16::try_from(value.len()).unwrap_or(u16::MAX).to_be_bytes());
        block.extend_from_slice(value.as_bytes());
    }
    let length = |bytes: usize| u32::try_from(bytes).unwrap_or(u32::MAX).to_be_bytes();
    let mut frame = length(FIXED_BYTES + block.len() + payload.len()).to_vec();
    frame.extend_from_slice(&length(block.len()));
    frame.extend_from_slice(&crc32(&frame).to_be_bytes());
    frame.extend_from_slice(&block);
    frame.extend_from_slice(payload);
    frame.extend_from_slice(&crc32(&frame).to_be_bytes());
    frame
}

/// Returns the frames of the events of a Messages stream, as Bedrock sends them.
#[cfg(feature = "server")]
pub(crate) fn invoke_frames(mut events: Vec<Value>) -> Vec<Vec<u8>> {
    // Bedrock sends no pings, and adds its own counts to the last event.
    events.retain(|event| event["type"] != "ping");
    if let Some(last) = events.last_mut() {
        last["amazon-bedrock-invocationMetrics"] = json!({"inputTokenCount": 12, "outputTokenCount": 4});
    }
    let frame = |event: &Value| chunk_frame(event.to_string().as_bytes());
    events.iter().map(frame).collect()
}

/// Returns the CRC32 of IEEE 802.3.
fn crc32(bytes: &[u8]) -> u32 {
    let step = |sum: u32| (sum >> 1) ^ (0xEDB8_8320 & (sum & 1).wrapping_neg());
    let add = |sum: u32, byte: &u8| (0..8).fold(sum ^ u32::from(*byte), |sum, _| step(sum));
    !bytes.iter().fold(u32::MAX, add)
}

fn encode_base64(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let mut padded = [0; 4];
        padded[1..=group.len()].copy_from_slice(group);
        let bits = u32::from_be_bytes(padded);
        let digit = |at: usize| DIGITS[(bits >> (18 - 6 * at)) as usize & 63] as char;
        text.extend((0..=group.len()).map(digit));
        text.extend(std::iter::repeat_n('=', 3 - group.len()));
    }
    text
}
