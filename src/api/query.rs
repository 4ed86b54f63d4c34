//! The query of a request, parameter by parameter.

use std::{borrow::Cow, str::FromStr};

use serde::de::{
    DeserializeOwned,
    value::{Error, StrDeserializer},
};

use super::{Problem, ProblemCode};
use crate::provider::decode_query;

/// The decoded name and value of a parameter.
type Parameter<'q> = (Cow<'q, [u8]>, Cow<'q, [u8]>);

/// The decoded parameters of a query.
pub struct Query<'q> {
    pairs: Vec<Parameter<'q>>,
    /// The code for a parameter that is invalid.
    refusal: ProblemCode,
}

impl<'q> Query<'q> {
    /// Decodes a query as forms are.
    pub fn parse(query: Option<&'q str>, refusal: ProblemCode) -> Self {
        let pairs = query.unwrap_or_default().split('&').filter(|pair| !pair.is_empty());
        let decoded = pairs.map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            (decode_query(name), decode_query(value))
        });
        Self {
            pairs: decoded.collect(),
            refusal,
        }
    }

    /// Takes a parameter out of the query, and reads its value. `None` if it is absent; of several, the last counts.
    pub fn take<T>(
        &mut self,
        name: &str,
        flaw: &'static str,
        read: impl Fn(&[u8]) -> Option<T>,
    ) -> Result<Option<T>, Problem> {
        let mut taken = None;
        for (_, value) in self.pairs.extract_if(.., |(other, _)| **other == *name.as_bytes()) {
            taken = Some(read(&value).ok_or_else(|| Problem::new(self.refusal, flaw))?);
        }
        Ok(taken)
    }

    /// Takes the limit of a page's rows.
    pub fn take_limit(&mut self, usual: usize, most: usize, flaw: &'static str) -> Result<usize, Problem> {
        // Not clamped: a client that asks for more would take a short page for everything.
        let is_limit = |limit: &usize| (1..=most).contains(limit);
        let limit = self.take("limit", flaw, |text| read_number(text).filter(is_limit))?;
        Ok(limit.unwrap_or(usual))
    }

    /// Refuses what is left: a misspelt filter would return other rows than the wanted ones.
    pub fn finish(self, flaw: &'static str) -> Result<(), Problem> {
        if self.pairs.is_empty() {
            Ok(())
        } else {
            Err(Problem::new(self.refusal, flaw))
        }
    }
}

/// Reads a number that consists of digits only.
pub fn read_number<N: FromStr>(text: &[u8]) -> Option<N> {
    // `parse` alone would accept a sign.
    let is_number = text.iter().all(u8::is_ascii_digit);
    let text = std::str::from_utf8(text).ok()?;
    text.parse().ok().filter(|_| is_number)
}

/// Reads `true` or `false`.
pub fn read_flag(text: &[u8]) -> Option<bool> {
    match text {
        b"true" => Some(true),
        b"false" => Some(false),
        _ => None,
    }
}

/// Reads a value by the name that it has in answers.
pub fn read_name<T: DeserializeOwned>(text: &[u8]) -> Option<T> {
    let text = std::str::from_utf8(text).ok()?;
    T::deserialize(StrDeserializer::<Error>::new(text)).ok()
}
