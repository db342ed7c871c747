//! `ALTER TABLE`, by its syntax.
//!
//! What it says of columns and constraints is what `CREATE TABLE` says of them, and is read as a part of one.

use std::sync::Arc;

use arrow::datatypes::FieldRef;
use datafusion::common::TableReference;
use datafusion::execution::SessionState;
use datafusion::logical_expr::{DdlStatement, LogicalPlan};
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{
    AlterColumnOperation, AlterTable, AlterTableOperation, ColumnDef, ColumnOption, ColumnOptionDef,
    DataType, DropBehavior, Expr, Ident, RenameTableNameKind, Statement as SqlStatement, TableConstraint,
};

use super::catalog_statement::{parts, reference};
use super::creation::{self, Creation};
use super::wrong_plans::normalized;
use super::{logical_plan, syntax};
use crate::error::{Error, Result};

/// Brackets of the statement that parts are read in.
const MOST_LEVELS: usize = 50;

#[derive(Debug)]
pub(crate) struct AlterStatement {
    pub table: TableReference,
    pub if_exists: bool,
    pub alterations: Vec<Alteration>,
}

/// One thing that is to be different. Columns are named as they are written.
#[derive(Debug)]
pub(crate) enum Alteration {
    RenameTable {
        name: String,
    },
    RenameColumn {
        column: String,
        name: String,
    },
    AddColumn {
        field: FieldRef,
        if_not_exists: bool,
        creation: Creation,
    },
    DropColumn {
        column: String,
        if_exists: bool,
        cascade: bool,
    },
    SetType {
        column: String,
        of: FieldRef,
        using: Option<Box<Expr>>,
    },
    SetDefault {
        column: String,
        expression: String,
    },
    DropDefault {
        column: String,
    },
    SetNullable {
        column: String,
        is_nullable: bool,
    },
    /// Keys and checks.
    AddConstraint {
        creation: Creation,
    },
    DropConstraint {
        name: String,
        if_exists: bool,
    },
    DropPrimaryKey,
}

/// The statement, if it is one of these.
pub(crate) async fn of(state: &SessionState, statement: &Statement) -> Result<Option<AlterStatement>> {
    let Statement::Statement(inner) = statement else { return Ok(None) };
    let SqlStatement::AlterTable(alter) = inner.as_ref() else { return Ok(None) };
    let AlterTable { name, if_exists, operations, location, on_cluster, table_type, .. } = alter;
    if location.is_some() || on_cluster.is_some() || table_type.is_some() {
        return Err(unsupported(&alter.to_string()));
    }
    let mut alterations = Vec::with_capacity(operations.len());
    for operation in operations {
        alteration(state, operation, &mut alterations).await?;
    }
    let renames = alterations.iter().any(|each| matches!(each, Alteration::RenameTable { .. }));
    if renames && alterations.len() > 1 {
        return Err(Error::unsupported("ALTER TABLE … RENAME TO is a statement of its own"));
    }
    let table = reference(name).map_err(Error::from_parser)?;
    Ok(Some(AlterStatement { table, if_exists: *if_exists, alterations }))
}

fn unsupported(what: &str) -> Error {
    Error::unsupported(format!("ALTER TABLE … {what} is not supported"))
}

async fn alteration(
    state: &SessionState,
    operation: &AlterTableOperation,
    into: &mut Vec<Alteration>,
) -> Result<()> {
    let alteration = match operation {
        AlterTableOperation::RenameTable { table_name: RenameTableNameKind::To(name) } => {
            match parts(name).as_slice() {
                [name] => Alteration::RenameTable { name: name.clone() },
                _ => {
                    return Err(Error::unsupported(format!(
                        "RENAME TO {name}: a table stays in its schema; write just the new name"
                    )));
                }
            }
        }
        AlterTableOperation::RenameColumn { old_column_name, new_column_name } => Alteration::RenameColumn {
            column: normalized(old_column_name),
            name: normalized(new_column_name),
        },
        AlterTableOperation::AddColumn { if_not_exists, column_def, column_position: None, .. } => {
            let (field, creation) = created(state, Some(column_def.clone()), None).await?;
            Alteration::AddColumn { field, if_not_exists: *if_not_exists, creation }
        }
        AlterTableOperation::DropColumn { column_names, if_exists, drop_behavior, .. } => {
            let cascade = *drop_behavior == Some(DropBehavior::Cascade);
            into.extend(column_names.iter().map(|column| Alteration::DropColumn {
                column: normalized(column),
                if_exists: *if_exists,
                cascade,
            }));
            return Ok(());
        }
        AlterTableOperation::AlterColumn { column_name, op } => of_column(state, column_name, op).await?,
        AlterTableOperation::AddConstraint { constraint, not_valid: false } => {
            let (_, creation) = created(state, None, Some(constraint.clone())).await?;
            Alteration::AddConstraint { creation }
        }
        AlterTableOperation::DropConstraint { if_exists, name, .. } => {
            Alteration::DropConstraint { name: normalized(name), if_exists: *if_exists }
        }
        AlterTableOperation::DropPrimaryKey { .. } => Alteration::DropPrimaryKey,
        other => return Err(unsupported(&other.to_string())),
    };
    into.push(alteration);
    Ok(())
}

/// `ALTER COLUMN`
async fn of_column(
    state: &SessionState,
    name: &Ident,
    operation: &AlterColumnOperation,
) -> Result<Alteration> {
    let column = normalized(name);
    Ok(match operation {
        AlterColumnOperation::SetNotNull => Alteration::SetNullable { column, is_nullable: false },
        AlterColumnOperation::DropNotNull => Alteration::SetNullable { column, is_nullable: true },
        AlterColumnOperation::DropDefault => Alteration::DropDefault { column },
        AlterColumnOperation::SetDefault { value } => {
            let option = ColumnOptionDef { name: None, option: ColumnOption::Default(value.clone()) };
            let (_, creation) =
                created(state, Some(definition(name, DataType::Integer(None), vec![option])), None).await?;
            let default = creation.rules.defaults.into_iter().next();
            let default = default.ok_or_else(|| Error::bug("a default is none"))?;
            Alteration::SetDefault { column, expression: default.expression }
        }
        AlterColumnOperation::SetDataType { data_type, using, .. } => {
            let (of, _) = created(state, Some(definition(name, data_type.clone(), Vec::new())), None).await?;
            Alteration::SetType { column, of, using: using.clone().map(Box::new) }
        }
        other => return Err(unsupported(&format!("ALTER COLUMN {name} {other}"))),
    })
}

fn definition(name: &Ident, data_type: DataType, options: Vec<ColumnOptionDef>) -> ColumnDef {
    ColumnDef { name: name.clone(), data_type, options }
}

/// What `CREATE TABLE` makes of a column or of a constraint: the column, and what it does not say itself.
async fn created(
    state: &SessionState,
    column: Option<ColumnDef>,
    constraint: Option<TableConstraint>,
) -> Result<(FieldRef, Creation)> {
    let mut statements = syntax::statements("CREATE TABLE altered (none INTEGER)", MOST_LEVELS)?;
    let statement = statements.pop_front();
    let mut statement = statement.ok_or_else(|| Error::bug("a statement that was written is none"))?;
    if let Statement::Statement(inner) = &mut statement
        && let SqlStatement::CreateTable(create) = inner.as_mut()
    {
        if let Some(column) = column {
            create.columns = vec![column];
        }
        create.constraints.extend(constraint);
    }
    let creation = creation::settle(&mut statement)?;
    if let Statement::Statement(inner) = &statement
        && let SqlStatement::CreateTable(create) = inner.as_ref()
        && let Some(other) = create.constraints.first()
    {
        return Err(Error::unsupported(format!(
            "{other}: constraints that tables have are CHECK, UNIQUE and PRIMARY KEY"
        )));
    }
    let plan = logical_plan(state, statement).await?;
    let LogicalPlan::Ddl(DdlStatement::CreateMemoryTable(create)) = plan else {
        return Err(Error::bug("CREATE TABLE makes something else"));
    };
    if !create.constraints.is_empty() {
        return Err(Error::unsupported(
            "constraints that columns have are NOT NULL, CHECK, UNIQUE and PRIMARY KEY",
        ));
    }
    let field = create.input.schema().fields().first().map(Arc::clone);
    Ok((field.ok_or_else(|| Error::bug("a table without columns"))?, creation))
}
