//! Words that DataFusion's planner reads and does nothing about: refused, since the answer would be to another question.
//!
//! Every field of the parser's nodes is named here, so that one which a new version of the parser adds does not compile
//! until a developer has looked what becomes of it. Fields that are bound to `_` are planned, or refused by DataFusion.

use datafusion::sql::sqlparser::ast::{
    ColumnDef, ColumnOption, ColumnOptionDef, GroupByExpr, Join, JoinConstraint, JoinOperator, OrderByKind,
    Query, Select, SelectItem, TableAlias, TableFactor, TableWithJoins, WildcardAdditionalOptions,
};

use crate::error::{Error, Result};

/// Refuses a word if it is there.
fn refuse(is_there: bool, words: &str) -> Result<()> {
    match is_there {
        true => Err(Error::unsupported(format!("{words} is not supported"))),
        false => Ok(()),
    }
}

pub(super) fn in_query(query: &Query) -> Result<()> {
    let Query {
        with: _,
        body: _,
        order_by,
        limit_clause: _,
        fetch: _,
        locks,
        for_clause,
        settings,
        format_clause,
        pipe_operators: _,
    } = query;
    refuse(!locks.is_empty(), "FOR UPDATE or FOR SHARE")?;
    refuse(for_clause.is_some(), "FOR XML or FOR JSON")?;
    refuse(settings.is_some(), "SETTINGS behind a query")?;
    refuse(format_clause.is_some(), "FORMAT behind a query")?;
    let keys = match order_by.as_ref().map(|order| &order.kind) {
        Some(OrderByKind::Expressions(keys)) => keys.as_slice(),
        Some(OrderByKind::All(_)) | None => &[],
    };
    refuse(keys.iter().any(|key| key.with_fill.is_some()), "ORDER BY … WITH FILL")
}

pub(super) fn in_select(select: &Select) -> Result<()> {
    let Select {
        select_token: _,
        optimizer_hints: _,
        distinct: _,
        select_modifiers,
        top: _,
        top_before_distinct: _,
        projection,
        exclude,
        into,
        from,
        lateral_views: _,
        prewhere,
        selection: _,
        connect_by,
        group_by,
        cluster_by: _,
        distribute_by: _,
        sort_by: _,
        having: _,
        named_window: _,
        qualify: _,
        window_before_qualify: _,
        value_table_mode,
        flavor: _,
    } = select;
    refuse(select_modifiers.is_some(), "a word of MySQL's between SELECT and the columns")?;
    refuse(exclude.is_some(), "EXCLUDE behind the list of columns, other than behind *,")?;
    if into.is_some() {
        return Err(Error::unsupported("SELECT … INTO is not supported; write CREATE TABLE t AS SELECT …"));
    }
    refuse(prewhere.is_some(), "PREWHERE")?;
    refuse(!connect_by.is_empty(), "CONNECT BY")?;
    refuse(value_table_mode.is_some(), "SELECT AS STRUCT or AS VALUE")?;
    let (GroupByExpr::All(modifiers) | GroupByExpr::Expressions(_, modifiers)) = group_by;
    refuse(!modifiers.is_empty(), "WITH behind GROUP BY; write GROUP BY ROLLUP (…), as this form,")?;
    projection.iter().try_for_each(in_output)?;
    from.iter().try_for_each(in_joins)
}

fn in_output(output: &SelectItem) -> Result<()> {
    let (SelectItem::Wildcard(options) | SelectItem::QualifiedWildcard(_, options)) = output else {
        return Ok(());
    };
    let WildcardAdditionalOptions {
        wildcard_token: _,
        opt_ilike,
        opt_exclude: _,
        opt_except: _,
        opt_replace: _,
        opt_rename: _,
        opt_alias: _,
    } = options;
    refuse(opt_ilike.is_some(), "* ILIKE")
}

pub(super) fn in_joins(tables: &TableWithJoins) -> Result<()> {
    let mut before = &tables.relation;
    for join in &tables.joins {
        // `global` marks an ASOF join.
        let Join { relation, global: _, join_operator } = join;
        if let (JoinOperator::Join(constraint), Some(word)) = (join_operator, name_without_as(before)) {
            let is_misread = match constraint {
                JoinConstraint::None => word.eq_ignore_ascii_case("positional"),
                _ => word.eq_ignore_ascii_case("asof"),
            };
            // The parser has taken the word for a name of the table before.
            refuse(is_misread, &format!("{} JOIN", word.to_uppercase()))?;
        }
        before = relation;
    }
    Ok(())
}

/// The name that a table is given without `AS` or quotes.
fn name_without_as(factor: &TableFactor) -> Option<&str> {
    let (TableFactor::Table { alias, .. } | TableFactor::Derived { alias, .. }) = factor else { return None };
    let TableAlias { explicit, name, .. } = alias.as_ref()?;
    (!explicit && name.quote_style.is_none()).then_some(name.value.as_str())
}

pub(super) fn in_table(factor: &TableFactor) -> Result<()> {
    match factor {
        TableFactor::Table {
            name: _,
            alias: _,
            args: _,
            with_hints,
            version,
            with_ordinality,
            partitions,
            json_path,
            sample,
            index_hints,
        } => {
            refuse(!with_hints.is_empty(), "WITH behind a table")?;
            refuse(version.is_some(), "FOR SYSTEM_TIME, or another version of a table,")?;
            refuse(*with_ordinality, "WITH ORDINALITY")?;
            refuse(!partitions.is_empty(), "PARTITION behind a table")?;
            refuse(json_path.is_some(), "a path behind a table")?;
            refuse(sample.is_some(), "TABLESAMPLE")?;
            refuse(!index_hints.is_empty(), "USE, IGNORE or FORCE INDEX")
        }
        TableFactor::Derived { lateral: _, subquery: _, alias: _, sample } => {
            refuse(sample.is_some(), "TABLESAMPLE")
        }
        TableFactor::Function { lateral: _, name: _, args: _, with_ordinality, alias: _ } => {
            refuse(*with_ordinality, "WITH ORDINALITY")
        }
        TableFactor::UNNEST {
            alias: _,
            array_exprs: _,
            with_offset,
            with_offset_alias: _,
            with_ordinality,
        } => {
            refuse(*with_offset, "WITH OFFSET")?;
            refuse(*with_ordinality, "WITH ORDINALITY")
        }
        // DataFusion plans nested joins as they stand, and refuses the others.
        _ => Ok(()),
    }
}

/// Whether a collation compares bytes, as is done anyway.
pub(super) fn compares_bytes(collation: &str) -> bool {
    ["c", "posix", "binary", "ucs_basic", "default"]
        .iter()
        .any(|known| collation.trim_matches('"').eq_ignore_ascii_case(known))
}

pub(super) fn in_column(column: &ColumnDef) -> Result<()> {
    let ColumnDef { name, data_type: _, options } = column;
    for ColumnOptionDef { name: _, option } in options {
        let words = match option {
            // Keys and other constraints of a table are refused where it is made.
            ColumnOption::Null
            | ColumnOption::NotNull
            | ColumnOption::Default(_)
            | ColumnOption::Check(_)
            | ColumnOption::PrimaryKey(_)
            | ColumnOption::Unique(_)
            | ColumnOption::ForeignKey(_)
            | ColumnOption::Comment(_) => continue,
            ColumnOption::Collation(collation) if compares_bytes(&collation.to_string()) => continue,
            ColumnOption::Generated { .. } => "GENERATED ALWAYS AS".to_owned(),
            other => other.to_string(),
        };
        return Err(Error::unsupported(format!("column '{}': {words} is not supported", name.value)));
    }
    Ok(())
}
