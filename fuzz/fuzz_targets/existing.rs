//! See `tollgate_fuzzing::targets::existing`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tollgate_fuzzing::targets::existing::target(data));
