//! Gatekeeper's mutators on reviews of the host.

use serde_json::Value as Json;
use tollgate_cel::json;
use tollgate_cel::patch::difference;
use tollgate_cel::policy::Mutated;
use tollgate_gatekeeper::mutation::{Mutators, Request};
use tollgate_gatekeeper::{Namespaces, Problems};
use tollgate_sdk::SettingsErrors;
use tollgate_sdk::prelude::Review;

use crate::Settings;
use crate::gatekeeper::{Reviewed, report};

/// The mutators of the settings.
pub(crate) struct HostMutators {
    mutators: Mutators,
    namespaces: Namespaces,
}

// === impl HostMutators ===

impl HostMutators {
    /// Reads the mutators of the settings.
    pub(crate) fn new(settings: &Settings) -> Result<Self, SettingsErrors> {
        let mut problems = Problems::new();
        let mutators = Mutators::read(&settings.mutators, &mut problems);
        let namespaces = Namespaces::read(&settings.namespaces, &mut problems);
        let mut errors = SettingsErrors::new();
        report(problems, &mut errors);
        errors.or(Self {
            mutators,
            namespaces,
        })
    }

    /// Changes the object of a review.
    ///
    /// # Panics
    /// If the object does not fit a location, the mutators undo each other, or a selector needs the labels of a Namespace
    /// that nothing knows.
    pub(crate) fn mutate(&self, review: &Review) -> Mutated {
        let Some(text) = review.object().json("") else {
            return Mutated::Unchanged;
        };
        let before: Json = serde_json::from_str(&text).expect("the host gives valid JSON");
        let document = review.request_document();
        let text = |pointer: &str| document.text(pointer).unwrap_or_default();
        let (operation, group) = (text("/operation"), text("/kind/group"));
        let (version, kind) = (text("/kind/version"), text("/kind/kind"));
        // Gatekeeper takes a Namespace for cluster-scoped.
        let namespace = match group.is_empty() && kind == "Namespace" {
            true => String::new(),
            false => text("/namespace"),
        };
        let request = Request {
            operation: &operation,
            group: &group,
            version: &version,
            kind: &kind,
            namespace: &namespace,
        };
        let reviewed = Reviewed::new(review, &self.namespaces);
        let mut after = before.clone();
        let changed = self
            .mutators
            .apply(&mut after, request, &|matching, subject, name| {
                let selects = reviewed.selects(matching, subject);
                selects.unwrap_or_else(|unknown| panic!("{name}: {unknown}"))
            });
        match changed {
            Ok(false) => Mutated::Unchanged,
            Ok(true) => {
                let operations = difference(&json::from_json(&before), &json::from_json(&after));
                Mutated::Patch(operations)
            }
            Err(error) => panic!("{error}"),
        }
    }
}
