//! Other orders of what stands between the commas of a FROM.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{Query, Select, SelectItem, Statement, VisitMut, VisitorMut};
use datafusion::sql::sqlparser::dialect::GenericDialect;
use datafusion::sql::sqlparser::parser::Parser;

use super::Variants;
use crate::error::{BenchError, Result};
use crate::random::Random;

/// How lists are permuted.
enum Order<'a> {
    Reversed,
    Random(&'a mut Random),
}

struct Permute<'a> {
    order: Order<'a>,
    /// Lists of more than one.
    lists: usize,
}

impl VisitorMut for Permute<'_> {
    type Break = ();

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<()> {
        // The columns of `*` come in the order of the tables.
        let has_star = select.projection.iter().any(|item| matches!(item, SelectItem::Wildcard(_)));
        if select.from.len() > 1 && !has_star {
            self.lists += 1;
            match &mut self.order {
                Order::Reversed => select.from.reverse(),
                Order::Random(random) => random.shuffle(&mut select.from),
            }
        }
        ControlFlow::Continue(())
    }
}

/// A query in its written, its reversed and some random orders; none if no list in it has two tables.
///
/// The limit of the query as a whole is left out: which of equal rows come first is not said.
pub fn variants(
    name: &str,
    sql: &str,
    random_orders: usize,
    random: &mut Random,
) -> Result<Option<Variants>> {
    let fail = |error: &dyn std::fmt::Display| BenchError::Setup(format!("{name}: {error}"));
    let statements = Parser::parse_sql(&GenericDialect {}, sql).map_err(|error| fail(&error))?;
    let [Statement::Query(query)] = statements.as_slice() else { return Err(fail(&"is not one query")) };
    let mut query: Query = query.as_ref().clone();
    query.limit_clause = None;
    query.fetch = None;
    let mut texts = vec![("written".to_owned(), query.to_string())];
    for number in 0..=random_orders {
        let mut other = query.clone();
        let (what, order) = match number {
            0 => ("reversed".to_owned(), Order::Reversed),
            _ => (format!("random {number}"), Order::Random(random)),
        };
        let mut permute = Permute { order, lists: 0 };
        #[expect(clippy::disallowed_methods, reason = "the only visitor of this crate")]
        let _ = other.visit(&mut permute);
        if permute.lists == 0 {
            return Ok(None);
        }
        texts.push((what, other.to_string()));
    }
    Ok(Some(Variants { name: name.to_owned(), texts }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_permuted_everywhere() {
        let sql = "SELECT x FROM a, b WHERE x IN (SELECT y FROM c, d) LIMIT 3";
        let variants = variants("q", sql, 2, &mut Random::new(1)).unwrap().unwrap();
        assert_eq!(variants.texts[1].1, "SELECT x FROM b, a WHERE x IN (SELECT y FROM d, c)");
        assert_eq!(variants.texts.len(), 4);
        assert!(
            super::variants("q", "SELECT 1 FROM a JOIN b ON TRUE", 2, &mut Random::new(1)).unwrap().is_none()
        );
    }
}
