//! Example traffic for the dashboard: healthy conversations of several clients, every kind of repair, and failures.

mod agents;
mod conversations;
mod failures;
mod history;
mod scenes;

use std::{io, time::Duration};

use super::{client::Answer, stage::Stage};
use agents::AGENTS;
use scenes::HEALTHY;

/// Pause between two requests of the first round, which shows every kind once, and of later rounds.
const FIRST_PACE: Duration = Duration::from_millis(60);
const PACE: Duration = Duration::from_millis(700);
/// Pause between two requests that take long.
const SLOW_PACE: Duration = Duration::from_secs(7);
const FIRST_SLOW_PACE: Duration = Duration::from_secs(1);
/// Number of requests for each special one.
const EVERY: usize = 4;

/// Sends requests until it is dropped.
pub(super) async fn run(stage: &Stage) -> io::Result<()> {
    tokio::join!(send_steadily(stage), send_slowly(stage));
    Ok(())
}

/// Sends healthy requests, and a special one from time to time.
async fn send_steadily(stage: &Stage) {
    for number in 0_usize.. {
        if number % EVERY == EVERY - 1 {
            send_special(stage, number).await;
        } else {
            let agent = &AGENTS[(number - number / EVERY) % agents::STEADY];
            let history = HEALTHY[number % HEALTHY.len()];
            send_quietly(agent.send(stage, number, history, None)).await;
        }
        let is_first_round = number < EVERY * special_count();
        tokio::time::sleep(if is_first_round { FIRST_PACE } else { PACE }).await;
    }
}

/// Sends requests that the provider answers late or never, beside the others.
async fn send_slowly(stage: &Stage) {
    for number in 0_usize.. {
        match number % 3 {
            0 => send_quietly(failures::end_in_silence(stage)).await,
            1 => send_quietly(failures::search_forever(stage)).await,
            _ => failures::leave_early(stage).await,
        }
        let is_first_round = number < 3;
        tokio::time::sleep(if is_first_round { FIRST_SLOW_PACE } else { SLOW_PACE }).await;
    }
}

fn special_count() -> usize {
    scenes::SCENES.len() + conversations::COUNT + failures::COUNT
}

/// Sends the special request of this number: a broken history, a conversation with a repair, or a failure.
async fn send_special(stage: &Stage, number: usize) {
    let turn = number / EVERY % special_count();
    let round = number / EVERY / special_count();
    if let Some(scene) = scenes::SCENES.get(turn) {
        send_quietly(scene.agent.send(stage, number, scene.history, scene.mode)).await;
        return;
    }
    let turn = turn - scenes::SCENES.len();
    if turn < conversations::COUNT {
        conversations::play_conversation(stage, turn, number, round).await.ok();
    } else {
        send_quietly(failures::fail_once(stage, turn - conversations::COUNT, number, round)).await;
    }
}

/// Sends a request and ignores its answer. A listener may stop at any time.
async fn send_quietly(sent: impl Future<Output = io::Result<Answer>>) {
    // Boxed, since the future of a whole exchange is large.
    drop(Box::pin(sent).await);
}
