//! Databases, schemas, and what names in SQL mean in them.
//!
//! ```text
//!   t          temp.main, the search path, main of the current database      the first that has it
//!   s.t        schema s of the current database, else main of database s
//!   d.s.t      schema s of database d
//! ```
//!
//! `databases` are those that are attached, the same for all sessions of a [`crate::Database`]; `names` finds objects by
//! what a session writes; `providers` is that as DataFusion asks for it; `temporary` has the tables that end with the
//! session; `sequences` are the functions that give numbers; `system` shows what there is.

pub(crate) mod databases;
pub(crate) mod names;
pub(crate) mod providers;
pub(crate) mod sequences;
pub(crate) mod system;
pub(crate) mod temporary;

/// What DataFusion takes for the catalog and the schema of names that say none: names are looked up in several.
pub(crate) const CATALOG: &str = "nandina";
pub(crate) const SCHEMA: &str = "*";

/// The database of temporary tables.
pub(crate) const TEMPORARY: &str = "temp";
/// The database of the tables that show what there is.
pub(crate) const SYSTEM: &str = "system";
