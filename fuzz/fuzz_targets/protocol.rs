//! See `tollgate_fuzzing::targets::protocol`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tollgate_fuzzing::targets::protocol::target(data));
