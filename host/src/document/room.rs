//! Memory that is shared by all reviews, counted before it is allocated.
//!
//! A few bytes of JSON can become a hundred in memory: `{"":0}` is an object with a table of its own. So a cap
//! on bytes from the wire does not bound what reviews take. [`Room`] caps the memory of all decoded documents;
//! each review has an [`Account`] in it, which is charged while its documents are read, answers of plugins
//! included, and which gives everything back when the review is over.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use prometheus_client::metrics::gauge::Gauge;

use super::{Json, Object};

/// Memory that many accounts share: that of all decoded documents, or the linear memories of all calls.
#[derive(Debug)]
pub struct Room {
    limit_bytes: u64,
    /// Kept for accounts of `small_bytes` or less.
    reserve_bytes: u64,
    small_bytes: u64,
    used_bytes: AtomicU64,
    gauge: Gauge,
}

/// What one review, or one call, takes of the [`Room`]. Clones share one account; the last one gives everything back.
#[derive(Clone, Debug)]
pub struct Account {
    held: Arc<Held>,
}

/// There is no room for a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoRoom {
    /// Other reviews have it: it is worth trying again.
    #[error("other reviews have taken the memory for decoded documents (requests.maxDecoded)")]
    Crowded,
    /// It would not fit if it were alone.
    #[error("it takes more than {most_bytes} bytes of memory when decoded (requests.maxDecoded)")]
    TooLarge {
        /// What one review may take.
        most_bytes: u64,
    },
}

#[derive(Debug)]
struct Held {
    /// None without a limit.
    room: Option<Arc<Room>>,
    /// The account that this one is a part of.
    whole: Option<Account>,
    bytes: AtomicU64,
    crowded: AtomicBool,
}

/// Charges an account in steps, for many small allocations of one thread.
pub(super) struct Meter<'a> {
    account: &'a Account,
    /// What it has taken from the account.
    taken: u64,
    /// Of that, what is not used yet.
    left: u64,
}

/// One in so many parts of the room is kept for small accounts.
const RESERVE_PART: u64 = 8;

/// What a meter takes at a time.
const STEP_BYTES: u64 = 16 << 10;

/// The two counters in front of what an [`Arc`] holds.
const COUNTERS: usize = 16;

/// A member of an object in its table: its hash, its name and its value.
const MEMBER: usize = 8 + size_of::<Arc<str>>() + size_of::<Json>();

// === what values take ===

/// What the allocator takes for a block: mimalloc has four size classes between one power of two and the next, and
/// fewer for small blocks. Large ones have pages of their own around them.
pub(super) fn block(bytes: usize) -> u64 {
    const LARGE: usize = 1 << 20;
    /// A block that would fill its class goes into the next one.
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

/// A name or a string of so many bytes.
pub(super) fn text(length: usize) -> u64 {
    block(COUNTERS + length)
}

/// An array with room for so many elements, without what they hold.
pub(crate) fn array(capacity: usize) -> u64 {
    block(COUNTERS + size_of::<Vec<Json>>()) + elements(capacity)
}

fn elements(capacity: usize) -> u64 {
    match capacity {
        0 => 0,
        _ => block(capacity * size_of::<Json>()),
    }
}

/// An object with room for so many members, without their names and what they hold.
pub(crate) fn object(capacity: usize) -> u64 {
    let head = block(COUNTERS + size_of::<Object>());
    if capacity == 0 {
        return head;
    }
    // As hashbrown has it: seven in eight buckets are used, and each has an index and a control byte.
    let buckets = match capacity {
        0..4 => 4,
        4..8 => 8,
        _ => (capacity * 8 / 7).next_power_of_two(),
    };
    // The table is aligned to 16 bytes, which small blocks are by themselves.
    let table = match buckets * 9 + 16 {
        small @ 0..=64 => small,
        large => large + 16,
    };
    head + block(capacity * MEMBER) + block(table)
}

// === impl Room ===

impl Room {
    /// A room of `limit_bytes`, whose use `gauge` shows. An eighth of it is kept for accounts of up to
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

    /// An empty account for one review.
    #[must_use]
    pub fn account(self: &Arc<Self>) -> Account {
        Account::new(Some(Arc::clone(self)), None)
    }

    /// What one account may take.
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
    /// An account without a limit, for documents that no client sends.
    #[must_use]
    pub fn unlimited() -> Self {
        Self::new(None, None)
    }

    /// An account for one document of the review: what it takes is the review's, until the document is gone.
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
    /// When other reviews have taken the room, or when this one would not fit if it were alone.
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

    /// Gives back what was taken and is not used any more.
    pub fn give_back(&self, bytes: u64) {
        if let Some(whole) = &self.held.whole {
            self.held.bytes.fetch_sub(bytes, Relaxed);
            whole.give_back(bytes);
        } else if let Some(room) = &self.held.room {
            self.held.bytes.fetch_sub(bytes, Relaxed);
            room.give_back(bytes);
        }
    }

    /// What it has taken.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.held.bytes.load(Relaxed)
    }

    /// Whether it was ever refused something for the sake of other reviews.
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
    pub(super) fn take(&mut self, bytes: u64) -> Result<(), NoRoom> {
        if self.left < bytes {
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

    /// Gives back memory that has been freed.
    pub(super) fn give_back(&mut self, bytes: u64) {
        self.left += bytes;
    }

    /// Everything that was allocated with it has been freed.
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
    fn tells_what_is_too_large_from_what_others_have_no_room_for() {
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
    fn keeps_a_reserve_for_small_reviews() {
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
    fn a_part_is_the_reviews_until_it_is_gone() {
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
    fn a_meter_gives_back_what_it_did_not_use() {
        let room = Room::new(80 * MIB, MIB, Gauge::default());
        let account = room.account();
        let mut meter = Meter::new(&account);
        assert_eq!(meter.take(100), Ok(()));
        assert_eq!(account.bytes(), STEP_BYTES);
        drop(meter);
        assert_eq!(account.bytes(), 100);
    }
}
