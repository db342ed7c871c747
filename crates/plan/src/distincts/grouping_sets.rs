//! The grouping sets in which the distinct values of every argument are found.
//!
//! ```text
//!   columns       k  a  b
//!   set (k, a)    0  0  1   a bit for every column, 1 where it is not in the set: this is set 1
//!   set (k, b)    0  1  0   and this set 2
//! ```

use datafusion::arrow::datatypes::DataType;
use datafusion::common::{Column, ScalarValue};
use datafusion::logical_expr::expr::GroupingSet;
use datafusion::logical_expr::logical_plan::Aggregate;
use datafusion::logical_expr::{Expr, lit};

/// Most columns of grouping sets: each has a bit of the id, and DataFusion cannot shift 64 bits by 64.
const MOST_COLUMNS: usize = 63;

/// The keys with every argument.
pub struct GroupingSets {
    /// Columns, none of them twice.
    keys: Vec<Expr>,
    /// The argument of every set; none where that is one of the keys.
    sets: Vec<Option<Expr>>,
}

impl GroupingSets {
    /// No sets yet.
    pub fn by_keys(keys: &[Expr]) -> Self {
        let mut different: Vec<Expr> = Vec::new();
        for key in keys {
            if !different.contains(key) {
                different.push(key.clone());
            }
        }
        Self { keys: different, sets: Vec::new() }
    }

    /// Adds the set of an argument, a column, unless it is there already.
    pub fn add(&mut self, argument: &Expr) {
        let set = self.set_of(argument);
        if !self.sets.contains(&set) {
            self.sets.push(set);
        }
    }

    fn set_of(&self, argument: &Expr) -> Option<Expr> {
        (!self.keys.contains(argument)).then(|| argument.clone())
    }

    /// Whether there is a grouping id that tells the sets apart.
    pub fn can_be_told_apart(&self) -> bool {
        self.sets.len() == 1 || self.columns() <= MOST_COLUMNS
    }

    fn columns(&self) -> usize {
        self.keys.len() + self.arguments().count()
    }

    /// The columns that are not in all sets.
    fn arguments(&self) -> impl Iterator<Item = &Expr> {
        self.sets.iter().flatten()
    }

    /// What the lower aggregation groups by.
    pub fn group_expressions(&self) -> Vec<Expr> {
        let set = |argument: &Option<Expr>| self.keys.iter().chain(argument).cloned().collect();
        match self.sets.as_slice() {
            [only] => set(only),
            sets => vec![Expr::GroupingSet(GroupingSet::GroupingSets(sets.iter().map(set).collect()))],
        }
    }

    /// What the upper aggregation groups by.
    pub fn into_keys(self) -> Vec<Expr> {
        self.keys
    }

    /// The condition that a row of the lower aggregation is of the argument's set; none if there is only one.
    pub fn filter(&self, argument: &Expr) -> Option<Expr> {
        self.filter_of(&self.set_of(argument))
    }

    /// The condition that a row is of the first set, in which every row of the input has gone into one group.
    pub fn first_filter(&self) -> Option<Expr> {
        self.sets.first().and_then(|set| self.filter_of(set))
    }

    fn filter_of(&self, set: &Option<Expr>) -> Option<Expr> {
        if self.sets.len() == 1 {
            return None;
        }
        // The last column has the lowest bit, the keys have the highest ones, which are never set.
        let id =
            self.arguments().fold(0_u64, |id, argument| id << 1 | u64::from(Some(argument) != set.as_ref()));
        let id = match Aggregate::grouping_id_type(self.columns(), 0) {
            DataType::UInt8 => ScalarValue::UInt8(Some(id as u8)),
            DataType::UInt16 => ScalarValue::UInt16(Some(id as u16)),
            DataType::UInt32 => ScalarValue::UInt32(Some(id as u32)),
            _ => ScalarValue::UInt64(Some(id)),
        };
        Some(Expr::Column(Column::from_name(Aggregate::INTERNAL_GROUPING_ID)).eq(lit(id)))
    }
}
