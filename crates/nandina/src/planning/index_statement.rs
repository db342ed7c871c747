//! `CREATE INDEX` and `DROP INDEX`, by their syntax.

use datafusion::common::TableReference;
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{Expr, IndexColumn, ObjectName, ObjectType, Statement as SqlStatement};

use super::catalog_statement::{parts, reference};
use super::wrong_plans::normalized;
use crate::error::{Error, Result};

#[derive(Debug)]
pub(crate) enum IndexStatement {
    Create {
        /// None: one is made of the names of table and columns.
        name: Option<String>,
        table: TableReference,
        columns: Vec<String>,
        is_unique: bool,
        if_not_exists: bool,
    },
    Drop {
        name: String,
        if_exists: bool,
    },
}

/// The statement, if it is one of these.
pub(crate) fn of(statement: &Statement) -> Result<Option<IndexStatement>> {
    let Statement::Statement(inner) = statement else { return Ok(None) };
    let own_name = |name: &ObjectName| parts(name).pop().unwrap_or_default();
    match inner.as_ref() {
        SqlStatement::CreateIndex(create) => {
            if create.predicate.is_some()
                || !create.include.is_empty()
                || create.nulls_distinct == Some(false)
            {
                return Err(Error::unsupported(
                    "indexes with WHERE, INCLUDE or NULLS NOT DISTINCT are not supported",
                ));
            }
            Ok(Some(IndexStatement::Create {
                name: create.name.as_ref().map(own_name),
                table: reference(&create.table_name).map_err(Error::from_parser)?,
                columns: columns(&create.columns)?,
                is_unique: create.unique,
                if_not_exists: create.if_not_exists,
            }))
        }
        SqlStatement::Drop { object_type: ObjectType::Index, if_exists, names, .. } => match names.as_slice()
        {
            [name] => Ok(Some(IndexStatement::Drop { name: own_name(name), if_exists: *if_exists })),
            _ => Err(Error::unsupported("DROP INDEX drops one index")),
        },
        _ => Ok(None),
    }
}

/// The names of the columns of an index or key. The order in which they are asked for does not matter: keys are looked up.
pub(super) fn columns(columns: &[IndexColumn]) -> Result<Vec<String>> {
    let name = |column: &IndexColumn| match &column.column.expr {
        Expr::Identifier(name) => Ok(normalized(name)),
        other => Err(Error::unsupported(format!("'{other}' cannot be a key: keys are columns of the table"))),
    };
    columns.iter().map(name).collect()
}
