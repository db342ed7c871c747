//! Expressions and conditions over columns.

use super::tables::{Kind, Table, literal};
use crate::random::Random;

/// Where columns come from, each with the word before them.
pub struct Scope<'t> {
    pub tables: Vec<(String, &'t Table)>,
}

impl<'t> Scope<'t> {
    /// The columns of a table by their bare names.
    pub fn of(table: &'t Table) -> Self {
        Self { tables: vec![(String::new(), table)] }
    }

    /// The columns of tables by names of theirs.
    pub fn named(tables: &[(&str, &'t Table)]) -> Self {
        Self { tables: tables.iter().map(|(name, table)| (format!("{name}."), *table)).collect() }
    }

    fn column(&self, random: &mut Random, is_kind: impl Fn(Kind) -> bool) -> Option<String> {
        let columns: Vec<String> = self
            .tables
            .iter()
            .flat_map(|(prefix, table)| table.columns.iter().map(move |column| (prefix, column)))
            .filter(|(_, column)| is_kind(column.kind))
            .map(|(prefix, column)| format!("{prefix}{}", column.name))
            .collect();
        random.pick(&columns).cloned()
    }

    fn numbers(&self) -> usize {
        self.tables.first().map_or(10, |(_, table)| table.numbers)
    }
}

/// An expression of this kind, in parentheses where need be. Whole numbers stay far from their bounds.
pub fn expression(random: &mut Random, scope: &Scope<'_>, kind: Kind, depth: usize) -> String {
    let constant = |random: &mut Random| literal(random, kind, scope.numbers());
    if depth == 0 || random.chance(35) {
        let is_kind = |other: Kind| other == kind || kind.is_whole() && other.is_whole();
        let column = if random.chance(75) { scope.column(random, is_kind) } else { None };
        return column.unwrap_or_else(|| constant(random));
    }
    let inner = |random: &mut Random| expression(random, scope, kind, depth - 1);
    let general = random.below(100);
    match general {
        0..12 => format!("coalesce({}, {})", inner(random), constant(random)),
        12..20 => format!("nullif({}, {})", inner(random), constant(random)),
        20..32 => {
            let (one, other) = (inner(random), inner(random));
            format!("CASE WHEN {} THEN {one} ELSE {other} END", condition(random, scope, depth - 1))
        }
        _ => match kind {
            Kind::Integer | Kind::Bigint => match random.below(8) {
                0 | 1 => format!("({} + {})", inner(random), random.between(1, 9)),
                2 => format!("({} - {})", inner(random), inner(random)),
                3 => format!("({} * {})", inner(random), random.between(2, 5)),
                4 => format!("({} / {})", inner(random), random.between(2, 5)),
                5 => format!("abs({})", inner(random)),
                6 => format!("({} % {})", inner(random), random.between(2, 50)),
                _ => format!("length({})", expression(random, scope, Kind::Varchar, depth - 1)),
            },
            Kind::Double => match random.below(5) {
                0 => format!("({} + {:?})", inner(random), random.between(1, 20) as f64 / 4.0),
                1 => format!("({} - {}) * 0.5", inner(random), inner(random)),
                2 => format!("({} * 0.5)", inner(random)),
                3 => format!("(-({}))", inner(random)),
                _ => {
                    format!("CAST({} AS DOUBLE)", expression(random, scope, Kind::Integer, depth - 1))
                }
            },
            Kind::Varchar => match random.below(4) {
                0 => {
                    format!("substr({} || {}, 1, {})", inner(random), constant(random), random.between(1, 45))
                }
                1 => format!("substr({}, {}, 4)", inner(random), random.between(1, 3)),
                2 => format!("replace({}, 'a', 'cc')", inner(random)),
                _ => format!("CAST({} AS VARCHAR)", expression(random, scope, Kind::Integer, depth - 1)),
            },
        },
    }
}

/// An expression that a column of this kind can hold, again and again.
pub fn assigned(random: &mut Random, scope: &Scope<'_>, kind: Kind) -> String {
    let value = expression(random, scope, kind, 2);
    match kind {
        Kind::Integer | Kind::Bigint => format!("({value}) % 10007"),
        // It does not grow over all bounds, where it would be added to itself.
        Kind::Double => format!("({value}) * 0.5"),
        Kind::Varchar => format!("substr({value}, 1, 60)"),
    }
}

/// A condition that is true, false or unknown.
pub fn condition(random: &mut Random, scope: &Scope<'_>, depth: usize) -> String {
    if depth > 0 && random.chance(30) {
        let inner = |random: &mut Random| condition(random, scope, depth - 1);
        return match random.below(3) {
            0 => format!("({} AND {})", inner(random), inner(random)),
            1 => format!("({} OR {})", inner(random), inner(random)),
            _ => format!("(NOT {})", inner(random)),
        };
    }
    let kind = random.one_of([Kind::Integer, Kind::Bigint, Kind::Varchar, Kind::Double]);
    let is_kind = |other: Kind| other == kind || kind.is_whole() && other.is_whole();
    let Some(column) = scope.column(random, is_kind) else {
        return match scope.column(random, |_| true) {
            Some(column) => format!("{column} IS NOT NULL"),
            None => "1 = 1".to_owned(),
        };
    };
    let constant = |random: &mut Random| literal(random, kind, scope.numbers());
    let operator = random.one_of(["=", "=", "<>", "<", "<=", ">", ">="]);
    match random.below(12) {
        0..4 => format!("{column} {operator} {}", constant(random)),
        4 | 5 => format!("{column} {operator} {}", expression(random, scope, kind, depth.min(1))),
        6 => format!("{column} BETWEEN {} AND {}", constant(random), constant(random)),
        7 => {
            let count = random.between(1, 6);
            let values: Vec<String> = (0..count).map(|_| constant(random)).collect();
            format!("{column} IN ({})", values.join(", "))
        }
        8 => format!("{column} IS NULL"),
        9 => format!("{column} IS NOT NULL"),
        10 => format!("{column} IS DISTINCT FROM {}", constant(random)),
        _ if kind == Kind::Varchar => {
            format!("{column} LIKE '{}'", random.one_of(["w1%", "%b%", "a_", "%2"]))
        }
        _ => format!("{} {operator} {column}", expression(random, scope, kind, depth.min(1))),
    }
}
