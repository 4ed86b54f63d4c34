//! The values of `--wire`, for the command line, its help and its completions.

use std::ffi::OsStr;

use clap::{
    Arg, Command,
    builder::{PossibleValue, PossibleValuesParser, TypedValueParser},
};

use crate::wire::Wire;

/// The parser of the name of a wire.
#[derive(Clone, Copy, Debug)]
pub(super) struct WireNames;

impl TypedValueParser for WireNames {
    type Value = Wire;

    fn parse_ref(&self, command: &Command, arg: Option<&Arg>, value: &OsStr) -> Result<Wire, clap::Error> {
        // Other spellings are accepted and not listed.
        if let Some(Ok(wire)) = value.to_str().map(str::parse) {
            return Ok(wire);
        }
        let listed = PossibleValuesParser::new(Wire::NAMES.iter().map(|(name, _)| *name));
        listed
            .try_map(|name| name.parse::<Wire>())
            .parse_ref(command, arg, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        let names = Wire::NAMES.iter().map(|(name, _)| PossibleValue::new(*name));
        Some(Box::new(names))
    }
}
