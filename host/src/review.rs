//! Reads and writes AdmissionReviews.

pub mod decode;
pub mod head;
pub mod request;
pub mod respond;
