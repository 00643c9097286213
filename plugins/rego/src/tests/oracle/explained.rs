//! The known differences from OPA.

use super::Answer;

/// Returns why the answers differ. None if nobody knows. The reference of the plugin names each reason.
pub(super) fn explanation(_name: &str, ours: &Answer, _theirs: &Answer) -> Option<&'static str> {
    let error = ours.as_ref().err()?;
    error
        .contains("expects numeric argument")
        .then_some("regorus ends an evaluation that calculates with what is no number")
}
