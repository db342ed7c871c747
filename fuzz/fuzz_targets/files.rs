//! Parquet, CSV, JSON and Arrow files of any content end with rows or an error.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| nandina_fuzz::inputs::read_file(data));
