//! Databases whose manifest says anything open or are refused.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| nandina_fuzz::inputs::open_manifest(data));
