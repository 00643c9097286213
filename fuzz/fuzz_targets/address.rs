//! See `tollgate_fuzzing::targets::address`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tollgate_fuzzing::targets::address::target(data));
