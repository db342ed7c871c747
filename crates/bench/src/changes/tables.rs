//! Tables, and how each engine makes them.

use crate::random::Random;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Integer,
    Bigint,
    Varchar,
    Double,
}

impl Kind {
    pub fn is_whole(self) -> bool {
        matches!(self, Kind::Integer | Kind::Bigint)
    }

    fn ours(self) -> &'static str {
        match self {
            Kind::Integer => "INTEGER",
            Kind::Bigint => "BIGINT",
            Kind::Varchar => "VARCHAR",
            Kind::Double => "DOUBLE",
        }
    }

    /// `INTEGER PRIMARY KEY` would be the number of the row, and take nulls.
    fn sqlite(self) -> &'static str {
        match self {
            Kind::Integer | Kind::Bigint => "INT",
            Kind::Varchar => "TEXT",
            Kind::Double => "REAL",
        }
    }
}

#[derive(Debug, Clone)]
pub struct Column {
    pub name: String,
    pub kind: Kind,
    pub is_nullable: bool,
    /// Texts that are longer than a key may be, so that it is in none.
    pub has_long_texts: bool,
    pub default: Option<String>,
}

#[derive(Debug, Clone)]
pub struct Index {
    pub name: String,
    pub columns: Vec<usize>,
    pub is_unique: bool,
}

#[derive(Debug, Clone)]
pub struct Table {
    pub name: String,
    pub columns: Vec<Column>,
    /// Columns of the primary key; none without one.
    pub primary: Vec<usize>,
    pub unique: Vec<Vec<usize>>,
    /// With the columns that they are about.
    pub checks: Vec<(String, usize)>,
    /// `WITH (storage = 'row')`, which tables with keys have anyway.
    pub is_stored_by_rows: bool,
    pub indexes: Vec<Index>,
    /// Whole numbers are mostly below this.
    pub numbers: usize,
}

impl Table {
    pub fn random(random: &mut Random, name: String) -> Self {
        let has_primary = random.chance(70);
        let count = random.between(2, 6);
        let mut columns = Vec::new();
        for number in 0..count {
            let kind = random.one_of([
                Kind::Integer,
                Kind::Integer,
                Kind::Bigint,
                Kind::Varchar,
                Kind::Varchar,
                Kind::Double,
            ]);
            columns.push(Column {
                name: format!("c{number}"),
                kind,
                is_nullable: random.chance(75),
                has_long_texts: false,
                default: None,
            });
        }
        let mut table = Self {
            name,
            columns,
            primary: Vec::new(),
            unique: Vec::new(),
            checks: Vec::new(),
            is_stored_by_rows: random.chance(30),
            indexes: Vec::new(),
            numbers: random.one_of([12, 60, 400, 3000]),
        };
        for number in 0..count {
            if random.chance(25) {
                let default = table.literal(random, number, false);
                if let Some(column) = table.columns.get_mut(number) {
                    column.default = Some(default);
                }
            }
        }
        if has_primary {
            table.primary = if random.chance(75) { vec![0] } else { vec![0, 1] };
            for number in table.primary.clone() {
                if let Some(column) = table.columns.get_mut(number) {
                    column.is_nullable = false;
                    // Keys of few values would be there already, mostly.
                    if column.kind == Kind::Double || random.chance(50) {
                        column.kind = random.one_of([Kind::Integer, Kind::Bigint]);
                        column.default = None;
                    }
                }
            }
        }
        for number in 0..count {
            let is_free = !table.primary.contains(&number);
            if let Some(column) = table.columns.get_mut(number) {
                column.has_long_texts = is_free && column.kind == Kind::Varchar && random.chance(40);
            }
        }
        while table.unique.len() < 2 && random.chance(25) {
            let columns = table.key_columns(random);
            if !columns.is_empty() && columns != table.primary && !table.unique.contains(&columns) {
                table.unique.push(columns);
            }
        }
        while table.checks.len() < 2 && random.chance(20) {
            let number = random.below(count);
            table.add_check(random, number);
        }
        table
    }

    fn add_check(&mut self, random: &mut Random, number: usize) {
        let Some(column) = self.columns.get(number) else { return };
        let name = &column.name;
        let check = match column.kind {
            Kind::Integer | Kind::Bigint => random
                .one_of(
                    [format!("{name} > -3"), format!("{name} <> 7"), format!("{name} % 11 <> 5")].each_ref(),
                )
                .clone(),
            Kind::Varchar => format!("length({name}) < 40"),
            Kind::Double => format!("{name} > -100.0 AND {name} < 100.5"),
        };
        self.checks.push((check, number));
    }

    /// One to `most` columns, in any order.
    pub fn some_columns(&self, random: &mut Random, most: usize) -> Vec<usize> {
        let mut all: Vec<usize> = (0..self.columns.len()).collect();
        random.shuffle(&mut all);
        all.truncate(random.between(1, most));
        all
    }

    /// One or two columns of which a key can be made, or none.
    pub fn key_columns(&self, random: &mut Random) -> Vec<usize> {
        let mut columns = self.some_columns(random, 2);
        columns.retain(|column| self.columns.get(*column).is_some_and(|column| !column.has_long_texts));
        columns
    }

    /// All that no two rows have both.
    pub fn keys(&self) -> Vec<&[usize]> {
        let primary = (!self.primary.is_empty()).then_some(self.primary.as_slice());
        let indexes =
            self.indexes.iter().filter(|index| index.is_unique).map(|index| index.columns.as_slice());
        primary.into_iter().chain(self.unique.iter().map(Vec::as_slice)).chain(indexes).collect()
    }

    pub fn is_in_key(&self, column: usize) -> bool {
        self.keys().iter().any(|key| key.contains(&column))
    }

    /// Its only key, if that is one.
    pub fn only_key(&self) -> Option<&[usize]> {
        match self.keys().as_slice() {
            [key] => Some(*key),
            _ => None,
        }
    }

    /// A column of whole numbers that each row has another of, none of them null.
    pub fn number_key(&self) -> Option<&Column> {
        let is_key = |columns: &&[usize]| match columns {
            [column] => {
                self.columns.get(*column).filter(|column| column.kind.is_whole() && !column.is_nullable)
            }
            _ => None,
        };
        self.keys().iter().find_map(is_key)
    }

    pub fn name_of(&self, column: usize) -> &str {
        self.columns.get(column).map_or("", |column| column.name.as_str())
    }

    pub fn names_of(&self, columns: &[usize]) -> String {
        columns.iter().map(|column| self.name_of(*column)).collect::<Vec<_>>().join(", ")
    }

    /// `CREATE TABLE` for Nandina and for SQLite.
    pub fn create(&self) -> (String, String) {
        let parts = |name: fn(Kind) -> &'static str| {
            let mut parts = Vec::new();
            for column in &self.columns {
                let mut part = format!("{} {}", column.name, name(column.kind));
                if !column.is_nullable {
                    part += " NOT NULL";
                }
                if let Some(default) = &column.default {
                    part += &format!(" DEFAULT {default}");
                }
                parts.push(part);
            }
            if !self.primary.is_empty() {
                parts.push(format!("PRIMARY KEY ({})", self.names_of(&self.primary)));
            }
            parts.extend(self.unique.iter().map(|columns| format!("UNIQUE ({})", self.names_of(columns))));
            parts.extend(self.checks.iter().map(|(check, _)| format!("CHECK ({check})")));
            format!("CREATE TABLE {} ({})", self.name, parts.join(", "))
        };
        let storage = if self.is_stored_by_rows { " WITH (storage = 'row')" } else { "" };
        (format!("{}{storage}", parts(Kind::ours)), format!("{} STRICT", parts(Kind::sqlite)))
    }

    /// A value of a column as it is written, null now and then where `may_be_null`, also where that must fail.
    pub fn literal(&self, random: &mut Random, column: usize, may_be_null: bool) -> String {
        let Some(column) = self.columns.get(column) else { return "NULL".to_owned() };
        let percent = if column.is_nullable { 12 } else { 1 };
        if may_be_null && random.chance(percent) {
            return "NULL".to_owned();
        }
        if column.has_long_texts && random.chance(4) {
            return format!("'{}'", "long ".repeat(random.between(20, 1500)));
        }
        literal(random, column.kind, self.numbers)
    }
}

/// A value that is not null.
pub fn literal(random: &mut Random, kind: Kind, numbers: usize) -> String {
    match kind {
        Kind::Integer => (random.below(numbers + 3) as i64 - 2).to_string(),
        Kind::Bigint if random.chance(10) => (5_000_000_000 + random.below(5) as i64).to_string(),
        Kind::Bigint => (random.below(numbers + 3) as i64 - 2).to_string(),
        Kind::Double => format!("{:?}", (random.below(160) as f64 - 60.0) / 4.0),
        Kind::Varchar => match random.below(60) {
            0..5 => "''".to_owned(),
            5..30 => format!("'{}'", random.one_of(["a", "b", "ab", "abc", "ba", "x y", "it''s"])),
            _ => format!("'w{}'", random.below(numbers)),
        },
    }
}
