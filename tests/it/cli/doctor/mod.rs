//! `antiphon doctor` through the built binary, in homes of its own.

mod checking;
mod discovery;
mod explaining;
mod fixing;
mod home;
mod killed;
mod live;
mod privacy;
mod read_only;
mod undoing;
