//! The admin listener: where it is, and who may ask there.

use std::{net::SocketAddr, path::Path};

use super::{
    Lookup, ReadFile,
    file::ClientToken,
    lower::{Lowering, anywhere},
    problem::Problem,
    read::Flaw,
    values,
    variables::{ADMIN_TOKEN, ADMIN_TOKEN_FILE},
};
use crate::{auth::TokenHash, server::ServerSettings};

const LISTEN: &str = "server.admin_listen";
const TOKEN: &str = "server.admin_token";

impl Lowering {
    /// Puts the hash of a token that a variable gives over that of the file.
    pub(super) fn overlay_admin_token(&mut self, variable: &Lookup<'_>, read_file: &ReadFile<'_>) {
        let given = match (variable(ADMIN_TOKEN), variable(ADMIN_TOKEN_FILE)) {
            (Some(_), Some(_)) => {
                let problem = Problem::new(ADMIN_TOKEN_FILE, format!("{ADMIN_TOKEN} is set, too"));
                return self.push(problem.hint("keep one of them"));
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
                self.push(problem.hint("write one into it, alone: `antiphon config token NAME` makes one"));
            }
            Ok(token) => {
                let hash = TokenHash::of(token.as_bytes()).to_string();
                self.file.server.admin_token = Some(ClientToken(hash));
            }
            Err(problem) => self.push(problem),
        }
    }

    /// The hash of the token; none where everybody on this machine may ask.
    pub(super) fn admin_token(&mut self) -> Option<TokenHash> {
        let said = self.file.server.admin_token.clone()?;
        let hash = said.0.parse().map_err(|error: crate::auth::NotAHash| {
            Flaw::new(error.to_string()).hint("`antiphon config token NAME` makes a token and prints its hash")
        });
        self.take(TOKEN, hash)
    }

    /// Where the listener is: on this machine alone, unless there is a token.
    pub(super) fn admin_listen(&mut self, server: &ServerSettings, has_token: bool) -> SocketAddr {
        let text = self.file.server.admin_listen.clone();
        let address = self.take(LISTEN, values::address(&text)).unwrap_or_else(anywhere);
        if !address.ip().is_loopback() && !has_token {
            let flaw = Flaw::new(format!(
                "{address} can be reached from other machines, and nobody has to log in there"
            ));
            let port = address.port();
            self.report(LISTEN, flaw.hint(format!("set {TOKEN}, or write \"127.0.0.1:{port}\"")));
        }
        if address == server.listen && address.port() != 0 {
            let flaw = Flaw::new(format!("{address} is the proxy's own address"));
            self.report(LISTEN, flaw.hint("take another port"));
        }
        address
    }
}
