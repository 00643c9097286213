//! Decides how long a starting replica stays unready because plugins could not be loaded.
//!
//! Without these plugins the replica would deny requests. Two things must not happen:
//!
//! - A rollout must not replace replicas that serve well with this one. So the replica asks its peers, and stays
//!   unready while one of them is ready with all of its plugins.
//! - When all replicas start at once, one plugin that cannot be loaded must not leave the cluster without any replica.
//!   So the replica becomes ready after `startupGrace`, if no peer has all of its plugins.
//!
//! ```text
//! starting ──▶ all plugins are loaded ─────────────────────────────────────────────────────────▶ ready, for good
//!     └──────▶ some are missing ──▶ startupGrace is over, and no peer has all of its plugins ──▶ ready
//! ```
//!
//! Once ready, a replica stays ready: a later failure to load a plugin changes nothing in the plugins that serve.

mod peers;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::time::{Instant, sleep};
use tollgate_admission::Instance;
use tollgate_config::{Startup, format_duration};

use self::peers::Standing;
use crate::pipeline::Pipeline;
use crate::plugin::PluginSet;

/// How often the replica polls its peers.
const PERIOD: Duration = Duration::from_secs(2);
/// How many times in a row the replica must find no better peer before it becomes ready without plugins. A busy peer
/// may miss one answer.
const TIMES_ALONE: u32 = 3;

/// Decides whether this replica may be ready although plugins are missing.
pub(super) struct Grace {
    startup: Startup,
    instance: Instance,
    began: Instant,
    /// Whether the wait is over, for good.
    is_over: AtomicBool,
    peer_state: ArcSwap<PeerState>,
}

/// The result of polling the peers.
#[derive(Debug)]
struct PeerState {
    standing: Standing,
    /// How many times in a row no better peer was found.
    times_alone: u32,
}

/// The decision about missing plugins.
#[derive(Debug, Eq, PartialEq)]
enum Decision {
    /// Become ready without the missing plugins.
    Ready,
    /// Wait, for this reason.
    Wait(String),
}

// === impl Grace ===

impl Grace {
    /// Starts the grace period now.
    pub(super) fn new(startup: Startup, instance: Instance) -> Self {
        Self {
            startup,
            instance,
            began: Instant::now(),
            is_over: AtomicBool::new(false),
            peer_state: ArcSwap::from_pointee(PeerState::default()),
        }
    }

    /// The text for `/readyz`: the awaited plugins, and until when the replica waits for them; `None` if the wait is
    /// over.
    pub(super) fn waiting(&self, live: &PluginSet) -> Option<String> {
        if self.is_over.load(Ordering::Relaxed) {
            return None;
        }
        let Some(names) = awaited(live) else {
            self.is_over.store(true, Ordering::Relaxed);
            return None;
        };
        let decision = decide(&self.startup, self.began.elapsed(), &self.peer_state.load());
        // Only `run` ends the wait, because the peers may have to be polled once more.
        let why = match decision {
            Decision::Ready => "asking the other replicas one last time (startupPeers)".to_owned(),
            Decision::Wait(why) => why,
        };
        Some(format!(
            "waiting for plugins under failurePolicy Fail that are not loaded, or whose lookups have not been read: {names}; \
             requests that they match are denied; {why}"
        ))
    }

    /// Runs until the wait is over: polls the peers, decides, and logs the decision.
    pub(super) async fn run(self: Arc<Self>, pipeline: Arc<Pipeline>) {
        let mut logged = String::new();
        loop {
            let Some(plugins) = awaited(&pipeline.live()) else {
                self.is_over.store(true, Ordering::Relaxed);
                if !logged.is_empty() {
                    tracing::info!("ready: all awaited plugins are loaded");
                }
                return;
            };
            let standing = peers::poll(&self.startup.peers, self.instance).await;
            let kind = standing.kind();
            let peer_state = self.peer_state.load().next(standing);
            let decision = decide(&self.startup, self.began.elapsed(), &peer_state);
            self.peer_state.store(Arc::new(peer_state));
            match decision {
                Decision::Ready => {
                    self.is_over.store(true, Ordering::Relaxed);
                    tracing::error!(
                        plugins,
                        "startupGrace is over: ready without these plugins; requests that they match are denied"
                    );
                    return;
                }
                Decision::Wait(reason) if logged != kind => {
                    tracing::warn!(plugins, reason, "not ready: plugins are not loaded");
                    kind.clone_into(&mut logged);
                }
                Decision::Wait(_) => {}
            }
            // Wake no later than at the end of the grace period.
            let elapsed = self.began.elapsed();
            let grace = self.startup.grace;
            let left = grace.map(|grace| grace.saturating_sub(elapsed));
            let next = match left {
                Some(left) if !left.is_zero() => left.min(PERIOD),
                Some(_) | None => PERIOD,
            };
            sleep(next).await;
        }
    }
}

fn decide(startup: &Startup, elapsed: Duration, peer_state: &PeerState) -> Decision {
    let until = match startup.grace {
        None if startup.peers.is_empty() => {
            "not ready until they are loaded (startupGrace: never, which is the default without startupPeers)".to_owned()
        }
        None => "not ready until they are loaded (startupGrace: never)".to_owned(),
        Some(grace) => {
            let left = grace.saturating_sub(elapsed);
            if left.is_zero() {
                format!("startupGrace ({}) is over", format_duration(grace))
            } else {
                let left = format!("ready without them in {} s (startupGrace)", left.as_secs() + 1);
                if startup.peers.is_empty() {
                    left
                } else {
                    format!("{left}, unless another replica has all of its plugins by then (startupPeers)")
                }
            }
        }
    };
    let is_over = startup.grace.is_some_and(|grace| elapsed >= grace);
    match &peer_state.standing {
        Standing::NoPeers if is_over => Decision::Ready,
        Standing::NoneComplete if is_over && peer_state.times_alone >= TIMES_ALONE => {
            Decision::Ready
        }
        Standing::NoneComplete if is_over => Decision::Wait(format!(
            "{until}; asking the other replicas again (startupPeers)"
        )),
        Standing::NoneComplete | Standing::NoPeers | Standing::NotPolled => Decision::Wait(until),
        Standing::Complete(address) => Decision::Wait(format!(
            "{until}; the replica at {address} is ready with all of its plugins (startupPeers), and must not be replaced \
             by this one"
        )),
        Standing::Unknown(why) => Decision::Wait(format!(
            "{until}; cannot find out whether another replica is ready with all of its plugins: {why}"
        )),
    }
}

// === impl PeerState ===

impl PeerState {
    fn next(&self, standing: Standing) -> Self {
        let is_alone = standing == Standing::NoneComplete;
        Self {
            times_alone: if is_alone { self.times_alone + 1 } else { 0 },
            standing,
        }
    }
}

impl Default for PeerState {
    fn default() -> Self {
        Self {
            standing: Standing::NotPolled,
            times_alone: 0,
        }
    }
}

/// The names of the plugins that the replica waits for; `None` if there are none.
pub(super) fn awaited(live: &PluginSet) -> Option<String> {
    let names: Vec<&str> = live.awaited().map(|config| config.name.as_str()).collect();
    (!names.is_empty()).then(|| names.join(", "))
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, SocketAddr};

    use super::*;
    use tollgate_config::PeerAddress;

    const MINUTE: Duration = Duration::from_secs(60);

    fn startup(grace: Option<Duration>, peers: usize) -> Startup {
        let peer = PeerAddress {
            host: "peers".to_owned(),
            port: 8080,
        };
        Startup {
            grace,
            peers: vec![peer; peers],
        }
    }

    fn reason(startup: &Startup, elapsed: Duration, standing: Standing) -> String {
        let mut peer_state = PeerState::default();
        for _ in 0..TIMES_ALONE - 1 {
            peer_state = peer_state.next(Standing::NoneComplete);
        }
        match decide(startup, elapsed, &peer_state.next(standing)) {
            Decision::Ready => "ready".to_owned(),
            Decision::Wait(why) => why,
        }
    }

    #[test]
    fn becomes_ready_after_grace_when_no_peer_is_complete() {
        let startup = startup(Some(MINUTE), 1);
        let why = reason(&startup, Duration::from_secs(50), Standing::NoneComplete);
        assert!(
            why.starts_with("ready without them in 11 s (startupGrace), unless"),
            "{why}"
        );
        assert_eq!(reason(&startup, MINUTE, Standing::NoneComplete), "ready");
        // Before the peers have answered once, their state is unknown.
        assert_ne!(reason(&startup, MINUTE, Standing::NotPolled), "ready");
    }

    #[test]
    fn asks_again_when_complete_peer_stops_answering() {
        let startup = startup(Some(MINUTE), 1);
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 8080));
        let mut peer_state = PeerState::default().next(Standing::Complete(address));
        let mut times = 0;
        while decide(&startup, 2 * MINUTE, &peer_state) != Decision::Ready {
            peer_state = peer_state.next(Standing::NoneComplete);
            times += 1;
        }
        assert_eq!(times, TIMES_ALONE);
    }

    #[test]
    fn stays_unready_beside_complete_peer() {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 8080));
        for grace in [Some(Duration::ZERO), Some(MINUTE), None] {
            let why = reason(
                &startup(grace, 1),
                100 * MINUTE,
                Standing::Complete(address),
            );
            assert!(why.contains("127.0.0.1:8080 is ready with all"), "{why}");
        }
    }

    #[test]
    fn waits_while_peers_cannot_be_resolved() {
        let unknown = Standing::Unknown("cannot resolve peers:8080".to_owned());
        let why = reason(&startup(Some(MINUTE), 1), 100 * MINUTE, unknown);
        assert!(
            why.contains("startupGrace (1m) is over; cannot find out whether another"),
            "{why}"
        );
        assert!(why.contains("cannot resolve peers:8080"), "{why}");
    }

    #[test]
    fn grace_alone_decides_without_peers() {
        assert_eq!(
            reason(&startup(Some(MINUTE), 0), MINUTE, Standing::NoPeers),
            "ready"
        );
        assert_eq!(
            reason(
                &startup(Some(Duration::ZERO), 0),
                Duration::ZERO,
                Standing::NoPeers
            ),
            "ready"
        );
        let why = reason(&startup(None, 0), 1_000 * MINUTE, Standing::NoPeers);
        assert!(why.contains("the default without startupPeers"), "{why}");
        let why = reason(&startup(None, 1), 1_000 * MINUTE, Standing::NoneComplete);
        assert!(why.contains("(startupGrace: never)"), "{why}");
    }
}
