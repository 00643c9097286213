//! Registers the plugins with kube-apiserver. Only the leader writes.
//!
//! ```text
//! desired plugins  ┐
//! announcements    ├▶ plan: which rules, of which plugins (pure) ─▶ configuration: the objects (pure) ─▶ task: writes
//! live rules       ┘      └ overlap: the requests that both match           └ compares with the live object
//! live objects     ──▶ standing: whether each plugin is registered (pure) ─▶ status
//! installation     ──▶ owner: whether it is being removed, and what owns the configurations
//! ```

mod configuration;
mod live;
mod overlap;
mod owner;
mod plan;
mod problem;
mod record;
mod repair;
mod standing;
mod task;

pub use self::{live::Registered, standing::Standing, task::Report};
pub(crate) use self::{
    live::{Live, follow},
    owner::{Owner, follow_owner},
    task::{Inputs, Registrar},
};

#[cfg(test)]
mod fixtures;
