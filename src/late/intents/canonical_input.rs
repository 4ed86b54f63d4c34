//! The canonical form of a tool's input: JSON as RFC 8785 (JCS) writes it. Pure.
//!
//! One difference: an integer that a double cannot represent keeps its digits. Two such ids are two inputs.

use std::fmt::Write as _;

use serde_json::{Number, Value};

use crate::{digest::digest_of, late::json_pointer::JsonPointer, wire::json::Json};

/// From this magnitude on, not every integer is a double.
const EXACT_BELOW: f64 = 9_007_199_254_740_992.0;

/// Returns the hash of an input without the values that `ignored` points to.
///
/// The input is JSON, or a JSON string that contains JSON, as Chat Completions sends it. Any other input counts by its
/// bytes.
pub fn input_digest(raw: &[u8], ignored: &[JsonPointer]) -> [u8; 32] {
    let json = Json::new(raw);
    let text = json
        .root_span()
        .map(|root| json.decode_string(root))
        .unwrap_or_default();
    let text = if raw.trim_ascii_start().first() == Some(&b'"') {
        &text[..]
    } else {
        raw
    };
    match serde_json::from_slice::<Value>(text) {
        Ok(mut value) => {
            for pointer in ignored {
                pointer.remove(&mut value);
            }
            let mut canonical = String::with_capacity(text.len());
            write_value(&value, &mut canonical);
            digest_of([&b"json"[..], canonical.as_bytes()])
        }
        // Models also produce broken arguments, which still are an input.
        Err(_) => digest_of([&b"text"[..], text]),
    }
}

/// Writes a value. The parser has bounded its depth.
fn write_value(value: &Value, to: &mut String) {
    match value {
        Value::Null => to.push_str("null"),
        Value::Bool(true) => to.push_str("true"),
        Value::Bool(false) => to.push_str("false"),
        Value::Number(number) => write_number(number, to),
        Value::String(text) => write_text(text, to),
        Value::Array(list) => {
            to.push('[');
            for (place, value) in list.iter().enumerate() {
                if place > 0 {
                    to.push(',');
                }
                write_value(value, to);
            }
            to.push(']');
        }
        Value::Object(members) => {
            let mut members: Vec<(&String, &Value)> = members.iter().collect();
            // The order of UTF-16 units, which differs from that of the bytes above U+FFFF.
            members.sort_by(|(one, _), (other, _)| one.encode_utf16().cmp(other.encode_utf16()));
            to.push('{');
            for (place, (name, value)) in members.into_iter().enumerate() {
                if place > 0 {
                    to.push(',');
                }
                write_text(name, to);
                to.push(':');
                write_value(value, to);
            }
            to.push('}');
        }
    }
}

/// Writes a string: only quotes, backslashes and control characters are escaped.
fn write_text(text: &str, to: &mut String) {
    to.push('"');
    for letter in text.chars() {
        match letter {
            '"' => to.push_str("\\\""),
            '\\' => to.push_str("\\\\"),
            '\u{8}' => to.push_str("\\b"),
            '\t' => to.push_str("\\t"),
            '\n' => to.push_str("\\n"),
            '\u{c}' => to.push_str("\\f"),
            '\r' => to.push_str("\\r"),
            '\0'..='\u{1f}' => {
                // Writing into a String cannot fail.
                let _ = write!(to, "\\u{:04x}", u32::from(letter));
            }
            _ => to.push(letter),
        }
    }
    to.push('"');
}

/// Writes a number as ECMAScript does.
fn write_number(number: &Number, to: &mut String) {
    let value = number.as_f64().unwrap_or_default();
    // Its digits are those of the input, if it is an integer of 64 bits.
    if !number.is_f64() && value.abs() >= EXACT_BELOW {
        to.push_str(&number.to_string());
        return;
    }
    // Not the standard library's form: of two shortest forms it may choose another one than ECMAScript.
    to.push_str(ryu_js::Buffer::new().format(value));
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn canonical(text: &str) -> String {
        let mut written = String::new();
        write_value(&serde_json::from_str(text).unwrap(), &mut written);
        written
    }

    /// The examples of RFC 8785, section 3.2.2 and 3.2.3, and appendix B.
    #[test]
    fn the_form_is_that_of_the_standard() {
        let example = r#"{"numbers": [333333333.33333329, 1E30, 4.50, 2e-3, 0.000000000000000000000000001],
            "string": "\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/", "literals": [null, true, false]}"#;
        let written = r#"{"literals":[null,true,false],"numbers":[333333333.3333333,1e+30,4.5,0.002,1e-27],"string":"€$\u000f\nA'B\"\\\\\"/"}"#;
        assert_eq!(canonical(example), written);
        let order = r#"{"\u20ac":"Euro Sign","\r":"Carriage Return","\ufb33":"Hebrew Letter Dalet With Dagesh","1":"One",
            "\ud83d\ude00":"Emoji: Grinning Face","\u0080":"Control","\u00f6":"Latin Small Letter O With Diaeresis"}"#;
        let names: Vec<&str> = vec!["\r", "1", "\u{80}", "ö", "€", "😀", "\u{fb33}"];
        let written = canonical(order);
        let places: Vec<usize> = names
            .iter()
            .map(|name| written.find(&canonical(&json!(name).to_string())).unwrap())
            .collect();
        assert!(places.is_sorted(), "{written}");
        for (bits, number) in [
            (0x0000_0000_0000_0000_u64, "0"),
            (0x8000_0000_0000_0000, "0"),
            (0x0000_0000_0000_0001, "5e-324"),
            (0x8000_0000_0000_0001, "-5e-324"),
            (0x7fef_ffff_ffff_ffff, "1.7976931348623157e+308"),
            (0x4340_0000_0000_0000, "9007199254740992"),
            (0xc340_0000_0000_0000, "-9007199254740992"),
            (0x4430_0000_0000_0000, "295147905179352830000"),
            (0x44b5_2d02_c7e1_4af5, "9.999999999999997e+22"),
            (0x44b5_2d02_c7e1_4af6, "1e+23"),
            (0x44b5_2d02_c7e1_4af7, "1.0000000000000001e+23"),
            (0x444b_1ae4_d6e2_ef4e, "999999999999999700000"),
            (0x444b_1ae4_d6e2_ef4f, "999999999999999900000"),
            (0x444b_1ae4_d6e2_ef50, "1e+21"),
            (0x3eb0_c6f7_a0b5_ed8c, "9.999999999999997e-7"),
            (0x3eb0_c6f7_a0b5_ed8d, "0.000001"),
            (0x41b3_de43_5555_5553, "333333333.3333332"),
            (0x41b3_de43_5555_5554, "333333333.33333325"),
            (0x41b3_de43_5555_5555, "333333333.3333333"),
            (0xbecb_f647_612f_3696, "-0.0000033333333333333333"),
            (0x4314_3ff3_c1cb_0959, "1424953923781206.2"),
        ] {
            let mut written = String::new();
            write_number(&Number::from_f64(f64::from_bits(bits)).unwrap(), &mut written);
            assert_eq!(written, number, "{bits:x}");
        }
    }

    #[test]
    fn an_input_is_the_same_however_it_is_written() {
        let same = [
            r#"{"a":1,"b":["x",100,0]}"#,
            r#"{ "b" : [ "\u0078" , 1e2 , -0.0 ] , "a" : 1.0 }"#,
            r#""{\"b\":[\"x\",100,0],\"a\":1}""#,
        ];
        let digest = |text: &str| input_digest(text.as_bytes(), &[]);
        for text in same {
            assert_eq!(digest(text), digest(same[0]), "{text}");
        }
        let others = [
            r#"{"a":1,"b":["x",100]}"#,
            r#"{"a":"1","b":["x",100,0]}"#,
            r#"{"a":1,"b":["x",100,null]}"#,
            r#"{"id":9007199254740993}"#,
            r#"{"id":9007199254740992}"#,
            r"{}",
            "",
            "{",
            r#""{""#,
        ];
        let mut digests: Vec<_> = others.into_iter().map(digest).collect();
        // The broken text is the same with and without the quotes of Chat Completions.
        assert_eq!(digests.pop(), digests.last().copied());
        digests.push(digest(same[0]));
        digests.sort_unstable();
        digests.dedup();
        assert_eq!(digests.len(), others.len());
    }

    #[test]
    fn ignored_values_make_no_difference() {
        let ignored = ["/id".parse().unwrap(), "/meta/at".parse().unwrap()];
        let digest = |text: &str| input_digest(text.as_bytes(), &ignored);
        let one = digest(r#"{"to":"ann","id":1,"meta":{"at":5,"by":"x"}}"#);
        assert_eq!(one, digest(r#"{"to":"ann","id":"2","meta":{"by":"x"}}"#));
        assert_ne!(one, digest(r#"{"to":"ann","meta":{"by":"y"}}"#));
        assert_ne!(one, digest(r#"{"to":"ben","id":1,"meta":{"at":5,"by":"x"}}"#));
    }
}
