//! See `tollgate_fuzzing::targets::config`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tollgate_fuzzing::targets::config::target(data));
