//! The namespaces that a step of a rollout is for.

use std::fmt;

use crate::plugin::PluginName;
use crate::read::{Fields, Node};

/// The namespaces that a step is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Share {
    /// Share of all namespaces, in percent.
    pub percent: u32,
    /// Namespaces that belong to the share whatever their hash.
    pub namespaces: Vec<Box<str>>,
}

const PERCENT_EXPECTED: &str = "a whole number of percent, 1 to 100";
const NAMESPACES_EXPECTED: &str = "a namespace's name";
/// Maximum number of namespaces that one step names.
const MOST_NAMESPACES: usize = 1000;
const ALL_PERCENT: u32 = 100;
/// The share is cut from this many parts.
const PARTS: u64 = 100;

// === impl Share ===

impl Share {
    /// The share that every namespace and every cluster-scoped object belongs to.
    #[must_use]
    pub fn all() -> Self {
        Self {
            percent: ALL_PERCENT,
            namespaces: Vec::new(),
        }
    }

    pub(super) fn read(fields: &mut Fields<'_>, is_shadow: bool) -> Option<Self> {
        let percent = fields.optional("share").map(|node| {
            let percent = node.integer(PERCENT_EXPECTED)?;
            let percent = u32::try_from(percent).ok();
            let percent = percent.filter(|percent| (1..=ALL_PERCENT).contains(percent));
            if percent.is_none() {
                node.reject(PERCENT_EXPECTED);
            }
            percent
        });
        let namespaces = fields
            .optional("namespaces")
            .map(|node| read_namespaces(&node));
        if is_shadow && (percent.is_some() || namespaces.is_some()) {
            let key = if percent.is_some() {
                "share"
            } else {
                "namespaces"
            };
            fields.problem(
                key,
                "expected none in a step with mode: shadow, which compares all requests",
            );
            return None;
        }
        let percent = match percent {
            Some(percent) => percent?,
            None if namespaces.is_some() => 0,
            None => ALL_PERCENT,
        };
        let namespaces = match namespaces {
            Some(namespaces) => namespaces?,
            None => Vec::new(),
        };
        Some(Self {
            percent,
            namespaces,
        })
    }

    /// Whether the share is everything, cluster-scoped objects included.
    #[must_use]
    pub fn is_all(&self) -> bool {
        self.percent >= ALL_PERCENT
    }

    /// Whether a namespace belongs to the share of a plugin's rollout. Cluster-scoped objects belong to a share of 100 %
    /// only.
    ///
    /// The hash has the plugin's name, so that the same namespaces are not the first ones of every rollout. A namespace
    /// that belongs to a share belongs to every larger one.
    #[must_use]
    pub fn contains(&self, plugin: &PluginName, namespace: Option<&str>) -> bool {
        if self.is_all() {
            return true;
        }
        let Some(namespace) = namespace else {
            return false;
        };
        let mut named = self.namespaces.iter();
        named.any(|name| **name == *namespace)
            || part(plugin.as_str(), namespace) < u64::from(self.percent)
    }
}

/// Returns the part of [`PARTS`] that a namespace falls into. The result is the same on every machine and in every
/// version, because replicas of two versions must agree.
pub(super) fn part(plugin: &str, namespace: &str) -> u64 {
    let bytes = plugin.bytes().chain([0]).chain(namespace.bytes());
    // FNV-1a, and the finalizer of MurmurHash3: names differ in few bits, and FNV alone spreads these badly.
    let mut hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    hash ^= hash >> 33;
    hash = hash.wrapping_mul(0xff51_afd7_ed55_8ccd);
    hash ^= hash >> 33;
    hash = hash.wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    hash ^= hash >> 33;
    hash % PARTS
}

fn read_namespaces(node: &Node<'_>) -> Option<Vec<Box<str>>> {
    let nodes = node.elements("namespaces")?;
    if nodes.is_empty() || nodes.len() > MOST_NAMESPACES {
        node.reject(&format!("1 to {MOST_NAMESPACES} names of namespaces"));
        return None;
    }
    let names = nodes.iter().map(|node| {
        let name = node.quotable_text(NAMESPACES_EXPECTED)?;
        if !crate::is_label(name, 63) {
            node.reject(NAMESPACES_EXPECTED);
            return None;
        }
        Some(Box::from(name))
    });
    names.collect()
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.percent, self.namespaces.len()) {
            (ALL_PERCENT.., _) => f.write_str("all namespaces"),
            (0, count) => write!(f, "{count} named namespace(s)"),
            (percent, 0) => write!(f, "{percent} % of the namespaces"),
            (percent, count) => {
                write!(
                    f,
                    "{percent} % of the namespaces and {count} named namespace(s)"
                )
            }
        }
    }
}
