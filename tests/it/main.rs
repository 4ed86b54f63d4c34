//! The integration tests: one binary, one module a subject.

mod answers;
mod cases;
mod policy;
