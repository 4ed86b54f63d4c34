//! Loads the configuration anew: parse, check, build, swap. A bad file never replaces a good one.

use super::notify;
use crate::{
    admin::control::{Control, InForce, Reloaded},
    app::Running,
    config::{self, Changes, Flags, Loaded, process_environment},
    profiles::Profiles,
    provider::Routes,
    telemetry::Telemetry,
};

/// What runs, and by which configuration.
pub(super) struct Reloader {
    pub(super) flags: Flags,
    /// The configuration that the process began with: what needs a restart is in force as it says.
    pub(super) began: Loaded,
    /// The configuration that was loaded last.
    pub(super) loaded: Loaded,
    pub(super) control: Control,
    pub(super) telemetry: Telemetry,
}

impl Reloader {
    /// Loads it anew, and says so in the log; otherwise why everything stays as it was.
    pub(super) fn reload(&mut self, running: &mut Running) -> Result<Reloaded, String> {
        notify::reloading();
        let reloaded = self.replaced(running).map_err(|error| format!("{error:#}"));
        self.telemetry.record_reload(reloaded.is_ok());
        notify::ready();
        match &reloaded {
            Ok(Reloaded { changed, needs_restart }) => {
                tracing::info!(changed = changed.join(" "), "the configuration was loaded anew");
                if !needs_restart.is_empty() {
                    let keys = needs_restart.join(" ");
                    tracing::warn!(keys, "these keys changed, and are in force after a restart only");
                }
            }
            Err(why) => {
                tracing::error!(why, "the configuration was not loaded anew: what was in force stays");
                self.control.failed(why.clone());
            }
        }
        reloaded
    }

    fn replaced(&mut self, running: &mut Running) -> anyhow::Result<Reloaded> {
        let loaded = config::load(&self.flags, &process_environment)?;
        let changed = Changes::between(&self.loaded, &loaded)?.free;
        let needs_restart = Changes::between(&self.began, &loaded)?.fixed;
        let effective = loaded.to_toml()?;
        let old = self.control.in_force();
        let config = loaded.config.clone();
        let names: Vec<String> = config.upstreams.iter().map(|upstream| upstream.name.clone()).collect();
        let named = names.iter().map(String::as_str);
        let profiles = Profiles::new(named, config.profiles, &config.proxy.rotation, self.telemetry.clone());
        profiles.inherit(&old.profiles);
        let routes = Routes::new(config.upstreams);
        let mut settings = config.proxy;
        // The ledger goes by these, too: together, or not at all.
        let before = &self.began.config.proxy;
        settings.principals.clone_from(&before.principals);
        settings.policy.tiers.clone_from(&before.policy.tiers);
        let hosts = settings.allow_hosts.clone();
        running.replace(routes.clone(), settings, config.upstream, profiles.clone())?;
        self.telemetry.set_upstreams(names);
        if changed.iter().any(|key| key == "log.level") {
            self.control
                .log()
                .set_level(&config.log.level)
                .map_err(anyhow::Error::msg)?;
        }
        self.control.put_in_force(InForce {
            reloads: old.reloads.saturating_add(1),
            ..InForce::new(old.path.clone(), effective, &routes, profiles, hosts)
        });
        self.loaded = loaded;
        self.telemetry.announce_profiles();
        Ok(Reloaded { changed, needs_restart })
    }
}
