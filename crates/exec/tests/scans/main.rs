//! Native tables in queries.

mod native_tables;
mod row_filters;
