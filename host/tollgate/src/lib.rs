//! Runs WebAssembly plugins for Kubernetes admission inside your own program.
//!
//! A [`Gate`] holds the plugins of one [`Config`]. It takes an AdmissionReview as JSON and returns an [`Answer`]: the
//! verdict, the patch, the warnings, and the report of each plugin. The plugins run with the limits and the isolation
//! of the Tollgate server.
//!
//! ```no_run
//! use std::path::Path;
//! use std::time::Duration;
//!
//! use tollgate::{Config, Gate, Preparer};
//!
//! fn main() -> anyhow::Result<()> {
//!     // Plugins are compiled in child processes, which run this same program.
//!     Preparer::run_if_child();
//!     let runtime = tokio::runtime::Runtime::new()?;
//!     runtime.block_on(async {
//!         let config = Config::load(Path::new("tollgate.yaml"))?;
//!         let gate = Gate::builder(config)
//!             .preparer(Preparer::this_program())
//!             .timeout(Duration::from_secs(10))
//!             .build()
//!             .await?;
//!         let answer = gate.review(std::fs::read("review.json")?).await?;
//!         match answer.status() {
//!             None => println!("allowed, with the patch {:?}", answer.patch()),
//!             Some(status) => println!("denied with {}: {}", status.code, status.message),
//!         }
//!         Ok(())
//!     })
//! }
//! ```
//!
//! # What the library does not do
//!
//! - It has no server. Take the request from your own server, and send [`Answer::review_bytes`].
//! - It does not reload. For another configuration, build another [`Gate`].
//! - It does not register webhooks with kube-apiserver.
//! - It calls no shadow versions.
//! - It sets nothing for the whole process: no logger, no allocator, no signal handler. It logs with `tracing`, so your
//!   program chooses the subscriber.
//!
//! The `tollgate` program does all of that, with the same code.

mod answer;
mod error;
mod gate;
mod preparer;
#[doc(hidden)]
pub mod setup;

/// Who says what users may do, for [`GateBuilder::authorizer`].
pub mod access {
    pub use tollgate_admission::access::{
        Action, Answer, Authorizer, Decision, FixedRights, NoAuthorizer, On, Pending, Question,
        Rule, Subject, Unavailable, User,
    };
}

/// Who verifies images, for [`GateBuilder::images`], and who reads the credentials of Pods for them, for
/// [`GateBuilder::pull_secrets`].
pub mod images {
    pub use tollgate_admission::images::{
        Answer, Failure, FixedImage, FixedImages, FixedResult, ImageVerifier, Login, NoImages,
        NoPullSecrets, Pending, PendingSecrets, PullSecret, PullSecretError, PullSecretKind,
        PullSecrets, Puller, Question, Refusal, Secrets, Unreadable, Verified,
    };
}

/// Sources of namespaces, for [`GateBuilder::namespaces`].
pub mod namespaces {
    pub use tollgate_admission::namespaces::{
        FixedNamespaces, FromObjectsError, Lookup, Namespace, Namespaces, NoNamespaces, Pending,
    };
    pub use tollgate_json::document::Json;
}

/// Sources of the objects that lookups see, for [`GateBuilder::lookups`].
pub mod lookups {
    pub use tollgate_json::document::Json;
    pub use tollgate_lookups::{
        Entry, FileTables, Lookup, NoTables, Page, Projected, Projection, State, Synchronisation,
        Table, Tables, Writer,
    };
}

pub use answer::Answer;
pub use error::{BuildError, FailedPlugin, FolderError, ReviewError};
pub use gate::{Gate, GateBuilder, LoadedPlugin};
pub use preparer::Preparer;

pub use tollgate_admission::{Cause, Cost, Denial, Endpoint};
pub use tollgate_config::{
    Capability, Config, ConfigError, FailurePolicy, Limits, Mode, PluginConfig, PluginName,
    PluginNameError, Problem, Problems, Reference, ReferenceError, Source,
};
pub use tollgate_gate::pipeline::outcome::{
    Ended, FaultReport, Report, Status, StatusCause, StatusDetails,
};
