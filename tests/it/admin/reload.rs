//! Configuration reloads by SIGHUP and by the admin API, with the real binary and two providers.

use serde_json::{Value, json};

use crate::support::{
    app::post,
    binary::{Install, Process},
    provider::Provider,
};

const HEALTHY: &str = r#"{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"go"}]}"#;

fn reloading() -> String {
    post("/admin/v1/reload", "").replace("Host: localhost", "Host: 127.0.0.1")
}

fn towards(provider: &Provider) -> String {
    format!("[upstreams.anthropic]\nurl = \"{}\"\n", provider.url())
}

async fn get(process: &Process, path: &str) -> Value {
    let answer = process
        .ask_admin(format!("GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"))
        .await;
    serde_json::from_str(answer.text()).unwrap_or_else(|_| answer.text().into())
}

async fn ask(process: &Process) -> u16 {
    process.ask(post("/anthropic/v1/messages", HEALTHY)).await.status()
}

#[tokio::test]
async fn a_valid_file_applies_at_once_and_an_invalid_one_is_rejected() {
    let (first, second) = (Provider::start().await, Provider::start().await);
    let install = Install::new(&towards(&first));
    let process = install.start().await;
    assert_eq!(ask(&process).await, 200);

    install.write(&format!("{}mode = \"strict\"\n", towards(&second)));
    let answer = process.ask_admin(reloading()).await;
    let told = answer.json();
    assert_eq!(
        (answer.status(), &told),
        (
            200,
            &json!({"reloaded": true, "changed": ["upstreams.anthropic.url", "upstreams.anthropic.mode"], "needs_restart": []})
        )
    );
    assert_eq!(ask(&process).await, 200);
    assert_eq!((first.seen().len(), second.seen().len()), (1, 1));
    let status = get(&process, "/admin/v1/status").await;
    assert_eq!(
        (&status["config"]["reloads"], &status["config"]["last_error"]),
        (&json!(1), &Value::Null)
    );
    let config = get(&process, "/admin/v1/config").await;
    assert!(config.as_str().unwrap().contains("mode = \"strict\""), "{config}");

    for (bad, word) in [
        ("[server]\nlisten = 1", "server.listen"),
        ("not toml", "line"),
        ("[nonsense]\n", "nonsense"),
    ] {
        install.write(bad);
        let answer = process.ask_admin(reloading()).await;
        assert_eq!(answer.status(), 422);
        assert!(answer.text().contains(word), "{}", answer.text());
        assert_eq!(ask(&process).await, 200);
        let status = get(&process, "/admin/v1/status").await;
        assert!(
            status["config"]["last_error"].as_str().unwrap().contains(word),
            "{status}"
        );
    }
    assert_eq!((first.seen().len(), second.seen().len()), (1, 4));

    install.write(&towards(&first));
    process.signal("HUP");
    while get(&process, "/admin/v1/status").await["config"]["reloads"] != 2 {}
    assert_eq!(ask(&process).await, 200);
    assert_eq!(first.seen().len(), 2);
}

#[tokio::test]
async fn a_reload_lists_keys_that_need_a_restart_and_applies_the_rest() {
    let provider = Provider::start().await;
    let install = Install::new(&towards(&provider));
    let process = install.start().await;
    let more = "[server]\nconnections_max = 7\n[log]\nlevel = \"warn\"\n[traces]\npropagate = true\n[tools.bash]\ntier = \"durable\"\n";
    for round in 0..2 {
        install.write(&format!("{}{more}", towards(&provider)));
        let told = process.ask_admin(reloading()).await.json();
        let changed = if round == 0 { json!(["log.level"]) } else { json!([]) };
        assert_eq!(
            told,
            json!({"reloaded": true, "changed": changed, "needs_restart": ["server.connections_max", "traces.propagate", "tools.bash.tier", "tools.bash.provisional", "tools.bash.intent", "tools.bash.ignore_input", "tools.bash.carry_over"]})
        );
        assert_eq!(get(&process, "/admin/v1/log-level").await, json!({"level": "warn"}));
    }
    assert_eq!(ask(&process).await, 200);
}
