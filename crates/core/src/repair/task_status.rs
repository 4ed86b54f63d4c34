//! Answers that only name a task: the tool has begun its work, and its result is still to come.
//!
//! Two protocols have such answers: MCP tasks (the specification of 2025-11-25, and the extension
//! `io.modelcontextprotocol/tasks`), and A2A (`Task` of the specification 0.3, and 1.0 with its names of states).

use serde_json::Value;

use super::late_texts::readable_text;

/// The longest answer that is read, in bytes: a task with its times, but no result.
const ANSWER_BYTES_MAX: usize = 16 * 1024;
/// The states of a task that goes on, in lower case and with `_` for `-`.
const GOING_ON: [&str; 4] = ["submitted", "working", "input_required", "auth_required"];
/// The prefix of states in A2A 1.0.
const STATE_PREFIX: &str = "task_state_";

/// Returns `true` if a content, as JSON, names a task that goes on, and nothing else.
pub fn is_working_task(content: &str) -> bool {
    // The cheap questions come first: few answers are tasks.
    if content.len() > ANSWER_BYTES_MAX || !content.contains("tatus") || !content.contains("ask") {
        return false;
    }
    let text = readable_text(content);
    let Ok(answer) = serde_json::from_str::<Value>(&text) else {
        return false;
    };
    // Some clients send the whole answer of the protocol.
    let answer = answer.get("result").unwrap_or(&answer);
    let (task, is_named) = match answer.get("task") {
        Some(task) => (task, true),
        None => (answer, false),
    };
    let text = |name: &str| task[name].as_str().filter(|text| !text.is_empty());
    let is_of_mcp = text("taskId").is_some() && text("status").is_some_and(is_going_on);
    let is_task = is_named || text("kind") == Some("task") || text("contextId").is_some();
    let state = task["status"]["state"].as_str();
    let is_of_a2a = is_task && text("id").is_some() && state.is_some_and(is_going_on);
    is_of_mcp || is_of_a2a
}

fn is_going_on(state: &str) -> bool {
    let state = state.to_ascii_lowercase().replace('-', "_");
    GOING_ON.contains(&state.strip_prefix(STATE_PREFIX).unwrap_or(&state))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_task_that_goes_on_is_told_from_a_result() {
        let mcp =
            |status: &str| json!({"task": {"taskId": "t-1", "status": status, "ttl": 60000, "pollInterval": 5000}});
        let flat = json!({"resultType": "task", "taskId": "t-1", "status": "input_required", "ttlMs": 60000});
        let a2a = |state: &str| json!({"kind": "task", "id": "t-1", "contextId": "c", "status": {"state": state}});
        let a2a_1 = json!({"task": {"id": "t-1", "status": {"state": "TASK_STATE_WORKING"}}});
        let blocks = |answer: &Value| json!([{"type": "text", "text": answer.to_string()}]);
        for going_on in [
            mcp("working"),
            flat,
            a2a("submitted"),
            a2a("input-required"),
            a2a_1,
            json!({"result": a2a("working")}),
        ] {
            for content in [going_on.clone(), json!(going_on.to_string()), blocks(&going_on)] {
                assert!(is_working_task(&content.to_string()), "{content}");
            }
        }
        for result in [
            mcp("completed"),
            mcp("failed"),
            a2a("completed"),
            a2a("canceled"),
            json!({"taskId": "", "status": "working"}),
            json!({"id": "t-1", "status": {"state": "working"}}),
            json!({"status": "working on the task"}),
            json!("the task has the status working"),
            json!([{"type": "text", "text": "{\"task\": {\"status\": \"working\"}}"}]),
        ] {
            assert!(!is_working_task(&result.to_string()), "{result}");
        }
        let long = json!({"taskId": "t", "status": "working", "result": "x".repeat(ANSWER_BYTES_MAX)});
        assert!(!is_working_task(&long.to_string()));
    }
}
