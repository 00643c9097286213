//! See `tollgate_fuzzing::targets::bundle`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tollgate_fuzzing::targets::bundle::target(data));
