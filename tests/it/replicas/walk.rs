//! Random walk with real replicas, a balancer that chooses at random, and a database: replicas and the database are
//! killed, replicas are paused, connections are severed. The promises to clients and tool services hold.
//!
//! `STEPS=` sets the number of steps, `SEED=<n>` plays another walk, `SEED=random` a new one. With `OTHER_BINARY=` every
//! second replica is of another version: both must read what the other has written.

use std::{process::Command, sync::Arc, time::Duration};

use super::clients::Clients;
use crate::support::{
    database::DatabaseServer,
    seed::{number, seed},
    wire::spawn,
};

const STEPS: usize = 150;

async fn step(clients: &mut Clients, server: &Arc<DatabaseServer>) {
    match clients.rng.below(100) {
        0..40 => clients.speaks().await,
        40..56 => clients.posts().await,
        56..72 => clients.claims().await,
        72..80 => clients.reports().await,
        80..86 => {
            // Before, during or after a request, a claim or a report.
            let at = clients.replica();
            let (id, after) = (clients.fleet.replicas[at].id(), clients.rng.below(30) as u64);
            let kill = spawn(async move {
                tokio::time::sleep(Duration::from_millis(after)).await;
                let sent = Command::new("kill").args(["-KILL", &id.to_string()]).status();
                assert!(sent.unwrap().success());
            });
            clients.acts().await;
            kill.await.unwrap();
            clients.fleet.restart(at).await;
            clients.count("replicas killed");
        }
        86..88 => {
            server.crash();
            let (server, away) = (Arc::clone(server), 200 * clients.rng.below(10) as u64);
            let restart = spawn(async move {
                tokio::time::sleep(Duration::from_millis(away)).await;
                server.run(&[]).await;
            });
            clients.acts().await;
            restart.await.unwrap();
            clients.count("databases killed");
        }
        88..92 => {
            let at = clients.replica();
            clients.fleet.replicas[at].signal("STOP");
            clients.acts().await;
            clients.fleet.replicas[at].signal("CONT");
            clients.count("replicas paused");
        }
        92..96 => {
            let end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'antiphon'";
            server.execute(end).await;
            clients.count("connections severed");
        }
        _ => clients.starts_another(),
    }
}

async fn walk(replicas: usize) {
    let Some(server) = DatabaseServer::start().await else {
        println!("skipped: PostgreSQL is not installed");
        return;
    };
    let server = Arc::new(server);
    let (seed, steps) = (seed(), number("STEPS").unwrap_or(STEPS));
    println!("SEED={seed} STEPS={steps} replicas={replicas}");
    let url = server.new_database().await;
    let mut clients = Clients::start(seed, &url, replicas).await;
    for at in 0..steps {
        let known = clients.known_faults();
        step(&mut clients, &server).await;
        clients.place_faults(known, &format!("SEED={seed} step {at}"));
    }
    let figures = clients.finish().await;
    let figure = |name| figures.get(name).copied().unwrap_or_default();
    assert!(figure("claims granted") > 2, "effects ran");
    assert!(
        figure("claims refused") + figure("claims answered with the result") > 2,
        "effects were claimed again"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn two_replicas_and_their_database_are_killed_at_random() {
    walk(2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn three_replicas_and_their_database_are_killed_at_random() {
    walk(3).await;
}
