//! Elections among simulated replicas that share one Lease.

use proptest::prelude::*;

use super::*;

fn timing() -> ElectionTiming {
    ElectionTiming::default()
}

fn look(holder: Option<&str>, version: u32) -> Look {
    Look {
        holder: holder.map(str::to_owned),
        resource_version: version.to_string(),
        lease: timing().lease,
    }
}

#[test]
fn takes_free_lease_at_once_and_held_one_when_it_has_expired() {
    let now = Instant::now();
    let mut election = Election::new("b".to_owned(), timing());
    assert_eq!(election.look(None, now), Action::Create);
    assert_eq!(election.look(Some(&look(Some("a"), 1)), now), Action::Wait);
    let later = now + timing().lease;
    // The other replica renewed meanwhile.
    assert_eq!(
        election.look(Some(&look(Some("a"), 2)), later),
        Action::Wait
    );
    let almost = later + timing().lease - Duration::from_millis(1);
    assert_eq!(
        election.look(Some(&look(Some("a"), 2)), almost),
        Action::Wait
    );
    let expired = later + timing().lease;
    assert_eq!(
        election.look(Some(&look(Some("a"), 2)), expired),
        Action::Take
    );
    assert_eq!(election.look(Some(&look(None, 3)), now), Action::Take);
    assert_eq!(election.look(Some(&look(Some("b"), 4)), now), Action::Renew);
}

#[test]
fn stops_leading_before_another_replica_may_begin() {
    let now = Instant::now();
    let mut election = Election::new("a".to_owned(), timing());
    assert_eq!(election.look(None, now), Action::Create);
    election.wrote(now);
    let deadline = now + timing().renew_deadline;
    assert_eq!(election.leads_until(now), Some(deadline));
    assert_eq!(election.leads_until(deadline), None);
    election.wrote(now);
    assert_eq!(election.look(Some(&look(Some("b"), 9)), now), Action::Wait);
    assert_eq!(election.leads_until(now), None);
}

#[test]
fn does_not_respect_endless_leases() {
    let now = Instant::now();
    let mut election = Election::new("a".to_owned(), timing());
    let endless = Look {
        lease: Duration::from_secs(1_000_000),
        ..look(Some("gone"), 1)
    };
    assert_eq!(election.look(Some(&endless), now), Action::Wait);
    let later = now + LONGEST_RESPECTED;
    assert_eq!(election.look(Some(&endless), later), Action::Take);
}

/// The Lease in kube-apiserver.
#[derive(Default)]
struct Store {
    version: u32,
    holder: Option<String>,
}

proptest! {
    /// Whatever replicas are cut off, and however long: never do two of them lead at the same time.
    #[test]
    fn never_two_leaders(steps in prop::collection::vec((0_usize..3, 0_u64..4_000, prop::bool::weighted(0.3)), 1..400)) {
        let mut now = Instant::now();
        let mut store = Store::default();
        let mut candidates: Vec<Election> = ["a", "b", "c"]
            .map(|name| Election::new(name.to_owned(), timing()))
            .into();
        for (index, millis, is_cut_off) in steps {
            now += Duration::from_millis(millis);
            if !is_cut_off {
                let candidate = &mut candidates[index];
                let lease = (store.version > 0).then(|| look(store.holder.as_deref(), store.version));
                if candidate.look(lease.as_ref(), now) != Action::Wait {
                    store.version += 1;
                    store.holder = Some(candidate.identity().to_owned());
                    candidate.wrote(now);
                }
            }
            let leaders = candidates.iter().filter(|one| one.leads_until(now).is_some()).count();
            prop_assert!(leaders <= 1, "{leaders} leaders");
        }
    }
}
