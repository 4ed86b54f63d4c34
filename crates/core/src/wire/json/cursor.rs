//! A walk through JSON text that passes each value once. It enters chosen objects and arrays and skips everything else.
//!
//! Skipped values are not validated. The cursor never recurses: the caller decides how deep to walk. Anything
//! unexpected on the way is [`Unreadable::Shape`]. Only the full parse tells whether the text is JSON at all.

use crate::{
    conversation::Text,
    splice::Span,
    wire::{
        Unreadable,
        json::{JsonKind, decode_string, skip},
    },
    work,
};

/// A position in JSON text.
#[derive(Clone, Debug)]
pub(crate) struct Cursor<'a> {
    body: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    /// Creates a cursor before the first value at or after `at`.
    pub(crate) const fn new(body: &'a [u8], at: usize) -> Self {
        Self { body, at }
    }

    /// Returns the type of the next value, without passing it.
    pub(crate) fn peek_kind(&mut self) -> JsonKind {
        self.skip_space();
        JsonKind::from_first_byte(self.body.get(self.at))
    }

    /// Walks the object, and calls `each` before every value with its decoded key. `each` must pass the value.
    #[inline]
    pub(crate) fn walk_object(
        &mut self,
        mut each: impl FnMut(&mut Self, &[u8]) -> Result<(), Unreadable>,
    ) -> Result<Span, Unreadable> {
        self.walk_members(|cursor, key, escaped| {
            let text = key.of(cursor.body);
            // Keys have nearly never an escape: they are compared where they are, without a copy.
            if escaped {
                each(cursor, &decode_string(text))
            } else {
                each(cursor, text.get(1..text.len().saturating_sub(1)).unwrap_or_default())
            }
        })
    }

    /// Walks the object as [`Cursor::walk_object`] does, with the span of the key and whether it contains a backslash.
    ///
    /// The span includes the quotes.
    #[inline]
    pub(crate) fn walk_members(
        &mut self,
        mut each: impl FnMut(&mut Self, Span, bool) -> Result<(), Unreadable>,
    ) -> Result<Span, Unreadable> {
        self.skip_space();
        let start = self.at;
        self.expect_byte(b'{')?;
        if self.close_empty(b'}') {
            return Ok(Span::new(start, self.at));
        }
        loop {
            work::count(1);
            let key = self.at;
            self.expect_byte(b'"')?;
            let (end, escaped) = skip::string_end_and_escape(self.body, self.at).ok_or(Unreadable::Shape)?;
            self.at = end;
            self.skip_space();
            self.expect_byte(b':')?;
            self.skip_space();
            each(self, Span::new(key, end), escaped)?;
            if self.ends_list(b'}')? {
                return Ok(Span::new(start, self.at));
            }
        }
    }

    /// Walks the array, and calls `each` before every element. `each` must pass the element.
    #[inline]
    pub(crate) fn walk_array(
        &mut self,
        mut each: impl FnMut(&mut Self) -> Result<(), Unreadable>,
    ) -> Result<Span, Unreadable> {
        self.skip_space();
        let start = self.at;
        self.expect_byte(b'[')?;
        if self.close_empty(b']') {
            return Ok(Span::new(start, self.at));
        }
        loop {
            work::count(1);
            each(self)?;
            if self.ends_list(b']')? {
                return Ok(Span::new(start, self.at));
            }
        }
    }

    /// Passes the next value of any type, and returns its span.
    #[inline]
    pub(crate) fn skip_value(&mut self) -> Result<Span, Unreadable> {
        self.skip_space();
        let start = self.at;
        let inside = start.saturating_add(1);
        let end = match self.body.get(start) {
            Some(b'"') => skip::string_end(self.body, inside),
            Some(b'{' | b'[') => skip::container_end(self.body, inside),
            Some(_) => self.scalar_end(),
            None => None,
        };
        self.at = end.ok_or(Unreadable::Shape)?;
        Ok(Span::new(start, self.at))
    }

    /// Passes the next value of any type, and returns its bytes.
    pub(crate) fn skip_bytes(&mut self) -> Result<&'a [u8], Unreadable> {
        let span = self.skip_value()?;
        Ok(self.body.get(span.range()).unwrap_or_default())
    }

    /// Passes the next value, and returns it decoded if it is a string, else an empty text.
    #[inline]
    pub(crate) fn read_text(&mut self) -> Result<Text<'a>, Unreadable> {
        self.skip_space();
        let start = self.at;
        // A member of another type is treated like a missing one: the provider decides about it.
        if self.body.get(start) != Some(&b'"') {
            return self.skip_value().map(|_| Text::default());
        }
        let inside = start.saturating_add(1);
        let (end, escaped) = skip::string_end_and_escape(self.body, inside).ok_or(Unreadable::Shape)?;
        self.at = end;
        if escaped {
            return Ok(decode_string(self.body.get(start..end).unwrap_or_default()));
        }
        Ok(Text::Borrowed(
            self.body.get(inside..end.saturating_sub(1)).unwrap_or_default(),
        ))
    }

    /// Passes the next value, and returns it if it is a whole number that is not negative.
    pub(crate) fn read_number(&mut self) -> Result<Option<u64>, Unreadable> {
        let span = self.skip_value()?;
        let digits = self.body.get(span.range()).unwrap_or_default();
        Ok(std::str::from_utf8(digits).ok().and_then(|digits| digits.parse().ok()))
    }

    /// Passes the next value, and returns `true` if it is `true`.
    pub(crate) fn read_true(&mut self) -> Result<bool, Unreadable> {
        let span = self.skip_value()?;
        Ok(self.body.get(span.range()) == Some(b"true"))
    }

    /// Checks that nothing but white space is left.
    pub(crate) fn expect_end(&mut self) -> Result<(), Unreadable> {
        self.skip_space();
        if self.at >= self.body.len() {
            Ok(())
        } else {
            Err(Unreadable::Shape)
        }
    }

    /// Returns the end of a number or word.
    fn scalar_end(&self) -> Option<usize> {
        let rest = self.body.get(self.at..)?;
        let ends = |byte: &u8| matches!(byte, b',' | b'}' | b']' | b' ' | b'\n' | b'\r' | b'\t');
        // A scalar has at least one byte, or a walk over `{"a":}` would go on.
        let length = rest.iter().position(ends).unwrap_or(rest.len());
        work::count(length);
        (length > 0).then(|| self.at.saturating_add(length))
    }

    #[inline]
    fn skip_space(&mut self) {
        while let Some(b' ' | b'\n' | b'\r' | b'\t') = self.body.get(self.at) {
            work::count(1);
            self.at = self.at.saturating_add(1);
        }
    }

    #[inline]
    fn expect_byte(&mut self, byte: u8) -> Result<(), Unreadable> {
        if self.body.get(self.at) == Some(&byte) {
            self.at = self.at.saturating_add(1);
            Ok(())
        } else {
            Err(Unreadable::Shape)
        }
    }

    /// Passes the bracket of an empty object or array. Returns `true` if there was one.
    #[inline]
    fn close_empty(&mut self, close: u8) -> bool {
        self.skip_space();
        self.expect_byte(close).is_ok()
    }

    /// Passes the comma after a value, or the bracket that ends the list. Returns `true` for the bracket.
    #[inline]
    fn ends_list(&mut self, close: u8) -> Result<bool, Unreadable> {
        self.skip_space();
        if self.expect_byte(b',').is_ok() {
            self.skip_space();
            return Ok(false);
        }
        self.expect_byte(close).map(|()| true)
    }
}
