//! Lists that are unnested beside their tables: `FROM t, unnest(t.l) AS u(e)`.
//!
//! A function in `FROM` sees the tables before it. DataFusion plans it as if it stood alone; it is written as the sub-query
//! `LATERAL (SELECT unnest(t.l) AS unnest) AS u(e)`.

use datafusion::sql::sqlparser::ast::{
    Expr, FunctionArg, FunctionArgExpr, Ident, Select, SelectItem, SetExpr, TableAlias, TableFactor,
};

use crate::error::Result;
use crate::planning::syntax;
use crate::planning::trees::call;

const UNNEST: &str = "unnest";

/// Writes those in `FROM` that have a table before them as sub-queries.
pub(super) fn write_out(select: &mut Select) -> Result<()> {
    for (place, tables) in select.from.iter_mut().enumerate() {
        if place > 0 {
            as_sub_query(&mut tables.relation)?;
        }
        tables.joins.iter_mut().try_for_each(|join| as_sub_query(&mut join.relation))?;
    }
    Ok(())
}

fn as_sub_query(factor: &mut TableFactor) -> Result<()> {
    let (lists, alias) = match factor {
        TableFactor::UNNEST { alias, array_exprs, with_offset: false, with_ordinality: false, .. } => {
            (std::mem::take(array_exprs), alias.take())
        }
        TableFactor::Function { name, args, with_ordinality: false, alias, .. }
            if name.to_string().eq_ignore_ascii_case(UNNEST) =>
        {
            let lists = args.iter().map(|argument| match argument {
                FunctionArg::Unnamed(FunctionArgExpr::Expr(list)) => Some(list.clone()),
                _ => None,
            });
            let Some(lists) = lists.collect::<Option<Vec<Expr>>>() else { return Ok(()) };
            (lists, alias.take())
        }
        _ => return Ok(()),
    };
    let name = || Ident::new(UNNEST);
    let columns =
        lists.into_iter().map(|list| SelectItem::ExprWithAlias { expr: call(UNNEST, [list]), alias: name() });
    let mut query = syntax::query("SELECT 1")?;
    if let SetExpr::Select(select) = query.body.as_mut() {
        select.projection = columns.collect();
    }
    let alias =
        alias.unwrap_or_else(|| TableAlias { explicit: true, name: name(), columns: Vec::new(), at: None });
    *factor =
        TableFactor::Derived { lateral: true, subquery: Box::new(query), alias: Some(alias), sample: None };
    Ok(())
}
