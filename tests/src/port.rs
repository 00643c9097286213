//! Free ports, for programs that must be told where to listen.

use std::net::{Ipv4Addr, TcpListener};
use std::sync::atomic::{AtomicU16, Ordering};

/// Returns a free port below the range for outgoing connections. A port in that range could be taken before it is used.
#[must_use]
pub fn free() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    const FIRST: u16 = 20_000;
    const COUNT: u16 = 12_000;
    // Other test binaries on this machine start at other ports.
    let own = (std::process::id() % u32::from(COUNT)) as u16;
    let mut ports = (0..COUNT).map(|_| {
        let next = NEXT.fetch_add(1, Ordering::Relaxed) % COUNT;
        FIRST + (own + next) % COUNT
    });
    let free = ports.find(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok());
    free.expect("there is a free port")
}
