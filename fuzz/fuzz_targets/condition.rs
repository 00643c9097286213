//! See `tollgate_fuzzing::targets::condition`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tollgate_fuzzing::targets::condition::target(data));
