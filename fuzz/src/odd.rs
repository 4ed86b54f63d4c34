//! JSON values that few readers preserve: each is valid, and none may change on its way.

use super::feed::Feed;

/// Scalars, each a JSON text.
const SCALARS: [&str; 26] = [
    "null",
    "true",
    "0",
    "-0",
    "-0.0",
    "1.0",
    "1E400",
    "-1e-400",
    "0.10000000000000000555",
    "123456789012345678901234567890",
    "1.7976931348623157e+308",
    "9007199254740993",
    r#""""#,
    r#""\u0000""#,
    r#""\ud83d""#,
    r#""\udE00\uD83d""#,
    r#""\uD83D\uDE00""#,
    r#""\/\b\f\n\r\t\"\\""#,
    r#""caf\u00e9 caf\u0065\u0301""#,
    "\"\u{2028}\u{2029}\u{feff}\u{fffe}\"",
    "\"\u{1F600}\u{10FFFF}\u{7f}\"",
    r#""toolu_1""#,
    r#""tool\u005fuse""#,
    r#""{\"messages\":[]}""#,
    r#""]}],[{""#,
    r#""\\""#,
];

/// Keys, some of which have a meaning elsewhere.
const KEYS: [&str; 10] = [
    "a",
    "",
    "messages",
    "type",
    "id",
    "tool_use_id",
    "tool\\u005fcalls",
    "role",
    "\\ud800",
    "\u{2028}",
];

const SPACES: [&str; 6] = ["", "", " ", "\n", "\r\n\t", "  "];

/// Returns a value with up to `depth` levels, and sometimes with far more.
pub fn value(feed: &mut Feed<'_>, depth: usize) -> String {
    let space = *feed.pick(&SPACES);
    match feed.below(8) {
        0 if depth > 0 => {
            let items: Vec<String> = (0..feed.below(4)).map(|_| value(feed, depth - 1)).collect();
            format!("[{space}{}{space}]", items.join(","))
        }
        1 if depth > 0 => {
            let member = |feed: &mut Feed<'_>| {
                let key = *feed.pick(&KEYS);
                format!("\"{key}\"{space}:{space}{}", value(feed, depth - 1))
            };
            let members: Vec<String> = (0..feed.below(4)).map(|_| member(feed)).collect();
            format!("{{{space}{}}}", members.join(","))
        }
        2 if feed.once_in(8) => {
            let levels = feed.below(256) * 4;
            format!("{}{}", "[".repeat(levels + 1), "]".repeat(levels + 1))
        }
        _ => (*feed.pick(&SCALARS)).to_owned(),
    }
}
