//! See `tollgate_fuzzing::targets::rewriting`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tollgate_fuzzing::targets::rewriting::target(data));
