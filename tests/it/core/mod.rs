//! The repair core: reading, pairing, planning, splicing.

pub(crate) mod answer_items;
pub(crate) mod cases;
pub(crate) mod continuity_gaps;
pub(crate) mod cost_growth;
pub(crate) mod deepseek_referee;
pub(crate) mod foreign_thinking_properties;
pub(crate) mod fuzz_checks;
pub(crate) mod judge_cases;
pub(crate) mod judge_item_cases;
pub(crate) mod known_answers;
pub(crate) mod late_texts;
pub(crate) mod linear_work;
pub(crate) mod long_session;
pub(crate) mod lost_texts;
pub(crate) mod odd_json;
pub(crate) mod outlines;
pub(crate) mod posted_contents;
pub(crate) mod refusal_texts;
pub(crate) mod repair_evidence;
pub(crate) mod repair_policy;
pub(crate) mod repair_properties;
pub(crate) mod scanner;
pub(crate) mod server_rule_cases;
pub(crate) mod server_rule_properties;
pub(crate) mod step_growth;
pub(crate) mod stream_watchers;
