//! Keeps the instance of a call for the next call of the same plugin.
//!
//! An instance is kept only if its component has a keeper (`tollgate_component::kept`). Before the plugin begins, the keeper sets
//! its globals and hands its memory to the host, which resets the written pages. The host drops instances that cannot be
//! reset:
//!
//! - The call ended with a fault.
//! - The memory has grown.
//! - More than a megabyte of the memory was written, or more than 64 separate regions.
//! - The call was about a Secret.
//!
//! The host takes what a page began with from a new instance, before the plugin begins there. So an instance that wrote to
//! a page for the first time in the life of its plugin waits until the next new instance has shown the page's contents.
//!
//! The keeper uses separate fuel. When the memory is reset, the host sets the fuel of the call. A call therefore has the same
//! fuel in a new instance and in a kept one.

mod batch;

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::available_parallelism;

use tollgate_component::RESET;
use tollgate_json::document::Account;
use wasmtime::component::{Instance, Linker, TypedFunc, WasmList};
use wasmtime::{Store, StoreContextMut};

use super::Engine;
use super::bindings::types::{Mutation, Verdict};
use super::fault::Stop;
use super::guest::Guest;
use super::pages::{self, Faults, PAGE_BYTES, Pages};
use super::secrecy::Secrecy;
use super::state::{CallState, Subject};

pub use batch::together;

/// Fuel for the keeper, which runs a few instructions.
pub(super) const KEEPER_FUEL: u64 = 1 << 32;
/// Fuel that the keeper uses between the host and the plugin.
const FUEL_AFTER_HOST: u64 = 1;
/// Zeros of at least this length are written, and not copied. Much of a stack and of a heap is zero at the beginning, and a
/// plugin's pages are more often in the processor's caches if there are fewer of them.
const FEWEST_ZEROS: usize = 1024;
/// A call that writes more loses its instance. The pool gives such memory back, too.
const MOST_WRITTEN_BYTES: u64 = super::KEEP_RESIDENT_BYTES as u64;

/// The instances that an engine may keep.
pub(super) struct Keeping {
    /// `None` in a child process, and on a kernel that does not tell which pages were written.
    pages: Option<Pages>,
    /// Maximum number of kept instances, of all plugins.
    most: u32,
    /// Number of processors. More instances of one plugin would hardly ever run at the same time.
    processors: u32,
    /// Number of plugins that can have kept instances.
    plugins: AtomicU32,
    kept: AtomicU32,
}

/// A place for a kept instance.
struct Place(Arc<Keeping>);

/// The idle instances of a plugin.
pub(super) struct Shelf {
    keeping: Arc<Keeping>,
    idle: Mutex<Vec<Idle>>,
    origin: Arc<Mutex<Origin>>,
}

/// A call that has ended, and its instance, which may be kept.
struct EndedCall {
    shelf: Arc<Shelf>,
    idle: Idle,
    /// The number of page faults before the call. `None` if the memory has to be looked at anyway.
    before: Option<Faults>,
}

/// An instance that waits for the next call of its plugin.
pub(super) struct Idle {
    pub(super) store: Store<CallState>,
    pub(super) functions: Functions,
    place: Option<Place>,
    /// The thread that made the last call.
    thread: ThreadNumber,
}

/// A number that no other thread of the process has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct ThreadNumber(u32);

/// An instance, and its functions that have been called.
#[derive(Default)]
pub(super) struct Functions {
    pub(super) instance: Option<Instance>,
    pub(super) mutate: Option<TypedFunc<(), (Mutation,)>>,
    pub(super) validate: Option<TypedFunc<(), (Verdict,)>>,
}

/// What a store knows about an instance that may be kept.
pub(super) struct Keepable {
    /// Fuel of the call.
    fuel: u64,
    /// Fuel that making the instance has used. It counts for each call, as it does for calls that get a new one.
    made_with: u64,
    /// The addresses of the plugin's memory, from the first call on.
    memory: Option<Range<u64>>,
    /// Size of the memory at the beginning, in bytes.
    memory_bytes: usize,
    has_grown: bool,
    /// Whether everything is reset for this call.
    has_begun: bool,
    /// What was written, as parts of the memory. `None` in the first call.
    written: Option<Vec<Range<u64>>>,
    /// What to reset. `None` if it is not known what the written pages began with.
    changes: Option<Changes>,
    origin: Arc<Mutex<Origin>>,
}

/// What is known about the memory that a plugin begins with.
#[derive(Default)]
struct Origin {
    pristine: Arc<Pristine>,
    /// Pages that a call wrote to, and whose contents are not known.
    wanted: BTreeSet<u64>,
}

/// Pages of the memory that a plugin begins with.
#[derive(Default)]
struct Pristine {
    /// The numbers of the pages, in order.
    pages: Vec<u64>,
    /// Their contents, one after the other.
    contents: Vec<u8>,
}

/// Regions of an instance's memory that were written, and what they began with.
struct Changes {
    pristine: Arc<Pristine>,
    regions: Vec<Region>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Region {
    /// Distance from the beginning of the memory, in bytes.
    at: usize,
    /// Place within the contents of the pristine pages.
    from: usize,
    bytes: usize,
    /// Whether all of it is zero. Then it is not read.
    is_zero: bool,
}

// === impl Keeping ===

impl Keeping {
    /// Returns `None` if no instance is to be kept.
    pub(super) fn new(most: u32) -> Option<Self> {
        let keeping = || Self {
            pages: Pages::open(),
            most,
            processors: available_parallelism()
                .map_or(1, |number| u32::try_from(number.get()).unwrap_or(u32::MAX)),
            plugins: AtomicU32::new(0),
            kept: AtomicU32::new(0),
        };
        (most > 0).then(keeping)
    }

    /// Whether the kernel tells which pages were written.
    pub(super) fn is_possible(&self) -> bool {
        self.pages.is_some()
    }

    /// Maximum number of idle instances of one plugin: its share, and at least one.
    fn most_of_plugin(&self) -> usize {
        let share = self.most / self.plugins.load(Ordering::Relaxed).max(1);
        share.clamp(1, self.processors) as usize
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
        keeping.plugins.fetch_add(1, Ordering::Relaxed);
        Self {
            keeping,
            idle: Mutex::default(),
            origin: Arc::default(),
        }
    }

    /// What a new instance begins with.
    pub(super) fn keepable(&self, fuel: u64) -> Keepable {
        Keepable {
            fuel,
            made_with: 0,
            memory: None,
            memory_bytes: 0,
            has_grown: false,
            has_begun: false,
            written: None,
            changes: None,
            origin: self.origin.clone(),
        }
    }

    /// Takes an instance that can be reset: the last one that this thread has used, or else the last one of all. Its memory is
    /// most likely still in the processor's caches.
    pub(super) fn take(&self) -> Option<Idle> {
        let taken = self.take_ready();
        if taken.is_none() && batch::end_if_it_has_one_of(self) {
            return self.take_ready();
        }
        taken
    }

    fn take_ready(&self) -> Option<Idle> {
        let here = ThreadNumber::here();
        let mut idle = lock(&self.idle);
        let chosen = last_ready(&mut idle, |idle| idle.thread == here, Idle::is_ready)?;
        Some(idle.remove(chosen))
    }

    /// Number of idle instances.
    pub(super) fn len(&self) -> usize {
        lock(&self.idle).len()
    }

    /// Whether the keeper has run in a call. No component that gets a keeper can run without it.
    pub(super) fn has_begun(store: &Store<CallState>) -> bool {
        let keepable = store.data().keepable.as_ref();
        keepable.is_some_and(|keepable| keepable.has_begun)
    }

    /// The number of page faults of this thread before a call. See [`Shelf::keep`].
    pub(super) fn faults_so_far(&self) -> Option<Faults> {
        self.keeping.pages.as_ref().and_then(Pages::faults_so_far)
    }

    /// Keeps an instance for the next call, if that is possible. The call has ended with an answer.
    ///
    /// `before` is the number of page faults before the call, if this thread alone has run it.
    pub(super) fn keep(self: &Arc<Self>, mut idle: Idle, before: Option<Faults>) {
        let state = idle.store.data_mut();
        let is_open = state.secrecy == Secrecy::Open;
        let Some(keepable) = state.keepable.as_ref().filter(|_| is_open) else {
            return;
        };
        let is_known = keepable.changes.is_some();
        if keepable.memory_to_keep().is_none() {
            return;
        }
        if idle.place.is_none() {
            idle.place = self.keeping.place();
        }
        if idle.place.is_none() {
            return;
        }
        idle.store.data_mut().forget();
        idle.thread = ThreadNumber::here();
        let call = EndedCall {
            shelf: self.clone(),
            idle,
            before: before.filter(|_| is_known),
        };
        if let Some(call) = batch::add(call) {
            let now = self.keeping.pages.as_ref().and_then(Pages::faults_now);
            call.end(now);
        }
    }

    fn put(&self, kept: Idle) {
        let mut idle = lock(&self.idle);
        if idle.len() < self.keeping.most_of_plugin() {
            idle.push(kept);
            return;
        }
        // One that may never be ready must not take the place of one that is.
        let surplus = match idle.iter_mut().position(|idle| !idle.is_ready()) {
            Some(waiting) => std::mem::replace(&mut idle[waiting], kept),
            None => kept,
        };
        // It takes longer to drop an instance than others should wait for the lock.
        drop(idle);
        drop(surplus);
    }
}

impl Drop for Shelf {
    fn drop(&mut self) {
        self.keeping.plugins.fetch_sub(1, Ordering::Relaxed);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Finds the last instance that is ready: one of this thread's own, or else any. Asking whether another thread's instance is
/// ready can move its data between processors, so an own one is looked for first.
fn last_ready<T>(
    idle: &mut [T],
    is_own: impl Fn(&T) -> bool,
    mut is_ready: impl FnMut(&mut T) -> bool,
) -> Option<usize> {
    let own = idle
        .iter_mut()
        .rposition(|idle| is_own(idle) && is_ready(idle));
    own.or_else(|| idle.iter_mut().rposition(is_ready))
}

// === impl EndedCall ===

impl EndedCall {
    /// Puts the instance on its shelf if it can be reset. Otherwise drops it. `now` is the number of page faults that this
    /// thread had at some time after the call.
    fn end(mut self, now: Option<Faults>) {
        // Written pages stay written, so they are known already if there is none more.
        let is_known = now.is_some() && now == self.before;
        if is_known || self.find_written_pages().is_some() {
            self.shelf.put(self.idle);
        }
    }

    /// Finds what to reset. Returns `None` if the instance has to go.
    fn find_written_pages(&mut self) -> Option<()> {
        let keepable = self.idle.store.data_mut().keepable.as_mut()?;
        let memory = keepable.memory_to_keep()?;
        let pages = self.shelf.keeping.pages.as_ref()?;
        let written = pages.written(memory, MOST_WRITTEN_BYTES)?;
        keepable.changes = lock(&self.shelf.origin).changes(&written);
        keepable.written = Some(written);
        Some(())
    }
}

// === impl Idle ===

impl Idle {
    pub(super) fn new(store: Store<CallState>) -> Self {
        Self {
            store,
            functions: Functions::default(),
            place: None,
            thread: ThreadNumber::default(),
        }
    }

    /// Whether everything can be reset. It may have become known what the pages began with.
    fn is_ready(&mut self) -> bool {
        let Some(keepable) = &mut self.store.data_mut().keepable else {
            return false;
        };
        if keepable.changes.is_none()
            && let Some(written) = &keepable.written
        {
            keepable.changes = lock(&keepable.origin).changes(written);
        }
        keepable.changes.is_some()
    }

    /// Gives the instance to the next call.
    ///
    /// # Errors
    /// When there is no room for its memory, as for a new instance.
    pub(super) fn begin(
        &mut self,
        guest: &Guest,
        engine: &Engine,
        subject: Subject,
        memory: Account,
    ) -> wasmtime::Result<()> {
        let state = self.store.data_mut();
        state.renew(guest, engine, Some(subject), memory);
        let mut memory_bytes = 0;
        if let Some(keepable) = &mut state.keepable {
            keepable.fuel = state.limits.fuel;
            keepable.has_begun = false;
            memory_bytes = keepable.memory_bytes;
        }
        state.takes_memory(memory_bytes)
    }
}

// === impl ThreadNumber ===

impl ThreadNumber {
    /// Returns the number of the current thread. It is never the default.
    fn here() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(1);
        thread_local! {
            static HERE: ThreadNumber = ThreadNumber(NEXT.fetch_add(1, Ordering::Relaxed));
        }
        HERE.with(|number| *number)
    }
}

// === impl Keepable ===

impl Keepable {
    /// What to reset in the memory at these addresses. `None` in a new instance.
    ///
    /// # Errors
    /// When the plugin has begun: it calls its keeper itself, and would get its fuel again. When the memory is another one.
    fn changes(&self, addresses: &Range<u64>) -> Result<Option<&Changes>, Stop> {
        if self.has_begun {
            let what = "it called the code that resets its instance".to_owned();
            return Err(Stop::Contract(what));
        }
        match (&self.changes, &self.memory) {
            (None, None) => Ok(None),
            (Some(changes), Some(before)) if before == addresses => Ok(Some(changes)),
            _ => {
                let what = "its memory is not the one that is to be reset".to_owned();
                Err(Stop::Contract(what))
            }
        }
    }

    /// The memory, if it can be reset after the call.
    fn memory_to_keep(&self) -> Option<Range<u64>> {
        let memory = self.memory.clone()?;
        // The size of a memory of 4 GiB does not fit into the list that the keeper hands over.
        let is_whole = memory.end - memory.start == self.memory_bytes as u64;
        (self.has_begun && !self.has_grown && is_whole).then_some(memory)
    }

    /// Notes that everything is reset. Returns the fuel that a store needs now, so that the call has exactly its fuel.
    fn begins(&mut self, addresses: Range<u64>) -> u64 {
        self.memory = Some(addresses);
        self.has_begun = true;
        let fuel = self.fuel.saturating_add(FUEL_AFTER_HOST);
        fuel.saturating_sub(self.made_with)
    }

    /// Notes the fuel that a store has left when the instance has been made.
    pub(super) fn is_made(&mut self, fuel_left: u64) {
        self.made_with = KEEPER_FUEL.saturating_sub(fuel_left);
    }

    /// Notes that the memory is created or grows.
    pub(super) fn grows(&mut self, desired: usize) {
        match self.memory {
            Some(_) => self.has_grown = true,
            None => self.memory_bytes = desired,
        }
    }
}

// === impl Origin ===

impl Origin {
    /// Finds what the written regions of a memory began with. `None` if that is not known. Then the next new instance will show
    /// it.
    fn changes(&mut self, written: &[Range<u64>]) -> Option<Changes> {
        let pristine = &self.pristine;
        let regions = written
            .iter()
            .map(|region| Some(pristine.parts(pristine.region(region)?)));
        let regions = regions
            .collect::<Option<Vec<_>>>()
            .map(|parts| parts.concat());
        if regions.is_none() {
            let numbers = || written.iter().flat_map(page_numbers);
            let known = self.pristine.pages.iter().copied();
            self.wanted = numbers().chain(known).collect();
            if self.wanted.len() as u64 > MOST_WRITTEN_BYTES / PAGE_BYTES {
                // Begin again. Instances that can be reset have what they need.
                self.wanted = numbers().collect();
            }
        }
        Some(Changes {
            pristine: self.pristine.clone(),
            regions: regions?,
        })
    }

    /// Copies the wanted pages from a memory that nothing was written to.
    fn learn(&mut self, memory: &[u8]) {
        let wanted = std::mem::take(&mut self.wanted);
        if wanted.is_empty() {
            return;
        }
        let page = |number: &u64| {
            let at = usize::try_from(number * PAGE_BYTES).ok()?;
            memory.get(at..at + PAGE_BYTES as usize)
        };
        let contents: Option<Vec<_>> = wanted.iter().map(page).collect();
        if let Some(contents) = contents {
            self.pristine = Arc::new(Pristine {
                pages: wanted.into_iter().collect(),
                contents: contents.concat(),
            });
        }
    }
}

/// The numbers of the pages of a region.
fn page_numbers(region: &Range<u64>) -> Range<u64> {
    region.start / PAGE_BYTES..region.end / PAGE_BYTES
}

// === impl Pristine ===

impl Pristine {
    /// Finds the contents of a region. `None` if not all of its pages are known.
    fn region(&self, region: &Range<u64>) -> Option<Region> {
        let numbers = page_numbers(region);
        let index = self.pages.binary_search(&numbers.start).ok()?;
        let many = usize::try_from(numbers.end - numbers.start).ok()?;
        // They are in order and differ. If the last one is there, so are all between.
        let last = self.pages.get(index + many.checked_sub(1)?)?;
        (*last + 1 == numbers.end).then_some(())?;
        let page = PAGE_BYTES as usize;
        Some(Region {
            at: usize::try_from(region.start).ok()?,
            from: index * page,
            bytes: many * page,
            is_zero: false,
        })
    }

    /// Splits a region into parts that are zero, and parts that are not.
    fn parts(&self, region: Region) -> Vec<Region> {
        let contents = &self.contents[region.from..][..region.bytes];
        let mut parts: Vec<Region> = Vec::new();
        let mut done = 0;
        while done < region.bytes {
            let rest = &contents[done..];
            let zeros = rest.iter().take_while(|byte| **byte == 0).count();
            let (bytes, is_zero) = if zeros >= FEWEST_ZEROS {
                (zeros, true)
            } else {
                let next = rest[zeros..].iter().position(|byte| *byte == 0);
                (next.map_or(rest.len(), |next| zeros + next), false)
            };
            match parts.last_mut() {
                Some(last) if last.is_zero == is_zero => last.bytes += bytes,
                _ => parts.push(Region {
                    at: region.at + done,
                    from: region.from + done,
                    bytes,
                    is_zero,
                }),
            }
            done += bytes;
        }
        parts
    }
}

// === impl Changes ===

impl Changes {
    fn reset(&self, memory: &Range<u64>) {
        for region in &self.regions {
            if region.is_zero {
                pages::clear(memory, region.at, region.bytes);
            } else {
                let contents = &self.pristine.contents[region.from..][..region.bytes];
                pages::restore(memory, region.at, contents);
            }
        }
    }
}

/// Adds the function that keepers call.
pub(super) fn add_to_linker(linker: &mut Linker<CallState>) -> wasmtime::Result<()> {
    linker.root().func_wrap(RESET, reset)?;
    Ok(())
}

/// Resets the plugin's memory. Then the plugin begins.
fn reset(
    mut store: StoreContextMut<'_, CallState>,
    (memory,): (WasmList<u8>,),
) -> wasmtime::Result<()> {
    let content = memory.as_le_slice(&store);
    let start = content.as_ptr().expose_provenance() as u64;
    let addresses = start..start + content.len() as u64;
    let Some(keepable) = &store.data().keepable else {
        wasmtime::bail!("only a keeper may hand over a memory");
    };
    match keepable.changes(&addresses)? {
        Some(changes) => changes.reset(&addresses),
        None => lock(&keepable.origin).learn(content),
    }
    let state = store.data_mut();
    let output_bytes = usize::try_from(state.limits.output_bytes).unwrap_or(usize::MAX);
    if let Some(keepable) = &mut state.keepable {
        let fuel = keepable.begins(addresses);
        store.set_fuel(fuel)?;
    }
    // The memory was more than a plugin may hand to the host.
    store.set_hostcall_fuel(output_bytes);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keeping(most: u32, processors: u32) -> Arc<Keeping> {
        let keeping = Keeping::new(most).expect("it is not 0");
        Arc::new(Keeping {
            processors,
            ..keeping
        })
    }

    fn keepable() -> Keepable {
        Shelf::new(keeping(2, 2)).keepable(1_000)
    }

    /// A memory of ten pages. Each of its bytes has the number of its page.
    fn memory() -> Vec<u8> {
        (0..10).flat_map(|page| [page; 4096]).collect()
    }

    #[test]
    fn plugins_share_the_places() {
        let keeping = keeping(12, 4);
        let one = Shelf::new(keeping.clone());
        assert_eq!(keeping.most_of_plugin(), 4, "as many as processors");
        let more: Vec<_> = (0..5).map(|_| Shelf::new(keeping.clone())).collect();
        assert_eq!(keeping.most_of_plugin(), 2);
        let many: Vec<_> = (0..20).map(|_| Shelf::new(keeping.clone())).collect();
        assert_eq!(keeping.most_of_plugin(), 1, "at least one");
        drop((one, more, many));
        assert_eq!(keeping.most_of_plugin(), 4);
    }

    #[test]
    fn threads_take_their_own_instances_first() {
        // Whether each instance is the thread's own, and whether it is ready.
        let chosen = |idle: &[(bool, bool)]| {
            let mut idle = idle.to_vec();
            last_ready(&mut idle, |(own, _)| *own, |(_, ready)| *ready)
        };
        assert_eq!(
            chosen(&[(true, true), (true, true), (false, true)]),
            Some(1)
        );
        assert_eq!(
            chosen(&[(true, true), (true, false), (false, true)]),
            Some(0)
        );
        assert_eq!(
            chosen(&[(false, true), (false, true), (true, false)]),
            Some(1)
        );
        assert_eq!(chosen(&[(false, false), (true, false)]), None);
    }

    #[test]
    fn each_thread_has_another_number() {
        let here = ThreadNumber::here();
        assert_eq!(here, ThreadNumber::here());
        assert_ne!(here, ThreadNumber::default());
        let other = std::thread::spawn(ThreadNumber::here).join();
        assert_ne!(here, other.expect("it does not panic"));
    }

    #[test]
    fn contents_of_pages_come_from_a_memory_that_is_new() {
        let mut origin = Origin::default();
        origin.learn(&memory());
        let pages = |pages: &[(u64, u64)]| -> Vec<_> {
            let pages = pages.iter();
            pages.map(|(at, end)| at * 4096..end * 4096).collect()
        };
        assert!(origin.changes(&pages(&[(2, 4), (6, 7)])).is_none());
        origin.learn(&memory());
        assert!(origin.changes(&pages(&[(2, 5)])).is_none(), "4 is missing");
        let changes = origin.changes(&pages(&[(3, 4), (6, 7)])).unwrap();
        let region = |at: usize, from: usize| Region {
            at: at * 4096,
            from: from * 4096,
            bytes: 4096,
            is_zero: false,
        };
        assert_eq!(changes.regions, [region(3, 1), region(6, 2)]);
        assert_eq!(changes.pristine.contents[4096..8192], [3; 4096]);
        // What was known stays known.
        origin.learn(&memory());
        let changes = origin.changes(&pages(&[(2, 5), (6, 7)])).unwrap();
        assert_eq!(changes.pristine.pages, [2, 3, 4, 6]);
        // A page that the memory does not have.
        assert!(origin.changes(&pages(&[(9, 11)])).is_none());
        origin.learn(&memory());
        assert!(origin.changes(&pages(&[(9, 11)])).is_none());
    }

    #[test]
    fn host_remembers_a_megabyte_and_begins_again() {
        let mut origin = Origin::default();
        let memory = vec![0; 2 << 20];
        let page = 4096;
        let first = [0..page, 2 * page..219 * page];
        let second = [page..2 * page, 245 * page..489 * page];
        assert!(origin.changes(&first).is_none());
        origin.learn(&memory);
        let changes = origin.changes(&first).unwrap();
        assert!(origin.changes(&second).is_none());
        origin.learn(&memory);
        assert!(origin.changes(&second).is_some());
        assert!(origin.pristine.contents.len() <= 1 << 20);
        assert!(origin.changes(&first).is_none());
        // What was found before still is what it was.
        assert_eq!(changes.regions.len(), 2);
        assert_eq!(changes.pristine.pages.len(), 218);
    }

    #[test]
    fn long_zeros_are_written_and_all_else_is_copied() {
        let lengths = [0, 1, FEWEST_ZEROS - 1, FEWEST_ZEROS, FEWEST_ZEROS + 1, 1300];
        for (first, second, third) in lengths.into_iter().flat_map(|first| {
            let pairs = lengths
                .into_iter()
                .flat_map(move |second| lengths.map(|third| (second, third)));
            pairs.map(move |(second, third)| (first, second, third))
        }) {
            // Zeros, a byte, zeros, two bytes, zeros, and the rest of the page.
            let mut page = vec![0; first];
            page.push(1);
            page.resize(page.len() + second, 0);
            page.extend([2, 3]);
            page.resize(page.len() + third, 0);
            page.resize(4096, 4);
            let mut origin = Origin::default();
            let written = std::slice::from_ref(&(0..4096));
            assert!(origin.changes(written).is_none());
            origin.learn(&page);
            let changes = origin.changes(written).unwrap();
            let zeros = changes.regions.iter().filter(|region| region.is_zero);
            let long = [first, second, third].into_iter();
            let long = long.filter(|length| *length >= FEWEST_ZEROS).count();
            assert_eq!(zeros.count(), long);
            let mut changed = vec![77_u8; 4096];
            let start = changed.as_mut_ptr().expose_provenance() as u64;
            changes.reset(&(start..start + 4096));
            assert!(changed == page, "{first}, {second}, {third}");
        }
    }

    #[test]
    fn written_pages_are_reset_and_no_others() {
        let mut origin = Origin::default();
        assert!(origin.changes(&[4096..12_288, 20_480..24_576]).is_none());
        origin.learn(&memory());
        let changes = origin.changes(&[4096..12_288, 20_480..24_576]).unwrap();
        let mut changed = vec![77_u8; 10 * 4096];
        let start = changed.as_mut_ptr().expose_provenance() as u64;
        changes.reset(&(start..start + 10 * 4096));
        let firsts: Vec<_> = changed.chunks(4096).map(|page| page[0]).collect();
        assert_eq!(firsts, [77, 1, 2, 77, 77, 5, 77, 77, 77, 77]);
        assert!(changed.chunks(4096).all(|page| page == [page[0]; 4096]));
    }

    /// It would get its fuel again.
    #[test]
    fn plugin_that_calls_its_keeper_is_stopped() {
        let mut keepable = keepable();
        assert!(keepable.changes(&(0..65_536)).unwrap().is_none());
        keepable.begins(0..65_536);
        let again = keepable.changes(&(0..65_536)).err();
        assert!(matches!(again, Some(Stop::Contract(_))), "{again:?}");
    }

    #[test]
    fn another_memory_is_not_reset() {
        let mut keepable = keepable();
        keepable.begins(65_536..131_072);
        keepable.has_begun = false;
        keepable.changes = Some(Changes {
            pristine: Arc::default(),
            regions: Vec::new(),
        });
        assert!(keepable.changes(&(65_536..131_072)).unwrap().is_some());
        let other = keepable.changes(&(65_536..196_608)).err();
        assert!(matches!(other, Some(Stop::Contract(_))), "{other:?}");
    }

    #[test]
    fn fuel_of_making_the_instance_counts_for_each_call() {
        let mut keepable = keepable();
        keepable.is_made(KEEPER_FUEL - 2);
        assert_eq!(keepable.begins(0..65_536), 1_000 + FUEL_AFTER_HOST - 2);
    }

    #[test]
    fn memory_that_grows_after_the_beginning_is_not_reset() {
        let mut keepable = keepable();
        keepable.grows(65_536);
        assert_eq!(keepable.memory_to_keep(), None, "it has not begun");
        keepable.begins(0..65_536);
        assert_eq!(keepable.memory_to_keep(), Some(0..65_536));
        keepable.grows(131_072);
        assert_eq!(keepable.memory_to_keep(), None);
    }

    #[test]
    fn memory_that_is_not_handed_over_as_a_whole_is_not_reset() {
        let mut keepable = keepable();
        keepable.grows(1 << 32);
        keepable.begins(65_536..65_536);
        assert_eq!(keepable.memory_to_keep(), None);
    }
}
