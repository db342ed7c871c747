//! Trees of queries as SQL.

use std::fmt::Write as _;

use super::ast::{
    Body, CallKind, Condition, Expr, From, Grouping, JoinKind, Order, Over, Query, Select, SetOperator,
    Window,
};
use super::types::Dialect;

impl Query {
    pub fn sql(&self, dialect: Dialect) -> String {
        let mut text = String::new();
        if !self.with.is_empty() {
            let with: Vec<String> =
                self.with.iter().map(|(name, query)| format!("{name} AS ({})", query.sql(dialect))).collect();
            let _ = write!(text, "WITH {} ", with.join(", "));
        }
        match &self.body {
            Body::Select(select) => text += &select.sql(dialect),
            Body::Set { operator, all, left, right } => {
                let operator = match operator {
                    SetOperator::Union => "UNION",
                    SetOperator::Intersect => "INTERSECT",
                    SetOperator::Except => "EXCEPT",
                };
                let all = if *all { " ALL" } else { "" };
                let _ = write!(text, "({}) {operator}{all} ({})", left.sql(dialect), right.sql(dialect));
            }
        }
        if !self.order.is_empty() {
            let _ = write!(text, " ORDER BY {}", orders(&self.order, dialect));
        }
        if let Some(limit) = self.limit {
            let _ = write!(text, " LIMIT {limit}");
        }
        if let Some(offset) = self.offset {
            let _ = write!(text, " OFFSET {offset}");
        }
        text
    }
}

impl Select {
    fn sql(&self, dialect: Dialect) -> String {
        let items = self.items.iter().map(|item| format!("{} AS \"{}\"", item.expr.sql(dialect), item.name));
        let items: Vec<String> = items.collect();
        let mut text = format!("SELECT {}{}", if self.distinct { "DISTINCT " } else { "" }, items.join(", "));
        if !self.from.is_empty() {
            let from: Vec<String> = self.from.iter().map(|from| from.sql(dialect)).collect();
            let _ = write!(text, " FROM {}", from.join(", "));
        }
        if !self.filter.is_empty() {
            let _ = write!(text, " WHERE {}", list(&self.filter, " AND ", dialect));
        }
        let keys = |keys: &[Expr]| list(keys, ", ", dialect);
        match &self.grouping {
            Grouping::None => {}
            Grouping::Keys(some) => text += &format!(" GROUP BY {}", keys(some)),
            Grouping::Rollup(some) => text += &format!(" GROUP BY ROLLUP ({})", keys(some)),
            Grouping::Cube(some) => text += &format!(" GROUP BY CUBE ({})", keys(some)),
            Grouping::Sets(sets) => {
                let sets: Vec<String> = sets.iter().map(|set| format!("({})", keys(set))).collect();
                let _ = write!(text, " GROUP BY GROUPING SETS ({})", sets.join(", "));
            }
        }
        if !self.having.is_empty() {
            let _ = write!(text, " HAVING {}", list(&self.having, " AND ", dialect));
        }
        if !self.windows.is_empty() {
            let windows =
                self.windows.iter().map(|(name, window)| format!("{name} AS ({})", window.sql(dialect)));
            let windows: Vec<String> = windows.collect();
            let _ = write!(text, " WINDOW {}", windows.join(", "));
        }
        text
    }
}

impl From {
    pub fn sql(&self, dialect: Dialect) -> String {
        match self {
            From::Table { name, alias } if name == alias => name.clone(),
            From::Table { name, alias } => format!("{name} AS {alias}"),
            From::Query { query, alias } => format!("({}) AS {alias}", query.sql(dialect)),
            From::Join { kind, left, right, condition } => {
                let natural = if *condition == Condition::Natural { "NATURAL " } else { "" };
                let join = match kind {
                    JoinKind::Inner => "JOIN",
                    JoinKind::Left => "LEFT JOIN",
                    JoinKind::Right => "RIGHT JOIN",
                    JoinKind::Full => "FULL JOIN",
                    JoinKind::Cross => "CROSS JOIN",
                };
                let right_sql = match right.as_ref() {
                    From::Join { .. } => format!("({})", right.sql(dialect)),
                    _ => right.sql(dialect),
                };
                let condition = match condition {
                    Condition::None | Condition::Natural => String::new(),
                    Condition::On(terms) if terms.is_empty() => " ON TRUE".to_owned(),
                    Condition::On(terms) => format!(" ON {}", list(terms, " AND ", dialect)),
                    Condition::Using(names) => {
                        let names: Vec<String> = names.iter().map(|name| format!("\"{name}\"")).collect();
                        format!(" USING ({})", names.join(", "))
                    }
                };
                format!("{} {natural}{join} {right_sql}{condition}", left.sql(dialect))
            }
        }
    }
}

impl Window {
    fn sql(&self, dialect: Dialect) -> String {
        let mut parts: Vec<String> = self.base.iter().cloned().collect();
        if !self.partition.is_empty() {
            parts.push(format!("PARTITION BY {}", list(&self.partition, ", ", dialect)));
        }
        if !self.order.is_empty() {
            parts.push(format!("ORDER BY {}", orders(&self.order, dialect)));
        }
        parts.extend(self.frame.clone());
        parts.join(" ")
    }
}

impl Expr {
    pub fn sql(&self, dialect: Dialect) -> String {
        match self {
            Expr::Column { table: Some(table), name, .. } => format!("{table}.\"{name}\""),
            Expr::Column { table: None, name, .. } => format!("\"{name}\""),
            Expr::Literal { value, ty } => value.literal(ty, dialect),
            Expr::Call { template, other, arguments, kind, .. } => {
                let template = match (dialect, other) {
                    (Dialect::DuckDb, Some(other)) => other,
                    _ => template,
                };
                debug_assert!(*kind == CallKind::Aggregate || !template.contains("DISTINCT {0}"));
                filled(template, arguments, dialect)
            }
            Expr::Query { template, arguments, query, .. } => {
                filled(template, arguments, dialect).replace("{q}", &query.sql(dialect))
            }
            Expr::Window { function, over } => {
                let over = match over {
                    Over::Name(name) => name.clone(),
                    Over::Inline(window) => format!("({})", window.sql(dialect)),
                };
                format!("{} OVER {over}", function.sql(dialect))
            }
        }
    }
}

fn filled(template: &str, arguments: &[Expr], dialect: Dialect) -> String {
    let mut text = String::new();
    let mut rest = template;
    while let Some((before, after)) = rest.split_once('{') {
        text += before;
        let (number, behind) = after.split_once('}').unwrap_or((after, ""));
        match number.parse::<usize>().ok().and_then(|number| arguments.get(number)) {
            Some(argument) => text += &argument.sql(dialect),
            None => {
                let _ = write!(text, "{{{number}}}");
            }
        }
        rest = behind;
    }
    text + rest
}

fn list(exprs: &[Expr], separator: &str, dialect: Dialect) -> String {
    exprs.iter().map(|expr| expr.sql(dialect)).collect::<Vec<_>>().join(separator)
}

fn orders(orders: &[Order], dialect: Dialect) -> String {
    let order = |order: &Order| {
        let direction = if order.descending { "DESC" } else { "ASC" };
        let nulls = if order.nulls_first { "FIRST" } else { "LAST" };
        format!("{} {direction} NULLS {nulls}", order.key.sql(dialect))
    };
    orders.iter().map(order).collect::<Vec<_>>().join(", ")
}
