//! See `tollgate_fuzzing::targets::patch`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tollgate_fuzzing::targets::patch::target(data));
