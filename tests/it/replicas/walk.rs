//! Random walk with real replicas, a balancer that chooses at random, and a database: replicas and the database are
//! killed, replicas are paused, connections are severed. The promises to clients and tool services hold.
//!
//! `STEPS=` sets the number of steps, `SEED=<n>` plays another walk, `SEED=random` a new one.

use std::{process::Command, sync::Arc, time::Duration};

use super::{clients::Clients, fleet::Fleet};
use crate::support::{
    database::DatabaseServer,
    provider::Provider,
    seed::{number, seed},
    wire::spawn,
};

const STEPS: usize = 150;

async fn step(clients: &mut Clients, server: &Arc<DatabaseServer>) {
    match clients.rng.below(100) {
        0..50 => clients.speaks().await,
        50..80 => clients.posts().await,
        80..86 => {
            // Before, during or after a request.
            let at = clients.replica();
            let (id, after) = (clients.fleet.replicas[at].id(), clients.rng.below(30) as u64);
            let kill = spawn(async move {
                tokio::time::sleep(Duration::from_millis(after)).await;
                let sent = Command::new("kill").args(["-KILL", &id.to_string()]).status();
                assert!(sent.unwrap().success());
            });
            clients.speaks().await;
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
            clients.speaks().await;
            restart.await.unwrap();
            clients.count("databases killed");
        }
        88..92 => {
            let at = clients.replica();
            clients.fleet.replicas[at].signal("STOP");
            clients.speaks().await;
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
    let provider = Provider::start().await;
    // A request that cannot be answered rightly is refused, and its client sends it again.
    let fleet = Fleet::start(&provider, &url, replicas, "[ledger]\non_outage = \"refuse\"\n").await;
    let mut clients = Clients::start(seed, provider, fleet).await;
    for at in 0..steps {
        let known = clients.known_faults();
        step(&mut clients, &server).await;
        clients.place_faults(known, &format!("SEED={seed} step {at}"));
    }
    clients.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_replicas_and_their_database_are_killed_at_random() {
    walk(2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn three_replicas_and_their_database_are_killed_at_random() {
    walk(3).await;
}
