//! A walk through JSON text, one value after the other, each passed once: objects and arrays that are looked into, and
//! everything else skipped.
//!
//! Never validates what it skips, and never recurses: who walks decides how deep. Anything unexpected on the way is
//! [`Unreadable::Shape`]; whether it is JSON at all is for the full parse to say.

use crate::{
    conversation::Text,
    splice::Span,
    wire::{
        Unreadable,
        json::{Kind, decode, skip},
    },
};

/// A place in JSON text.
#[derive(Clone, Debug)]
pub(crate) struct Cursor<'a> {
    body: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    /// At the value that begins at or behind `at`.
    pub(crate) const fn new(body: &'a [u8], at: usize) -> Self {
        Self { body, at }
    }

    /// The type of the value here.
    pub(crate) fn kind(&mut self) -> Kind {
        self.space();
        Kind::of(self.body.get(self.at))
    }

    /// Walks the object here: calls `each` at every value with its decoded key. `each` passes the value.
    #[inline]
    pub(crate) fn object(
        &mut self,
        mut each: impl FnMut(&mut Self, &[u8]) -> Result<(), Unreadable>,
    ) -> Result<Span, Unreadable> {
        self.fields(|cursor, key, escaped| {
            let text = key.of(cursor.body);
            if escaped {
                each(cursor, &decode(text))
            } else {
                each(cursor, text.get(1..text.len().saturating_sub(1)).unwrap_or_default())
            }
        })
    }

    /// As [`Cursor::object`], with the key as it stands, quotes included, and whether a backslash stands in it.
    #[inline]
    pub(crate) fn fields(
        &mut self,
        mut each: impl FnMut(&mut Self, Span, bool) -> Result<(), Unreadable>,
    ) -> Result<Span, Unreadable> {
        self.space();
        let start = self.at;
        self.eat(b'{')?;
        if self.closes(b'}') {
            return Ok(Span::new(start, self.at));
        }
        loop {
            let key = self.at;
            self.eat(b'"')?;
            let (end, escaped) = skip::string(self.body, self.at).ok_or(Unreadable::Shape)?;
            self.at = end;
            self.space();
            self.eat(b':')?;
            self.space();
            each(self, Span::new(key, end), escaped)?;
            if self.is_last(b'}')? {
                return Ok(Span::new(start, self.at));
            }
        }
    }

    /// Walks the array here: calls `each` at every element. `each` passes the element.
    #[inline]
    pub(crate) fn array(
        &mut self,
        mut each: impl FnMut(&mut Self) -> Result<(), Unreadable>,
    ) -> Result<Span, Unreadable> {
        self.space();
        let start = self.at;
        self.eat(b'[')?;
        if self.closes(b']') {
            return Ok(Span::new(start, self.at));
        }
        loop {
            each(self)?;
            if self.is_last(b']')? {
                return Ok(Span::new(start, self.at));
            }
        }
    }

    /// Passes the value here, whatever it is.
    #[inline]
    pub(crate) fn value(&mut self) -> Result<Span, Unreadable> {
        self.space();
        let start = self.at;
        let inside = start.saturating_add(1);
        let end = match self.body.get(start) {
            Some(b'"') => skip::string_end(self.body, inside),
            Some(b'{' | b'[') => skip::container(self.body, inside),
            Some(_) => self.scalar_end(),
            None => None,
        };
        self.at = end.ok_or(Unreadable::Shape)?;
        Ok(Span::new(start, self.at))
    }

    /// Passes the value here; the decoded string if it is one, else nothing.
    #[inline]
    pub(crate) fn text(&mut self) -> Result<Text<'a>, Unreadable> {
        self.space();
        let start = self.at;
        if self.body.get(start) != Some(&b'"') {
            return self.value().map(|_| Text::default());
        }
        let inside = start.saturating_add(1);
        let (end, escaped) = skip::string(self.body, inside).ok_or(Unreadable::Shape)?;
        self.at = end;
        if escaped {
            return Ok(decode(self.body.get(start..end).unwrap_or_default()));
        }
        Ok(Text::Borrowed(
            self.body.get(inside..end.saturating_sub(1)).unwrap_or_default(),
        ))
    }

    /// Passes the value here; the number if it is a whole one that is not negative, else nothing.
    pub(crate) fn number(&mut self) -> Result<Option<u64>, Unreadable> {
        let span = self.value()?;
        let digits = self.body.get(span.range()).unwrap_or_default();
        Ok(std::str::from_utf8(digits).ok().and_then(|digits| digits.parse().ok()))
    }

    /// Passes the value here; whether it is `true`.
    pub(crate) fn is_true(&mut self) -> Result<bool, Unreadable> {
        let span = self.value()?;
        Ok(self.body.get(span.range()) == Some(b"true"))
    }

    /// Nothing but white space is left.
    pub(crate) fn end(&mut self) -> Result<(), Unreadable> {
        self.space();
        if self.at >= self.body.len() {
            Ok(())
        } else {
            Err(Unreadable::Shape)
        }
    }

    fn scalar_end(&self) -> Option<usize> {
        let rest = self.body.get(self.at..)?;
        let ends = |byte: &u8| matches!(byte, b',' | b'}' | b']' | b' ' | b'\n' | b'\r' | b'\t');
        let length = rest.iter().position(ends).unwrap_or(rest.len());
        (length > 0).then(|| self.at.saturating_add(length))
    }

    #[inline]
    fn space(&mut self) {
        while let Some(b' ' | b'\n' | b'\r' | b'\t') = self.body.get(self.at) {
            self.at = self.at.saturating_add(1);
        }
    }

    #[inline]
    fn eat(&mut self, byte: u8) -> Result<(), Unreadable> {
        if self.body.get(self.at) == Some(&byte) {
            self.at = self.at.saturating_add(1);
            Ok(())
        } else {
            Err(Unreadable::Shape)
        }
    }

    /// Whether an empty object or array ends here.
    #[inline]
    fn closes(&mut self, close: u8) -> bool {
        self.space();
        self.eat(close).is_ok()
    }

    /// Passes the comma behind a value, or the bracket that ends the list.
    #[inline]
    fn is_last(&mut self, close: u8) -> Result<bool, Unreadable> {
        self.space();
        if self.eat(b',').is_ok() {
            self.space();
            return Ok(false);
        }
        self.eat(close).map(|()| true)
    }
}
