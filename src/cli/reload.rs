//! Reloads the configuration: parse, check, build, swap. A bad file never replaces a good one.

use super::notify;
use crate::{
    admin::control::{ActiveConfig, AdminControl, ReloadOutcome},
    app::RunningProxy,
    config::{self, ConfigChanges, Flags, LoadedConfig, process_environment},
    profiles::Profiles,
    provider::Routes,
    telemetry::Telemetry,
};

/// State of reloads: the configurations, and the parts that a reload changes.
pub(super) struct Reloader {
    pub(super) flags: Flags,
    /// Configuration at the start of the process. Keys that need a restart still have its values.
    pub(super) initial: LoadedConfig,
    /// Configuration that was loaded last.
    pub(super) loaded: LoadedConfig,
    pub(super) control: AdminControl,
    pub(super) telemetry: Telemetry,
}

impl Reloader {
    /// Reloads the configuration and logs the outcome. On an error the previous configuration stays in effect.
    pub(super) fn reload(&mut self, running: &mut RunningProxy) -> Result<ReloadOutcome, String> {
        notify::send_reloading();
        let reloaded = self.apply_reload(running).map_err(|error| format!("{error:#}"));
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

    /// Loads the configuration and swaps it in. A bad configuration fails before the first swap.
    fn apply_reload(&mut self, running: &mut RunningProxy) -> anyhow::Result<ReloadOutcome> {
        let loaded = config::load_config(&self.flags, &process_environment)?;
        // Compared with the last load: what an earlier reload changed is no news.
        let changed = ConfigChanges::compare_configs(&self.loaded, &loaded)?.reloadable;
        // Compared with the start, since these keys stay as they were then.
        let needs_restart = ConfigChanges::compare_configs(&self.initial, &loaded)?.needs_restart;
        let effective = loaded.to_shown_toml()?;
        let old = self.control.active_config();
        let config = loaded.config.clone();
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
        running.replace_settings(routes.clone(), settings, config.upstream, profiles.clone())?;
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
