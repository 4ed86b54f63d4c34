//! Access to the task page: the connection on which it is opened, and the secret of a link.

use http::{header::AUTHORIZATION, request::Parts};

use crate::{
    api::ledger_api::{LedgerApi, single_header},
    api::{Problem, ProblemCode},
    late::{TaskLink, TaskSecret},
    server::ClientConnection,
};

/// Refuses a connection that others could read: neither TLS nor from this machine.
pub(super) fn check_connection(head: &Parts) -> Result<(), Problem> {
    let is_private = head.extensions.get::<ClientConnection>().is_some_and(|connection| {
        let is_local = connection
            .address
            .is_some_and(|address| address.0.to_canonical().is_loopback());
        connection.is_encrypted || is_local
    });
    if is_private {
        Ok(())
    } else {
        Err(ProblemCode::NeedsEncryption.into())
    }
}

/// Returns the link of a request. A credential of another kind is as unknown as a revoked link.
pub(super) async fn find_link(api: &LedgerApi, head: &Parts) -> Result<TaskLink, Problem> {
    let bearer = single_header(&head.headers, AUTHORIZATION.as_str()).and_then(|value| value.strip_prefix("Bearer "));
    let secret = bearer.and_then(TaskSecret::parse);
    let secret = secret.ok_or(ProblemCode::NotFound)?;
    let found = api.late.tasks().find_link(&secret).await?;
    found.ok_or(Problem::from_code(ProblemCode::NotFound))
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;
    use crate::server::{ClientAddress, ClientStall};

    #[test]
    fn only_tls_and_this_machine_are_private() {
        let is_private = |address: Option<&str>, is_encrypted| {
            let (mut head, ()) = Request::new(()).into_parts();
            head.extensions.insert(ClientConnection {
                address: address.map(|address| ClientAddress(address.parse().unwrap())),
                is_encrypted,
                stall: ClientStall::default(),
                framing: None,
            });
            check_connection(&head).is_ok()
        };
        for local in ["127.0.0.1", "::1", "::ffff:127.0.0.1"] {
            assert!(is_private(Some(local), false), "{local}");
        }
        assert!(is_private(Some("192.0.2.7"), true) && is_private(None, true));
        assert!(!is_private(Some("192.0.2.7"), false) && !is_private(None, false));
        let (head, ()) = Request::new(()).into_parts();
        assert!(check_connection(&head).is_err(), "an unknown connection");
    }
}
