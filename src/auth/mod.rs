//! Credentials: the operator's profiles, client tokens, and the identity of callers. Pure.

pub mod certificate_names;
pub mod credential_key;
pub mod owner;
pub mod principal;
pub mod profile;
pub mod shared_keys;
pub mod tokens;
pub mod webhook;

pub use antiphon_ledger::secret::{Secret, SecretFlaw};
pub use certificate_names::{CertificateClients, CertificateName, CertificateNameError, CertificateNames};
pub use credential_key::CredentialKey;
pub use owner::{Owner, OwnerKey, OwnerParseError};
pub use principal::{Caller, Principal, PrincipalHash, PrincipalKey, PrincipalSettings};
pub use profile::{AwsKeys, Credential, Profile};
pub use tokens::{ClientTokens, TOKEN_PREFIX, TokenHash, TokenHashParseError, TokenLimits};
pub use webhook::{SignedRequest, WebhookKey, WebhookKeyParseError};
