//! Hands reviews and their answers to the recorder, if the configuration has `record`.
//!
//! The request path pays for the selection and for one copy of the body. Everything else happens on the recorder's
//! thread.

use std::io;
use std::path::Path;
use std::sync::{Arc, Weak};
use std::time::{Duration, SystemTime};

use arc_swap::ArcSwapOption;
use tollgate_admission::{Body, Call, Endpoint, Reply};
use tollgate_config::Record;
use tollgate_recording::{
    CallNote, Captured, DropReason, Observer, Origin, PluginNote, PluginSetNote, Recorder,
    RecorderOptions, RingOptions, StartError, Written,
};
use tollgate_telemetry::metrics::Metrics;

use crate::decision::Called;
use crate::pipeline::Reviewed;
use crate::plugin::{Plugin, PluginSet, PluginState};

/// Records the reviews that the configuration selects.
pub struct Recording {
    config: Record,
    recorder: Recorder,
    /// The note about the plugin set that answered last.
    noted: ArcSwapOption<Noted>,
}

/// A plugin set, and what the recording says about it.
struct Noted {
    set: Weak<PluginSet>,
    note: Arc<PluginSetNote>,
}

/// Counts what the recorder does, and logs what an operator has to know.
struct Counts(Arc<Metrics>);

// === impl Recording ===

impl Recording {
    /// Opens the folder and starts the recorder's thread.
    ///
    /// # Errors
    /// When the folder cannot be written.
    pub fn start(config: Record, metrics: Arc<Metrics>) -> Result<Self, StartError> {
        let options = RecorderOptions {
            ring: RingOptions {
                max_bytes: config.max_bytes,
                origin: Origin::Server,
                host: env!("CARGO_PKG_VERSION").to_owned(),
            },
            max_queue_bytes: config.max_queue_bytes,
            redact: config.redact.clone(),
        };
        let recorder = Recorder::start(&config.directory, options, Arc::new(Counts(metrics)))?;
        Ok(Self {
            config,
            recorder,
            noted: ArcSwapOption::empty(),
        })
    }

    /// Offers a review with its answer to the recorder. Never waits.
    pub(crate) fn take(
        &self,
        call: &Call,
        plugins: &Arc<PluginSet>,
        review: &Reviewed,
        reply: &Reply,
    ) {
        let Reply::Review(answer) = reply else {
            return;
        };
        if !self.config.selects(&review.request) {
            return;
        }
        // Only the head of a body past the cap is known, so nobody can say what is confidential in it.
        let Body::Whole(body) = &call.body else {
            return self.recorder.drop_review(DropReason::Unreadable);
        };
        self.recorder.offer(body.len() + answer.len(), || Captured {
            time: SystemTime::now()
                .checked_sub(call.received.elapsed())
                .unwrap_or(SystemTime::UNIX_EPOCH),
            endpoint: match call.endpoint {
                Endpoint::Mutate => tollgate_recording::Endpoint::Mutate,
                Endpoint::Validate => tollgate_recording::Endpoint::Validate,
            },
            only: call.plugin.clone(),
            set: self.note(plugins),
            calls: calls(review, plugins),
            body: body.to_vec(),
            answer: answer.to_vec(),
        });
    }

    /// Writes everything that waits. Returns false if that takes longer than `patience`.
    pub fn finish(&self, patience: Duration) -> bool {
        self.recorder.finish(patience)
    }

    /// Describes a plugin set, once for each set.
    fn note(&self, plugins: &Arc<PluginSet>) -> Arc<PluginSetNote> {
        let set = Arc::downgrade(plugins);
        if let Some(noted) = &*self.noted.load()
            && noted.set.ptr_eq(&set)
        {
            return noted.note.clone();
        }
        let plugins = plugins.iter().map(|plugin| self.plugin(plugin));
        let note = Arc::new(PluginSetNote {
            plugins: plugins.collect(),
        });
        self.noted.store(Some(Arc::new(Noted {
            set,
            note: note.clone(),
        })));
        note
    }

    fn plugin(&self, plugin: &Plugin) -> PluginNote {
        let version = match &plugin.state {
            PluginState::Loaded(loaded) => loaded.manifest.version.clone(),
            PluginState::Disabled | PluginState::Failed { .. } => String::new(),
        };
        let settings = match plugin.config.parts.as_slice() {
            [] => plugin.config.settings.to_string(),
            members => {
                let members = members.iter();
                let members = members.map(|member| member.settings.to_string());
                members.collect::<Vec<_>>().join("\n")
            }
        };
        PluginNote {
            name: plugin.config.name.as_str().to_owned(),
            digest: plugin.digest.as_deref().unwrap_or_default().to_owned(),
            version,
            settings: self.recorder.hash(settings.as_bytes()),
            mode: plugin.config.mode.as_str().to_owned(),
            failure_policy: plugin.config.failure_policy.as_str().to_owned(),
        }
    }
}

/// Describes the calls of a review. Texts of plugins are in the answer only.
fn calls(review: &Reviewed, plugins: &PluginSet) -> Vec<CallNote> {
    review
        .called(plugins)
        .iter()
        .map(|called: &Called| CallNote {
            plugin: called.name.to_string(),
            ended: called.ended.to_string(),
            mode: called.mode.to_string(),
            fault: called.fault.as_ref().map(|fault| fault.kind.to_string()),
            rule: called.rule,
            fuel: called.fuel,
        })
        .collect()
}

// === impl Counts ===

impl Observer for Counts {
    fn written(&self, written: Written) {
        self.0.recorded(written.reviews, written.bytes);
    }

    fn dropped(&self, reason: DropReason, reviews: u64) {
        self.0.recording_dropped(reason.as_str(), reviews);
    }

    fn failed(&self, folder: &Path, error: &io::Error) {
        tracing::error!(
            folder = %folder.display(),
            "cannot write the recording; reviews are answered, but not recorded: {error}"
        );
    }
}
