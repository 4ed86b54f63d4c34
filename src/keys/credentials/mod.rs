//! Tasks that keep profiles' credentials fresh: one for each profile whose credential has a source.
//!
//! The decisions are in `keys::credential_source`. This module runs programs, asks endpoints and reads files. It never
//! logs what they supply.

mod container;
mod file_poll;
mod process_group;
mod program;
mod renewal;
mod secret_file;

use rustls::ClientConfig;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

pub use renewal::{CredentialFetcher, RenewedProfile, renew_forever};

use crate::{
    keys::credential_source::CredentialSource,
    keys::profiles::{ProfileCredential, Profiles},
    server::Tasks,
    upstream::{ProxyEnvironment, Sender, UpstreamSettings},
};
use container::ContainerFetcher;
use program::ProgramFetcher;

/// The running tasks of one configuration. They end when this is dropped.
#[derive(Debug)]
pub struct RenewalTasks {
    stop: CancellationToken,
    tasks: TaskTracker,
}

/// The client for credentials endpoints. `None` if no profile uses one.
#[derive(Clone, Debug)]
pub struct EndpointClient(Option<Sender>);

impl EndpointClient {
    /// Creates the client if a profile needs it, with this TLS. `tasks` runs its connections.
    pub fn new(profiles: &Profiles, settings: &UpstreamSettings, tasks: &Tasks, tls: ClientConfig) -> Self {
        let is_endpoint = |source: &CredentialSource| matches!(source, CredentialSource::AwsContainer { .. });
        if !profiles.sourced_credentials().any(|(_, source)| is_endpoint(source)) {
            return Self(None);
        }
        // The agents of ECS and EKS are on this machine, where no forward proxy can reach them.
        let settings = UpstreamSettings {
            proxies: ProxyEnvironment::default(),
            ..settings.clone()
        };
        Self(Some(Sender::with_tls(&settings, tasks.pool_tasks(), tls)))
    }
}

impl RenewalTasks {
    /// Starts the tasks of `profiles`. Those of the configuration `before` end first, so that no program runs twice.
    pub fn start(profiles: &Profiles, client: &EndpointClient, tasks: &Tasks, before: Option<&Self>) -> Self {
        let started = Self {
            stop: CancellationToken::new(),
            tasks: TaskTracker::new(),
        };
        let ended = before.map(|before| {
            before.stop.cancel();
            before.tasks.close();
            before.tasks.clone()
        });
        for (credential, source) in profiles.sourced_credentials() {
            let Some(work) = renewal_work(credential, source, client) else {
                continue;
            };
            let (stop, ended) = (started.stop.clone(), ended.clone());
            tasks.spawn_background(started.tasks.track_future(async move {
                let in_turn = async {
                    if let Some(ended) = ended {
                        ended.wait().await;
                    }
                    work.await;
                };
                stop.run_until_cancelled(in_turn).await;
            }));
        }
        started
    }
}

impl Drop for RenewalTasks {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// A task's work.
type RenewalWork = std::pin::Pin<Box<dyn Future<Output = ()> + Send>>;

/// Returns the work for one profile; `None` if its source needs a client that does not exist.
fn renewal_work(
    credential: ProfileCredential,
    source: &CredentialSource,
    client: &EndpointClient,
) -> Option<RenewalWork> {
    let profile = RenewedProfile::new(credential, source)?;
    Some(match source.clone() {
        CredentialSource::Token { command, .. } => Box::pin(renew_forever(profile, ProgramFetcher::for_token(command))),
        CredentialSource::AwsProcess { command, scope } => {
            Box::pin(renew_forever(profile, ProgramFetcher::for_aws(command, scope)))
        }
        CredentialSource::AwsContainer { endpoint, scope } => {
            let sender = client.0.clone()?;
            Box::pin(renew_forever(
                profile,
                ContainerFetcher {
                    sender,
                    endpoint,
                    scope,
                },
            ))
        }
        CredentialSource::Files { files, poll } => Box::pin(file_poll::poll_forever(profile, files, poll)),
    })
}
