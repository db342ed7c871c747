//! Short names for files in queries.
//!
//! `FROM 'data/orders.parquet'` may be referred to as `orders`, as if `AS orders` stood behind it:
//!
//! ```sql
//! SELECT orders.o_comment FROM 'data/orders.parquet' JOIN 'data/lineitem.parquet' ON …
//! ```
//!
//! Two files of the same name in one statement keep their paths as names: neither has the better claim.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::path::Path;

use datafusion::sql::parser::{CopyToSource, Statement};
use datafusion::sql::sqlparser::ast::{Ident, TableAlias, TableFactor, VisitorMut};

use crate::files::names::looks_like_path;
use crate::planning::walk::WalkMut as _;

/// Gives the files in a statement their short names.
pub(crate) fn add(statement: &mut Statement) {
    let mut counts = Stems::Count(HashMap::new());
    visit(statement, &mut counts);
    if let Stems::Count(counts) = counts {
        visit(statement, &mut Stems::Alias(counts));
    }
}

fn visit(statement: &mut Statement, visitor: &mut Stems) {
    // The visitor never breaks off, so there is nothing in the results.
    let _ = match statement {
        Statement::Statement(inner) => inner.walk_mut(visitor),
        Statement::Explain(explain) => return visit(&mut explain.statement, visitor),
        Statement::CopyTo(copy) => match &mut copy.source {
            CopyToSource::Query(query) => query.walk_mut(visitor),
            CopyToSource::Relation(_) => return,
        },
        _ => return,
    };
}

/// First counts how often a stem occurs, then makes aliases of those that occur once.
enum Stems {
    Count(HashMap<String, usize>),
    Alias(HashMap<String, usize>),
}

impl VisitorMut for Stems {
    type Break = ();

    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<()> {
        let TableFactor::Table { name, alias, args: None, .. } = factor else {
            return ControlFlow::Continue(());
        };
        if let Some(alias) = alias {
            if let Stems::Count(counts) = self {
                *counts.entry(alias.name.value.clone()).or_default() += 1;
            }
            return ControlFlow::Continue(());
        }
        let [part] = name.0.as_slice() else { return ControlFlow::Continue(()) };
        let Some(table) = part.as_ident() else { return ControlFlow::Continue(()) };
        let stem = stem(&table.value);
        match (self, stem) {
            (Stems::Count(counts), stem) => {
                *counts.entry(stem.unwrap_or_else(|| table.value.clone())).or_default() += 1;
            }
            (Stems::Alias(counts), Some(stem)) if counts.get(&stem) == Some(&1) => {
                // Quoted, so that capitals in a file's name stay.
                let name = Ident::with_quote('"', stem);
                *alias = Some(TableAlias { explicit: true, name, columns: Vec::new(), at: None });
            }
            (Stems::Alias(_), _) => {}
        }
        ControlFlow::Continue(())
    }
}

/// The name of a file without folders and extensions; none for tables, folders and patterns.
fn stem(name: &str) -> Option<String> {
    if !looks_like_path(name) || name.contains(['*', '?', '[']) {
        return None;
    }
    let file = Path::new(name).file_name()?.to_str()?;
    let stem = file.split('.').next().unwrap_or_default();
    (!stem.is_empty()).then(|| stem.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::sql::parser::DFParserBuilder;

    fn aliased(text: &str) -> String {
        let mut statement = DFParserBuilder::new(text).build().unwrap().parse_statement().unwrap();
        add(&mut statement);
        statement.to_string()
    }

    #[test]
    fn files_get_their_stem() {
        assert_eq!(
            aliased("SELECT * FROM 'd/orders.parquet' JOIN t ON true"),
            "SELECT * FROM 'd/orders.parquet' AS \"orders\" JOIN t ON true"
        );
        assert!(aliased("EXPLAIN SELECT * FROM 'a.csv.gz'").ends_with("FROM 'a.csv.gz' AS \"a\""));
        assert!(aliased("COPY (SELECT * FROM 'a.csv') TO 'b.csv'").contains("AS \"a\""));
    }

    #[test]
    fn ambiguous_stems_and_patterns_do_not() {
        for text in [
            "SELECT * FROM 'a/x.csv', 'b/x.csv'",
            "SELECT * FROM x, 'b/x.csv'",
            "SELECT * FROM 'a.csv' AS x, 'b/x.csv'",
            "SELECT * FROM 'b/*.csv'",
        ] {
            assert_eq!(aliased(text), text);
        }
    }
}
