//! See `tollgate_fuzzing::targets::tuf`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tollgate_fuzzing::targets::tuf::target(data));
