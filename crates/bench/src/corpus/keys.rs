//! Tables without the keys that Nandina refuses, so that the queries on them are run all the same.

use datafusion::sql::sqlparser::ast::{ColumnOption, CreateTable, Statement};
use datafusion::sql::sqlparser::dialect::{DuckDbDialect, GenericDialect};
use datafusion::sql::sqlparser::parser::Parser;

/// A `CREATE TABLE` without its keys, checks, defaults and references; none if it has none, or is no such statement.
pub fn without_keys(sql: &str) -> Option<String> {
    let parsed = Parser::parse_sql(&GenericDialect {}, sql)
        .or_else(|_| Parser::parse_sql(&DuckDbDialect {}, sql))
        .ok()?;
    let [Statement::CreateTable(table)] = parsed.as_slice() else { return None };
    let mut plain = table.clone();
    plain.constraints.clear();
    for column in &mut plain.columns {
        column.options.retain(|option| matches!(option.option, ColumnOption::NotNull | ColumnOption::Null));
    }
    (has_keys(table) && !plain.columns.is_empty()).then(|| Statement::CreateTable(plain).to_string())
}

fn has_keys(table: &CreateTable) -> bool {
    let is_key = |option: &ColumnOption| !matches!(option, ColumnOption::NotNull | ColumnOption::Null);
    !table.constraints.is_empty()
        || table.columns.iter().flat_map(|column| &column.options).any(|option| is_key(&option.option))
}

#[cfg(test)]
mod tests {
    use super::without_keys;

    #[test]
    fn keys_are_left_out() {
        let sql = "CREATE TABLE t(pk INTEGER PRIMARY KEY, a INTEGER NOT NULL DEFAULT 3, UNIQUE (a))";
        assert_eq!(without_keys(sql).as_deref(), Some("CREATE TABLE t (pk INTEGER, a INTEGER NOT NULL)"));
        assert_eq!(without_keys("CREATE TABLE t(a INTEGER)"), None);
        assert_eq!(without_keys("SELECT 1"), None);
    }
}
