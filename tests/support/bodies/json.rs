//! A JSON value with ordered keys, and a writer that uses every freedom of the syntax.

use super::Rng;

/// A JSON value to write.
#[derive(Clone, Debug, PartialEq)]
pub enum Json {
    Null,
    Bool(bool),
    /// A number with exactly these digits.
    Number(String),
    Text(String),
    List(Vec<Self>),
    Object(Vec<(String, Self)>),
}

/// Returns a string.
pub fn text(words: &str) -> Json {
    Json::Text(words.to_owned())
}

/// Returns an object with its keys in this order.
pub fn object<const N: usize>(members: [(&str, Json); N]) -> Json {
    Json::Object(
        members
            .into_iter()
            .map(|(key, value)| (key.to_owned(), value))
            .collect(),
    )
}

/// Whitespace between tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Spacing {
    /// No whitespace.
    #[default]
    Tight,
    /// A space after `,` and `:`.
    Blanks,
    /// Two spaces per level, with line feeds.
    Pretty,
    /// Tabs and CRLF.
    Windows,
    /// Any whitespace anywhere.
    Wild,
}

/// The style of a body. One style always writes a value in the same way.
#[derive(Clone, Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "a table of independent habits")]
pub struct Style {
    pub spacing: Spacing,
    /// `\u` escapes for everything outside ASCII.
    pub ascii: bool,
    /// `\u` escapes for some letters, even in keys and ids.
    pub odd_escapes: bool,
    /// Keys in random order.
    pub shuffled: bool,
    pub seed: u64,
    /// Responses: item ids. Gemini: ids of calls and responses.
    pub ids: bool,
    /// Gemini: proto spelling of keys, and the role `function`.
    pub snake: bool,
    /// Gemini: key of the object around the request.
    pub wrap: Option<&'static str>,
}

impl Style {
    /// Returns a random style.
    pub fn random(rng: &mut Rng) -> Self {
        let all = [
            Spacing::Tight,
            Spacing::Tight,
            Spacing::Blanks,
            Spacing::Pretty,
            Spacing::Windows,
            Spacing::Wild,
        ];
        Self {
            spacing: *rng.pick(&all),
            ascii: rng.chance(30),
            odd_escapes: rng.chance(20),
            shuffled: rng.chance(30),
            seed: rng.next(),
            ..Self::default()
        }
    }

    /// Writes `value`.
    pub fn write(&self, value: &Json) -> Vec<u8> {
        let mut writer = Writer {
            style: self,
            rng: Rng::new(self.seed),
            out: Vec::new(),
            depth: 0,
        };
        writer.value(value);
        if matches!(self.spacing, Spacing::Pretty | Spacing::Windows | Spacing::Wild) {
            writer.line();
        }
        writer.out
    }
}

struct Writer<'a> {
    style: &'a Style,
    rng: Rng,
    out: Vec<u8>,
    depth: usize,
}

impl Writer<'_> {
    fn value(&mut self, value: &Json) {
        match value {
            Json::Null => self.out.extend(b"null"),
            Json::Bool(true) => self.out.extend(b"true"),
            Json::Bool(false) => self.out.extend(b"false"),
            Json::Number(digits) => self.out.extend(digits.as_bytes()),
            Json::Text(words) => self.string(words),
            Json::List(items) => self.list(b'[', b']', items, Self::value),
            Json::Object(members) => {
                // The randomness comes from the object itself, so changes elsewhere in the body do not affect it.
                let own = Rng::new(self.style.seed ^ fingerprint(members));
                let outer = std::mem::replace(&mut self.rng, own);
                let mut members: Vec<&(String, Json)> = members.iter().collect();
                if self.style.shuffled {
                    self.rng.shuffle(&mut members);
                }
                self.list(b'{', b'}', &members, |writer, (key, value)| {
                    writer.string(key);
                    writer.blank(false);
                    writer.out.push(b':');
                    writer.blank(true);
                    writer.value(value);
                });
                self.rng = outer;
            }
        }
    }

    fn list<T>(&mut self, open: u8, close: u8, items: &[T], each: impl Fn(&mut Self, &T)) {
        self.out.push(open);
        self.depth += 1;
        for (at, item) in items.iter().enumerate() {
            if at > 0 {
                self.blank(false);
                self.out.push(b',');
            }
            self.between(at > 0);
            each(self, item);
        }
        self.depth -= 1;
        if !items.is_empty() {
            self.between(false);
        }
        self.out.push(close);
    }

    /// Writes the whitespace before an item or a closing bracket.
    fn between(&mut self, after_comma: bool) {
        match self.style.spacing {
            Spacing::Blanks if after_comma => self.out.push(b' '),
            Spacing::Tight | Spacing::Blanks => {}
            Spacing::Pretty | Spacing::Windows => self.line(),
            Spacing::Wild => self.blank(true),
        }
    }

    fn line(&mut self) {
        match self.style.spacing {
            Spacing::Windows => {
                self.out.extend(b"\r\n");
                self.out.extend(std::iter::repeat_n(b'\t', self.depth));
            }
            Spacing::Wild => self.blank(true),
            _ => {
                self.out.push(b'\n');
                self.out.extend(std::iter::repeat_n(b' ', 2 * self.depth));
            }
        }
    }

    /// Writes the whitespace after a colon (`after`), or before a colon or comma.
    fn blank(&mut self, after: bool) {
        match self.style.spacing {
            Spacing::Tight => {}
            Spacing::Wild => {
                for _ in 0..self.rng.below(3) {
                    let blank = *self.rng.pick(b" \t\n\r");
                    self.out.push(blank);
                }
            }
            _ if after => self.out.push(b' '),
            _ => {}
        }
    }

    fn string(&mut self, words: &str) {
        self.out.push(b'"');
        for letter in words.chars() {
            let odd = self.style.odd_escapes && self.rng.chance(8);
            match letter {
                '"' => self.out.extend(b"\\\""),
                '\\' => self.out.extend(b"\\\\"),
                '\n' if !odd => self.out.extend(b"\\n"),
                '\t' if !odd => self.out.extend(b"\\t"),
                '/' if odd => self.out.extend(b"\\/"),
                _ if u32::from(letter) < 0x20 || odd || (self.style.ascii && !letter.is_ascii()) => {
                    for unit in letter.encode_utf16(&mut [0; 2]) {
                        self.out.extend(format!("\\u{unit:04x}").bytes());
                    }
                }
                _ => self.out.extend(letter.encode_utf8(&mut [0; 4]).bytes()),
            }
        }
        self.out.push(b'"');
    }
}

/// Returns a hash of an object's keys and own texts (FNV-1a).
fn fingerprint(members: &[(String, Json)]) -> u64 {
    let own = members.iter().flat_map(|(key, value)| match value {
        Json::Text(words) => [key.as_str(), words.as_str()],
        _ => [key.as_str(), ""],
    });
    let bytes = own.flat_map(str::bytes);
    bytes.fold(0xCBF2_9CE4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3)
    })
}
