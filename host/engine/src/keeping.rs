//! Keeps the instance of a call for the next call of the same plugin.
//!
//! An instance is kept only if its component has a keeper (`tollgate_component::kept`), which puts it back. The host tells
//! the keeper which bytes of the plugin's memory were written, and drops instances that a keeper does not put back:
//!
//! - The call ended with a fault.
//! - The memory has grown.
//! - More than a megabyte of the memory was written, or more than 32 separate regions.
//! - The call was about a Secret.
//!
//! The keeper uses separate fuel. When the keeper has nothing more to put back, the host sets the fuel of the call. A call
//! therefore has the same fuel in a new instance and in a kept one.

use std::num::NonZero;
use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::available_parallelism;

use tollgate_component::NEXT_CHANGE;
use wasmtime::component::{Instance, Linker, TypedFunc, WasmList};
use wasmtime::{ResourceLimiter as _, Store, StoreContextMut};

use super::bindings::types::{Mutation, Verdict};
use super::fault::Stop;
use super::pages::Pages;
use super::secrecy::Secrecy;
use super::state::CallState;

const WASM_PAGE_BYTES: u64 = 64 << 10;
/// Fuel for the keeper. It copies at most [`MOST_WRITTEN_BYTES`].
pub(super) const KEEPER_FUEL: u64 = 1 << 32;
/// Fuel that the keeper uses between its last question and the plugin.
const FUEL_AFTER_LAST_CHANGE: u64 = 5;
/// A call that writes more loses its instance. The pool gives such memory back, too.
const MOST_WRITTEN_BYTES: u64 = super::KEEP_RESIDENT_BYTES as u64;

/// The instances that an engine may keep.
pub(super) struct Keeping {
    /// `None` in a child process, and on a kernel that does not tell which pages were written.
    pages: Option<Pages>,
    /// Maximum number of kept instances, of all plugins.
    most: u32,
    /// Maximum number of kept instances of one plugin. More would hardly ever run at the same time.
    most_of_plugin: usize,
    kept: AtomicU32,
}

/// A place for a kept instance.
struct Place(Arc<Keeping>);

/// The idle instances of a plugin.
pub(super) struct Shelf {
    keeping: Arc<Keeping>,
    idle: Mutex<Vec<Idle>>,
}

/// An instance that waits for the next call of its plugin.
pub(super) struct Idle {
    pub(super) store: Store<CallState>,
    pub(super) functions: Functions,
    place: Option<Place>,
}

/// An instance, and its functions that have been called.
#[derive(Default)]
pub(super) struct Functions {
    pub(super) instance: Option<Instance>,
    pub(super) mutate: Option<TypedFunc<(), (Mutation,)>>,
    pub(super) validate: Option<TypedFunc<(), (Verdict,)>>,
}

/// What a store knows about an instance that may be kept.
#[derive(Default)]
pub(super) struct Keepable {
    /// Fuel of the call.
    fuel: u64,
    /// Fuel that making the instance has used. It counts for each call, as it does for calls that get a new one.
    made_with: u64,
    /// The addresses of the plugin's memory, from the first question of the keeper on.
    memory: Option<Range<u64>>,
    /// Size of the memory at the beginning, in bytes.
    memory_bytes: usize,
    /// Number of memories that have been created.
    memories: u32,
    has_grown: bool,
    /// Whether the keeper has put everything back for this call.
    has_begun: bool,
    /// What the keeper still has to put back, as parts of the memory.
    changes: Vec<Range<u64>>,
}

// === impl Keeping ===

impl Keeping {
    /// Returns `None` if no instance is to be kept.
    pub(super) fn new(most: u32) -> Option<Self> {
        let keeping = || Self {
            pages: Pages::open(),
            most,
            most_of_plugin: available_parallelism().map_or(1, NonZero::get),
            kept: AtomicU32::new(0),
        };
        (most > 0).then(keeping)
    }

    /// Whether the kernel tells which pages were written.
    pub(super) fn is_possible(&self) -> bool {
        self.pages.is_some()
    }

    fn place(self: &Arc<Self>) -> Option<Place> {
        let kept = self.kept.fetch_add(1, Ordering::Relaxed);
        let place = Place(self.clone());
        (kept < self.most).then_some(place)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.kept.fetch_sub(1, Ordering::Relaxed);
    }
}

// === impl Shelf ===

impl Shelf {
    pub(super) fn new(keeping: Arc<Keeping>) -> Self {
        Self {
            keeping,
            idle: Mutex::default(),
        }
    }

    /// Takes the instance that was put back last. Its memory is most likely still in the processor's caches.
    pub(super) fn take(&self) -> Option<Idle> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        idle.pop()
    }

    /// Number of idle instances.
    pub(super) fn len(&self) -> usize {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        idle.len()
    }

    /// Whether the keeper has run in a call. No component that gets a keeper can run without it.
    pub(super) fn has_begun(store: &Store<CallState>) -> bool {
        let keepable = store.data().keepable.as_ref();
        keepable.is_some_and(|keepable| keepable.has_begun)
    }

    /// Decides whether an instance can be kept after a call that ended with an answer, and finds what its keeper has to put
    /// back. Returns false if the instance has to go.
    pub(super) fn can_keep(&self, idle: &mut Idle) -> bool {
        let state = idle.store.data_mut();
        let is_open = state.secrecy == Secrecy::Open;
        let Some(keepable) = state.keepable.as_mut().filter(|_| is_open) else {
            return false;
        };
        let is_as_kept = keepable.has_begun && !keepable.has_grown;
        let memory = keepable.memory.clone().filter(|_| is_as_kept);
        let (Some(memory), Some(pages)) = (memory, &self.keeping.pages) else {
            return false;
        };
        if !pages.written(memory, MOST_WRITTEN_BYTES, &mut keepable.changes) {
            return false;
        }
        if idle.place.is_none() {
            idle.place = self.keeping.place();
        }
        idle.place.is_some()
    }

    /// Keeps an instance for the next call.
    pub(super) fn put(&self, mut kept: Idle) {
        kept.store.data_mut().forget();
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < self.keeping.most_of_plugin {
            idle.push(kept);
        } else {
            // It takes longer to drop an instance than others should wait for the lock.
            drop(idle);
            drop(kept);
        }
    }
}

// === impl Idle ===

impl Idle {
    pub(super) fn new(store: Store<CallState>) -> Self {
        Self {
            store,
            functions: Functions::default(),
            place: None,
        }
    }

    /// Gives the instance to the next call.
    ///
    /// # Errors
    /// When there is no room for its memory, as for a new instance.
    pub(super) fn begin(&mut self, mut state: CallState) -> wasmtime::Result<()> {
        let of = &mut self.store.data_mut().keepable;
        let mut keepable = of.take().unwrap_or_default();
        let admitted = state.memory_growing(0, keepable.memory_bytes, None);
        keepable.fuel = state.limits.fuel;
        keepable.has_begun = false;
        state.keepable = Some(keepable);
        *self.store.data_mut() = state;
        admitted.map(|_| ())
    }
}

// === impl Keepable ===

impl Keepable {
    pub(super) fn new(fuel: u64) -> Self {
        Self {
            fuel,
            ..Self::default()
        }
    }

    /// What to put back next in a memory at these addresses. `None` if there is nothing more, and the plugin begins.
    ///
    /// # Errors
    /// When the plugin has begun: it calls its keeper itself, and would get its fuel again.
    fn next(&mut self, memory: Range<u64>) -> Result<Option<Range<u64>>, Stop> {
        if self.has_begun {
            let what = "it called the code that puts its instance back".to_owned();
            return Err(Stop::Contract(what));
        }
        let change = self.changes.pop();
        if change.is_none() {
            self.memory = Some(memory);
            self.has_begun = true;
        }
        Ok(change)
    }

    /// The fuel that a store needs when the plugin begins, so that the call has exactly its fuel.
    fn fuel_at_beginning(&self) -> u64 {
        let fuel = self.fuel.saturating_add(FUEL_AFTER_LAST_CHANGE);
        fuel.saturating_sub(self.made_with)
    }

    /// Notes the fuel that a store has left when the instance has been made.
    pub(super) fn is_made(&mut self, fuel_left: u64) {
        self.made_with = KEEPER_FUEL.saturating_sub(fuel_left);
    }

    /// Notes that a memory is created or grows. Returns true for the second memory, which the host added: the keeper copies
    /// from it, and it does not count as the plugin's.
    pub(super) fn grows(&mut self, desired: usize) -> bool {
        if self.memory.is_some() {
            self.has_grown = true;
            return false;
        }
        self.memories += 1;
        if self.memories == 1 {
            self.memory_bytes = desired;
        }
        self.memories == 2
    }
}

/// Adds the function that keepers ask.
pub(super) fn add_to_linker(linker: &mut Linker<CallState>) -> wasmtime::Result<()> {
    linker.root().func_wrap(NEXT_CHANGE, next_change)?;
    Ok(())
}

/// Says which bytes of the memory to put back. The address is in the upper half of the result, and the number of bytes in the
/// lower half. 0 stands for no more bytes, and the plugin begins.
fn next_change(
    mut store: StoreContextMut<'_, CallState>,
    (memory, pages): (WasmList<u8>, u32),
) -> wasmtime::Result<(u64,)> {
    // The list is empty, because its bytes would count as output of the plugin. It tells where the memory begins.
    let start = memory.as_le_slice(&store).as_ptr().addr() as u64;
    let memory = start..start + u64::from(pages) * WASM_PAGE_BYTES;
    let Some(keepable) = &mut store.data_mut().keepable else {
        wasmtime::bail!("only a keeper may ask what to put back");
    };
    if let Some(change) = keepable.next(memory)? {
        return Ok((change.start << 32 | (change.end - change.start),));
    }
    let fuel = keepable.fuel_at_beginning();
    store.set_fuel(fuel)?;
    Ok((0,))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeper_gets_every_change_once_and_then_the_plugin_begins() {
        let mut keepable = Keepable::new(1_000);
        keepable.changes = vec![0..4096, 8192..12_288];
        let memory = 65_536..131_072;
        let mut changes = Vec::new();
        while let Some(change) = keepable.next(memory.clone()).unwrap() {
            changes.push(change);
            assert!(!keepable.has_begun);
        }
        assert_eq!(changes, [8192..12_288, 0..4096]);
        assert!(keepable.has_begun);
        assert_eq!(keepable.memory, Some(memory));
    }

    /// It would get its fuel again.
    #[test]
    fn plugin_that_calls_its_keeper_is_stopped() {
        let mut keepable = Keepable::new(1_000);
        assert!(keepable.next(0..65_536).unwrap().is_none());
        let again = keepable.next(0..65_536);
        assert!(matches!(again, Err(Stop::Contract(_))), "{again:?}");
    }

    #[test]
    fn fuel_of_making_the_instance_counts_for_each_call() {
        let mut keepable = Keepable::new(1_000);
        keepable.is_made(KEEPER_FUEL - 2);
        assert_eq!(
            keepable.fuel_at_beginning(),
            1_000 + FUEL_AFTER_LAST_CHANGE - 2
        );
    }

    #[test]
    fn only_the_second_memory_is_not_the_plugins() {
        let mut keepable = Keepable::new(1_000);
        assert!(!keepable.grows(65_536));
        assert!(keepable.grows(65_536));
        assert!(keepable.next(0..65_536).unwrap().is_none());
        assert!(!keepable.has_grown && !keepable.grows(131_072));
        assert!(keepable.has_grown);
        assert_eq!(keepable.memory_bytes, 65_536);
    }
}
