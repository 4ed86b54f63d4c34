//! Keys: the choice among an upstream's profiles, their cooldowns, retry budgets and breakers, and the tasks that keep
//! their credentials fresh.
//!
//! `rotation` and `credential_source` are pure: `now` is a parameter. `profiles` has the locks around them.

pub mod credential_source;
pub mod credentials;
pub mod profiles;
pub mod rotation;
