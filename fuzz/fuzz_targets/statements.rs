//! Statements of any text end with rows or an error.
#![no_main]

libfuzzer_sys::fuzz_target!(|text: &str| nandina_fuzz::inputs::run_statement(text));
