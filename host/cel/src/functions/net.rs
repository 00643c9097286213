//! Kubernetes' libraries for IP addresses and CIDRs.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::{Native, text};
use crate::error::{EvalError, Result};
use crate::value::Value;

/// An address with the length of its network's prefix. The address may have bits beyond the prefix.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cidr {
    /// The address as it was written.
    pub address: IpAddr,
    /// The number of leading bits that all addresses of the network share.
    pub prefix: u8,
}

pub(super) fn lookup(name: &str, is_member: bool) -> Option<Native> {
    Some(match (name, is_member) {
        ("ip", false) => |args, _| Ok(Value::Ip(parse_ip(text(&args[0])?)?)),
        ("isIP", false) => |args, _| Ok(Value::Bool(parse_ip(text(&args[0])?).is_ok())),
        ("ip.isCanonical", false) => |args, _| {
            let written = text(&args[0])?;
            Ok(Value::Bool(parse_ip(written)?.to_string() == written))
        },
        ("cidr", false) => |args, _| Ok(Value::Cidr(parse_cidr(text(&args[0])?)?)),
        ("isCIDR", false) => |args, _| Ok(Value::Bool(parse_cidr(text(&args[0])?).is_ok())),
        ("family", true) => |args, _| {
            Ok(Value::Int(match address(&args[0])? {
                IpAddr::V4(_) => 4,
                IpAddr::V6(_) => 6,
            }))
        },
        ("isUnspecified", true) => |args, _| Ok(Value::Bool(address(&args[0])?.is_unspecified())),
        ("isLoopback", true) => |args, _| Ok(Value::Bool(address(&args[0])?.is_loopback())),
        ("isLinkLocalMulticast", true) => {
            |args, _| Ok(Value::Bool(is_link_local_multicast(address(&args[0])?)))
        }
        ("isLinkLocalUnicast", true) => {
            |args, _| Ok(Value::Bool(is_link_local_unicast(address(&args[0])?)))
        }
        ("isGlobalUnicast", true) => |args, _| {
            let ip = address(&args[0])?;
            let is_broadcast = matches!(ip, IpAddr::V4(ip) if ip == Ipv4Addr::BROADCAST);
            let is_special = ip.is_unspecified()
                || is_broadcast
                || ip.is_loopback()
                || ip.is_multicast()
                || is_link_local_unicast(ip);
            Ok(Value::Bool(!is_special))
        },
        ("ip", true) => |args, _| Ok(Value::Ip(cidr(&args[0])?.address)),
        ("prefixLength", true) => |args, _| Ok(Value::Int(cidr(&args[0])?.prefix.into())),
        ("masked", true) => |args, _| Ok(Value::Cidr(cidr(&args[0])?.masked())),
        ("containsIP", true) => |args, _| {
            let network = cidr(&args[0])?;
            let ip = match &args[1] {
                Value::Ip(ip) => *ip,
                other => parse_ip(text(other)?)?,
            };
            Ok(Value::Bool(network.contains(ip)))
        },
        ("containsCIDR", true) => |args, _| {
            let network = cidr(&args[0])?;
            let part = match &args[1] {
                Value::Cidr(part) => *part,
                other => parse_cidr(text(other)?)?,
            };
            Ok(Value::Bool(
                network.prefix <= part.prefix && network.contains(part.address),
            ))
        },
        _ => return None,
    })
}

fn address(value: &Value) -> Result<IpAddr> {
    match value {
        Value::Ip(ip) => Ok(*ip),
        _ => Err(EvalError::no_such_overload()),
    }
}

fn cidr(value: &Value) -> Result<Cidr> {
    match value {
        Value::Cidr(cidr) => Ok(*cidr),
        _ => Err(EvalError::no_such_overload()),
    }
}

fn is_link_local_unicast(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => ip.is_link_local(),
        IpAddr::V6(ip) => ip.segments()[0] & 0xffc0 == 0xfe80,
    }
}

fn is_link_local_multicast(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => ip.octets()[..3] == [224, 0, 0],
        IpAddr::V6(ip) => ip.segments()[0] & 0xff0f == 0xff02,
    }
}

fn is_mapped(ip: IpAddr) -> bool {
    matches!(ip, IpAddr::V6(ip) if ip.to_ipv4_mapped().is_some())
}

/// Reads an address, without a zone and not mapped from IPv4.
fn parse_ip(written: &str) -> Result<IpAddr> {
    if written.contains('%') && written.contains(':') {
        let message = format!("IP address {written:?} with zone value is not allowed");
        return Err(EvalError::new(message));
    }
    let ip: IpAddr = written.parse().map_err(|_| {
        EvalError::new(format!(
            "IP Address {written:?} parse error during conversion from string: ParseAddr({written:?}): unable to parse IP"
        ))
    })?;
    if is_mapped(ip) {
        let message = format!("IPv4-mapped IPv6 address {written:?} is not allowed");
        return Err(EvalError::new(message));
    }
    Ok(ip)
}

fn parse_cidr(written: &str) -> Result<Cidr> {
    let wrong = |what: &str| {
        EvalError::new(format!(
            "network address parse error during conversion from string: network address parse error during conversion \
             from string: netip.ParsePrefix({written:?}): {what}"
        ))
    };
    let (address, prefix) = written.rsplit_once('/').ok_or_else(|| wrong("no '/'"))?;
    let address: IpAddr = address
        .parse()
        .map_err(|_| wrong(&format!("ParseAddr({address:?}): unable to parse IP")))?;
    let is_number = prefix == "0"
        || (!prefix.is_empty()
            && !prefix.starts_with('0')
            && prefix.bytes().all(|byte| byte.is_ascii_digit()));
    let bits: Option<u8> = prefix.parse().ok().filter(|_| is_number);
    let bits = bits.ok_or_else(|| wrong(&format!("bad bits after slash: {prefix:?}")))?;
    let most = if address.is_ipv4() { 32 } else { 128 };
    if bits > most {
        return Err(wrong("prefix length out of range"));
    }
    if is_mapped(address) {
        let message = format!("IPv4-mapped IPv6 address {written:?} is not allowed");
        return Err(EvalError::new(message));
    }
    Ok(Cidr {
        address,
        prefix: bits,
    })
}

// === impl Cidr ===

impl Cidr {
    /// Returns the network without the bits beyond the prefix.
    #[must_use]
    pub fn masked(&self) -> Self {
        let address = match self.address {
            IpAddr::V4(ip) => {
                let mask = u32::MAX
                    .checked_shl(32 - u32::from(self.prefix))
                    .unwrap_or(0);
                IpAddr::V4(Ipv4Addr::from(u32::from(ip) & mask))
            }
            IpAddr::V6(ip) => {
                let mask = u128::MAX
                    .checked_shl(128 - u32::from(self.prefix))
                    .unwrap_or(0);
                IpAddr::V6(Ipv6Addr::from(u128::from(ip) & mask))
            }
        };
        Self { address, ..*self }
    }

    /// Whether the network has the address.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        let other = Self {
            address,
            prefix: self.prefix,
        };
        self.address.is_ipv4() == address.is_ipv4()
            && self.masked().address == other.masked().address
    }
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix)
    }
}
