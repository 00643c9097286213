//! The share of the host that plugins of namespaces have together, and the share of each namespace.
//!
//! ```text
//! wait until namespace and all together have budget left → a place of the namespace → a place of all → call → charge
//! ```
//!
//! The limits of a plugin bound one call. A user chooses how many requests come, so calls within their limits can keep
//! the host busy. A namespace therefore has a budget of fuel and CPU time per second, and so have all namespaces
//! together. The cost of a call is known only at its end. A call therefore begins while budget is left, and its cost
//! may exceed the rest. Then the next call waits until the budget is positive again. If that would take longer than
//! its deadline, it is a fault at once.
//!
//! Plugins of the cluster never come here.

mod bucket;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tollgate_config::TenantBudget;

use self::bucket::Bucket;
use super::call::acquire_owned;

/// The shares of all namespaces.
pub(super) struct Tenants {
    budget: TenantBudget,
    all: Share,
    namespaces: Mutex<BTreeMap<Arc<str>, Arc<Share>>>,
}

/// The budget and the places of a namespace, or of all of them together.
struct Share {
    places: Arc<Semaphore>,
    bucket: Mutex<Bucket>,
}

/// The places of a call. Dropping it frees them. A call that is dropped before it was charged pays for its time.
pub(super) struct Admitted {
    tenants: Arc<Tenants>,
    own: Arc<Share>,
    began: Instant,
    /// The most CPU time that the call can have used.
    longest: Duration,
    is_charged: bool,
    _places: [OwnedSemaphorePermit; 2],
}

/// Why a call of a namespace's plugin may not begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Exhausted {
    /// The budget of the namespace.
    BudgetOfNamespace,
    /// The budget of all namespaces together.
    BudgetOfAll,
    /// The places of the namespace.
    PlacesOfNamespace,
    /// The places of all namespaces together.
    PlacesOfAll,
}

/// Namespaces that are remembered before those without calls and debts are forgotten.
const MANY_NAMESPACES: usize = 256;

// === impl Tenants ===

impl Tenants {
    pub(super) fn new(budget: TenantBudget) -> Self {
        let now = Instant::now();
        Self {
            all: Share {
                places: Arc::new(Semaphore::new(budget.calls as usize)),
                bucket: Mutex::new(Bucket::new(budget.fuel, budget.cpu_time, now)),
            },
            namespaces: Mutex::default(),
            budget,
        }
    }

    /// Waits until a call of the namespace may begin, but not past `deadline`. `longest` is the most CPU time that the
    /// call can use.
    pub(super) async fn admit(
        self: &Arc<Self>,
        namespace: &Arc<str>,
        longest: Duration,
        deadline: Instant,
    ) -> Result<Admitted, Exhausted> {
        let own = self.share(namespace);
        loop {
            self.wait_for_budget(&own, deadline).await?;
            let place = acquire_owned(&own.places, deadline).await;
            let place = place.ok_or(Exhausted::PlacesOfNamespace)?;
            let shared = acquire_owned(&self.all.places, deadline).await;
            let shared = shared.ok_or(Exhausted::PlacesOfAll)?;
            let now = Instant::now();
            // Other calls may have used the budget up during the wait for a place. Nobody sleeps on a place.
            if self.wait(&own, now).is_none() {
                return Ok(Admitted {
                    tenants: self.clone(),
                    own,
                    began: now,
                    longest,
                    is_charged: false,
                    _places: [place, shared],
                });
            }
        }
    }

    async fn wait_for_budget(&self, own: &Share, deadline: Instant) -> Result<(), Exhausted> {
        loop {
            let now = Instant::now();
            let Some((wait, exhausted)) = self.wait(own, now) else {
                return Ok(());
            };
            if now + wait >= deadline {
                return Err(exhausted);
            }
            tokio::time::sleep(wait).await;
        }
    }

    /// Returns how long a call has to wait, and for what. None if budget is left.
    fn wait(&self, own: &Share, now: Instant) -> Option<(Duration, Exhausted)> {
        let own = own.bucket().wait(now);
        let all = self.all.bucket().wait(now);
        let longer = if own >= all {
            (own, Exhausted::BudgetOfNamespace)
        } else {
            (all, Exhausted::BudgetOfAll)
        };
        (!longer.0.is_zero()).then_some(longer)
    }

    fn share(&self, namespace: &Arc<str>) -> Arc<Share> {
        let mut namespaces = self
            .namespaces
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(share) = namespaces.get(namespace) {
            return share.clone();
        }
        let now = Instant::now();
        if namespaces.len() >= MANY_NAMESPACES {
            namespaces
                .retain(|_, share| Arc::strong_count(share) > 1 || !share.bucket().is_full(now));
        }
        let budget = &self.budget;
        let bucket = Bucket::new(
            budget.fuel_per_namespace,
            budget.cpu_time_per_namespace,
            now,
        );
        let share = Arc::new(Share {
            places: Arc::new(Semaphore::new(budget.calls_per_namespace() as usize)),
            bucket: Mutex::new(bucket),
        });
        namespaces.insert(namespace.clone(), share.clone());
        share
    }
}

// === impl Share ===

impl Share {
    fn bucket(&self) -> MutexGuard<'_, Bucket> {
        self.bucket.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Admitted ===

impl Admitted {
    /// Charges the cost of the call. It may be called for each attempt.
    pub(super) fn charge(&mut self, fuel: u64, cpu: Duration) {
        self.is_charged = true;
        let now = Instant::now();
        self.own.bucket().charge(now, fuel, cpu);
        self.tenants.all.bucket().charge(now, fuel, cpu);
    }
}

impl Drop for Admitted {
    /// A call is dropped when its client has gone. Its fuel is then not known.
    fn drop(&mut self) {
        if !self.is_charged {
            self.charge(0, self.began.elapsed().min(self.longest));
        }
    }
}

// === impl Exhausted ===

impl fmt::Display for Exhausted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::BudgetOfNamespace => {
                "the plugins of the namespace have used up their fuel or CPU time (tenancy.budget.fuelPerNamespace, \
                 cpuTimePerNamespace)"
            }
            Self::BudgetOfAll => {
                "the plugins of all namespaces have used up their fuel or CPU time (tenancy.budget.fuel, cpuTime)"
            }
            Self::PlacesOfNamespace => {
                "no place for the call was free before the deadline: calls of the same namespace take half of \
                 tenancy.budget.calls"
            }
            Self::PlacesOfAll => {
                "no place for the call was free before the deadline: calls of other namespaces take tenancy.budget.calls"
            }
        })
    }
}
