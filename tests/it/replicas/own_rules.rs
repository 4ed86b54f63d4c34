//! Replicas with different rows of their operators.

use antiphon::provider::ProviderKind;
use serde_json::json;

use super::pair::{Replicas, only_upstream};
use crate::{
    proxy::own_rules::reader,
    support::{app::Builder, provider::Settings},
};

const ROW: &str = r#"
    [[repair.rules]]
    name = "house_roles"
    text = ["House rule 7: the role <name> is not spoken here"]
    mend = "rename_role <name>"
"#;

/// What the replica with the row has learned holds at the one without it, which could not have learned it.
#[tokio::test(start_paused = true)]
async fn what_an_own_row_has_taught_holds_at_a_replica_without_the_row() {
    let started = std::cell::Cell::new(0);
    let settings = Settings::default();
    let replicas = Replicas::new(settings, move |builder: &mut Builder| {
        only_upstream(ProviderKind::Compatible)(builder);
        // The first process alone has the row.
        if started.replace(started.get() + 1) == 0 {
            builder.proxy.refusals = reader(ROW);
        }
    });
    replicas.judge_by(|body| {
        let mut messages = body["messages"].as_array().unwrap().iter();
        let is_refused = messages.any(|message| message["role"] == "developer");
        is_refused.then_some("House rule 7: the role 'developer' is not spoken here")
    });
    let body = json!({"model": "m", "messages": [{"role": "developer", "content": "Be brief."}, {"role": "user", "content": "Hi"}]});
    let path = "/x/v1/chat/completions";
    let untaught = replicas.send_as("sk-two", 1, path, &body).await;
    assert_eq!((untaught.status, &*untaught.sends), (400, "1"), "{untaught:#?}");
    let taught = replicas.send(0, path, &body).await;
    assert_eq!(taught.notes(), (200, "2", "fixed=1"), "{taught:#?}");
    let told = replicas.send(1, path, &body).await;
    assert_eq!(told.notes(), (200, "1", "fixed=1"), "{told:#?}");
    assert_eq!(told.last_body, taught.last_body);
}
