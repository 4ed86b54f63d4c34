//! The names of all variables that are read, and what each sets.

pub(super) const CONFIG: &str = "ANTIPHON_CONFIG";
pub(super) const LISTEN: &str = "ANTIPHON_LISTEN";
pub(super) const ADMIN_LISTEN: &str = "ANTIPHON_ADMIN_LISTEN";
/// Of the admin token itself.
pub(super) const ADMIN_TOKEN: &str = "ANTIPHON_ADMIN_TOKEN";
/// Of a file that holds it.
pub(super) const ADMIN_TOKEN_FILE: &str = "ANTIPHON_ADMIN_TOKEN_FILE";
pub(super) const UPSTREAM: &str = "ANTIPHON_UPSTREAM";
pub(super) const LOG: &str = "ANTIPHON_LOG";
pub(super) const LOG_FORMAT: &str = "ANTIPHON_LOG_FORMAT";
pub(super) const RUST_LOG: &str = "RUST_LOG";

/// Every variable that is read, with what it sets. Proxy variables are read in lower case too.
pub const VARIABLES: &[(&str, &str)] = &[
    (CONFIG, "path of the configuration file"),
    (LISTEN, "server.listen"),
    (ADMIN_LISTEN, "server.admin_listen"),
    (ADMIN_TOKEN, "the token whose hash is server.admin_token"),
    (ADMIN_TOKEN_FILE, "a file that holds it"),
    (UPSTREAM, "upstreams, as NAME=URL,NAME=URL"),
    (LOG, "log.level"),
    (LOG_FORMAT, "log.format"),
    (RUST_LOG, "log.level, where ANTIPHON_LOG is not set"),
    ("HTTPS_PROXY", "proxy towards https upstreams"),
    ("HTTP_PROXY", "proxy towards http upstreams"),
    ("ALL_PROXY", "proxy towards all other upstreams"),
    ("NO_PROXY", "hosts that are reached without a proxy"),
];
