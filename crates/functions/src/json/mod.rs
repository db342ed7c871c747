//! JSON, which is text: read into trees, taken apart by paths, and made of values.
//!
//! ```text
//!   text ─► value (tree) ─► path ─► extract, keys, type, …          texts
//!                       └─► transform ─► structs, lists, numbers     values of the types that are named
//!   values ─► encode ─► text                                         to_json, json_object, COPY … TO 'f.json'
//! ```
//!
//! That a text is JSON is written into its field where a function makes it ([`json_field`]), so that it becomes part of other
//! JSON as it is, rather than as a text in quotes.

mod encode;
mod path;
mod read;
mod structure;
mod transform;
mod value;
mod write;

use std::collections::HashMap;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::{Result, exec_datafusion_err};
use datafusion::logical_expr::ScalarUDF;

pub(crate) use encode::write_text;
pub(crate) use value::Json;

pub use encode::{JsonEncoder, TimeFormats};

/// The functions.
pub(crate) fn functions() -> impl Iterator<Item = Arc<ScalarUDF>> {
    read::functions().chain(write::functions()).chain(transform::functions())
}

/// The tree of a text.
pub(crate) fn parse(text: &str) -> Result<Json> {
    const MOST_SHOWN: usize = 60;
    Json::parse(text).map_err(|error| {
        let shown: String = text.chars().take(MOST_SHOWN).collect();
        let more = if shown.len() < text.len() { "…" } else { "" };
        exec_datafusion_err!("'{shown}{more}' is not JSON: {error}")
    })
}

/// Where Arrow has the name of a type that is stored as another one.
const EXTENSION: &str = "ARROW:extension:name";
const JSON: &str = "arrow.json";

/// Whether a field's texts are known to be JSON.
pub(crate) fn is_json(field: &Field) -> bool {
    field.metadata().get(EXTENSION).is_some_and(|name| name == JSON)
}

/// The field of JSON texts.
pub(crate) fn json_field(name: &str) -> FieldRef {
    let known = HashMap::from([(EXTENSION.to_owned(), JSON.to_owned())]);
    Arc::new(Field::new(name, DataType::Utf8View, true).with_metadata(known))
}
