//! Reloads the configuration: read, check, build, swap. A bad file never replaces a good one, nor one that does not answer.

use std::{fs, time::Duration};

use rustls::ClientConfig;

use super::{file_work::FileWork, notify};
use crate::{
    api::admin::control::{ActiveConfig, AdminControl, ReloadOutcome},
    app::RunningProxy,
    config::{self, ConfigChanges, CurrentFile, Flags, LoadedConfig, process_environment},
    keys::profiles::Profiles,
    provider::Routes,
    telemetry::Telemetry,
    upstream::system_tls_config,
};

/// Longest wait for the files of a reload.
const FILES_TIMEOUT: Duration = Duration::from_secs(5);

/// State of reloads: the configurations, and the parts that a reload changes.
pub(super) struct Reloader {
    pub(super) flags: Flags,
    /// Configuration at the start of the process. Keys that need a restart still have its values.
    pub(super) initial: LoadedConfig,
    /// Configuration that was loaded last.
    pub(super) loaded: LoadedConfig,
    pub(super) control: AdminControl,
    pub(super) telemetry: Telemetry,
    /// The last reading of the files. `None` if it ended in time.
    pub(super) unfinished: Option<FileWork<anyhow::Result<ReloadFiles>>>,
}

/// Everything that a reload reads from files.
#[derive(Debug)]
pub(super) struct ReloadFiles {
    loaded: LoadedConfig,
    /// TLS towards providers, with the CA certificates of the system.
    tls: ClientConfig,
}

impl ReloadFiles {
    /// Reads them, for as long as a file takes. `current` is the file meanwhile.
    fn read(flags: &Flags, current: &CurrentFile) -> anyhow::Result<Self> {
        if let Some((path, _)) = config::config_path(flags, &process_environment)
            && let Ok(found) = current.during(path.display(), || fs::metadata(&path))
            && !found.is_file()
        {
            // A pipe is empty once it was read, and an empty file is a valid configuration.
            anyhow::bail!("{}: only a regular file can be read again", path.display());
        }
        let loaded = config::load_config(flags, &process_environment, current)?;
        let tls = current.during("the CA certificates of the system", system_tls_config)?;
        Ok(Self { loaded, tls })
    }
}

impl Reloader {
    /// Reloads the configuration and logs the outcome. On an error the previous configuration stays in effect.
    pub(super) async fn reload(&mut self, running: &mut RunningProxy) -> Result<ReloadOutcome, String> {
        notify::send_reloading();
        let files = self.read_files().await;
        let reloaded = files.and_then(|files| self.apply_reload(files, running));
        let reloaded = reloaded.map_err(|error| format!("{error:#}"));
        self.telemetry.record_reload(reloaded.is_ok());
        notify::send_ready();
        match &reloaded {
            Ok(ReloadOutcome { changed, needs_restart }) => {
                tracing::info!(changed = changed.join(" "), "configuration reloaded");
                if !needs_restart.is_empty() {
                    let keys = needs_restart.join(" ");
                    tracing::warn!(keys, "these keys changed, but take effect only after a restart");
                }
            }
            Err(why) => {
                tracing::error!(
                    why,
                    "failed to reload the configuration: the previous one stays in effect"
                );
                self.control.record_reload_failure(why.clone());
            }
        }
        reloaded
    }

    /// Reads the files. Fails after [`FILES_TIMEOUT`], and at once while an earlier reading still waits for its file: each
    /// keeps a thread.
    async fn read_files(&mut self) -> anyhow::Result<ReloadFiles> {
        if let Some(earlier) = &mut self.unfinished
            && !earlier.has_ended()
        {
            anyhow::bail!("an earlier reload still waits for {}", earlier.current_file());
        }
        let flags = self.flags.clone();
        let reading = FileWork::start(move |current| ReloadFiles::read(&flags, current))?;
        let reading = self.unfinished.insert(reading);
        let Ok(files) = tokio::time::timeout(FILES_TIMEOUT, reading.finish()).await else {
            let seconds = FILES_TIMEOUT.as_secs();
            anyhow::bail!("timeout: {} does not answer within {seconds}s", reading.current_file());
        };
        self.unfinished = None;
        files?
    }

    /// Swaps in the configuration that was read. A bad configuration fails before the first swap.
    fn apply_reload(&mut self, files: ReloadFiles, running: &mut RunningProxy) -> anyhow::Result<ReloadOutcome> {
        let ReloadFiles { loaded, tls } = files;
        // Compared with the last load: what an earlier reload changed is no news.
        let changed = ConfigChanges::compare_configs(&self.loaded, &loaded)?.reloadable;
        // Compared with the start, since these keys stay as they were then.
        let needs_restart = ConfigChanges::compare_configs(&self.initial, &loaded)?.needs_restart;
        let effective = loaded.to_shown_toml()?;
        let old = self.control.active_config();
        let config = loaded.config.clone();
        for warning in &config.rules.warnings {
            tracing::warn!("{warning}");
        }
        let names: Vec<String> = config.upstreams.iter().map(|upstream| upstream.name.clone()).collect();
        let named = names.iter().map(String::as_str);
        let profiles = Profiles::with_sources(
            named,
            config.profiles,
            &config.credential_sources,
            &config.proxy.rotation,
            self.telemetry.clone(),
        );
        // Cooldowns must survive a reload, or each reload would send requests to exhausted keys.
        profiles.inherit_state(&old.profiles);
        let routes = Routes::new(config.upstreams);
        let mut settings = config.proxy;
        // The ledger and the session table use these as well and are not rebuilt, so all keep the old values.
        let before = &self.initial.config.proxy;
        settings.principals.clone_from(&before.principals);
        settings.policy.tiers.clone_from(&before.policy.tiers);
        let hosts = settings.allow_hosts.clone();
        let clients = settings.client_tokens.names().map(str::to_owned).collect();
        running.replace_settings(routes.clone(), settings, (config.upstream, tls), profiles.clone());
        running.take_certificate(config.server.tls.as_ref());
        self.telemetry.set_upstreams(names);
        if changed.iter().any(|key| key == "log.level") {
            self.control
                .log_control()
                .set_level(&config.log.level)
                .map_err(anyhow::Error::msg)?;
        }
        self.control.set_active_config(ActiveConfig {
            reloads: old.reloads.saturating_add(1),
            clients,
            ..ActiveConfig::new(old.path.clone(), effective, &routes, profiles, hosts)
        });
        self.loaded = loaded;
        self.telemetry.announce_profiles();
        Ok(ReloadOutcome { changed, needs_restart })
    }
}
