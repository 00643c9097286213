//! Classifies IP addresses: the internet, a private network, this machine, or an address that never serves plugins.
//!
//! An IPv6 address can carry an IPv4 address. A translator, a tunnel or the kernel then delivers to the IPv4 address.
//! An address is therefore as harmful as the worst address that it carries.
//!
//! Sources: RFC 4291, 4380, 3056, 5214, 6052, 7915 and 8215 for the forms of addresses, and the IANA special-purpose
//! address registries for the special blocks.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The reach of an address, from harmless to harmful.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Reach {
    Public,
    Private,
    Loopback,
    /// An address that never serves plugins; the text names its kind.
    Never(&'static str),
}

/// An IPv4 address inside an IPv6 address.
struct Carried {
    address: Ipv4Addr,
    /// Whether the form leaves open where the IPv4 address lies. If so, these bits may be something else.
    is_guess: bool,
}

const METADATA: &str = "a metadata service";
const LINK_LOCAL: &str = "a link-local address";
const NO_HOST: &str = "an unspecified, multicast or special-purpose address";

/// Metadata services of clouds outside of 169.254.0.0/16 and fe80::/10: Alibaba, Azure, Oracle.
const METADATA_V4: [Ipv4Addr; 3] = [
    Ipv4Addr::new(100, 100, 100, 200),
    Ipv4Addr::new(168, 63, 129, 16),
    Ipv4Addr::new(192, 0, 0, 192),
];
/// Metadata services of Google and Scaleway. For AWS a whole block is refused, and the address of Oracle carries
/// 169.254.169.254.
const METADATA_V6: [Ipv6Addr; 2] = [
    Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254),
    Ipv6Addr::new(0xfd00, 0x42, 0, 0, 0, 0, 0, 0x42),
];
/// The metadata address that most clouds share.
const METADATA_LINK_LOCAL: Ipv4Addr = Ipv4Addr::new(169, 254, 169, 254);
/// The layouts of RFC 6052: the length of the prefix in octets, and the positions of the four octets of the IPv4
/// address. Octet 8 is always left out.
const NAT64: [(usize, [usize; 4]); 6] = [
    (4, [4, 5, 6, 7]),
    (5, [5, 6, 7, 9]),
    (6, [6, 7, 9, 10]),
    (7, [7, 9, 10, 11]),
    (8, [9, 10, 11, 12]),
    (12, [12, 13, 14, 15]),
];
/// Number of octets in the prefix 64:ff9b:1::/48. Inside this block, a network chooses its own prefix (RFC 8215).
const NAT64_LOCAL_USE_BYTES: usize = 6;

// === impl Reach ===

impl Reach {
    pub(super) fn of(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(address) => Self::of_v4(address),
            IpAddr::V6(address) => Self::of_v6(address),
        }
    }

    fn of_v4(address: Ipv4Addr) -> Self {
        if METADATA_V4.contains(&address) {
            return Self::Never(METADATA);
        }
        match address.octets() {
            [127, ..] => Self::Loopback,
            [169, 254, ..] => Self::Never(LINK_LOCAL),
            // "This network", protocol assignments, multicast, broadcast.
            [0, ..] | [192, 0, 0, _] | [224..=239, ..] | [255, 255, 255, 255] => {
                Self::Never(NO_HOST)
            }
            // RFC 1918, shared by carriers, benchmarks, examples, reserved. Some networks use these blocks internally.
            [10, ..]
            | [172, 16..=31, ..]
            | [192, 168, ..]
            | [100, 64..=127, ..]
            | [198, 18..=19, ..]
            | [192, 0, 2, _]
            | [198, 51, 100, _]
            | [203, 0, 113, _]
            | [240..=255, ..] => Self::Private,
            _ => Self::Public,
        }
    }

    fn of_v6(address: Ipv6Addr) -> Self {
        let outer = Self::of_v6_alone(address);
        let inner = carried(address).into_iter().map(|carried| {
            match (Self::of_v4(carried.address), carried.is_guess) {
                // Such bits count as part of the prefix: the address lies elsewhere.
                (Self::Never(NO_HOST), true) => Self::Public,
                (_, true) if carried.address.octets()[0] >= 240 => Self::Public,
                (reach, _) => reach,
            }
        });
        // A network may have its own prefix for NAT64, which cannot be recognized in an address.
        let translated = translations(address, 0).any(|address| address == METADATA_LINK_LOCAL);
        let translated = translated.then_some(Self::Never(METADATA));
        inner.chain(translated).fold(outer, Self::max)
    }

    /// Classifies the address itself, without any address that it may carry.
    fn of_v6_alone(address: Ipv6Addr) -> Self {
        if METADATA_V6.contains(&address) {
            return Self::Never(METADATA);
        }
        match address.segments() {
            [0, 0, 0, 0, 0, 0, 0, 0] => Self::Never(NO_HOST),
            [0, 0, 0, 0, 0, 0, 0, 1] => Self::Loopback,
            [0xfe80..=0xfebf, ..] => Self::Never(LINK_LOCAL),
            // Metadata, DNS, time and pod identities of AWS.
            [0xfd00, 0xec2, ..] => Self::Never(METADATA),
            // Multicast, discard-only, dummy, ORCHID, segment routing.
            [0xff00..=0xffff, ..]
            | [0x100, 0, 0, 0..=1, ..]
            | [0x2001, 0x10..=0x2f, ..]
            | [0x5f00, ..] => Self::Never(NO_HOST),
            // Unique local, site-local, benchmarks, examples.
            [0xfc00..=0xfdff, ..]
            | [0xfec0..=0xfeff, ..]
            | [0x2001, 2, 0, ..]
            | [0x2001, 0xdb8, ..]
            | [0x3fff, 0..=0xfff, ..] => Self::Private,
            _ => Self::Public,
        }
    }
}

/// All IPv4 addresses that an IPv6 address may stand for.
fn carried(address: Ipv6Addr) -> Vec<Carried> {
    let segments = address.segments();
    let of = |high: u16, low: u16| Carried {
        address: Ipv4Addr::from((u32::from(high) << 16) | u32::from(low)),
        is_guess: false,
    };
    let mut all = Vec::new();
    match segments {
        // The unspecified address and loopback carry no IPv4 address.
        [0, 0, 0, 0, 0, 0, 0, 0 | 1] => {}
        // IPv4-compatible, IPv4-mapped, IPv4-translated, and NAT64 with the well-known prefix.
        [0, 0, 0, 0, 0, 0, high, low]
        | [0, 0, 0, 0, 0, 0xffff, high, low]
        | [0, 0, 0, 0, 0xffff, 0, high, low]
        | [0x64, 0xff9b, 0, 0, 0, 0, high, low] => all.push(of(high, low)),
        [0x64, 0xff9b, 1, ..] => {
            all.extend(
                translations(address, NAT64_LOCAL_USE_BYTES).map(|address| Carried {
                    address,
                    is_guess: true,
                }),
            );
        }
        // 6to4.
        [0x2002, high, low, ..] => all.push(of(high, low)),
        // Teredo: the address of the server, and the address of the client with all bits inverted.
        [0x2001, 0, high, low, _, _, client_high, client_low] => {
            all.push(of(high, low));
            all.push(of(!client_high, !client_low));
        }
        _ => {}
    }
    // ISATAP, behind any prefix. The mask ignores two bits: one marks a unique identifier, the other one a group.
    if segments[4] & !0x0300 == 0 && segments[5] == 0x5efe {
        all.push(of(segments[6], segments[7]));
    }
    all
}

/// The octets at each position that RFC 6052 allows, for prefixes of at least this many octets.
fn translations(address: Ipv6Addr, shortest_prefix_bytes: usize) -> impl Iterator<Item = Ipv4Addr> {
    let octets = address.octets();
    NAT64
        .into_iter()
        .filter(move |(prefix_bytes, _)| *prefix_bytes >= shortest_prefix_bytes)
        .map(move |(_, places)| Ipv4Addr::from(places.map(|place| octets[place])))
}

#[cfg(test)]
mod tests {
    use super::*;

    const METADATA: Reach = Reach::Never(super::METADATA);
    const LINK_LOCAL: Reach = Reach::Never(super::LINK_LOCAL);
    const NO_HOST: Reach = Reach::Never(super::NO_HOST);

    #[test]
    fn classifies_address_by_worst_embedded_address() {
        let table = [
            // IPv4.
            ("8.8.8.8", Reach::Public),
            ("10.0.0.1", Reach::Private),
            ("172.16.0.1", Reach::Private),
            ("172.32.0.1", Reach::Public),
            ("192.168.1.1", Reach::Private),
            ("100.64.0.1", Reach::Private),
            ("100.128.0.1", Reach::Public),
            ("198.18.0.1", Reach::Private),
            ("192.0.2.1", Reach::Private),
            ("198.51.100.1", Reach::Private),
            ("203.0.113.1", Reach::Private),
            ("240.0.0.1", Reach::Private),
            ("127.0.0.1", Reach::Loopback),
            ("127.255.255.254", Reach::Loopback),
            ("0.0.0.0", NO_HOST),
            ("0.1.2.3", NO_HOST),
            ("192.0.0.1", NO_HOST),
            ("224.0.0.1", NO_HOST),
            ("239.255.255.255", NO_HOST),
            ("255.255.255.255", NO_HOST),
            ("169.254.169.254", LINK_LOCAL),
            ("169.254.170.2", LINK_LOCAL),
            ("100.100.100.200", METADATA),
            ("168.63.129.16", METADATA),
            ("192.0.0.192", METADATA),
            // IPv6.
            ("2606:4700::1111", Reach::Public),
            ("fc00::1", Reach::Private),
            ("fd12::1", Reach::Private),
            ("fec0::1", Reach::Private),
            ("2001:2::1", Reach::Private),
            ("2001:db8::1", Reach::Private),
            ("3fff::1", Reach::Private),
            ("::1", Reach::Loopback),
            ("::", NO_HOST),
            ("ff02::1", NO_HOST),
            ("ff0e::1", NO_HOST),
            ("100::1", NO_HOST),
            ("2001:10::1", NO_HOST),
            ("2001:20::1", NO_HOST),
            ("5f00::1", NO_HOST),
            ("fe80::1", LINK_LOCAL),
            ("febf::1", LINK_LOCAL),
            ("fd00:ec2::254", METADATA),
            ("fd00:ec2::23", METADATA),
            ("fd00:ec2::123", METADATA),
            ("fd20:ce::254", METADATA),
            ("fd00:c1::a9fe:a9fe", METADATA),
            ("fd00:42::42", METADATA),
            // IPv4-compatible.
            ("::8.8.8.8", Reach::Public),
            ("::10.0.0.1", Reach::Private),
            ("::127.0.0.1", Reach::Loopback),
            ("::a9fe:a9fe", METADATA),
            ("::a9fe:aa02", LINK_LOCAL),
            ("::2", NO_HOST),
            // IPv4-mapped.
            ("::ffff:8.8.8.8", Reach::Public),
            ("::ffff:10.0.0.1", Reach::Private),
            ("::ffff:127.0.0.1", Reach::Loopback),
            ("::ffff:169.254.169.254", METADATA),
            ("::ffff:169.254.170.2", LINK_LOCAL),
            ("::ffff:100.100.100.200", METADATA),
            ("::ffff:0.0.0.0", NO_HOST),
            // IPv4-translated.
            ("::ffff:0:8.8.8.8", Reach::Public),
            ("::ffff:0:10.0.0.1", Reach::Private),
            ("::ffff:0:127.0.0.1", Reach::Loopback),
            ("::ffff:0:169.254.170.2", LINK_LOCAL),
            // NAT64 with the well-known prefix.
            ("64:ff9b::8.8.8.8", Reach::Public),
            ("64:ff9b::10.0.0.1", Reach::Private),
            ("64:ff9b::127.0.0.1", Reach::Loopback),
            ("64:ff9b::a9fe:a9fe", METADATA),
            ("64:ff9b::a9fe:aa02", LINK_LOCAL),
            // NAT64 with prefixes for local use, of 96, 64, 56 and 48 bits.
            ("64:ff9b:1::8.8.8.8", Reach::Public),
            ("64:ff9b:1:fffe::8.8.8.8", Reach::Public),
            ("64:ff9b:1::10.0.0.1", Reach::Private),
            ("64:ff9b:1::127.0.0.1", Reach::Loopback),
            ("64:ff9b:1::a9fe:a9fe", METADATA),
            ("64:ff9b:1::a9fe:aa02", LINK_LOCAL),
            ("64:ff9b:1:fffe::a9fe:aa02", LINK_LOCAL),
            ("64:ff9b:1:0:a9:feaa:200:0", LINK_LOCAL),
            ("64:ff9b:1:ab:a9:feaa:200:1", LINK_LOCAL),
            ("64:ff9b:1:a9:fe:aa02::", LINK_LOCAL),
            ("64:ff9b:1:a9fe:aa:200::", LINK_LOCAL),
            ("64:ff9b:1:a00:0:100::", Reach::Private),
            ("64:ff9b:1:7f00:0:100::", Reach::Loopback),
            // NAT64 with a network's own prefix, of 32, 40, 48, 56, 64 and 96 bits.
            ("2a00:1:a9fe:a9fe::", METADATA),
            ("2a00:1:a9:fea9:fe::", METADATA),
            ("2a00:1:2:a9fe:a9:fe00::", METADATA),
            ("2a00:1:2:a9:fe:a9fe::", METADATA),
            ("2a00:1:2:3:a9:fea9:fe00:0", METADATA),
            ("2a00:1:2:3::a9fe:a9fe", METADATA),
            // 6to4.
            ("2002:808:808::1", Reach::Public),
            ("2002:a00:1::1", Reach::Private),
            ("2002:7f00:1::1", Reach::Loopback),
            ("2002:a9fe:aa02::1", LINK_LOCAL),
            // Teredo: as the server, and with inverted bits as the client.
            ("2001:0:808:808:0:0:f7f7:f7f7", Reach::Public),
            ("2001:0:a9fe:aa02:0:0:f7f7:f7f7", LINK_LOCAL),
            ("2001:0:808:808:0:0:5601:5601", LINK_LOCAL),
            ("2001:0:808:808:0:0:80ff:fffe", Reach::Loopback),
            ("2001:0:808:808:0:0:f5ff:fffe", Reach::Private),
            // ISATAP, also inside 6to4 and inside a private prefix.
            ("2a00::5efe:8.8.8.8", Reach::Public),
            ("2a00::200:5efe:8.8.8.8", Reach::Public),
            ("2a00::5efe:a9fe:aa02", LINK_LOCAL),
            ("2a00::200:5efe:a9fe:aa02", LINK_LOCAL),
            ("2a00::200:5efe:127.0.0.1", Reach::Loopback),
            ("2a00::5efe:10.0.0.1", Reach::Private),
            ("2002:808:808:0:0:5efe:a9fe:aa02", LINK_LOCAL),
            ("fd12::5efe:8.8.8.8", Reach::Private),
        ];
        let wrong: Vec<String> = table
            .into_iter()
            .filter_map(|(text, expected)| {
                let found = Reach::of(text.parse().unwrap());
                (found != expected).then(|| format!("{text}: {found:?}, expected {expected:?}"))
            })
            .collect();
        assert_eq!(wrong, Vec::<String>::new());
    }
}
