//! Cuts a failing case down: whatever can be left out while it still fails in the same way.
//!
//! A step that makes the query invalid gets an error, which is another failure, and is not taken. Steps that would make a
//! query's answer a matter of chance are left out: an order goes only after its limit, and that of a window never.

use super::ast::{
    Body, CallKind, Condition, Expr, From, Grouping, Item, JoinKind, Order, Over, Query, Select, Window,
};
use super::engines::Storage;
use super::generate::{Partitioned, Shape};
use super::oracle::{Case, Failure, FailureKind, Judge, Verdict};
use super::schema::Table;
use super::summary::reason;
use super::types::{Family, INT, Type, Value};
use crate::error::Result;

/// Cases that are tried at most.
const MOST_TRIES: usize = 700;

/// A case with its tables, and how it fails.
#[derive(Debug, Clone)]
pub struct Shrunk {
    pub case: Case,
    pub tables: Vec<Table>,
    pub failure: Failure,
}

struct Shrinker<'a> {
    judge: &'a mut Judge,
    storage: Storage,
    kind: FailureKind,
    tries: usize,
    best: Shrunk,
}

/// The smallest case that is found. The judge has its tables afterwards.
pub async fn shrink(
    judge: &mut Judge,
    case: Case,
    tables: Vec<Table>,
    failure: Failure,
    storage: Storage,
) -> Result<Shrunk> {
    let kind = failure.kind;
    let asked = judge.oracles.clone();
    // The others are not asked for what one has found, but where their silence matters.
    if let FailureKind::Differs(oracle) = kind {
        judge.oracles.retain(|other| *other == oracle);
    }
    let mut shrinker =
        Shrinker { judge, storage, kind, tries: MOST_TRIES, best: Shrunk { case, tables, failure } };
    let shrunk = shrinker.run().await;
    let best = shrinker.best.clone();
    judge.oracles = asked;
    shrunk?;
    judge.load(&best.tables, storage).await?;
    // Once more with all engines, for the report.
    let failure = match judge.judge(&best.case).await {
        Verdict::Wrong(failure) if failure.kind == kind => *failure,
        _ => best.failure.clone(),
    };
    Ok(Shrunk { failure, ..best })
}

impl Shrinker<'_> {
    async fn run(&mut self) -> Result<()> {
        if self.kind == FailureKind::Hang {
            return Ok(());
        }
        self.cut_case().await;
        self.cut_tables().await?;
        self.cut_case().await;
        self.cut_tables().await
    }

    /// Whether a case fails as before; then it is the best.
    async fn fails(&mut self, case: Case) -> bool {
        self.tries = self.tries.saturating_sub(1);
        let same_reason = |message: &str| reason(message) == reason(&self.best.failure.detail);
        match self.judge.judge(&case).await {
            Verdict::Wrong(failure) if failure.kind == self.kind => {
                if self.kind == FailureKind::Error && !same_reason(&failure.detail) {
                    return false;
                }
                self.best.case = case;
                self.best.failure = *failure;
                true
            }
            Verdict::Refused { message, is_valid: true }
                if self.kind == FailureKind::Refused && same_reason(&message) =>
            {
                self.best.case = case;
                self.best.failure.detail = message;
                true
            }
            _ => false,
        }
    }

    async fn cut_case(&mut self) {
        let mut at = 0;
        // Goes on behind what was cut, and once more over everything as long as that helps.
        loop {
            let candidates = smaller_cases(&self.best.case);
            let mut has_cut = false;
            let start = if at < candidates.len() { at } else { 0 };
            for number in (start..candidates.len()).chain(0..start) {
                if self.tries == 0 {
                    return;
                }
                if let Some(candidate) = candidates.get(number)
                    && *candidate != self.best.case
                    && self.fails(candidate.clone()).await
                {
                    (has_cut, at) = (true, number);
                    break;
                }
            }
            if !has_cut {
                return;
            }
        }
    }

    async fn cut_tables(&mut self) -> Result<()> {
        let used = |tables: &[Table], case: &Case| -> Vec<Table> {
            let text: String =
                case.queries().iter().map(|query| query.sql(super::types::Dialect::Nandina)).collect();
            tables.iter().filter(|table| text.contains(&table.name)).cloned().collect()
        };
        self.try_tables(used(&self.best.tables, &self.best.case)).await?;
        for number in 0..self.best.tables.len() {
            let Some(rows) = self.best.tables.get(number).map(|table| table.rows.len()) else { continue };
            let mut step = rows.div_ceil(2);
            while step > 0 && self.tries > 0 {
                let mut at = 0;
                while self.tries > 0 {
                    let mut tables = self.best.tables.clone();
                    let Some(table) = tables.get_mut(number) else { break };
                    if at >= table.rows.len() {
                        break;
                    }
                    table.rows.drain(at..(at + step).min(table.rows.len()));
                    if !self.try_tables(tables).await? {
                        at += step;
                    }
                }
                step = if step == 1 { 0 } else { step.div_ceil(2) };
            }
            let columns = self.best.tables.get(number).map_or(0, |table| table.columns.len());
            for column in (0..columns).rev() {
                let mut tables = self.best.tables.clone();
                if let Some(table) = tables.get_mut(number)
                    && table.columns.len() > 1
                {
                    table.columns.remove(column);
                    table.rows.iter_mut().for_each(|row| drop(row.remove(column)));
                    self.try_tables(tables).await?;
                }
            }
        }
        Ok(())
    }

    /// Whether the case fails on these tables too; then they are the best.
    async fn try_tables(&mut self, tables: Vec<Table>) -> Result<bool> {
        if self.tries == 0 {
            return Ok(false);
        }
        if self.judge.load(&tables, self.storage).await.is_ok() && self.fails(self.best.case.clone()).await {
            self.best.tables = tables;
            return Ok(true);
        }
        self.judge.load(&self.best.tables, self.storage).await?;
        Ok(false)
    }
}

fn smaller_cases(case: &Case) -> Vec<Case> {
    match case {
        Case::Query(query) => queries(query).into_iter().map(Case::Query).collect(),
        Case::Partitioned(partitioned) => {
            let conditions = exprs(&partitioned.condition).into_iter();
            let conditions = conditions.map(|condition| Partitioned { condition, ..partitioned.clone() });
            let selects = selects(&partitioned.select).into_iter();
            let selects = selects
                // What is checked of the case depends on these.
                .filter(|select| {
                    (partitioned.shape != Shape::Aggregates || select.items.len() == 1)
                        && select.distinct == partitioned.select.distinct
                        && (partitioned.shape == Shape::Groups) == (select.grouping != Grouping::None)
                })
                .map(|select| Partitioned { select, ..partitioned.clone() });
            selects.chain(conditions).map(Case::Partitioned).collect()
        }
    }
}

/// Lists with one element less, or with one element smaller.
fn lists<T: Clone>(items: &[T], smaller: impl Fn(&T) -> Vec<T>) -> Vec<Vec<T>> {
    let without = (0..items.len()).map(|left_out| {
        let kept = items.iter().enumerate().filter(|(number, _)| *number != left_out);
        kept.map(|(_, item)| item.clone()).collect()
    });
    without.chain(same_length(items, smaller)).collect()
}

/// Lists with one element smaller.
fn same_length<T: Clone>(items: &[T], smaller: impl Fn(&T) -> Vec<T>) -> Vec<Vec<T>> {
    let mut all = Vec::new();
    for (number, item) in items.iter().enumerate() {
        for replacement in smaller(item) {
            let mut copy = items.to_vec();
            if let Some(place) = copy.get_mut(number) {
                *place = replacement;
            }
            all.push(copy);
        }
    }
    all
}

fn queries(query: &Query) -> Vec<Query> {
    let mut all = Vec::new();
    if let Body::Set { left, right, .. } = &query.body {
        for side in [left, right] {
            all.push(Query { with: query.with.clone(), ..side.as_ref().clone() });
            all.push(Query { body: side.body.clone(), ..query.clone() });
        }
    }
    if query.limit.is_some() || query.offset.is_some() {
        all.push(Query { limit: None, offset: None, ..query.clone() });
        all.push(Query { offset: None, ..query.clone() });
    } else if !query.order.is_empty() {
        all.push(Query { order: Vec::new(), ..query.clone() });
    }
    for with in lists(&query.with, |(name, inner)| {
        queries(inner).into_iter().map(|inner| (name.clone(), inner)).collect()
    }) {
        all.push(Query { with, ..query.clone() });
    }
    match &query.body {
        Body::Select(select) => {
            for smaller in selects(select) {
                let mut order = query.order.clone();
                // The order is by all outputs; those that are gone go from it too.
                if smaller.items.len() < select.items.len() {
                    order.retain(|order| match &order.key {
                        Expr::Column { table: None, name, .. } => {
                            smaller.items.iter().any(|item| item.name == *name)
                        }
                        _ => true,
                    });
                }
                all.push(Query { body: Body::Select(Box::new(smaller)), order, ..query.clone() });
            }
        }
        Body::Set { operator, all: with_all, left, right } => {
            let set = |left: Query, right: Query| {
                let body = Body::Set {
                    operator: *operator,
                    all: *with_all,
                    left: Box::new(left),
                    right: Box::new(right),
                };
                Query { body, ..query.clone() }
            };
            all.extend(queries(left).into_iter().map(|left| set(left, right.as_ref().clone())));
            all.extend(queries(right).into_iter().map(|right| set(left.as_ref().clone(), right)));
        }
    }
    all
}

fn selects(select: &Select) -> Vec<Select> {
    let mut all = Vec::new();
    for from in lists(&select.from, froms) {
        all.push(Select { from, ..select.clone() });
    }
    for filter in lists(&select.filter, exprs) {
        all.push(Select { filter, ..select.clone() });
    }
    for having in lists(&select.having, exprs) {
        all.push(Select { having, ..select.clone() });
    }
    if select.distinct {
        all.push(Select { distinct: false, ..select.clone() });
    }
    let items = |item: &Item| -> Vec<Item> {
        exprs(&item.expr).into_iter().map(|expr| Item { expr, name: item.name.clone() }).collect()
    };
    for items in lists(&select.items, items) {
        if !items.is_empty() {
            all.push(Select { items, ..select.clone() });
        }
    }
    for grouping in groupings(&select.grouping) {
        all.push(Select { grouping, ..select.clone() });
    }
    let windows = |(name, window): &(String, Window)| -> Vec<(String, Window)> {
        smaller_windows(window).into_iter().map(|window| (name.clone(), window)).collect()
    };
    for windows in lists(&select.windows, windows) {
        all.push(Select { windows, ..select.clone() });
    }
    all
}

fn groupings(grouping: &Grouping) -> Vec<Grouping> {
    match grouping {
        Grouping::None => Vec::new(),
        Grouping::Keys(keys) => {
            let lists = lists(keys, exprs).into_iter();
            std::iter::once(Grouping::None)
                .chain(lists.filter(|keys| !keys.is_empty()).map(Grouping::Keys))
                .collect()
        }
        Grouping::Rollup(keys) | Grouping::Cube(keys) => {
            let is_rollup = matches!(grouping, Grouping::Rollup(_));
            let same = lists(keys, |_| Vec::new()).into_iter().filter(|keys| !keys.is_empty());
            let same = same.map(|keys| if is_rollup { Grouping::Rollup(keys) } else { Grouping::Cube(keys) });
            std::iter::once(Grouping::Keys(keys.clone())).chain(same).collect()
        }
        Grouping::Sets(sets) => {
            let first = sets.first().cloned().unwrap_or_default();
            let fewer = lists(sets, |set| lists(set, |_| Vec::new())).into_iter();
            std::iter::once(Grouping::Keys(first)).chain(fewer.map(Grouping::Sets)).collect()
        }
    }
}

fn froms(from: &From) -> Vec<From> {
    match from {
        From::Table { .. } => Vec::new(),
        From::Query { query, alias } => {
            let mut all = Vec::new();
            if let Some(From::Table { name, .. }) = query.as_select().and_then(|select| select.from.first()) {
                all.push(From::Table { name: name.clone(), alias: alias.clone() });
            }
            all.extend(
                queries(query)
                    .into_iter()
                    .map(|query| From::Query { query: Box::new(query), alias: alias.clone() }),
            );
            all
        }
        From::Join { kind, left, right, condition } => {
            let mut all = vec![left.as_ref().clone(), right.as_ref().clone()];
            let join = |kind, left: &From, right: &From, condition: &Condition| From::Join {
                kind,
                left: Box::new(left.clone()),
                right: Box::new(right.clone()),
                condition: condition.clone(),
            };
            if !matches!(kind, JoinKind::Inner | JoinKind::Cross) {
                all.push(join(JoinKind::Inner, left, right, condition));
                if *kind == JoinKind::Full {
                    all.push(join(JoinKind::Left, left, right, condition));
                }
            }
            match condition {
                Condition::On(terms) => {
                    for terms in lists(terms, exprs) {
                        all.push(join(*kind, left, right, &Condition::On(terms)));
                    }
                }
                Condition::Using(names) => {
                    for names in lists(names, |_| Vec::new()).into_iter().filter(|names| !names.is_empty()) {
                        all.push(join(*kind, left, right, &Condition::Using(names)));
                    }
                }
                Condition::None | Condition::Natural => {}
            }
            all.extend(froms(left).into_iter().map(|left| join(*kind, &left, right, condition)));
            all.extend(froms(right).into_iter().map(|right| join(*kind, left, &right, condition)));
            all
        }
    }
}

fn exprs(expr: &Expr) -> Vec<Expr> {
    let ty = expr.ty();
    let mut all = Vec::new();
    if !matches!(expr, Expr::Literal { .. }) {
        all.extend(simple_literals(&ty));
    }
    match expr {
        Expr::Column { .. } | Expr::Literal { .. } => {}
        Expr::Call { template, other, arguments, ty, kind } => {
            let same = arguments.iter().filter(|argument| argument.ty().family() == ty.family());
            if *kind == CallKind::Scalar {
                all.extend(same.cloned());
            }
            if let Some((bare, _)) = template.split_once(" FILTER (WHERE") {
                let other = other.as_ref().and_then(|other| other.split_once(" FILTER (WHERE"));
                all.push(Expr::Call {
                    template: bare.to_owned(),
                    other: other.map(|(bare, _)| bare.to_owned()),
                    arguments: arguments.clone(),
                    ty: ty.clone(),
                    kind: *kind,
                });
            }
            for arguments in same_length(arguments, exprs) {
                all.push(Expr::Call {
                    template: template.clone(),
                    other: other.clone(),
                    arguments,
                    ty: ty.clone(),
                    kind: *kind,
                });
            }
        }
        Expr::Query { template, arguments, query, ty } => {
            for query in queries(query) {
                all.push(Expr::Query {
                    template: template.clone(),
                    arguments: arguments.clone(),
                    query: Box::new(query),
                    ty: ty.clone(),
                });
            }
            for arguments in same_length(arguments, exprs) {
                all.push(Expr::Query {
                    template: template.clone(),
                    arguments,
                    query: query.clone(),
                    ty: ty.clone(),
                });
            }
        }
        Expr::Window { function, over } => {
            all.extend(
                exprs(function)
                    .into_iter()
                    .filter(Expr::is_aggregate)
                    .map(|function| Expr::Window { function: Box::new(function), over: over.clone() }),
            );
            if let Over::Inline(window) = over {
                all.extend(
                    smaller_windows(window).into_iter().map(|window| Expr::Window {
                        function: function.clone(),
                        over: Over::Inline(window),
                    }),
                );
            }
        }
    }
    all
}

fn smaller_windows(window: &Window) -> Vec<Window> {
    let mut all = Vec::new();
    for partition in lists(&window.partition, |_| Vec::new()) {
        all.push(Window { partition, ..window.clone() });
    }
    let keys = |order: &Order| -> Vec<Order> {
        if order.descending { vec![Order { descending: false, ..order.clone() }] } else { Vec::new() }
    };
    for order in same_length(&window.order, keys) {
        all.push(Window { order, ..window.clone() });
    }
    all
}

fn simple_literals(ty: &Type) -> Vec<Expr> {
    let mut all = match ty.family() {
        Family::Boolean => ["true", "false"].map(|text| Expr::literal(text, Type::Boolean)).to_vec(),
        Family::Number => vec![Expr::literal("1", INT)],
        Family::Text => vec![Expr::literal("a", Type::Text)],
        _ => Vec::new(),
    };
    all.push(Expr::Literal { value: Value::Null, ty: ty.clone() });
    all
}
