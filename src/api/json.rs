//! Answers as JSON, in which the bytes of a posted content stay as they are.

use std::io;

use http::{Response, StatusCode};
use serde::Serialize;
use serde_json::ser::Formatter;
use utoipa::openapi::schema::{Object, ObjectBuilder, Type};

use super::{ApiBody, private_response};

/// Builds a JSON response.
pub fn json_response(status: StatusCode, answer: &impl Serialize) -> Response<ApiBody> {
    private_response(status, "application/json", write_json(answer))
}

/// The compact format, in which bytes are finished JSON.
///
/// `serde_json`'s own type for this needs a feature that changes how every `Value` is read.
struct VerbatimFormatter;

impl Formatter for VerbatimFormatter {
    fn write_byte_array<W: ?Sized + io::Write>(&mut self, writer: &mut W, value: &[u8]) -> io::Result<()> {
        writer.write_all(value)
    }
}

/// Writes an answer as JSON.
pub fn write_json(answer: &impl Serialize) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut serializer = serde_json::Serializer::with_formatter(&mut bytes, VerbatimFormatter);
    // The keys are texts and the buffer grows, so this cannot fail.
    drop(answer.serialize(&mut serializer));
    bytes
}

/// Returns the schema of a text that is one of these names.
pub fn name_schema(description: &str, names: impl IntoIterator<Item = &'static str>) -> Object {
    let names = ObjectBuilder::new().schema_type(Type::String).enum_values(Some(names));
    names.description(Some(description)).build()
}
