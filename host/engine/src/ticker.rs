//! The thread that increments the epoch.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::Thread;
use std::time::Duration;

/// Increments an engine's epoch until it is dropped, while a guest runs that could check the epoch.
///
/// The ticker is an OS thread, not a task. A runtime whose threads all run guests would not get round to a task.
pub(super) struct Ticker {
    shared: Arc<Shared>,
    thread: Thread,
}

/// A guard for a running guest: the epoch moves while it exists.
pub(super) struct Running(Arc<Shared>);

/// A guard like [`Running`] that borrows the ticker. It does without a count on an `Arc` that all threads share.
pub(super) struct RunningCall<'t>(&'t Shared);

#[derive(Default)]
struct Shared {
    stop: AtomicBool,
    running: AtomicUsize,
    is_parked: AtomicBool,
}

/// Number of ticks that meet no running guest after which the thread sleeps. Under steady load, the thread is therefore
/// not put to sleep and woken for every request. With few calls, which is usual when most answers are known, it seldom
/// takes the processor from requests.
const IDLE_TICKS: u32 = 5;

// === impl Ticker ===

impl Ticker {
    pub(super) fn start(engine: &wasmtime::Engine, interval: Duration) -> Self {
        let shared = Arc::new(Shared::default());
        let engine = engine.weak();
        let ticked = shared.clone();
        let thread = std::thread::Builder::new()
            .name("tollgate-epoch".into())
            .spawn(move || {
                let mut idle = 0;
                while !ticked.stop.load(Ordering::Relaxed) {
                    std::thread::sleep(interval);
                    match engine.upgrade() {
                        Some(engine) => engine.increment_epoch(),
                        None => return,
                    }
                    idle = match ticked.running.load(Ordering::Relaxed) {
                        0 => idle + 1,
                        _ => 0,
                    };
                    if idle >= IDLE_TICKS {
                        ticked.park();
                        idle = 0;
                    }
                }
            })
            .expect("the epoch thread can be started")
            .thread()
            .clone();
        Self { shared, thread }
    }

    /// Returns a guard to hold while a guest can run. Wakes the thread if it sleeps.
    pub(super) fn running(&self) -> Running {
        self.begin();
        Running(self.shared.clone())
    }

    /// Like [`Ticker::running`], for a guest that cannot run longer than the guard's borrow.
    pub(super) fn running_call(&self) -> RunningCall<'_> {
        self.begin();
        RunningCall(&self.shared)
    }

    fn begin(&self) {
        // Sequentially consistent with the two lines of `park`. Either this thread sees that the ticker is parked, or
        // the ticker sees that something runs.
        self.shared.running.fetch_add(1, Ordering::SeqCst);
        if self.shared.is_parked.load(Ordering::SeqCst)
            && self.shared.is_parked.swap(false, Ordering::SeqCst)
        {
            self.thread.unpark();
        }
    }
}

impl Drop for Ticker {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        self.thread.unpark();
    }
}

// === impl Shared ===

impl Shared {
    /// Sleeps until something runs. The thread can also wake up without a reason.
    fn park(&self) {
        self.is_parked.store(true, Ordering::SeqCst);
        if self.running.load(Ordering::SeqCst) == 0 && !self.stop.load(Ordering::SeqCst) {
            std::thread::park();
        }
        self.is_parked.store(false, Ordering::SeqCst);
    }

    fn end(&self) {
        self.running.fetch_sub(1, Ordering::Relaxed);
    }
}

// === impl Running ===

impl Drop for Running {
    fn drop(&mut self) {
        self.0.end();
    }
}

// === impl RunningCall ===

impl Drop for RunningCall<'_> {
    fn drop(&mut self) {
        self.0.end();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;

    use wasmtime::{Config, Instance, Module, Store, UpdateDeadline};

    use super::*;

    /// Runs a loop that ends at the second tick. Returns `false` if the loop used a second's worth of fuel first.
    fn sees_a_tick(engine: &wasmtime::Engine, ticker: &Ticker) -> bool {
        let spin = wat::parse_str(r#"(module (func (export "spin") (loop (br 0))))"#);
        let module = Module::new(engine, spin.expect("the text is WebAssembly"));
        let mut store = Store::new(engine, ());
        store.set_epoch_deadline(1);
        store.set_fuel(5_000_000_000).expect("fuel is metered");
        let ticks = Arc::new(AtomicU64::new(0));
        let (running, seen) = (ticker.running(), ticks.clone());
        store.epoch_deadline_callback(move |_| {
            let _held = &running;
            match seen.fetch_add(1, Ordering::Relaxed) {
                0 => Ok(UpdateDeadline::Continue(1)),
                _ => Err(wasmtime::Error::msg("enough")),
            }
        });
        let module = module.expect("the module compiles");
        let instance = Instance::new(&mut store, &module, &[]).expect("the module has no imports");
        let spin = instance.get_typed_func::<(), ()>(&mut store, "spin");
        let ended = spin.expect("`spin` is exported").call(&mut store, ());
        assert!(ended.is_err(), "a loop without end cannot return");
        ticks.load(Ordering::Relaxed) == 2
    }

    #[test]
    fn both_guards_count_while_they_exist() {
        let engine = wasmtime::Engine::new(Config::new().epoch_interruption(true));
        let engine = engine.expect("the engine can be made");
        let ticker = Ticker::start(&engine, Duration::from_millis(1));
        let count = || ticker.shared.running.load(Ordering::SeqCst);
        let owned = ticker.running();
        let borrowed = ticker.running_call();
        assert_eq!(count(), 2);
        drop(owned);
        assert_eq!(count(), 1);
        drop(borrowed);
        assert_eq!(count(), 0);
    }

    #[test]
    fn ticks_while_guest_runs_and_wakes_from_sleep() {
        let mut config = Config::new();
        config.epoch_interruption(true).consume_fuel(true);
        let engine = wasmtime::Engine::new(&config).expect("the engine can be made");
        let ticker = Ticker::start(&engine, Duration::from_micros(100));
        assert!(sees_a_tick(&engine, &ticker));
        let began = std::time::Instant::now();
        while !ticker.shared.is_parked.load(Ordering::SeqCst) {
            assert!(
                began.elapsed() < Duration::from_secs(30),
                "the ticker never sleeps"
            );
            std::thread::sleep(Duration::from_millis(5));
        }
        assert!(sees_a_tick(&engine, &ticker));
    }
}
