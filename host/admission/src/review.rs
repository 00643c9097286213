//! Reads AdmissionReviews.

pub mod decode;
pub mod head;
pub mod request;
pub mod template;
