//! The limit of connections of one client address, over sockets.

use std::net::{IpAddr, SocketAddr, UdpSocket};

use antiphon::server::AddressRange;
use tokio::net::TcpSocket;

use crate::support::{
    app::{App, Builder, before, get_with},
    wire::{Conn, PATIENCE, Upstream},
};

/// Connections that one address may have open.
const MAX: usize = 2;

/// Returns an address of this machine besides loopback; `None` if there is none.
fn own_address() -> Option<IpAddr> {
    let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
    // Sends nothing: it only selects the address.
    socket.connect("192.0.2.1:9").ok()?;
    let address = socket.local_addr().ok()?.ip();
    (!address.is_loopback() && !address.is_unspecified()).then_some(address)
}

async fn start(upstream: &Upstream, change: impl FnOnce(&mut Builder)) -> App {
    let limited = before(upstream.address).with(|builder| {
        builder.server.listen = ([0, 0, 0, 0], 0).into();
        builder.server.connections_per_address_max = MAX;
    });
    limited.with(change).start().await
}

/// Opens a connection from and to `address`, and sends a request. Returns the status, or 0 for a close.
async fn connect(app: &App, address: IpAddr) -> (Conn, u16) {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind((address, 0).into()).unwrap();
    let proxy = SocketAddr::from((address, app.running.data.port()));
    let mut conn = Conn::over(socket.connect(proxy).await.unwrap());
    conn.send(get_with("/openai/v1/models", &[])).await;
    let status = if conn.is_open().await {
        conn.response().await.status()
    } else {
        0
    };
    (conn, status)
}

/// Returns the number of refused connections on the metrics page.
fn refused(app: &App) -> String {
    let page = app.telemetry.encode_metrics();
    let line = page
        .lines()
        .find(|line| line.starts_with("antiphon_connections_refused_total "));
    line.unwrap().rsplit(' ').next().unwrap().to_owned()
}

/// The address of a connection is compared as IPv4 if it can be, so a range that is written as IPv6 means the same.
#[test]
fn a_range_of_mapped_addresses_is_one_of_ipv4() {
    let range: AddressRange = "::ffff:192.0.2.0/120".parse().unwrap();
    assert_eq!(range, "192.0.2.0/24".parse().unwrap());
    assert!(range.contains("192.0.2.9".parse().unwrap()));
    assert!("10.0.0.0/+8".parse::<AddressRange>().is_err());
}

#[tokio::test]
async fn one_address_cannot_take_all_connections() {
    let Some(address) = own_address() else {
        println!("skipped: this machine has loopback addresses only");
        return;
    };
    let upstream = Upstream::ok().await;
    let app = start(&upstream, |_| ()).await;
    let mut open = Vec::new();
    for _ in 0..MAX {
        let (conn, status) = connect(&app, address).await;
        assert_eq!(status, 200);
        open.push(conn);
    }
    for number in ["1", "2"] {
        assert_eq!(
            connect(&app, address).await.1,
            0,
            "a connection above the limit got an answer"
        );
        assert_eq!(refused(&app), number);
    }
    // Others are not affected.
    let loopback = IpAddr::from([127, 0, 0, 1]);
    let mut local = Vec::new();
    for _ in 0..2 * MAX {
        let (conn, status) = connect(&app, loopback).await;
        assert_eq!(status, 200);
        local.push(conn);
    }
    open.pop();
    let freed = async { while connect(&app, address).await.1 != 200 {} };
    tokio::time::timeout(PATIENCE, freed)
        .await
        .expect("a closed connection kept its place");
}

#[tokio::test]
async fn a_trusted_proxy_may_have_any_number_of_connections() {
    let Some(address) = own_address() else {
        println!("skipped: this machine has loopback addresses only");
        return;
    };
    let upstream = Upstream::ok().await;
    let trusted = address.to_string().parse().unwrap();
    let app = start(&upstream, |builder| builder.server.trusted_proxies = vec![trusted]).await;
    let mut open = Vec::new();
    for _ in 0..3 * MAX {
        let (conn, status) = connect(&app, address).await;
        assert_eq!(status, 200);
        open.push(conn);
    }
    assert_eq!(refused(&app), "0");
}
