//! Settings of the admin listener: its address and its token.

use std::{net::SocketAddr, path::Path};

use super::{
    ReadFile, VariableLookup,
    file::Written,
    lowering::{Lowering, any_loopback_port},
    problem::ConfigProblem,
    variables::{ADMIN_TOKEN, ADMIN_TOKEN_FILE},
};
use crate::{auth::TokenHash, server::ServerSettings};

const LISTEN: &str = "server.admin_listen";
const TOKEN: &str = "server.admin_token";

/// Overrides the hash of the file with that of a token from a variable.
pub(super) fn overlay_admin_token(lowering: &mut Lowering, variable: &VariableLookup<'_>, read_file: &ReadFile<'_>) {
    let given = match (variable(ADMIN_TOKEN), variable(ADMIN_TOKEN_FILE)) {
        (Some(_), Some(_)) => {
            // The two may differ, and a wrong choice would lock the operator out.
            let problem = ConfigProblem::new(ADMIN_TOKEN_FILE, format!("{ADMIN_TOKEN} is set too"));
            return lowering.problems.push(problem.with_hint("keep one of them"));
        }
        (Some(token), None) => Ok(token),
        (None, Some(path)) => read_file(Path::new(&path)).map_err(|error| {
            ConfigProblem::new(ADMIN_TOKEN_FILE, format!("cannot read the file: {error}"))
                .with_hint("name a readable file that contains only the token")
        }),
        (None, None) => return,
    };
    // Files and shells add a line break, which no client would send.
    match given.map(|token| token.trim().to_owned()) {
        Ok(token) if token.is_empty() => {
            let problem = ConfigProblem::new(ADMIN_TOKEN_FILE, "the token is empty");
            lowering
                .problems
                .push(problem.with_hint("give the token alone: `antiphon config token NAME` makes one"));
        }
        Ok(token) => {
            // Only the hash is stored, so that `config print` cannot show the token.
            let hash = TokenHash::hash_token(token.as_bytes()).to_string();
            lowering.file.server.admin_token = Some(Written::new(hash));
        }
        Err(problem) => lowering.problems.push(problem),
    }
}

/// Returns the address of the admin listener. Without a token only loopback is allowed.
pub(super) fn lower_admin_listen(lowering: &mut Lowering, server: &ServerSettings, has_token: bool) -> SocketAddr {
    let address = lowering
        .file
        .server
        .admin_listen
        .value()
        .unwrap_or_else(any_loopback_port);
    if !address.ip().is_loopback() && !has_token {
        let flaw = ConfigProblem::of_value(format!(
            "{address} is reachable from other machines, and no token is required there"
        ));
        let port = address.port();
        lowering.report_problem(
            LISTEN,
            flaw.with_hint(format!("set {TOKEN}, or write \"127.0.0.1:{port}\"")),
        );
    }
    // Port 0 means any free port, so two of them never collide.
    if address == server.listen && address.port() != 0 {
        let flaw = ConfigProblem::of_value(format!("{address} is the proxy's own address"));
        lowering.report_problem(LISTEN, flaw.with_hint("choose another port"));
    }
    address
}
