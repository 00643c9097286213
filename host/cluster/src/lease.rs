//! Leases: which replica leads, and what each replica serves.
//!
//! ```text
//! NAME-leader            election (pure) ◀─ leader (task)     one replica applies the webhook configurations
//! NAME-replica-REPLICA   announcement    ◀─ replica (task)    what this replica serves, renewed every 10 s
//! all of them            replicas (pure) ◀─ watch (task)      what the others serve; gone after 30 s
//! ```

mod announcement;
mod election;
mod leader;
mod members;
mod replica;
mod replicas;
mod watch;

#[cfg(test)]
pub(crate) use self::announcement::Announced;
pub(crate) use self::{
    announcement::Announcement,
    election::Election,
    leader::{Leadership, lead},
    replica::announce,
    replicas::Replicas,
    watch::watch,
};
pub use self::{announcement::RulesDigest, election::ElectionTiming, members::Members};

/// The label of every Lease of an installation. Its value is the installation's name.
pub(crate) const INSTALLATION_LABEL: &str = "tollgate.dev/installation";

/// The annotation of a replica's Lease: what the replica serves, in JSON.
pub(crate) const SERVING_ANNOTATION: &str = "tollgate.dev/serving";
