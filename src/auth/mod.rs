//! Credentials that the operator gave, and which of them a request goes up with. Pure: `now` is a parameter.

pub mod principal;
pub mod profile;
pub mod rotation;
pub mod secret;
pub mod tokens;

pub use principal::{Principal, PrincipalKey};
pub use profile::{AwsKeys, Credential, Profile};
pub use secret::Secret;
pub use tokens::{ClientTokens, NotAHash, TokenHash};
