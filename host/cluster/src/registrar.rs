//! Registers the plugins with kube-apiserver. Only the leader writes.
//!
//! ```text
//! desired plugins  ┐
//! announcements    ├▶ plan: which rules, of which plugins (pure) ─▶ configuration: the objects (pure) ─▶ task: writes
//! live rules       ┘      └ overlap: the requests that both match           └ compares with the live object
//! live objects     ──▶ standing: whether each plugin is registered (pure) ─▶ status
//!                  ──▶ examine: whether kube-apiserver would call it (pure) ─▶ canaries, status
//! installation     ──▶ owner: whether it is being removed, and what owns the configurations
//! ```

mod bundle;
mod configuration;
mod examine;
mod live;
mod overlap;
mod owner;
mod plan;
mod problem;
mod record;
mod removal;
mod repair;
mod standing;
mod task;
mod uninstall;

pub(crate) use self::{
    configuration::differing,
    live::{Live, follow},
    owner::{Owner, follow_owner},
    record::rules_of,
    task::{Inputs, Registrar},
};
pub use self::{live::Registered, standing::Standing, task::Report};

#[cfg(test)]
mod fixtures;
