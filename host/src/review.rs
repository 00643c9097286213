//! The AdmissionReview, in and out.

pub mod decode;
pub mod head;
pub mod request;
pub mod respond;
