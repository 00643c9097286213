//! Writes the reconciler's notes to the log.

use super::reconcile::{HeldBecause, Note};
use super::status::Status;

/// Logs a note.
pub(super) fn log(note: &Note, status: &Status) {
    match note {
        Note::Trouble {
            name,
            trouble,
            retry_in,
            is_news,
        } => {
            let (plugin, digest) = (name.as_str(), trouble.digest.as_deref().unwrap_or_default());
            let reason = &trouble.reason;
            let retry_in_seconds = (retry_in.as_secs_f64() * 1000.0).round() / 1000.0;
            if *is_news {
                tracing::error!(plugin, %digest, reason, retry_in_seconds, "failed to load plugin; keeping the serving version, if there is one");
            } else {
                tracing::debug!(
                    plugin,
                    reason,
                    retry_in_seconds,
                    "plugin still fails to load"
                );
            }
        }
        Note::AsDesired { name } => {
            tracing::info!(plugin = %name, "plugin serves as configured again");
        }
        Note::Recalled { name, digest } => {
            tracing::warn!(plugin = %name, %digest, "serving the last known good version of the plugin");
        }
        Note::Held(held) => {
            for (name, because) in &held.plugins {
                let change = match because {
                    HeldBecause::Changed => "its entry has changed",
                    HeldBecause::Removed => "its entry was removed",
                };
                let because_of = held.because_of();
                let what_to_do = held.what_to_do(name);
                tracing::warn!(plugin = %name, change, because_of, what_to_do, "keeping a plugin at its previous configuration");
            }
        }
        Note::Released => {
            tracing::info!(
                "the whole configuration is in effect; no plugin is kept at its previous configuration any more"
            );
        }
        Note::Invalid { reason } if status.lock().read.is_none() => {
            tracing::error!(
                reason,
                "the configuration is not valid; serving the last known good; correct the file: Tollgate loads it as soon as it is valid"
            );
        }
        Note::Invalid { reason } => {
            tracing::error!(
                reason,
                "the configuration is not valid; keeping the previous configuration; correct the file: Tollgate loads it as soon as it is valid"
            );
        }
        Note::NeedsRestart { keys } => {
            let keys = keys.join(", ");
            tracing::warn!(
                keys,
                "these settings require a restart; the rest of the configuration is in effect"
            );
        }
    }
}
