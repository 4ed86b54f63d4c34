//! Converts `[webhooks]` to settings.

use super::{
    file::{join_key, values::check_label},
    lowering::Lowering,
    problem::ConfigProblem,
    services::lower_callers,
};
use crate::{auth::WebhookKey, late::WebhookSettings};

/// Builds the receivers of events.
pub(super) fn lower_webhooks(lowering: &mut Lowering) -> Vec<WebhookSettings> {
    let mut webhooks = Vec::new();
    for (name, section) in lowering.file.webhooks.clone() {
        let key = join_key("webhooks", &name);
        let named = lowering.value_or_report(&key, check_label(&name));
        let url = match &section.url {
            Some(url) => url.value(),
            None => report_missing(lowering, &key, "url", "write the https:// URL that gets the events"),
        };
        let secret = lower_secret(lowering, &key);
        let principals = lower_callers(lowering, &key, &section.principals);
        if let (Some(()), Some(url), Some(signing_key)) = (named, url, secret) {
            webhooks.push(WebhookSettings {
                name,
                url,
                key: signing_key,
                principals,
                has_content: section.include_content,
            });
        }
    }
    webhooks
}

/// Returns the key of a webhook's signatures. Reports a webhook without one.
fn lower_secret(lowering: &mut Lowering, key: &str) -> Option<WebhookKey> {
    let place = join_key(key, "secret");
    if !lowering.places.contains_key(&place) {
        return report_missing(
            lowering,
            key,
            "secret",
            "write secret = \"${NAME}\", with which the events are signed",
        );
    }
    let secret = lowering.secrets.get(&place).cloned()?;
    let parsed = WebhookKey::parse(secret.reveal());
    lowering.value_or_report(
        &place,
        parsed.map_err(|error| ConfigProblem::of_value(error.to_string())),
    )
}

fn report_missing<T>(lowering: &mut Lowering, key: &str, what: &str, hint: &str) -> Option<T> {
    let flaw = ConfigProblem::of_value(format!("has no {what}"));
    lowering.report_problem(key, flaw.with_hint(hint));
    None
}
