//! A JSON document whose list is written entry by entry, as the entries come.

use std::io::{self, Write};

use serde_json::{Map, Value};

use crate::cli::output::DOCUMENT_VERSION;

/// A document with its version, one list, and members behind it.
pub(super) struct DocumentStream<W> {
    out: W,
    has_entries: bool,
}

impl<W: Write> DocumentStream<W> {
    /// Writes the beginning of the document.
    pub(super) fn begin(mut out: W, list: &str) -> io::Result<Self> {
        write!(out, "{{\n  \"version\": {DOCUMENT_VERSION},\n  \"{list}\": [")?;
        out.flush()?;
        Ok(Self {
            out,
            has_entries: false,
        })
    }

    /// Writes one entry.
    pub(super) fn write_entry(&mut self, entry: &Value) -> io::Result<()> {
        let comma = if self.has_entries { "," } else { "" };
        self.has_entries = true;
        write!(self.out, "{comma}\n    {entry}")?;
        self.out.flush()
    }

    /// Writes the members behind the list, and the end of the document.
    pub(super) fn finish(mut self, members: &Map<String, Value>) -> io::Result<()> {
        write!(self.out, "\n  ]")?;
        for (name, value) in members {
            write!(self.out, ",\n  {}: {value}", Value::String(name.clone()))?;
        }
        writeln!(self.out, "\n}}")?;
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_stream_is_one_document() {
        for entries in [vec![], vec![json!({"a": "\n"})], vec![json!(1), json!(2)]] {
            let mut out = Vec::new();
            let mut stream = DocumentStream::begin(&mut out, "files").unwrap();
            for entry in &entries {
                stream.write_entry(entry).unwrap();
            }
            let members = json!({"foreign": 3});
            stream.finish(members.as_object().unwrap()).unwrap();
            let document: Value = serde_json::from_slice(&out).unwrap();
            assert_eq!(
                document,
                json!({"version": DOCUMENT_VERSION, "files": entries, "foreign": 3})
            );
        }
    }
}
