//! Antiphon.
