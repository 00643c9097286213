//! See `tollgate_fuzzing::targets::registry`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tollgate_fuzzing::targets::registry::target(data));
