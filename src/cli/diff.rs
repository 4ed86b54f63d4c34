//! A diff of a body before and after repair. It shows the original bytes, one line per message head or block.

use std::io::{self, Write};

use similar::{ChangeTag, TextDiff};

use crate::{
    cli::{
        input::BodyInput,
        style::{Painter, TextStyle},
    },
    conversation::{Content, Conversation},
    printable::printable_line,
    repair::Repaired,
    splice::Span,
    wire::Wire,
};

/// Lines of context around a change.
const CONTEXT: usize = 2;
/// Maximum length of a line in characters. Longer lines are cut in the middle.
const LINE_MAX: usize = 240;

/// Writes a unified diff. Writes nothing if the body did not change.
pub(super) fn write_diff(
    out: &mut impl Write,
    input: &BodyInput,
    repaired: &Repaired,
    painter: Painter,
) -> io::Result<()> {
    if repaired.body.is_original() {
        return Ok(());
    }
    let after = repaired.body.to_vec();
    let lines = diff_lines(input.wire, &input.body, &after, CONTEXT);
    if lines.is_empty() {
        return Ok(());
    }
    write_diff_lines(out, &input.title(), "repaired", &lines, painter)
}

/// Writes the lines of a unified diff behind a head with the name of the body. `change` is what became of it.
pub(super) fn write_diff_lines(
    out: &mut impl Write,
    name: &str,
    change: &str,
    lines: &[String],
    painter: Painter,
) -> io::Result<()> {
    for head in [format!("--- {name}"), format!("+++ {name} ({change})")] {
        writeln!(out, "{}", painter.paint(TextStyle::Bold, &head))?;
    }
    lines.iter().try_for_each(|line| match style_of_line(line) {
        Some(style) => writeln!(out, "{}", painter.paint(style, line)),
        None => writeln!(out, "{line}"),
    })
}

/// Returns the style of a line by its mark.
fn style_of_line(line: &str) -> Option<TextStyle> {
    match line.as_bytes().first()? {
        b'-' => Some(TextStyle::Red),
        b'+' => Some(TextStyle::Green),
        b'@' => Some(TextStyle::Cyan),
        _ => None,
    }
}

/// Returns the lines of a unified diff without its head, with `context` lines around each change. Empty if one of the
/// bodies cannot be read.
pub(super) fn diff_lines(wire: Wire, before: &[u8], after: &[u8], context: usize) -> Vec<String> {
    let (Ok(one), Ok(other)) = (wire.read(before), wire.read(after)) else {
        return Vec::new();
    };
    let lines = [body_lines(&one), body_lines(&other)];
    let [one, other] = lines
        .each_ref()
        .map(|lines| lines.iter().map(String::as_str).collect::<Vec<_>>());
    // Bodies are often one line of JSON, so a diff by lines of text would show nothing.
    let diff = TextDiff::from_slices(&one, &other);
    let mut shown = Vec::new();
    for group in diff.grouped_ops(context) {
        shown.push("@@".to_owned());
        for change in group.iter().flat_map(|op| diff.iter_changes(op)) {
            let mark = match change.tag() {
                ChangeTag::Delete => '-',
                ChangeTag::Insert => '+',
                ChangeTag::Equal => ' ',
            };
            shown.push(format!("{mark}{}", shorten_line(change.value())));
        }
    }
    shown
}

/// Splits the body into lines: the part before the history, each message with its blocks, and the part after it.
fn body_lines(conversation: &Conversation<'_>) -> Vec<String> {
    let text = |span: Span| String::from_utf8_lossy(span.of(conversation.body)).trim().to_owned();
    let Some(array) = conversation.array else {
        return vec![text(Span::new(0, conversation.body.len()))];
    };
    let mut lines = vec![text(Span::new(0, array.start + 1))];
    for message in &conversation.messages {
        let parts = conversation.parts_of(message);
        match (message.content, parts) {
            // With a single block, lines of their own for head and end would only separate what belongs together.
            (Content::Blocks(_), [first, .., last]) if first.span.start > message.span.start => {
                lines.push(text(Span::new(message.span.start, first.span.start)));
                lines.extend(parts.iter().map(|part| format!("  {}", text(part.span))));
                lines.push(text(Span::new(last.span.end, message.span.end)));
            }
            _ => lines.push(text(message.span)),
        }
    }
    lines.push(text(Span::new(array.end - 1, conversation.body.len())));
    lines
}

/// Cuts a long line in the middle. Line breaks become blanks, and letters without a shape are escaped.
fn shorten_line(line: &str) -> String {
    // A raw line break would split the line and break the diff.
    let flat = printable_line(line);
    let length = flat.chars().count();
    if length <= LINE_MAX {
        return flat;
    }
    let half = LINE_MAX / 2;
    let head: String = flat.chars().take(half).collect();
    let tail: String = flat.chars().skip(length - half).collect();
    format!("{head} … {tail}")
}
