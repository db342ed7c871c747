//! Queries over twenty tables whose columns all have the same names.
//!
//! Tables are joined along a random tree of references (`a.ref = b.id`), by name or kind now and then, and with themselves.
//! A list with commas can stand in any order; a chain of joins only in one in which each table has a condition with those
//! before it.

use super::Variants;
use crate::random::Random;

const TABLES: usize = 20;
const ROWS: usize = 40;

/// Statements that make the tables.
pub fn tables(random: &mut Random) -> Vec<(String, String)> {
    (1..=TABLES)
        .map(|number| {
            let name = format!("t{number}");
            let rows: Vec<String> = (1..=random.between(ROWS / 2, ROWS))
                .map(|id| {
                    let mut nullable = |text: String| if random.chance(8) { "NULL".to_owned() } else { text };
                    let (reference, kind) = (nullable(String::from("?")), nullable(String::from("?")));
                    let reference = reference.replace('?', &random.between(1, ROWS).to_string());
                    let kind = kind.replace('?', &format!("'kind {}'", random.below(12)));
                    let row = (random.below(30), random.below(1000));
                    format!("({id}, 'name {}', {kind}, {reference}, {})", row.0, row.1)
                })
                .collect();
            let make = format!(
                "CREATE TABLE {name} (id INTEGER, name VARCHAR, kind VARCHAR, ref INTEGER, size BIGINT); \
                 INSERT INTO {name} VALUES {}",
                rows.join(", ")
            );
            (name, make)
        })
        .collect()
}

/// A query as what it is made of.
struct Joined {
    /// Tables under their aliases.
    sources: Vec<(String, String)>,
    /// Conditions between two of them, or of one.
    terms: Vec<(usize, usize, String)>,
    select: String,
}

/// A query of some joins, in several orders: once as a list with commas, once as a chain of joins.
pub fn query(number: usize, random_orders: usize, random: &mut Random) -> [Variants; 2] {
    let joined = random_join(random);
    let count = joined.sources.len();
    let written: Vec<usize> = (0..count).collect();
    let mut lists = vec![
        ("written".to_owned(), joined.list(&written)),
        ("reversed".to_owned(), joined.list(&written.iter().rev().copied().collect::<Vec<_>>())),
    ];
    let mut chains = vec![
        ("written list".to_owned(), joined.list(&written)),
        ("written".to_owned(), joined.chain(&written)),
    ];
    chains.push(("from the end".to_owned(), joined.chain(&joined.connected(|open| open.last().copied()))));
    for order in 1..=random_orders {
        let mut shuffled = written.clone();
        random.shuffle(&mut shuffled);
        lists.push((format!("random {order}"), joined.list(&shuffled)));
        let connected = joined.connected(|open| random.pick(open).copied());
        chains.push((format!("random {order}"), joined.chain(&connected)));
    }
    [
        Variants { name: format!("generated {number}, list"), texts: lists },
        Variants { name: format!("generated {number}, joins"), texts: chains },
    ]
}

fn random_join(random: &mut Random) -> Joined {
    let count = random.between(5, 18);
    let mut sources: Vec<(String, String)> = Vec::new();
    let mut terms = Vec::new();
    for number in 0..count {
        let table = match sources.last() {
            Some((table, _)) if random.chance(15) => table.clone(),
            _ => format!("t{}", random.between(1, TABLES)),
        };
        let alias = if sources.iter().any(|(_, alias)| *alias == table) || random.chance(60) {
            format!("x{number}")
        } else {
            table.clone()
        };
        if number > 0 {
            let earlier = random.below(number);
            let other = sources.get(earlier).map(|(_, alias)| alias.clone()).unwrap_or_default();
            // By a key as a rule: the rows must not become too many.
            let term = match random.below(10) {
                0..=5 => format!("{other}.ref = {alias}.id"),
                6 | 7 => format!("{alias}.ref = {other}.id"),
                8 => format!("{alias}.id = {other}.id"),
                _ => format!("{alias}.kind = {other}.kind AND {alias}.id = {other}.ref"),
            };
            terms.push((earlier, number, term));
        }
        sources.push((table, alias));
    }
    for (number, (_, alias)) in sources.iter().enumerate() {
        let term = match random.below(12) {
            0 => format!("{alias}.kind <> 'kind 3'"),
            1 => format!("{alias}.size < {}", random.between(300, 900)),
            2 => format!("{alias}.name LIKE 'name %'"),
            _ => continue,
        };
        terms.push((number, number, term));
    }
    if random.chance(30)
        && let (Some((_, one)), Some((_, other))) = (sources.first(), sources.last())
    {
        terms.push((0, count - 1, format!("{one}.size <= {other}.size + 500")));
    }
    let sums: Vec<String> = sources.iter().map(|(_, alias)| format!("sum({alias}.id)")).collect();
    let last = sources.last().map(|(_, alias)| alias.clone()).unwrap_or_default();
    let select = if random.chance(50) {
        format!("count(*), {}", sums.join(", "))
    } else {
        let ids: Vec<String> = sources.iter().map(|(_, alias)| format!("{alias}.id, {alias}.name")).collect();
        format!("{}, {last}.size", ids.join(", "))
    };
    Joined { sources, terms, select }
}

impl Joined {
    fn source(&self, number: usize) -> String {
        match self.sources.get(number) {
            Some((table, alias)) if table == alias => table.clone(),
            Some((table, alias)) => format!("{table} AS {alias}"),
            None => String::new(),
        }
    }

    fn list(&self, order: &[usize]) -> String {
        let from: Vec<String> = order.iter().map(|number| self.source(*number)).collect();
        let terms: Vec<&str> = self.terms.iter().map(|(.., term)| term.as_str()).collect();
        format!("SELECT {} FROM {} WHERE {}", self.select, from.join(", "), terms.join(" AND "))
    }

    /// Each table with the conditions that can be told by then.
    fn chain(&self, order: &[usize]) -> String {
        let mut text = format!("SELECT {} FROM ", self.select);
        let mut seen: Vec<usize> = Vec::new();
        let mut filter = Vec::new();
        for number in order {
            let own = |(one, other, _): &&(usize, usize, String)| one == other && one == number;
            filter.extend(self.terms.iter().filter(own).map(|(.., term)| term.as_str()));
            if seen.is_empty() {
                text += &self.source(*number);
            } else {
                let joins = |(one, other, _): &&(usize, usize, String)| {
                    one == number && seen.contains(other) || other == number && seen.contains(one)
                };
                let terms: Vec<&str> =
                    self.terms.iter().filter(joins).map(|(.., term)| term.as_str()).collect();
                text += &format!(" JOIN {} ON {}", self.source(*number), terms.join(" AND "));
            }
            seen.push(*number);
        }
        if !filter.is_empty() {
            text += &format!(" WHERE {}", filter.join(" AND "));
        }
        text
    }

    /// An order in which each table has a condition with those before it, chosen from those that have.
    fn connected(&self, mut choose: impl FnMut(&[usize]) -> Option<usize>) -> Vec<usize> {
        let all: Vec<usize> = (0..self.sources.len()).collect();
        let mut order: Vec<usize> = choose(&all).into_iter().collect();
        while order.len() < all.len() {
            let touches = |number: &usize| {
                let joins = |(one, other, _): &(usize, usize, String)| {
                    one == number && order.contains(other) || other == number && order.contains(one)
                };
                !order.contains(number) && self.terms.iter().any(joins)
            };
            let open: Vec<usize> = all.iter().copied().filter(touches).collect();
            match choose(&open) {
                Some(next) => order.push(next),
                None => break,
            }
        }
        order
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_order_names_every_table_once() {
        let mut random = Random::new(5);
        for number in 0..50 {
            for variants in query(number, 3, &mut random) {
                let aliases = |text: &str| text.matches(" AS ").count();
                let (_, written) = &variants.texts[0];
                for (order, text) in &variants.texts {
                    assert_eq!(aliases(text), aliases(written), "{order}: {text}");
                    assert!(!text.contains(" ON  "), "{text}");
                }
            }
        }
    }
}
