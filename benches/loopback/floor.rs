//! The floor: the least work of a proxy that must have the whole body, on the same stack.
//!
//! It uses hyper's server, one buffer of content-length bytes and hyper-util's pooled client, all with their defaults.
//! It relays the answer frame by frame, on the same kind of runtime, and has no inspection, log, limits or timeouts.

use std::{convert::Infallible, net::SocketAddr};

use bytes::{Bytes, BytesMut};
use http::{
    HeaderValue, Request, Response, Uri,
    header::{CONNECTION, HOST, TE, TRANSFER_ENCODING, UPGRADE},
};
use http_body::Body as _;
use http_body_util::{BodyExt as _, Full};
use hyper::{body::Incoming, service::service_fn};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::{TokioExecutor, TokioIo},
};
use tokio::net::TcpListener;

type Sender = Client<HttpConnector, Full<Bytes>>;

/// Serves until the process ends.
pub fn serve(listen: SocketAddr, upstream: &str) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(accept(listen, HeaderValue::from_str(upstream).unwrap()));
}

async fn accept(listen: SocketAddr, upstream: HeaderValue) {
    let listener = TcpListener::bind(listen).await.unwrap();
    let mut connector = HttpConnector::new();
    connector.set_nodelay(true);
    let client = Client::builder(TokioExecutor::new()).build(connector);
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        stream.set_nodelay(true).unwrap();
        let (client, upstream) = (client.clone(), upstream.clone());
        tokio::spawn(async move {
            let service = service_fn(|request| exchange(request, &client, &upstream));
            let server = hyper::server::conn::http1::Builder::new();
            // An error of a client that leaves is ignored.
            drop(server.serve_connection(TokioIo::new(stream), service).await);
        });
    }
}

async fn exchange(
    request: Request<Incoming>,
    client: &Sender,
    upstream: &HeaderValue,
) -> Result<Response<Incoming>, Infallible> {
    let (mut head, mut body) = request.into_parts();
    let target = head.uri.path_and_query().unwrap();
    head.uri = format!("http://{}{target}", upstream.to_str().unwrap())
        .parse::<Uri>()
        .unwrap();
    for name in [CONNECTION, TRANSFER_ENCODING, TE, UPGRADE] {
        head.headers.remove(name);
    }
    head.headers.insert(HOST, upstream.clone());
    let mut buffer = BytesMut::with_capacity(usize::try_from(body.size_hint().lower()).unwrap());
    while let Some(frame) = body.frame().await {
        buffer.extend_from_slice(&frame.unwrap().into_data().unwrap_or_default());
    }
    let mut answer = client
        .request(Request::from_parts(head, Full::new(buffer.freeze())))
        .await
        .unwrap();
    for name in [CONNECTION, TRANSFER_ENCODING] {
        answer.headers_mut().remove(name);
    }
    Ok(answer)
}
