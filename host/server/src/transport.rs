//! The byte stream of a connection: it counts bytes, and closes without losing an answer.

use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::{Sleep, sleep},
};

use crate::activity::Activity;

/// Time for which the transport reads and discards input after the last answer. Closing a socket with unread bytes
/// resets it. The reset can overtake the answer, or on HTTP/2 the GOAWAY that tells which requests may be sent again.
const LINGER_TIMEOUT: Duration = Duration::from_secs(2);

/// Number of reads to discard before other connections get their turn.
const LINGER_READS: usize = 16;

/// A transport that notes all activity and lingers when it is shut down.
#[derive(Debug)]
pub(super) struct Transport<T> {
    inner: T,
    activity: Arc<Activity>,
    lingering: Option<Pin<Box<Sleep>>>,
}

// === impl Transport ===

impl<T> Transport<T> {
    pub(crate) fn new(inner: T, activity: Arc<Activity>) -> Self {
        Self {
            inner,
            activity,
            lingering: None,
        }
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Transport<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.inner).poll_read(context, buffer))?;
        if buffer.filled().len() > before {
            self.activity.read();
        }
        Poll::Ready(Ok(()))
    }
}

impl<T: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Transport<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.inner).poll_write(context, bytes))?;
        self.activity.wrote();
        Poll::Ready(Ok(written))
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(context)
    }

    /// Shuts down the sending side, then waits for the client to close its side.
    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let timer = this
            .lingering
            .get_or_insert_with(|| Box::pin(sleep(LINGER_TIMEOUT)));
        if timer.as_mut().poll(context).is_ready() {
            return Poll::Ready(Ok(()));
        }
        ready!(Pin::new(&mut this.inner).poll_shutdown(context))?;
        let mut forgotten = [0; 16 * 1024];
        for _ in 0..LINGER_READS {
            let mut buffer = ReadBuf::new(&mut forgotten);
            let read = ready!(Pin::new(&mut this.inner).poll_read(context, &mut buffer));
            if read.is_err() || buffer.filled().is_empty() {
                return Poll::Ready(Ok(()));
            }
        }
        context.waker().wake_by_ref();
        Poll::Pending
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.inner).poll_write_vectored(context, slices))?;
        self.activity.wrote();
        Poll::Ready(Ok(written))
    }
}
