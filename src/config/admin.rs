//! The admin listener: where it is, and who may ask there.

use std::{net::SocketAddr, path::Path};

use super::{
    Lookup, ReadFile,
    file::ClientToken,
    flaw::Flaw,
    lowering::{Lowering, anywhere},
    problem::Problem,
    values,
    variables::{ADMIN_TOKEN, ADMIN_TOKEN_FILE},
};
use crate::{auth::TokenHash, server::ServerSettings};

const LISTEN: &str = "server.admin_listen";
const TOKEN: &str = "server.admin_token";

/// Puts the hash of a token that a variable gives over that of the file.
pub(super) fn overlay_admin_token(lowering: &mut Lowering, variable: &Lookup<'_>, read_file: &ReadFile<'_>) {
    let given = match (variable(ADMIN_TOKEN), variable(ADMIN_TOKEN_FILE)) {
        (Some(_), Some(_)) => {
            let problem = Problem::new(ADMIN_TOKEN_FILE, format!("{ADMIN_TOKEN} is set, too"));
            return lowering.push(problem.hint("keep one of them"));
        }
        (Some(token), None) => Ok(token),
        (None, Some(path)) => read_file(Path::new(&path)).map_err(|error| {
            Problem::new(ADMIN_TOKEN_FILE, format!("cannot read the file: {error}"))
                .hint("name a readable file that holds the token alone")
        }),
        (None, None) => return,
    };
    match given.map(|token| token.trim().to_owned()) {
        Ok(token) if token.is_empty() => {
            let problem = Problem::new(ADMIN_TOKEN_FILE, "the file holds no token");
            lowering.push(problem.hint("write one into it, alone: `antiphon config token NAME` makes one"));
        }
        Ok(token) => {
            let hash = TokenHash::of(token.as_bytes()).to_string();
            lowering.file.server.admin_token = Some(ClientToken(hash));
        }
        Err(problem) => lowering.push(problem),
    }
}

/// The hash of the token; none where everybody on this machine may ask.
pub(super) fn lower_admin_token(lowering: &mut Lowering) -> Option<TokenHash> {
    let said = lowering.file.server.admin_token.clone()?;
    let hash = said.0.parse().map_err(|error: crate::auth::NotAHash| {
        Flaw::new(error.to_string()).hint("`antiphon config token NAME` makes a token and prints its hash")
    });
    lowering.take(TOKEN, hash)
}

/// Where the listener is: on this machine alone, unless there is a token.
pub(super) fn lower_admin_listen(lowering: &mut Lowering, server: &ServerSettings, has_token: bool) -> SocketAddr {
    let text = lowering.file.server.admin_listen.clone();
    let address = lowering.take(LISTEN, values::address(&text)).unwrap_or_else(anywhere);
    if !address.ip().is_loopback() && !has_token {
        let flaw = Flaw::new(format!(
            "{address} can be reached from other machines, and nobody has to log in there"
        ));
        let port = address.port();
        lowering.report(LISTEN, flaw.hint(format!("set {TOKEN}, or write \"127.0.0.1:{port}\"")));
    }
    if address == server.listen && address.port() != 0 {
        let flaw = Flaw::new(format!("{address} is the proxy's own address"));
        lowering.report(LISTEN, flaw.hint("take another port"));
    }
    address
}
