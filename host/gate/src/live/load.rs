//! Runs the loads and recalls that the reconciler orders.

use std::sync::Arc;

use tollgate_admission::chain;
use tollgate_config::PluginConfig;
use tollgate_oci::{Patience, Served, Start};

use super::reconcile::{Code, Failure, Loaded, Order, Outcome, RecallOrder, Recalled};
use crate::plugin::{LoadError, Loader, PluginCode};

const WITHHELD: &str = "cannot prepare the plugin; the reason is withheld, because settings come from a Secret: \
    try the settings with `tollgate check`";

/// The code of a plugin, shared by all of its callers.
pub(super) type SharedCode = Arc<PluginCode>;

impl Code for SharedCode {
    fn is(&self, other: &Self) -> bool {
        Self::ptr_eq(self, other)
    }

    fn fits(&self, config: &PluginConfig) -> Result<(), String> {
        self.has_rules(config).map_err(|error| chain(&error))
    }
}

/// Loads a plugin. Calls `fetched` with the digest as soon as the bytes have arrived.
pub(super) async fn load(
    loader: &Loader,
    patience: &Patience,
    order: Order,
    fetched: impl FnOnce(Arc<str>),
) -> Result<Outcome<SharedCode>, Failure> {
    let mut digest: Option<Arc<str>> = None;
    let held_back = order.held_back.clone();
    let is_secret = order.config.secret_settings;
    match try_load(loader, patience, order, &mut digest, fetched).await {
        Ok(outcome) => Ok(outcome),
        // The load was only to check whether there is a version other than the held-back one. The check failed without
        // finding one.
        Err(_) if held_back.is_some() && digest.is_none() => Ok(Outcome::HeldBack),
        Err(error) => Err(Failure {
            reason: reason(&error, is_secret),
            digest,
            is_unsigned: error.is_unsigned(),
        }),
    }
}

/// Returns the error's text. Withholds what a plugin may have said about settings from a Secret.
fn reason(error: &LoadError, is_secret: bool) -> String {
    let is_plugins = matches!(error, LoadError::Prepare(_) | LoadError::Link(_));
    if is_secret && is_plugins {
        return WITHHELD.to_owned();
    }
    chain(error)
}

async fn try_load(
    loader: &Loader,
    patience: &Patience,
    order: Order,
    digest: &mut Option<Arc<str>>,
    fetched: impl FnOnce(Arc<str>),
) -> Result<Outcome<SharedCode>, LoadError> {
    let config = &order.config;
    loader.has_room_for(&config.limits)?;
    if let Some(known) = &order.at_hand {
        if order.have.as_ref() == Some(known) {
            return Ok(Outcome::Unchanged { is_cached: true });
        }
        if let Some(artifact) = loader.at_hand(config, known) {
            *digest = Some(known.clone());
            fetched(known.clone());
            let code = loader.prepare_code(config, artifact, order.is_new).await?;
            let loaded = of(code, known.clone(), None);
            let is_cached = true;
            return Ok(Outcome::New { loaded, is_cached });
        }
    }
    let start = order.at_start.map(|replaceable| Start {
        patience,
        replaceable,
    });
    let have = order.held_back.as_ref().or(order.have.as_ref());
    let mut artifact = loader
        .fetch_within(config, have.map(|have| &**have), start)
        .await?;
    let stale = artifact.stale.take();
    if let Some(reason) = stale
        .as_ref()
        .filter(|_| order.serves || order.held_back.is_some())
    {
        // The serving version was current for the tag at least as recently as the cached one.
        return Err(LoadError::Stale(reason.clone()));
    }
    if order.held_back.as_ref() == Some(&artifact.digest) {
        return Ok(Outcome::HeldBack);
    }
    if artifact.is_known() || order.have.as_ref() == Some(&artifact.digest) {
        return Ok(Outcome::Unchanged { is_cached: false });
    }
    let new = artifact.digest.clone();
    *digest = Some(new.clone());
    fetched(new.clone());
    let code = loader.prepare_code(config, artifact, order.is_new).await?;
    Ok(Outcome::New {
        loaded: of(code, new, stale),
        is_cached: false,
    })
}

/// Loads the version that served before the start.
pub(super) async fn recall(
    loader: &Loader,
    patience: &Patience,
    order: RecallOrder,
    served: Option<Served>,
) -> Result<Recalled<SharedCode>, String> {
    let served = served.ok_or("its record is missing")?;
    let start = Start {
        patience,
        replaceable: false,
    };
    let RecallOrder { before, today, .. } = order;
    let is_secret = before.secret_settings || today.secret_settings;
    match loader.recall(&before, &today, served, start).await {
        Ok((config, digest, code)) => Ok(Recalled {
            config,
            loaded: of(code, digest, None),
        }),
        Err(error) => Err(reason(&error, is_secret)),
    }
}

fn of(code: PluginCode, digest: Arc<str>, stale: Option<String>) -> Loaded<SharedCode> {
    Loaded {
        digest,
        code: Arc::new(code),
        stale,
        keys: None,
    }
}
