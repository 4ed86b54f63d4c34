//! The stores of a ledger: commits a second with one client and with 32, replicas from one to four, and the delay of a
//! database that is 1 or 10 ms away.
//!
//! The controls are a write with a wait for the disk, and statements of a bare PostgreSQL driver, in the same run. A commit
//! that fails ends the bench, a slow one never does. The rows of PostgreSQL need its server (see `tests/support/database.rs`).
#![allow(
    clippy::allow_attributes,
    clippy::cast_precision_loss,
    clippy::disallowed_methods,
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a bench reads the clock, speaks, and may panic"
)]

#[path = "../tests/support/mod.rs"]
mod shared;
mod support;

use std::{
    fs::File,
    io::Write,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use antiphon::{
    auth::Principal,
    clock,
    ledger::{CommitOutcome, CommitStep, Ledger, LedgerSettings, PostgresLedger, RecordKey, RecordKind, SqliteLedger},
};
use bytes::Bytes;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream, tcp::OwnedReadHalf, tcp::OwnedWriteHalf},
    task::JoinSet,
};
use tokio_postgres::NoTls;

use shared::{
    database::{DatabaseServer, settings_of},
    state,
    wire::spawn,
};
use support::{Options, Table, median, number};

const VALUE: Bytes = Bytes::from_static(&[b'x'; 1024]);

fn main() {
    let Some(options) = Options::read() else { return };
    options.introduce("ledger", "records of 1 KiB, one in each commit, all in one process");
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let server = DatabaseServer::start().await;
        if server.is_none() {
            println!("skipped: the rows of PostgreSQL (it is not installed)");
        }
        commits(options, server.as_ref()).await;
        if let Some(server) = &server {
            replicas(options, server).await;
            distance(options, server).await;
        }
    });
    options.conclude();
}

fn length(options: Options) -> Duration {
    Duration::from_secs(if options.quick { 1 } else { 5 })
}

fn new_record() -> CommitStep {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    let mut name = [0; 32];
    name[..8].copy_from_slice(&number.to_be_bytes());
    let mut owner = [0; 32];
    owner[..8].copy_from_slice(&(number % 64).to_be_bytes());
    let key = RecordKey::new(RecordKind::Call, Principal::from_bytes(owner), name);
    CommitStep::insert_record(key, VALUE, clock::unix_time() + Duration::from_secs(1_000_000))
}

async fn commit_one(ledger: Arc<dyn Ledger>) {
    let done = ledger.commit(vec![new_record()], clock::unix_time()).await.unwrap();
    assert_eq!(done, CommitOutcome::Done);
}

/// Returns the calls of `work` a second by so many clients. Client `n` calls it with `n`.
async fn rate<F>(clients: usize, length: Duration, work: impl Fn(usize) -> F + Clone + Send + 'static) -> f64
where
    F: Future<Output = ()> + Send,
{
    let (began, mut running) = (Instant::now(), JoinSet::new());
    for client in 0..clients {
        let work = work.clone();
        running.spawn(async move {
            let mut count = 0_u64;
            while began.elapsed() < length {
                work(client).await;
                count += 1;
            }
            count
        });
    }
    let count: u64 = running.join_all().await.into_iter().sum();
    count as f64 / began.elapsed().as_secs_f64()
}

async fn open(url: &str) -> Arc<dyn Ledger> {
    let (ledger, worker) = PostgresLedger::open(&settings_of(url), LedgerSettings::default(), [7; 32])
        .await
        .unwrap();
    drop(spawn(worker.run()));
    Arc::new(ledger)
}

async fn connect(url: &str) -> tokio_postgres::Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
    drop(spawn(async move { drop(connection.await) }));
    client
}

async fn commits(options: Options, server: Option<&DatabaseServer>) {
    let length = length(options);
    let folder = state::directory();
    let mut table = Table::new("Commits a second", &["store", "1 client", "32 clients"]);
    let mut file = File::create(folder.join("control")).unwrap();
    let began = Instant::now();
    let mut syncs = 0_u64;
    while began.elapsed() < length {
        file.write_all(&VALUE).unwrap();
        file.sync_data().unwrap();
        syncs += 1;
    }
    let syncs = syncs as f64 / began.elapsed().as_secs_f64();
    table.row("control: write and fdatasync", [number(syncs), String::new()]);
    let sqlite: Arc<dyn Ledger> =
        Arc::new(SqliteLedger::open(&folder.join("ledger.db"), LedgerSettings::default(), [7; 32]).unwrap());
    let mut stores = vec![("sqlite", sqlite)];
    if let Some(server) = server {
        let url = server.new_database().await;
        let client = connect(&url).await;
        client
            .batch_execute("CREATE TABLE control (value bytea)")
            .await
            .unwrap();
        let insert = "INSERT INTO control SELECT decode(repeat('78', 1024), 'hex')";
        let mut rates = Vec::new();
        for clients in [1, 32] {
            let mut connections = Vec::new();
            for _ in 0..clients {
                connections.push(connect(&url).await);
            }
            let connections = Arc::new(connections);
            let work = move |client: usize| {
                let connections = Arc::clone(&connections);
                async move { connections[client].batch_execute(insert).await.unwrap() }
            };
            rates.push(number(rate(clients, length, work).await));
        }
        table.row("control: PostgreSQL, one INSERT each", rates);
        stores.push(("postgres", open(&url).await));
    }
    for (name, ledger) in stores {
        let mut rates = Vec::new();
        for clients in [1, 32] {
            let ledger = Arc::clone(&ledger);
            rates.push(number(
                rate(clients, length, move |_| commit_one(Arc::clone(&ledger))).await,
            ));
        }
        table.row(name, rates);
    }
    table.print(options.markdown);
}

async fn replicas(options: Options, server: &DatabaseServer) {
    let mut table = Table::new(
        "Commits a second of 32 clients over several replicas",
        &["replicas", "all", "connections"],
    );
    for count in 1..=4_usize {
        let url = server.new_database().await;
        let mut replicas = Vec::new();
        for _ in 0..count {
            replicas.push(open(&url).await);
        }
        let replicas = Arc::new(replicas);
        let used = Arc::clone(&replicas);
        let work = move |client: usize| commit_one(Arc::clone(&used[client % count]));
        let all = rate(32, length(options), work).await;
        let open = connect(&url).await;
        let sql = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'antiphon'";
        let connections: i64 = open.query_typed(sql, &[]).await.unwrap()[0].get(0);
        table.row(count.to_string(), [number(all), connections.to_string()]);
        drop(replicas);
    }
    table.print(options.markdown);
}

async fn distance(options: Options, server: &DatabaseServer) {
    let head = &[
        "round trip",
        "control: SELECT 1, ms",
        "read of a record, ms",
        "commit, ms",
    ];
    let mut table = Table::new("One client of a distant database, medians", head);
    for delay in [0, 1, 10] {
        let url = server.new_database().await;
        let port = url.rsplit_once(':').unwrap().1.split_once('/').unwrap().0;
        let to = format!("127.0.0.1:{port}").parse().unwrap();
        let far = url.replace(
            port,
            &delayed(to, Duration::from_millis(delay)).await.port().to_string(),
        );
        let (ledger, control) = (open(&far).await, connect(&far).await);
        let count = if options.quick { 50 } else { 400 };
        let key = *new_record().key();
        let (mut selects, mut reads, mut commits) = (Vec::new(), Vec::new(), Vec::new());
        // In turns, so that other load on the machine affects all of them alike.
        for _ in 0..count {
            let began = Instant::now();
            control.query_typed("SELECT 1", &[]).await.unwrap();
            selects.push(began.elapsed().as_secs_f64() * 1e3);
            let began = Instant::now();
            ledger.read(vec![key], clock::unix_time()).await.unwrap();
            reads.push(began.elapsed().as_secs_f64() * 1e3);
            let began = Instant::now();
            commit_one(Arc::clone(&ledger)).await;
            commits.push(began.elapsed().as_secs_f64() * 1e3);
        }
        let name = if delay == 0 {
            "as it is".to_owned()
        } else {
            format!("+ {delay} ms")
        };
        table.row(name, [selects, reads, commits].map(|times| number(median(times))));
    }
    table.print(options.markdown);
}

/// Starts a forwarder that holds what comes back from `to` for a time.
async fn delayed(to: SocketAddr, delay: Duration) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = listener.local_addr().unwrap();
    spawn(async move {
        while let Ok((near, _)) = listener.accept().await {
            let far = TcpStream::connect(to).await.unwrap();
            near.set_nodelay(true).unwrap();
            far.set_nodelay(true).unwrap();
            let ((near_read, near_write), (far_read, far_write)) = (near.into_split(), far.into_split());
            spawn(forward(near_read, far_write, Duration::ZERO));
            spawn(forward(far_read, near_write, delay));
        }
    });
    at
}

async fn forward(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, delay: Duration) {
    let (sender, mut receiver) = tokio::sync::mpsc::unbounded_channel::<(tokio::time::Instant, Vec<u8>)>();
    spawn(async move {
        while let Some((at, bytes)) = receiver.recv().await {
            // The timer's grain is a millisecond.
            if !delay.is_zero() {
                tokio::time::sleep_until(at).await;
            }
            if to.write_all(&bytes).await.is_err() {
                return;
            }
        }
    });
    let mut buffer = vec![0; 64 * 1024];
    while let Ok(read) = from.read(&mut buffer).await {
        if read == 0
            || sender
                .send((tokio::time::Instant::now() + delay, buffer[..read].to_vec()))
                .is_err()
        {
            return;
        }
    }
}
