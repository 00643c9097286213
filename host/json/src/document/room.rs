//! Memory that all reviews share, counted before it is allocated.
//!
//! A few bytes of JSON can take a hundred bytes of memory: `{"":0}` becomes an object with its own table. A limit on
//! received bytes therefore does not bound the memory of reviews.
//!
//! [`Room`] limits the memory of all decoded documents. Each review has an [`Account`] in it. The account is charged
//! while the review's documents are read, including the plugins' answers. When the review is over, the account gives
//! everything back.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use prometheus_client::metrics::gauge::Gauge;

use super::{Json, Level, Object};

/// Memory that many accounts share: the memory of all decoded documents, or the linear memories of all calls.
#[derive(Debug)]
pub struct Room {
    limit_bytes: u64,
    /// Bytes reserved for accounts that hold `small_bytes` or less.
    reserve_bytes: u64,
    small_bytes: u64,
    used_bytes: AtomicU64,
    gauge: Gauge,
}

/// The part of a [`Room`] that one review or one call takes. Clones share one account, and the last clone gives
/// everything back.
#[derive(Clone, Debug)]
pub struct Account {
    held: Arc<Held>,
}

/// The memory for a document is not available.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoRoom {
    /// Other reviews hold the memory. A retry may succeed.
    #[error("other reviews use up the memory for decoded documents (requests.maxDecoded)")]
    Crowded,
    /// The document would not fit even if it were alone.
    #[error("it takes more than {most_bytes} bytes of memory when decoded (requests.maxDecoded)")]
    TooLarge {
        /// Most bytes that one review may take.
        most_bytes: u64,
    },
}

#[derive(Debug)]
struct Held {
    /// None if there is no limit.
    room: Option<Arc<Room>>,
    /// The account that this one is a part of.
    whole: Option<Account>,
    bytes: AtomicU64,
    crowded: AtomicBool,
}

/// Charges an account in steps, for many small allocations on one thread.
pub(super) struct Meter<'a> {
    account: &'a Account,
    /// Bytes taken from the account.
    taken: u64,
    /// Bytes taken from the account but not used yet.
    left: u64,
}

/// One part in this many of the room is reserved for small accounts.
const RESERVE_PART: u64 = 8;

/// Bytes that a meter takes from its account at a time.
const STEP_BYTES: u64 = 16 << 10;

/// Size of the two counters in front of the content of an [`Arc`].
pub(super) const COUNTERS: usize = 16;

/// Size of an object's member in its table: the hash, the name and the value.
const MEMBER: usize = 8 + size_of::<Arc<str>>() + size_of::<Json>();

// === what values take ===

/// Returns the bytes that the allocator takes for a block. mimalloc has four size classes between two powers of two,
/// and fewer for small blocks. A large block gets separate pages around it.
pub(super) const fn block(bytes: usize) -> u64 {
    const LARGE: usize = 1 << 20;
    /// A block that would fill its class goes into the next class.
    const BEHIND: usize = 8;
    let class = match bytes {
        0..=32 => bytes.next_multiple_of(16),
        33..=64 => 64,
        65..=88 => 96,
        _ => (bytes + BEHIND).next_multiple_of((bytes + BEHIND).next_power_of_two() / 8),
    };
    let around = if bytes >= LARGE { LARGE } else { 0 };
    (class + around) as u64
}

/// Returns the bytes for a name or a string of this length.
#[inline]
pub(super) fn text(length: usize) -> u64 {
    match SHORT_TEXTS.get(length) {
        Some(bytes) => u64::from(*bytes),
        None => block(COUNTERS + length),
    }
}

/// The results of [`text`] for short texts, which are nearly all.
static SHORT_TEXTS: [u16; 256] = {
    let mut bytes = [0; 256];
    let mut length = 0;
    while length < bytes.len() {
        bytes[length] = block(COUNTERS + length) as u16;
        length += 1;
    }
    bytes
};

/// Returns the bytes for an array with this capacity, without the content of its elements.
pub(crate) const fn array(capacity: usize) -> u64 {
    block(COUNTERS + size_of::<Level<Vec<Json>>>()) + elements(capacity)
}

/// Returns the bytes for an array of this length that is built at once.
#[inline]
pub(super) fn array_of(length: usize) -> u64 {
    match SHORT_ARRAYS.get(length) {
        Some(bytes) => u64::from(*bytes),
        None => array(length),
    }
}

/// Returns the bytes for an object of this length that is built at once.
#[inline]
pub(super) fn object_of(length: usize) -> u64 {
    match SHORT_OBJECTS.get(length) {
        Some(bytes) => u64::from(*bytes),
        None => object(length),
    }
}

/// The results of [`array`] for short arrays.
static SHORT_ARRAYS: [u16; 32] = {
    let mut bytes = [0; 32];
    let mut length = 0;
    while length < bytes.len() {
        bytes[length] = array(length) as u16;
        length += 1;
    }
    bytes
};

/// The results of [`object`] for short objects.
static SHORT_OBJECTS: [u16; 32] = {
    let mut bytes = [0; 32];
    let mut length = 0;
    while length < bytes.len() {
        bytes[length] = object(length) as u16;
        length += 1;
    }
    bytes
};

/// Returns the bytes for the elements of an array with this capacity.
pub(crate) const fn elements(capacity: usize) -> u64 {
    match capacity {
        0 => 0,
        _ => block(capacity * size_of::<Json>()),
    }
}

/// Returns the bytes for an object with this capacity, without its names and the content of its values.
pub(crate) const fn object(capacity: usize) -> u64 {
    const HEAD: u64 = block(COUNTERS + size_of::<Level<Object>>());
    HEAD + members(capacity)
}

/// Returns the bytes for the members of an object with this capacity.
pub(super) const fn members(capacity: usize) -> u64 {
    if capacity == 0 {
        return 0;
    }
    // As in hashbrown: seven in eight buckets are used, and each has an index and a control byte.
    let buckets = match capacity {
        0..4 => 4,
        4..8 => 8,
        _ => (capacity * 8 / 7).next_power_of_two(),
    };
    // The table is aligned to 16 bytes. Small blocks have this alignment anyway.
    let table = match buckets * 9 + 16 {
        small @ 0..=64 => small,
        large => large + 16,
    };
    block(capacity * MEMBER) + block(table)
}

// === impl Room ===

impl Room {
    /// Creates a room of `limit_bytes`. `gauge` shows its use. An eighth is reserved for accounts of up to
    /// `small_bytes`.
    #[must_use]
    pub fn new(limit_bytes: u64, small_bytes: u64, gauge: Gauge) -> Arc<Self> {
        Arc::new(Self {
            limit_bytes,
            reserve_bytes: limit_bytes / RESERVE_PART,
            small_bytes,
            used_bytes: AtomicU64::new(0),
            gauge,
        })
    }

    /// Creates an empty account for one review.
    #[must_use]
    pub fn account(self: &Arc<Self>) -> Account {
        Account::new(Some(Arc::clone(self)), None)
    }

    /// Returns the most bytes that one account may take.
    fn most_bytes(&self) -> u64 {
        self.limit_bytes - self.reserve_bytes
    }

    fn take(&self, bytes: u64, ceiling: u64) -> bool {
        let taken = self.used_bytes.fetch_update(Relaxed, Relaxed, |used| {
            used.checked_add(bytes).filter(|sum| *sum <= ceiling)
        });
        if taken.is_ok() {
            self.gauge.inc_by(bytes.cast_signed());
        }
        taken.is_ok()
    }

    fn give_back(&self, bytes: u64) {
        self.used_bytes.fetch_sub(bytes, Relaxed);
        self.gauge.dec_by(bytes.cast_signed());
    }
}

// === impl Account ===

impl Account {
    /// Creates an account without a limit, for documents that no client sends.
    #[must_use]
    pub fn unlimited() -> Self {
        Self::new(None, None)
    }

    /// Creates an account for one document of the review. The review is charged for the document until it is dropped.
    #[must_use]
    pub fn part(&self) -> Self {
        Self::new(None, Some(self.clone()))
    }

    fn new(room: Option<Arc<Room>>, whole: Option<Self>) -> Self {
        Self {
            held: Arc::new(Held {
                room,
                whole,
                bytes: AtomicU64::new(0),
                crowded: AtomicBool::new(false),
            }),
        }
    }

    /// Takes memory that is about to be allocated.
    ///
    /// # Errors
    /// When other reviews hold the memory, or when this review would not fit even if it were alone.
    pub fn take(&self, bytes: u64) -> Result<(), NoRoom> {
        if let Some(whole) = &self.held.whole {
            whole.take(bytes)?;
            self.held.bytes.fetch_add(bytes, Relaxed);
            return Ok(());
        }
        let Some(room) = &self.held.room else {
            return Ok(());
        };
        let own = self
            .held
            .bytes
            .fetch_add(bytes, Relaxed)
            .saturating_add(bytes);
        let most_bytes = room.most_bytes();
        let refused = if own > most_bytes {
            NoRoom::TooLarge { most_bytes }
        } else {
            let ceiling = if own > room.small_bytes {
                most_bytes
            } else {
                room.limit_bytes
            };
            if room.take(bytes, ceiling) {
                return Ok(());
            }
            self.held.crowded.store(true, Relaxed);
            NoRoom::Crowded
        };
        self.held.bytes.fetch_sub(bytes, Relaxed);
        Err(refused)
    }

    /// Gives back memory that is not used any more.
    pub fn give_back(&self, bytes: u64) {
        if let Some(whole) = &self.held.whole {
            self.held.bytes.fetch_sub(bytes, Relaxed);
            whole.give_back(bytes);
        } else if let Some(room) = &self.held.room {
            self.held.bytes.fetch_sub(bytes, Relaxed);
            room.give_back(bytes);
        }
    }

    /// Returns the bytes that the account has taken.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.held.bytes.load(Relaxed)
    }

    /// Whether the account was ever refused memory because other reviews held it.
    #[must_use]
    pub fn was_crowded(&self) -> bool {
        self.held.crowded.load(Relaxed)
    }
}

impl Default for Account {
    fn default() -> Self {
        Self::unlimited()
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let bytes = *self.bytes.get_mut();
        if let Some(whole) = &self.whole {
            whole.give_back(bytes);
        } else if let Some(room) = &self.room {
            room.give_back(bytes);
        }
    }
}

// === impl Meter ===

impl<'a> Meter<'a> {
    pub(super) fn new(account: &'a Account) -> Self {
        Self {
            account,
            taken: 0,
            left: 0,
        }
    }

    /// Takes memory that is about to be allocated.
    #[inline]
    pub(super) fn take(&mut self, bytes: u64) -> Result<(), NoRoom> {
        if self.left < bytes {
            return self.refill(bytes);
        }
        self.left -= bytes;
        Ok(())
    }

    #[cold]
    fn refill(&mut self, bytes: u64) -> Result<(), NoRoom> {
        {
            let missing = bytes - self.left;
            let step = missing.max(STEP_BYTES);
            let taken = match self.account.take(step) {
                Err(_) if step > missing => self.account.take(missing).map(|()| missing),
                taken => taken.map(|()| step),
            };
            let taken = taken?;
            self.taken += taken;
            self.left += taken;
        }
        self.left -= bytes;
        Ok(())
    }

    /// Gives back memory that was freed.
    pub(super) fn give_back(&mut self, bytes: u64) {
        self.left += bytes;
    }

    /// Gives back everything that the meter took. The caller has freed it.
    pub(super) fn undo(&mut self) {
        self.left = self.taken;
    }
}

impl Drop for Meter<'_> {
    fn drop(&mut self) {
        self.account.give_back(self.left);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn distinguishes_too_large_review_from_crowded_room() {
        let gauge = Gauge::default();
        let room = Room::new(80 * MIB, MIB, gauge.clone());
        let one = room.account();
        let most_bytes = 70 * MIB;
        assert_eq!(one.take(71 * MIB), Err(NoRoom::TooLarge { most_bytes }));
        assert_eq!(one.take(40 * MIB), Ok(()));
        let other = room.account();
        assert_eq!(other.take(31 * MIB), Err(NoRoom::Crowded));
        assert!(other.was_crowded() && !one.was_crowded());
        assert_eq!(gauge.get(), (40 * MIB).cast_signed());
        drop(one);
        assert_eq!(gauge.get(), 0);
        assert_eq!(other.take(70 * MIB), Ok(()));
        other.give_back(MIB);
        assert_eq!(other.bytes(), 69 * MIB);
    }

    #[test]
    fn keeps_reserve_for_small_reviews() {
        let room = Room::new(80 * MIB, MIB, Gauge::default());
        let large = room.account();
        assert_eq!(large.take(70 * MIB), Ok(()));
        let accounts: Vec<Account> = (0..10).map(|_| room.account()).collect();
        for small in &accounts {
            assert_eq!(small.take(MIB), Ok(()));
        }
        assert_eq!(room.account().take(1), Err(NoRoom::Crowded));
        drop((large, accounts));
        assert_eq!(room.used_bytes.load(Relaxed), 0);
    }

    #[test]
    fn part_counts_for_its_review_until_dropped() {
        let room = Room::new(80 * MIB, MIB, Gauge::default());
        let review = room.account();
        assert_eq!(review.take(MIB), Ok(()));
        let part = review.part();
        assert_eq!(part.take(2 * MIB), Ok(()));
        assert!(part.take(70 * MIB).is_err());
        assert_eq!((part.bytes(), review.bytes()), (2 * MIB, 3 * MIB));
        drop(part);
        assert_eq!(review.bytes(), MIB);
        assert_eq!(room.used_bytes.load(Relaxed), MIB);
    }

    #[test]
    fn meter_returns_unused_bytes() {
        let room = Room::new(80 * MIB, MIB, Gauge::default());
        let account = room.account();
        let mut meter = Meter::new(&account);
        assert_eq!(meter.take(100), Ok(()));
        assert_eq!(account.bytes(), STEP_BYTES);
        drop(meter);
        assert_eq!(account.bytes(), 100);
    }
}
