//! Credentials: the operator's profiles and the choice among them, client tokens, and the identity of callers. Pure:
//! `now` is a parameter.

pub mod certificate_names;
pub mod credential_key;
pub mod credential_source;
pub mod owner;
pub mod principal;
pub mod profile;
pub mod rotation;
pub mod shared_keys;
pub mod tokens;
pub mod webhook;

pub use antiphon_ledger::secret::{Secret, SecretFlaw};
pub use certificate_names::{CertificateClients, CertificateName, CertificateNameError, CertificateNames};
pub use credential_key::CredentialKey;
pub use credential_source::{CredentialSource, CredentialSources};
pub use owner::{Owner, OwnerKey, OwnerParseError};
pub use principal::{Caller, Principal, PrincipalHash, PrincipalKey, PrincipalSettings};
pub use profile::{AwsKeys, Credential, Profile};
pub use tokens::{ClientTokens, TOKEN_PREFIX, TokenHash, TokenHashParseError, TokenLimits};
pub use webhook::{SignedRequest, WebhookKey, WebhookKeyParseError};
