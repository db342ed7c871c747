//! The catalog and schema in which tables are found by their bare names.

pub(crate) const CATALOG: &str = "nandina";
pub(crate) const SCHEMA: &str = "main";
