//! Random tables: many columns of the same names in all of them, and few different values.

use super::types::{Dialect, INT, Rarities, Type, Value, random_value};
use crate::random::Random;

/// A table with its rows.
#[derive(Debug, Clone)]
pub struct Table {
    pub name: String,
    pub columns: Vec<(String, Type)>,
    pub rows: Vec<Vec<Value>>,
}

/// The column of every table that numbers its rows, so that an order can be made total.
pub const ROW_NUMBER: &str = "rid";

/// Names that tables share. The type of one is mostly the same in all tables, so that joins by name find partners.
const NAMES: [&str; 16] = [
    "id", "name", "kind", "ref", "amount", "code", "day", "at", "flag", "note", "size", "rate", "tags",
    "info", "items", "raw",
];

/// What a schema may have.
#[derive(Debug, Clone, Copy)]
pub struct Palette {
    pub has_nested: bool,
    pub has_odd_floats: bool,
    pub has_extremes: bool,
}

/// Two to five tables. Most are small, since queries combine up to six of them.
pub fn random_schema(random: &mut Random, palette: Palette) -> Vec<Table> {
    let count = random.between(2, 5);
    let types: Vec<(&str, Type)> =
        NAMES.iter().map(|name| (*name, random_type(random, name, palette))).collect();
    (1..=count)
        .map(|number| {
            let mut columns = vec![(ROW_NUMBER.to_owned(), INT)];
            let mut names = types.clone();
            random.shuffle(&mut names);
            names.truncate(random.between(3, 9));
            for (name, usual) in names {
                let ty = if random.chance(80) { usual } else { random_type(random, name, palette) };
                columns.push((name.to_owned(), ty));
            }
            let sizes = if number <= 2 { [1, 3, 5, 6, 8, 8] } else { [0, 4, 8, 20, 60, 200] };
            let rows = random_rows(random, &columns, random_size(random.clone(), sizes), palette);
            random.number();
            Table { name: format!("t{number}"), columns, rows }
        })
        .collect()
}

fn random_size(mut random: Random, sizes: [usize; 6]) -> usize {
    random.one_of(sizes)
}

fn random_rows(
    random: &mut Random,
    columns: &[(String, Type)],
    count: usize,
    palette: Palette,
) -> Vec<Vec<Value>> {
    let rarities: Vec<Rarities> = columns
        .iter()
        .map(|_| Rarities {
            nulls: random.one_of([0, 0, 10, 25, 25, 60]),
            has_extremes: palette.has_extremes && random.chance(30),
            has_nan: palette.has_odd_floats,
            has_negative_zero: palette.has_odd_floats && random.chance(50),
        })
        .collect();
    let mut rows: Vec<Vec<Value>> = Vec::with_capacity(count);
    for number in 0..count {
        // Some rows come twice.
        let copied = if random.chance(10) { random.pick(&rows).cloned() } else { None };
        let drawn = columns.iter().zip(&rarities);
        let mut row = copied
            .unwrap_or_else(|| drawn.map(|((_, ty), rarities)| random_value(random, ty, rarities)).collect());
        if let Some(first) = row.first_mut() {
            *first = Value::scalar(number.to_string());
        }
        rows.push(row);
    }
    rows
}

fn random_type(random: &mut Random, name: &str, palette: Palette) -> Type {
    match name {
        "id" | "ref" | "code" if random.chance(75) => random_integer(random),
        "name" | "kind" | "note" if random.chance(85) => Type::Text,
        "flag" => Type::Boolean,
        "day" => random.one_of([Type::Date, Type::Date, Type::Timestamp].each_ref()).clone(),
        "at" => random.one_of([Type::Timestamp, Type::Timestamp, Type::Time].each_ref()).clone(),
        "raw" => Type::Binary,
        "rate" => random.one_of([Type::Double, Type::Double, Type::Float].each_ref()).clone(),
        "amount" if random.chance(60) => random_decimal(random),
        "tags" if palette.has_nested => {
            Type::List(Box::new(random.one_of([INT, Type::Text].each_ref()).clone()))
        }
        "info" if palette.has_nested => random_struct(random),
        "items" if palette.has_nested => Type::List(Box::new(random_struct(random))),
        _ => match random.below(6) {
            0 => Type::Text,
            1 => random_decimal(random),
            2 => Type::Double,
            _ => random_integer(random),
        },
    }
}

fn random_integer(random: &mut Random) -> Type {
    let bits = random.one_of([8, 16, 32, 32, 32, 64, 64]);
    Type::Integer { bits, signed: !random.chance(20) }
}

fn random_decimal(random: &mut Random) -> Type {
    let (precision, scale) = random.one_of([(5, 2), (10, 2), (18, 4), (9, 0), (30, 6), (38, 2)]);
    Type::Decimal { precision, scale }
}

fn random_struct(random: &mut Random) -> Type {
    let second = random.one_of([Type::Text, Type::Double].each_ref()).clone();
    Type::Struct(vec![("x", INT), ("y", second)])
}

impl Table {
    /// The statement that makes the table with all its rows.
    pub fn create(&self, dialect: Dialect) -> String {
        let header: Vec<String> =
            self.columns.iter().map(|(name, ty)| format!("\"{name}\" {}", ty.sql(dialect))).collect();
        let Some(rows) = self.values(dialect) else {
            // The types of struct columns are easier to make from a value than to declare.
            let nulls: Vec<String> = self
                .columns
                .iter()
                .map(|(name, ty)| format!("{} AS \"{name}\"", Value::Null.literal(ty, dialect)))
                .collect();
            return format!("CREATE TABLE {} AS SELECT {} LIMIT 0", self.name, nulls.join(", "));
        };
        let names: Vec<String> = self.columns.iter().map(|(name, _)| format!("\"{name}\"")).collect();
        let has_nested = self.columns.iter().any(|(_, ty)| ty.is_nested());
        if has_nested {
            let select = self
                .columns
                .iter()
                .map(|(name, ty)| format!("CAST(\"{name}\" AS {}) AS \"{name}\"", ty.sql(dialect)));
            let select: Vec<String> = select.collect();
            return format!(
                "CREATE TABLE {} AS SELECT {} FROM (VALUES\n  {rows}) AS v({})",
                self.name,
                select.join(", "),
                names.join(", ")
            );
        }
        format!(
            "CREATE TABLE {} ({});\nINSERT INTO {} VALUES\n  {rows}",
            self.name,
            header.join(", "),
            self.name
        )
    }

    fn values(&self, dialect: Dialect) -> Option<String> {
        let row = |row: &Vec<Value>| {
            let cells: Vec<String> =
                row.iter().zip(&self.columns).map(|(value, (_, ty))| value.literal(ty, dialect)).collect();
            format!("({})", cells.join(", "))
        };
        let rows: Vec<String> = self.rows.iter().map(row).collect();
        (!rows.is_empty()).then(|| rows.join(",\n  "))
    }
}
