//! Which field of a file's records is which column of the table.

use std::collections::{HashMap, HashSet};

use crate::error::{Error, Result};

/// For each field of a record, the column of the table that it belongs to.
///
/// A header with the names of the columns says so, in whatever order. One with other names says nothing: the fields are
/// the columns, in order. One that has some of the names in other places is refused.
pub(crate) fn columns_of_fields(path: &str, header: &[String], columns: &[&str]) -> Result<Vec<usize>> {
    if let Some(by_name) = by_name(header, columns) {
        return Ok(by_name);
    }
    let known = places(columns);
    let is_elsewhere =
        |(field, name): (usize, &String)| known.get(&plain(name)).is_some_and(|&place| place != field);
    let names_are_unique = places(header).len() == header.len() && known.len() == columns.len();
    if names_are_unique && header.iter().enumerate().any(is_elsewhere) {
        return Err(other_columns(path, header, columns));
    }
    Ok((0..columns.len()).collect())
}

/// For each of the names wanted, its place among the known ones, if they are the same.
pub(crate) fn by_name(wanted: &[String], known: &[&str]) -> Option<Vec<usize>> {
    if wanted.len() != known.len() {
        return None;
    }
    if wanted.iter().zip(known).all(|(name, known)| plain(name) == plain(known)) {
        return Some((0..known.len()).collect());
    }
    let place_of = places(known);
    let found: Vec<usize> = wanted.iter().map_while(|name| place_of.get(&plain(name)).copied()).collect();
    let are_all = found.len() == known.len() && places(wanted).len() == known.len();
    are_all.then_some(found)
}

/// For each of the names in a header, its place among the known ones, if it is one of them.
pub(super) fn places_in(header: &[String], known: &[&str]) -> Vec<Option<usize>> {
    let place_of = places(known);
    header.iter().map(|name| place_of.get(&plain(name)).copied()).collect()
}

/// A file whose header does not say which of its fields is which column.
pub(super) fn other_columns(path: &str, header: &[String], columns: &[&str]) -> Error {
    let message = format!(
        "its columns are {}, not {}; files of one table have the same columns, in any order",
        listed(header),
        listed(columns)
    );
    Error::file(path, message)
}

/// Names that are different from each other, as DuckDB makes them: the second `a` is `a_1`.
pub(super) fn unique_names(names: Vec<String>) -> Vec<String> {
    let mut taken: HashSet<String> = names.iter().map(|name| plain(name)).collect();
    let mut seen: HashMap<String, usize> = HashMap::new();
    let mut unique = Vec::with_capacity(names.len());
    for name in names {
        let count = seen.entry(plain(&name)).or_default();
        let mut candidate = name.clone();
        while *count > 0 && taken.contains(&plain(&candidate)) {
            candidate = format!("{name}_{count}");
            *count += 1;
        }
        *count = (*count).max(1);
        taken.insert(plain(&candidate));
        unique.push(candidate);
    }
    unique
}

/// Where each name is; of several of one name, the last.
fn places(names: &[impl AsRef<str>]) -> HashMap<String, usize> {
    names.iter().enumerate().map(|(place, name)| (plain(name.as_ref()), place)).collect()
}

/// A name as names are compared: as identifiers without quotes are.
fn plain(name: &str) -> String {
    name.trim().to_lowercase()
}

fn listed(names: &[impl AsRef<str>]) -> String {
    const MOST: usize = 12;
    let shown: Vec<&str> = names.iter().take(MOST).map(AsRef::as_ref).collect();
    let more = if names.len() > MOST { ", …" } else { "" };
    format!("({}{more})", shown.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn columns(header: &[&str], columns: &[&str]) -> Option<Vec<usize>> {
        let header: Vec<String> = header.iter().map(|&name| name.to_owned()).collect();
        columns_of_fields("x.csv", &header, columns).ok()
    }

    #[test]
    fn fields_go_to_the_columns_of_their_names() {
        assert_eq!(columns(&["a", "b"], &["a", "b"]), Some(vec![0, 1]));
        assert_eq!(columns(&["b", " A "], &["a", "b"]), Some(vec![1, 0]));
        assert_eq!(columns(&["c", "a", "b"], &["a", "b", "c"]), Some(vec![2, 0, 1]));
    }

    #[test]
    fn other_names_stand_for_the_columns_in_order() {
        assert_eq!(columns(&["x", "y"], &["a", "b"]), Some(vec![0, 1]));
        assert_eq!(columns(&["a", "y"], &["a", "b"]), Some(vec![0, 1]));
        assert_eq!(columns(&["a", "a"], &["a", "a_1"]), Some(vec![0, 1]));
    }

    #[test]
    fn names_in_other_places_are_refused() {
        assert_eq!(columns(&["b", "x"], &["a", "b"]), None);
        assert_eq!(columns(&["x", "a", "b"], &["a", "b"]), None);
        let header = ["b".to_owned(), "x".to_owned()];
        let message = columns_of_fields("x.csv", &header, &["a", "b"]).unwrap_err().to_string();
        assert!(message.starts_with("file 'x.csv': its columns are (b, x), not (a, b);"), "{message}");
    }

    #[test]
    fn names_become_unique() {
        let names = |names: &[&str]| unique_names(names.iter().map(|&name| name.to_owned()).collect());
        assert_eq!(names(&["a", "b", "a", "A"]), ["a", "b", "a_1", "A_2"]);
        assert_eq!(names(&["a", "a", "a_1"]), ["a", "a_2", "a_1"]);
    }
}
