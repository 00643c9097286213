//! A listener for few, small HTTP/1.1 requests, which no number of clients can block.
//!
//! A connection carries one request, whose head must arrive within [`HEAD_TIMEOUT`]. At the cap on connections, the
//! listener closes the oldest one, so it always serves the newest client. A probe is answered within milliseconds of
//! its connection. By then, clients that hold their connections open are the oldest.

use std::{
    collections::VecDeque,
    convert::Infallible,
    future::Future,
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
    task::{AbortHandle, JoinSet, yield_now},
    time::sleep,
};

/// Time limit for a TLS handshake, and again for the head of the request.
pub(super) const HEAD_TIMEOUT: Duration = Duration::from_secs(2);

/// Limit for the size of a head. hyper accepts no limit below 8 KiB.
const BUFFER_BYTES: usize = 16 * 1024;

/// Pause after the system failed to accept a connection, most likely because no file descriptors are left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(20);

/// Whether the request of a connection is being answered. Such a connection is closed last to make room.
#[derive(Debug, Default)]
pub(super) struct Progress(AtomicBool);

/// The open connections, oldest first.
struct Connections {
    cap: usize,
    tasks: JoinSet<()>,
    order: VecDeque<(AbortHandle, Arc<Progress>)>,
}

/// Accepts connections until dropped, and serves each in its own task.
pub(super) async fn accept<F>(
    listener: TcpListener,
    cap: usize,
    serve: impl Fn(TcpStream, Arc<Progress>) -> F,
) where
    F: Future<Output = ()> + Send + 'static,
{
    let mut connections = Connections {
        cap,
        tasks: JoinSet::new(),
        order: VecDeque::with_capacity(cap),
    };
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                // Answers are small and written at once. Nagle's algorithm would only delay them.
                drop(stream.set_nodelay(true));
                connections.make_room();
                let progress = Arc::new(Progress::default());
                let task = connections
                    .tasks
                    .spawn(serve(stream, Arc::clone(&progress)));
                connections.order.push_back((task, progress));
                // Lets open connections be served during a flood of new ones.
                yield_now().await;
            }
            Err(error) if is_of_one_connection(&error) => {}
            Err(_) => {
                connections.evict();
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// Serves one request.
pub(super) async fn serve_one<I, F>(
    stream: I,
    progress: &Progress,
    answer: impl Fn(Request<Incoming>) -> F,
) where
    I: AsyncRead + AsyncWrite + Unpin,
    F: Future<Output = Response<Full<Bytes>>>,
{
    let service = service_fn(|request| {
        progress.0.store(true, Ordering::Relaxed);
        let answer = answer(request);
        async move { Ok::<_, Infallible>(answer.await) }
    });
    let mut builder = http1::Builder::new();
    let connection = builder
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .keep_alive(false)
        .max_buf_size(BUFFER_BYTES)
        .serve_connection(TokioIo::new(stream), service);
    // An error means that the client disconnected, which needs no handling.
    drop(connection.await);
}

// === impl Connections ===

impl Connections {
    fn make_room(&mut self) {
        while self.tasks.try_join_next().is_some() {}
        self.order.retain(|(task, _)| !task.is_finished());
        if self.order.len() >= self.cap {
            self.evict();
        }
    }

    /// Closes the oldest connection whose request has not arrived, or the oldest of all if every request has.
    fn evict(&mut self) {
        let waits = |(_, progress): &(_, Arc<Progress>)| !progress.0.load(Ordering::Relaxed);
        let index = self.order.iter().position(waits).unwrap_or(0);
        if let Some((task, _)) = self.order.remove(index) {
            task.abort();
        }
    }
}

fn is_of_one_connection(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionRefused
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::Interrupted
    )
}
