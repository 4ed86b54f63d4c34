//! Real processes over one database.

use std::{net::SocketAddr, path::Path, time::Duration};

use antiphon::auth::TokenHash;
use http_body_util::{BodyExt, Full};
use hyper::{Request, body::Bytes};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpStream;

use crate::support::{
    binary::{Install, Process},
    provider::Provider,
    wire::spawn,
};

/// Timeout of one request.
const PATIENCE: Duration = Duration::from_secs(8);

/// Replicas with one configuration and one database.
pub(super) struct Fleet {
    install: Install,
    url: String,
    pub(super) replicas: Vec<Process>,
}

/// The answer to a request that was answered.
#[derive(Clone, Debug)]
pub(super) struct Answered {
    pub(super) status: u16,
    pub(super) owner: String,
    pub(super) repair: String,
    pub(super) body: Value,
}

impl Fleet {
    /// Starts replicas. `more` is added to their configuration.
    pub(super) async fn start(provider: &Provider, url: &str, count: usize, more: &str) -> Self {
        let token = TokenHash::hash_token(b"token of tools");
        let install = Install::new(&format!(
            "[upstreams.anthropic]\nurl = \"{}\"\n[services.tools]\ntoken = \"{token}\"\nprincipals = [\"*\"]\ntools = [\"*\"]\n{more}",
            provider.url(),
        ));
        let mut fleet = Self {
            install,
            url: url.to_owned(),
            replicas: Vec::new(),
        };
        for at in 0..count {
            let replica = fleet.start_one(at).await;
            fleet.replicas.push(replica);
        }
        fleet
    }

    /// Starts a replica. `OTHER_BINARY=` has the path of a binary of another version, which every second replica runs.
    async fn start_one(&self, at: usize) -> Process {
        let variables = [
            ("ANTIPHON_LEDGER_STORE", "postgres"),
            ("ANTIPHON_LEDGER_URL", &*self.url),
        ];
        match std::env::var_os("OTHER_BINARY").filter(|_| at % 2 == 1) {
            Some(other) => self.install.start_other(Path::new(&other), &variables).await,
            None => self.install.start_with(&variables).await,
        }
    }

    /// Kills a replica without any preparation, and starts another after that.
    pub(super) async fn crash(&mut self, at: usize) {
        self.replicas[at].kill();
        self.restart(at).await;
    }

    /// Starts a replica in the place of one that was killed.
    pub(super) async fn restart(&mut self, at: usize) {
        self.replicas[at] = self.start_one(at).await;
    }

    /// Sends a message to the model through a replica. `None` if there was no answer.
    pub(super) async fn send(&self, at: usize, key: &str, session: &str, body: &Value) -> Option<Answered> {
        let fields = [("x-api-key", key), ("x-antiphon-session", session)];
        ask(self.replicas[at].data, "/anthropic/v1/messages", &fields, body).await
    }

    /// Posts the result of a call as the tool service does. `None` if there was no answer.
    pub(super) async fn post(&self, at: usize, id: &str, body: &Value) -> Option<Answered> {
        let fields = [("authorization", "Bearer token of tools")];
        ask(
            self.replicas[at].data,
            &format!("/ledger/v1/calls/{id}/result"),
            &fields,
            body,
        )
        .await
    }
}

/// Sends one request with a JSON body. `None` if the connection or its answer failed.
pub(super) async fn ask(to: SocketAddr, path: &str, fields: &[(&str, &str)], body: &Value) -> Option<Answered> {
    let asking = async {
        let stream = TcpStream::connect(to).await.ok()?;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.ok()?;
        drop(spawn(async move { drop(connection.await) }));
        let mut request = Request::post(path)
            .header("host", "localhost")
            .header("content-type", "application/json");
        for (name, value) in fields {
            request = request.header(*name, *value);
        }
        let request = request.body(Full::new(Bytes::from(body.to_string()))).unwrap();
        let answer = sender.send_request(request).await.ok()?;
        let header = |name: &str| {
            let value = answer.headers().get(name).and_then(|value| value.to_str().ok());
            value.unwrap_or_default().to_owned()
        };
        let (status, owner, repair) = (
            answer.status().as_u16(),
            header("x-antiphon-owner"),
            header("x-antiphon-repair"),
        );
        let bytes = answer.into_body().collect().await.ok()?.to_bytes();
        Some(Answered {
            status,
            owner,
            repair,
            body: serde_json::from_slice(&bytes).unwrap_or_default(),
        })
    };
    tokio::time::timeout(PATIENCE, asking).await.ok().flatten()
}
