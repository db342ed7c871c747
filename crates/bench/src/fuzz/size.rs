//! How many rows a query looks at if no condition moves: a plan without rules makes all pairs of rows before it filters
//! them.

use std::collections::HashMap;

use super::ast::{Body, From, Query};

/// Rows by the names of tables.
pub type Sizes = HashMap<String, f64>;

/// The most rows that some FROM of a query has without its conditions. Sub-queries of expressions are not looked at.
pub fn most_rows(query: &Query, sizes: &Sizes) -> f64 {
    let mut most = 0.0;
    rows(query, sizes, &mut most);
    most
}

fn rows(query: &Query, sizes: &Sizes, most: &mut f64) -> f64 {
    let mut sizes = sizes.clone();
    for (name, named) in &query.with {
        let size = rows(named, &sizes, most);
        sizes.insert(name.clone(), size);
    }
    let size = match &query.body {
        Body::Set { left, right, .. } => rows(left, &sizes, most) + rows(right, &sizes, most),
        Body::Select(select) => {
            let size = select.from.iter().map(|from| rows_of(from, &sizes, most)).product();
            *most = most.max(size);
            size
        }
    };
    query.limit.map_or(size, |limit| size.min(limit as f64))
}

fn rows_of(from: &From, sizes: &Sizes, most: &mut f64) -> f64 {
    match from {
        From::Table { name, .. } => sizes.get(name).copied().unwrap_or(1.0).max(1.0),
        From::Query { query, .. } => rows(query, sizes, most).max(1.0),
        From::Join { left, right, .. } => rows_of(left, sizes, most) * rows_of(right, sizes, most),
    }
}
