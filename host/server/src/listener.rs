//! Listening sockets, whose queue is long enough for a burst of clients.

use std::{io, net::SocketAddr};

use tokio::net::{TcpListener, TcpSocket};

/// Connections that the kernel completes and keeps for us. The kernel itself caps the number at
/// `net.core.somaxconn`, which is 4096 since Linux 5.4.
///
/// [`TcpListener::bind`] asks for 128. When the queue is full, the kernel drops the packet that opens a connection, and
/// the client sends it again after a second. That is longer than kubelet waits for a probe.
const QUEUE: u32 = 4096;

/// Binds and listens. Port 0 takes a free port.
pub(crate) fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4()?,
        SocketAddr::V6(_) => TcpSocket::new_v6()?,
    };
    // A restarted server can bind while connections of its predecessor end.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(QUEUE)
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        net::{Ipv4Addr, Ipv6Addr, TcpStream},
        time::Duration,
    };

    use super::*;

    #[tokio::test]
    async fn burst_of_clients_connects_before_one_is_accepted() {
        let somaxconn = fs::read_to_string("/proc/sys/net/core/somaxconn");
        let somaxconn: usize = somaxconn.expect("Linux").trim().parse().expect("a number");
        // Both ends of each are open files of this process, most of which are allowed 1024.
        let burst = somaxconn.min(400);
        let listener = listen((Ipv4Addr::LOCALHOST, 0).into()).expect("a listener");
        let address = listener.local_addr().expect("an address");
        let clients = (0..burst).map(|number| {
            TcpStream::connect_timeout(&address, Duration::from_millis(900))
                .unwrap_or_else(|error| panic!("client {number} of {burst}: {error}"))
        });
        let clients: Vec<TcpStream> = clients.collect();
        for _ in &clients {
            listener.accept().await.expect("the next client");
        }
    }

    #[tokio::test]
    async fn port_is_free_again_while_connections_end() {
        let listener = listen((Ipv4Addr::LOCALHOST, 0).into()).expect("a listener");
        let address = listener.local_addr().expect("an address");
        let client = TcpStream::connect(address).expect("a connection");
        // The side that closes first keeps the address for a minute.
        drop(listener.accept().await.expect("the client"));
        drop(client);
        drop(listener);
        let again = listen(address).expect("the same port");
        let other = listen(address).expect_err("the port is taken");
        assert_eq!(other.kind(), io::ErrorKind::AddrInUse);
        drop(again);
    }

    #[tokio::test]
    async fn listens_on_ipv6() {
        match listen((Ipv6Addr::LOCALHOST, 0).into()) {
            Ok(listener) => {
                let address = listener.local_addr().expect("an address");
                TcpStream::connect(address).expect("a connection");
            }
            Err(error) => eprintln!("SKIPPED: no IPv6 here: {error}"),
        }
    }
}
