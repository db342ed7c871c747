//! Whole queries.

use super::{Generator, Relation, Scope};
use crate::fuzz::ast::{Body, Expr, Grouping, Item, Order, Query, Select, SetOperator};
use crate::fuzz::types::{BIGINT, Family, Type};

/// How deep expressions and sub-queries may nest.
const DEPTH: usize = 3;

/// Columns of a query.
type Columns = Vec<(String, Type)>;

impl Generator {
    /// A query as a user would run it.
    pub fn whole(&mut self) -> Query {
        let known = self.relations.len();
        let mut with = Vec::new();
        if self.random.chance(15) {
            for _ in 0..self.random.one_of([1, 1, 2]) {
                let name = self.alias("c");
                let (query, columns, rows) = self.query(&[], None, 1);
                self.relations.push(Relation { name: name.clone(), columns, rows, has_row_number: false });
                with.push((name, query));
            }
        }
        let (mut query, columns, _) = self.query(&[], None, DEPTH);
        self.relations.truncate(known);
        query.with = with;
        if self.random.chance(45) {
            self.put_in_order(&mut query, &columns);
        }
        query
    }

    /// A query, its columns, and the most rows that it may have.
    pub(super) fn query(
        &mut self,
        outer: &[Expr],
        families: Option<&[Family]>,
        depth: usize,
    ) -> (Query, Columns, u64) {
        if self.random.chance(if depth > 1 { 14 } else { 5 }) {
            let (left, columns, some) = self.query(outer, families, depth.min(1));
            let wanted: Vec<Family> = columns.iter().map(|(_, ty)| ty.family()).collect();
            let (right, others, more) = self.query(outer, Some(&wanted), depth.min(1));
            let operator = self.random.one_of([
                SetOperator::Union,
                SetOperator::Union,
                SetOperator::Intersect,
                SetOperator::Except,
            ]);
            let all = match operator {
                SetOperator::Union => self.random.chance(60),
                _ => self.random.chance(15),
            };
            let pairs = columns.iter().zip(&others);
            let columns = pairs
                .map(|((name, one), (_, other))| (name.clone(), super::expressions::wider(one, other)))
                .collect();
            let body = Body::Set { operator, all, left: Box::new(left), right: Box::new(right) };
            let query = Query { with: Vec::new(), body, order: Vec::new(), limit: None, offset: None };
            return (query, columns, some + more);
        }
        let joined = self.from(outer, if depth > 1 { 6 } else { 2 }, depth);
        let rows = joined.rows;
        let mut select = Select::of(Vec::new(), joined.from);
        select.filter = joined.filter;
        let scope = joined.scope;
        if self.random.chance(55) {
            for _ in 0..self.random.one_of([1, 1, 2]) {
                let term = self.boolean(&scope, depth);
                let at = self.random.below(select.filter.len() + 1);
                select.filter.insert(at, term);
            }
        }
        let is_fixed = families.is_some();
        let (scope, rows) = match self.random.below(100) {
            0..=29 => (self.group(&mut select, &scope, depth), rows),
            30..=41 => (self.whole_aggregate(&scope, depth), 1),
            _ => (scope, rows),
        };
        let is_plain = scope.leaves.iter().all(|leaf| !leaf.is_aggregate());
        let wanted = families.map_or_else(|| self.families_of(&scope), <[Family]>::to_vec);
        for family in &wanted {
            let expr = self.expr(family, &scope, depth.min(2));
            let name = self.output_name(&select, &expr);
            select.items.push(Item { expr, name });
        }
        if !is_fixed && self.random.chance(16) {
            for _ in 0..self.random.one_of([1, 1, 2]) {
                let mut windows = std::mem::take(&mut select.windows);
                let expr = self.window_function(&scope, &mut windows);
                select.windows = windows;
                let name = self.output_name(&select, &expr);
                select.items.push(Item { expr, name });
            }
        } else if is_plain && self.random.chance(14) {
            select.distinct = true;
        }
        let columns = select.items.iter().map(|item| (item.name.clone(), item.expr.ty())).collect();
        (Query::select(select), columns, rows)
    }

    /// The families of the columns of a new query.
    fn families_of(&mut self, scope: &Scope) -> Vec<Family> {
        let families = scope.families();
        let count = self.random.between(1, 4);
        (0..count).map(|_| self.random.pick(&families).cloned().unwrap_or(Family::Number)).collect()
    }

    /// A column keeps its name where no other output has it.
    fn output_name(&mut self, select: &Select, expr: &Expr) -> String {
        if let Expr::Column { name, .. } = expr
            && self.random.chance(50)
            && select.items.iter().all(|item| item.name != *name)
        {
            return name.clone();
        }
        let is_free = |name: &String| select.items.iter().all(|item| item.name != *name);
        (select.items.len() + 1..).map(|number| format!("o{number}")).find(is_free).unwrap_or_default()
    }

    /// Groups a query, and says what its outputs can be made of.
    fn group(&mut self, select: &mut Select, scope: &Scope, depth: usize) -> Scope {
        let mut keys: Vec<Expr> = Vec::new();
        for _ in 0..self.random.one_of([1, 1, 2, 2, 3]) {
            let inner = Scope { outer: Vec::new(), ..scope.clone() };
            let key =
                if self.random.chance(20) { self.any_expr(&inner, 1) } else { self.any_expr(&inner, 0) };
            // A number would be the position of an output.
            if !matches!(key, Expr::Literal { .. }) && !keys.contains(&key) && !has_query(&key) {
                keys.push(key);
            }
        }
        if keys.is_empty() {
            keys.extend(scope.leaves.first().cloned());
        }
        let mut outputs = Scope { leaves: keys.clone(), outer: scope.outer.clone(), unique: Vec::new() };
        for _ in 0..self.random.between(1, 3) {
            let aggregate = self.aggregate(scope, depth.min(1));
            outputs.leaves.push(aggregate);
        }
        let kind = self.random.below(100);
        select.grouping = match kind {
            0..=69 => {
                outputs.unique.clone_from(&keys);
                Grouping::Keys(keys)
            }
            _ => {
                let bits: Vec<String> = (0..keys.len()).map(|number| format!("{{{number}}}")).collect();
                let grouping = format!("grouping({})", bits.join(", "));
                outputs.leaves.push(Expr::aggregate(grouping, keys.clone(), BIGINT));
                match kind {
                    70..=79 => Grouping::Rollup(keys),
                    80..=89 => Grouping::Cube(keys),
                    _ => {
                        let mut sets: Vec<Vec<Expr>> = vec![keys.clone()];
                        for _ in 0..self.random.between(1, 3) {
                            let mut set = keys.clone();
                            self.random.shuffle(&mut set);
                            set.truncate(self.random.below(keys.len() + 1));
                            sets.push(set);
                        }
                        Grouping::Sets(sets)
                    }
                }
            }
        };
        if self.random.chance(25) {
            let condition = self.boolean(&outputs, depth.min(1));
            select.having.push(condition);
        }
        outputs
    }

    /// The outputs of a query that aggregates all rows.
    fn whole_aggregate(&mut self, scope: &Scope, depth: usize) -> Scope {
        let leaves = (0..self.random.between(1, 4)).map(|_| self.aggregate(scope, depth.min(1))).collect();
        Scope { leaves, outer: Vec::new(), unique: Vec::new() }
    }

    /// Orders a query by all its columns, and cuts it off.
    fn put_in_order(&mut self, query: &mut Query, columns: &[(String, Type)]) {
        let mut keys: Vec<&(String, Type)> = columns.iter().collect();
        self.random.shuffle(&mut keys);
        let has_nested = columns.iter().any(|(_, ty)| ty.is_nested());
        for (name, ty) in keys {
            if !ty.is_nested() {
                let key = Expr::Column { table: None, name: name.clone(), ty: ty.clone() };
                let (descending, nulls_first) = (self.random.chance(40), self.random.chance(50));
                query.order.push(Order { key, descending, nulls_first });
            }
        }
        if !has_nested && self.random.chance(65) {
            query.limit = Some(self.random.one_of([0, 1, 2, 3, 5, 10, 50, 1000]));
            query.offset = self.random.chance(25).then(|| self.random.one_of([0, 1, 2, 5, 100]));
        }
    }
}

/// Whether there is a sub-query in an expression; they cannot be keys of groups.
fn has_query(expr: &Expr) -> bool {
    match expr {
        Expr::Query { .. } => true,
        Expr::Call { arguments, .. } => arguments.iter().any(has_query),
        Expr::Window { function, .. } => has_query(function),
        Expr::Column { .. } | Expr::Literal { .. } => false,
    }
}
