//! Watches the custom resources, and the objects that hold settings.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;

use futures_util::StreamExt as _;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::core::DynamicObject;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event, watch_object, watcher};
use kube::{Api, Client};
use tokio_util::task::AbortOnDropHandle;

use crate::Installation;
use crate::api::words;
use crate::kinds::{Kind, Resource};
use crate::settings::{Held, Holder, HolderKind};
use crate::store::Store;

/// Follows the resources of a kind, for as long as it runs.
pub(crate) async fn follow(api: Api<DynamicObject>, kind: Kind, store: Arc<Store>) {
    let events = watcher(api, watcher::Config::default()).default_backoff();
    let mut events = pin!(events);
    let mut listed = Vec::new();
    while let Some(event) = events.next().await {
        match event {
            Ok(Event::Init) => listed.clear(),
            Ok(Event::InitApply(object)) => {
                listed.push(Resource::of(object));
            }
            Ok(Event::InitDone) => store.replace(kind, std::mem::take(&mut listed)),
            Ok(Event::Apply(object)) => store.apply(kind, Resource::of(object)),
            Ok(Event::Delete(object)) => {
                let metadata = object.metadata;
                let name = metadata.name.unwrap_or_default();
                store.delete(kind, metadata.namespace.as_deref(), &name);
            }
            Err(error) => {
                let why = format!("cannot watch {}: {}", kind.plural(), words(&error));
                if store.fail(kind, &why) {
                    tracing::warn!(
                        reason = why,
                        "cannot watch custom resources; what they desired last stays in effect"
                    );
                }
            }
        }
    }
}

/// Follows the objects that hold settings, one by one, so that a Role can grant them one by one.
pub(crate) async fn follow_holders(client: Client, installation: Installation, store: Arc<Store>) {
    let mut wanted = store.holders.subscribe();
    let mut running = BTreeMap::new();
    loop {
        let now = wanted.borrow_and_update().clone();
        running.retain(|holder, _| {
            let stays = now.contains(holder);
            if !stays {
                store.let_go(holder);
            }
            stays
        });
        for holder in now {
            running.entry(holder.clone()).or_insert_with(|| {
                let (client, store) = (client.clone(), store.clone());
                let namespace = holder.namespace.as_ref().unwrap_or(&installation.namespace);
                let namespace = namespace.clone();
                let following = follow_holder(client, namespace, holder, store);
                AbortOnDropHandle::new(tokio::spawn(following))
            });
        }
        if wanted.changed().await.is_err() {
            return;
        }
    }
}

async fn follow_holder(client: Client, namespace: String, holder: Holder, store: Arc<Store>) {
    match holder.kind {
        HolderKind::ConfigMap => {
            let api: Api<ConfigMap> = Api::namespaced(client, &namespace);
            let events = watch_object(api, &holder.name).default_backoff();
            let mut events = pin!(events);
            while let Some(event) = events.next().await {
                let keys = event.map(|object| {
                    let data = object?.data.unwrap_or_default().into_iter();
                    Some(data.map(|(key, text)| (key, text.into_bytes())).collect())
                });
                hold(&store, &holder, keys);
            }
        }
        HolderKind::Secret => {
            let api: Api<Secret> = Api::namespaced(client, &namespace);
            let events = watch_object(api, &holder.name).default_backoff();
            let mut events = pin!(events);
            while let Some(event) = events.next().await {
                let keys = event.map(|object| {
                    let data = object?.data.unwrap_or_default().into_iter();
                    Some(data.map(|(key, bytes)| (key, bytes.0)).collect())
                });
                hold(&store, &holder, keys);
            }
        }
    }
}

fn hold(
    store: &Store,
    holder: &Holder,
    keys: Result<Option<BTreeMap<String, Vec<u8>>>, watcher::Error>,
) {
    let held = match keys {
        Ok(Some(keys)) => Held::Keys(keys),
        Ok(None) => Held::Missing,
        Err(error) => {
            let why = words(&error);
            tracing::debug!(%holder, reason = why, "cannot watch an object with settings");
            Held::Unreadable(why)
        }
    };
    store.hold(holder, held);
}
