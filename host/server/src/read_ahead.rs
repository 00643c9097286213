//! Reads from a socket in large pieces.
//!
//! rustls asks for a few KiB at a time, which takes 10 system calls for a review of 93 kB.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::{Buf as _, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_util::io::poll_read_buf;

/// Maximum number of bytes that are read at once.
const PIECE_BYTES: usize = 16 * 1024;

/// A stream that reads ahead. An idle connection has no buffer.
#[derive(Debug)]
pub(super) struct ReadAhead<T> {
    inner: T,
    buffer: BytesMut,
}

// === impl ReadAhead ===

impl<T> ReadAhead<T> {
    pub(super) fn new(inner: T) -> Self {
        Self {
            inner,
            buffer: BytesMut::new(),
        }
    }

    pub(super) fn get_ref(&self) -> &T {
        &self.inner
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for ReadAhead<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        wanted: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if this.buffer.is_empty() {
            let mut buffer = BytesMut::with_capacity(PIECE_BYTES);
            ready!(poll_read_buf(
                Pin::new(&mut this.inner),
                context,
                &mut buffer
            ))?;
            this.buffer = buffer;
        }
        let length = this.buffer.len().min(wanted.remaining());
        wanted.put_slice(&this.buffer[..length]);
        this.buffer.advance(length);
        if this.buffer.is_empty() {
            this.buffer = BytesMut::new();
        }
        Poll::Ready(Ok(()))
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for ReadAhead<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(context)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write_vectored(context, slices)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};

    use super::*;

    #[tokio::test]
    async fn gives_all_bytes_in_order_and_then_the_end() {
        let sent: Vec<u8> = (0..200_000u32).map(|place| (place / 7) as u8).collect();
        let (mut client, server) = duplex(3 * PIECE_BYTES);
        let all = sent.clone();
        let sending = tokio::spawn(async move { client.write_all(&all).await });
        let mut stream = ReadAhead::new(server);
        let mut received = Vec::new();
        let mut piece = [0; 4_096];
        loop {
            let length = stream.read(&mut piece).await.unwrap();
            if length == 0 {
                break;
            }
            received.extend_from_slice(&piece[..length]);
        }
        sending.await.unwrap().unwrap();
        assert!(received == sent);
    }

    #[tokio::test]
    async fn has_a_buffer_only_while_it_holds_something() {
        let (mut client, server) = duplex(PIECE_BYTES);
        let mut stream = ReadAhead::new(server);
        client.write_all(b"abc").await.unwrap();
        let mut piece = [0; 2];
        stream.read_exact(&mut piece).await.unwrap();
        assert_eq!((&piece, &*stream.buffer), (b"ab", &b"c"[..]));
        stream.read_exact(&mut piece[..1]).await.unwrap();
        assert_eq!(stream.buffer.capacity(), 0);
    }
}
