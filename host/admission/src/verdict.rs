//! A denial, in the words of the plugin that denies.

/// A plugin's denial, in its own words.
#[derive(Clone, Debug, Default)]
pub struct Denial {
    /// The message that the user reads first.
    pub message: String,
    /// The HTTP status that the plugin asks for.
    pub code: Option<u16>,
    /// The StatusReason that the plugin asks for.
    pub reason: Option<String>,
    /// The single reasons.
    pub causes: Vec<Cause>,
}

/// One reason for a denial, in the plugin's own words.
#[derive(Clone, Debug, Default)]
pub struct Cause {
    /// The offending field, as a pointer.
    pub field: Option<String>,
    /// The description of the problem.
    pub message: String,
    /// The CauseType that the plugin asks for.
    pub reason: Option<String>,
}
