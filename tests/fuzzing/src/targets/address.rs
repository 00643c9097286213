//! Addresses of registries: an IPv6 address ranks at least as harmful as the IPv4 address that it carries.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use tollgate_gate::fuzzing::registry::harm;

/// The harm of an address that no registry may have.
const NEVER: u8 = 3;

/// Reads 16 bytes as an address, and the first four as an address within another one.
pub fn target(data: &[u8]) {
    let Some((bytes, _)) = data.split_first_chunk::<16>() else {
        return;
    };
    let any = Ipv6Addr::from(*bytes);
    let harm_of = |address: Ipv6Addr| harm(IpAddr::V6(address));
    assert!(harm_of(any) <= NEVER);
    let inner = Ipv4Addr::new(bytes[0], bytes[1], bytes[2], bytes[3]);
    let inner_harm = harm(IpAddr::V4(inner));
    for (form, outer) in forms(inner, &bytes[4..]) {
        assert!(
            harm_of(outer) >= inner_harm || is_not_taken_apart(form, inner),
            "{outer} ({form}) is less harmful than {inner}"
        );
    }
    if inner.is_link_local() {
        for (form, outer) in forms(inner, &bytes[4..]) {
            assert_eq!(harm_of(outer), NEVER, "{outer} ({form}) reaches {inner}");
        }
    }
}

/// Returns the IPv6 addresses that carry an IPv4 address in a known place.
fn forms(inner: Ipv4Addr, rest: &[u8]) -> [(&'static str, Ipv6Addr); 8] {
    let [a, b, c, d] = inner.octets();
    let (high, low) = (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
    let word = |place: usize| u16::from_be_bytes([rest[place], rest[place + 1]]);
    [
        ("mapped", Ipv6Addr::new(0, 0, 0, 0, 0, 0xffff, high, low)),
        ("compatible", Ipv6Addr::new(0, 0, 0, 0, 0, 0, high, low)),
        (
            "translated",
            Ipv6Addr::new(0, 0, 0, 0, 0xffff, 0, high, low),
        ),
        ("NAT64", Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, high, low)),
        (
            "local NAT64",
            Ipv6Addr::new(0x64, 0xff9b, 1, 0, 0, 0, high, low),
        ),
        (
            "6to4",
            Ipv6Addr::new(
                0x2002,
                high,
                low,
                word(0),
                word(2),
                word(4),
                word(6),
                word(8),
            ),
        ),
        (
            "Teredo",
            Ipv6Addr::new(0x2001, 0, word(0), word(2), word(4), word(6), !high, !low),
        ),
        (
            "ISATAP",
            Ipv6Addr::new(0x2001, 0x4860, word(0), word(2), 0, 0x5efe, high, low),
        ),
    ]
}

/// Whether the host does not unwrap this form, because the bits need not be the carried address.
fn is_not_taken_apart(form: &str, inner: Ipv4Addr) -> bool {
    match form {
        // `::1` and `::` are addresses of their own.
        "compatible" => inner.octets()[0] == 0,
        "local NAT64" => !inner.is_link_local(),
        _ => false,
    }
}
