//! No input may make the page decoder panic or read out of bounds.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| nandina_fuzz::page_decoder::decode_everything(data));
