//! Queries as trees: only as much of SQL as is generated, in a form that is easy to cut down.
//!
//! ```text
//!   Query ─┬─ with: names and queries
//!          ├─ body: Select ─┬─ items, from: a list of trees of joins, filter: terms that are joined by AND
//!          │                └─ grouping, having, named windows
//!          │        or Set (UNION, INTERSECT, EXCEPT) of two queries
//!          └─ order, limit, offset
//! ```
//!
//! Functions and operators are no kinds of their own but templates, `({0} + {1})`, with arguments.

use super::types::{Type, Value};

#[derive(Debug, Clone, PartialEq)]
pub struct Query {
    pub with: Vec<(String, Query)>,
    pub body: Body,
    pub order: Vec<Order>,
    pub limit: Option<u64>,
    pub offset: Option<u64>,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Body {
    Select(Box<Select>),
    Set { operator: SetOperator, all: bool, left: Box<Query>, right: Box<Query> },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SetOperator {
    Union,
    Intersect,
    Except,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Order {
    pub key: Expr,
    pub descending: bool,
    pub nulls_first: bool,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Select {
    pub distinct: bool,
    pub items: Vec<Item>,
    pub from: Vec<From>,
    pub filter: Vec<Expr>,
    pub grouping: Grouping,
    pub having: Vec<Expr>,
    pub windows: Vec<(String, Window)>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Item {
    pub expr: Expr,
    pub name: String,
}

#[derive(Debug, Clone, PartialEq)]
pub enum From {
    Table { name: String, alias: String },
    Query { query: Box<Query>, alias: String },
    Join { kind: JoinKind, left: Box<From>, right: Box<From>, condition: Condition },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JoinKind {
    Inner,
    Left,
    Right,
    Full,
    Cross,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Condition {
    /// Of cross joins.
    None,
    On(Vec<Expr>),
    Using(Vec<String>),
    Natural,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Grouping {
    None,
    Keys(Vec<Expr>),
    Rollup(Vec<Expr>),
    Cube(Vec<Expr>),
    Sets(Vec<Vec<Expr>>),
}

#[derive(Debug, Clone, PartialEq)]
pub enum Expr {
    Column {
        table: Option<String>,
        name: String,
        ty: Type,
    },
    Literal {
        value: Value,
        ty: Type,
    },
    Call {
        /// For Nandina; `{0}` is the first argument.
        template: String,
        /// For DuckDB, where that is written differently.
        other: Option<String>,
        arguments: Vec<Expr>,
        ty: Type,
        kind: CallKind,
    },
    /// A sub-query, which stands for `{q}` in the template.
    Query {
        template: String,
        arguments: Vec<Expr>,
        query: Box<Query>,
        ty: Type,
    },
    Window {
        /// A call.
        function: Box<Expr>,
        over: Over,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallKind {
    Scalar,
    Aggregate,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Over {
    Name(String),
    Inline(Window),
}

#[derive(Debug, Clone, PartialEq)]
pub struct Window {
    /// A named window that this one goes on from.
    pub base: Option<String>,
    pub partition: Vec<Expr>,
    pub order: Vec<Order>,
    pub frame: Option<String>,
}

impl Expr {
    pub fn ty(&self) -> Type {
        match self {
            Expr::Column { ty, .. }
            | Expr::Literal { ty, .. }
            | Expr::Call { ty, .. }
            | Expr::Query { ty, .. } => ty.clone(),
            Expr::Window { function, .. } => function.ty(),
        }
    }

    pub fn column(table: &str, name: &str, ty: &Type) -> Self {
        Expr::Column { table: Some(table.to_owned()), name: name.to_owned(), ty: ty.clone() }
    }

    pub fn literal(text: impl Into<String>, ty: Type) -> Self {
        Expr::Literal { value: Value::scalar(text), ty }
    }

    pub fn null(ty: Type) -> Self {
        Expr::Literal { value: Value::Null, ty }
    }

    /// A function or operator that both engines write alike.
    pub fn call(template: impl Into<String>, arguments: Vec<Expr>, ty: Type) -> Self {
        Expr::Call { template: template.into(), other: None, arguments, ty, kind: CallKind::Scalar }
    }

    /// One that DuckDB writes differently.
    pub fn call_as(template: &str, other: &str, arguments: Vec<Expr>, ty: Type) -> Self {
        let other = Some(other.to_owned());
        Expr::Call { template: template.to_owned(), other, arguments, ty, kind: CallKind::Scalar }
    }

    pub fn aggregate(template: impl Into<String>, arguments: Vec<Expr>, ty: Type) -> Self {
        Expr::Call { template: template.into(), other: None, arguments, ty, kind: CallKind::Aggregate }
    }

    pub fn is_aggregate(&self) -> bool {
        matches!(self, Expr::Call { kind: CallKind::Aggregate, .. })
    }
}

impl Select {
    /// With nothing but what it reads.
    pub fn of(items: Vec<Item>, from: Vec<From>) -> Self {
        Select {
            distinct: false,
            items,
            from,
            filter: Vec::new(),
            grouping: Grouping::None,
            having: Vec::new(),
            windows: Vec::new(),
        }
    }
}

impl Query {
    pub fn select(select: Select) -> Self {
        Query {
            with: Vec::new(),
            body: Body::Select(Box::new(select)),
            order: Vec::new(),
            limit: None,
            offset: None,
        }
    }

    pub fn as_select(&self) -> Option<&Select> {
        match &self.body {
            Body::Select(select) => Some(select),
            Body::Set { .. } => None,
        }
    }
}

impl Grouping {
    pub fn keys(&self) -> Vec<&Expr> {
        match self {
            Grouping::None => Vec::new(),
            Grouping::Keys(keys) | Grouping::Rollup(keys) | Grouping::Cube(keys) => keys.iter().collect(),
            Grouping::Sets(sets) => sets.iter().flatten().collect(),
        }
    }
}
