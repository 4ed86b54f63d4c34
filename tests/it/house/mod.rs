//! Rules of the code base.

pub(crate) mod architecture;
pub(crate) mod documents;
mod formats;
pub(crate) mod legibility;
pub(crate) mod published_names;
mod refusal_rows;
mod release_features;
