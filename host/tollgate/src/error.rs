//! The errors of the library.

use std::fmt;
use std::path::PathBuf;

use tollgate_config::PluginName;

/// Why a [`Gate`](crate::Gate) could not be built.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// This process was started to prepare a plugin, but did not call
    /// [`Preparer::run_if_child`](crate::Preparer::run_if_child).
    #[error(
        "this process was started to prepare a plugin: call Preparer::run_if_child first in main"
    )]
    InsideChild,
    /// The path of this program is not known.
    #[error("cannot find the path of this program")]
    Preparer(#[source] std::io::Error),
    /// A folder of the configuration cannot be used.
    #[error("cannot use {} for {purpose} ({setting})", path.display())]
    Folder {
        /// The key in the configuration.
        setting: &'static str,
        /// The use of the folder, in a few words.
        purpose: &'static str,
        /// The folder.
        path: PathBuf,
        /// The problem with the folder.
        source: FolderError,
    },
    /// No temporary folder could be created, and `engine.cacheDirectory` is not set.
    #[error("cannot create a temporary folder for compiled code: set engine.cacheDirectory")]
    TemporaryFolder(#[source] std::io::Error),
    /// The engine cannot be set up, for example because the process has too little address space.
    #[error("cannot set up the engine: {0}")]
    Engine(String),
    /// Some plugins could not be loaded. Holds every one of them.
    #[error("{}", failed(.0))]
    Plugins(Vec<FailedPlugin>),
}

/// A plugin that could not be loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailedPlugin {
    /// The plugin's name.
    pub name: PluginName,
    /// The reason, for a person.
    pub reason: String,
}

/// Why a folder cannot be used. Tollgate runs the code in it, so nobody else may write there.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FolderError {
    /// The path leads to something else.
    #[error("it is not a folder")]
    NotAFolder,
    /// The folder does not exist, and nothing can be created there.
    #[error("it does not exist, and {} is not a folder", above.display())]
    NoParent {
        /// The part of the path that exists.
        above: PathBuf,
    },
    /// The folder does not exist, and this user may not create it.
    #[error("it does not exist, and this user may not create it in {}", above.display())]
    NotCreatable {
        /// The part of the path that exists.
        above: PathBuf,
        /// The operating system's error.
        source: std::io::Error,
    },
    /// The folder belongs to another user.
    #[error("it belongs to user {owner}, but Tollgate runs as user {own}")]
    OtherOwner {
        /// The owner's user ID.
        owner: u32,
        /// The user ID of this process.
        own: u32,
    },
    /// Other users may write to the folder.
    #[error("other users may write to it: run `chmod go-w` on it")]
    Writable,
    /// The operating system's error.
    #[error(transparent)]
    Io(#[from] std::io::Error),
}

/// Why a review has no answer. A plugin's denial or fault is not an error: the [`Answer`](crate::Answer) holds it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReviewError {
    /// Too many calls are running. The review can be tried again.
    #[error("the host is overloaded (engine.maxConcurrentCalls)")]
    Overloaded,
    /// Other reviews have used up the memory for decoded documents. The review can be tried again.
    #[error("the host is out of memory for decoded documents (requests.maxDecoded)")]
    OutOfMemory,
    /// The bytes are not an AdmissionReview. The text does not quote them.
    #[error("{0}")]
    Malformed(String),
    /// The bytes exceed `requests.maxBody`, and their beginning does not identify the request.
    #[error("{0}")]
    TooLarge(String),
    /// The host failed. The text does not quote the review.
    #[error("{0}")]
    Internal(String),
}

// === impl ReviewError ===

impl ReviewError {
    /// Whether the same review may succeed a moment later.
    #[must_use]
    pub fn is_temporary(&self) -> bool {
        matches!(self, Self::Overloaded | Self::OutOfMemory)
    }
}

// === impl FailedPlugin ===

impl fmt::Display for FailedPlugin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the plugin {} is not loaded: {}", self.name, self.reason)
    }
}

/// Lists the plugins, one per line.
fn failed(plugins: &[FailedPlugin]) -> String {
    let lines: Vec<String> = plugins.iter().map(ToString::to_string).collect();
    lines.join("\n")
}
