//! See `tollgate_fuzzing::targets::review`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tollgate_fuzzing::targets::review::target(data));
