//! Sections of functions: scalar ones by their subjects, then aggregates, windows and tables.

use std::collections::{BTreeMap, BTreeSet};

use datafusion::logical_expr::Documentation;
use datafusion::logical_expr::registry::FunctionRegistry as _;
use nandina::Session;

use super::examples::{Examples, forms, tables};
use super::names::{DUCKDB, Kind, POSTGRES, Subjects, rows};
use super::{codes, row, signatures};
use crate::{BenchError, Result};

const HEAD: &str = "\
\n## Functions\n\n\
A function is called by any of its names. `NUMBER` is `BIGINT`, `DECIMAL` or `DOUBLE`, to which shorter ones of their kind \
are widened where that is not said otherwise; `ANY` is any type, `/` an alternative, `[, …]` an argument that may be left \
out, and `→` says what is returned. Maps have been tried with keys of `VARCHAR` and values of `BIGINT`, which stand for any.\n";

const COLUMNS: &str = "| function | what it is | other names | DuckDB | Postgres |\n|---|---|---|---|---|\n";

/// A function as the page shows it.
struct Function {
    /// The name that others know it by.
    name: String,
    /// All of its names.
    names: BTreeSet<String>,
    /// Whether DuckDB and Postgres have it, where names do not tell.
    there: Option<[bool; 2]>,
    forms: Vec<String>,
    meaning: String,
}

impl Function {
    /// What has one name, and is shown by an example.
    fn of_example(name: &str, there: Option<[bool; 2]>, example: &str, meaning: &str) -> Self {
        Function {
            name: name.to_owned(),
            names: BTreeSet::from([name.to_owned()]),
            there,
            forms: vec![example.to_owned()],
            meaning: meaning.to_owned(),
        }
    }
}

pub(super) async fn sections(session: &Session, examples: &Examples<'_>) -> Result<String> {
    let subjects = Subjects::read();
    let mut by_subject: BTreeMap<&str, Vec<Function>> = BTreeMap::new();
    let scalars = scalars(session)?;
    let subject_of = subjects.of(scalars.iter().map(|function| function.name.as_str()))?;
    let places = scalars.iter().map(|function| subject_of.get(function.name.as_str()).copied());
    let places: Vec<_> = places.collect();
    for (function, subject) in scalars.into_iter().zip(places) {
        by_subject.entry(subject.unwrap_or_default()).or_default().push(function);
    }
    for form in forms() {
        examples.value(form.example).await?;
        let form_of = Function::of_example(form.name, Some(form.there), form.example, form.meaning);
        by_subject.entry(form.subject).or_default().push(form_of);
    }
    let mut page = HEAD.to_owned();
    let known: BTreeSet<_> =
        by_subject.values().flatten().flat_map(|function| function.names.iter().cloned()).collect();
    let theirs = [DUCKDB, POSTGRES].into_iter().flat_map(|engine| engine.functions(Kind::Scalar));
    let theirs = subjects.of(theirs)?;
    for subject in subjects.all() {
        let functions = by_subject.remove(subject).unwrap_or_default();
        let is_of = |name: &str| theirs.get(name) == Some(&subject);
        page += &section(subject, functions, Kind::Scalar, &known, &is_of);
    }
    for (heading, mut functions, kind) in [
        ("Aggregates", aggregates(session)?, Kind::Aggregate),
        ("Windows", windows(session)?, Kind::Window),
        ("Tables", table_functions(session, examples).await?, Kind::Table),
    ] {
        functions.extend(by_subject.remove(heading).unwrap_or_default());
        let known = functions.iter().flat_map(|function| function.names.iter().cloned()).collect();
        page += &section(heading, functions, kind, &known, &|_| true);
    }
    match by_subject.first_key_value() {
        Some((subject, _)) => {
            Err(BenchError::Setup(format!("forms.txt has a subject {subject}, which is none")))
        }
        None => Ok(page),
    }
}

fn section(
    heading: &str,
    mut functions: Vec<Function>,
    kind: Kind,
    known: &BTreeSet<String>,
    is_of: &dyn Fn(&str) -> bool,
) -> String {
    let mut section = format!("\n### {heading}\n");
    if kind == Kind::Aggregate {
        section += "\n`DISTINCT` and `ORDER BY` stand inside of the brackets, `FILTER (WHERE …)` and `OVER (…)` behind them.\n";
    }
    if !functions.is_empty() {
        section += &format!("\n{COLUMNS}");
    }
    functions.sort_by(|one, other| one.name.cmp(&other.name));
    for function in &functions {
        let [duckdb, postgres] = match function.there {
            Some(there) => there.map(|there| if there { "yes" } else { "" }.to_owned()),
            None => [DUCKDB, POSTGRES].map(|engine| names_there(function, &engine.functions(kind))),
        };
        let forms: Vec<_> = function.forms.iter().map(|form| format!("`{form}`")).collect();
        let others = codes(function.names.iter().map(String::as_str).filter(|name| *name != function.name));
        let forms = forms.join("<br>");
        section += &row([&forms, &function.meaning, &others, &duckdb, &postgres]);
    }
    for engine in [DUCKDB, POSTGRES] {
        let missing: Vec<_> =
            engine.functions(kind).into_iter().filter(|name| is_of(name) && !known.contains(*name)).collect();
        if !missing.is_empty() {
            section += &format!("\nIn {}, not here: {}.\n", engine.name, codes(missing));
        }
    }
    section
}

/// The names by which an engine has a function.
fn names_there(function: &Function, there: &BTreeSet<&str>) -> String {
    match there.contains(function.name.as_str()) {
        true => "yes".to_owned(),
        false => codes(function.names.iter().map(String::as_str).filter(|name| there.contains(name))),
    }
}

/// The names of each function, by the one that it calls itself by; hidden ones left out.
fn names(all: impl IntoIterator<Item = (String, String)>) -> BTreeMap<String, BTreeSet<String>> {
    let mut names: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (name, own) in all.into_iter().filter(|(name, _)| !name.starts_with("__")) {
        names.entry(own).or_default().insert(name);
    }
    names
}

/// The name that others know: Postgres' or DuckDB's, in doubt the function's own.
fn known_name(own: &str, names: &BTreeSet<String>, kind: Kind) -> String {
    let (postgres, duckdb) = (POSTGRES.functions(kind), DUCKDB.functions(kind));
    let is_there = |name: &str| postgres.contains(name) || duckdb.contains(name);
    let is_own_known = names.contains(own) && is_there(own);
    let other = names.iter().find(|name| is_there(name)).filter(|_| !is_own_known);
    other.or_else(|| names.get(own)).or_else(|| names.first()).cloned().unwrap_or_default()
}

/// What a function is, in a few words: ours, or the first sentence of its documentation.
fn meaning(names: &BTreeSet<String>, documentation: Option<&Documentation>) -> String {
    let ours = rows(include_str!("descriptions.txt")).find(|[name, _]| names.contains(*name));
    let theirs = || first_sentence(documentation.map_or("", |documentation| &documentation.description));
    ours.map_or_else(theirs, |[_, meaning]| meaning.to_owned())
}

/// The first sentence of a documentation, without links and its first word `Returns`.
fn first_sentence(text: &str) -> String {
    let text = text.trim();
    let sentence = text.split(". ").next().unwrap_or(text).lines().next().unwrap_or_default();
    let sentence = sentence.trim_end_matches('.').trim_start_matches("Returns ");
    let mut plain = String::new();
    let mut rest = sentence;
    while let Some((before, link)) = rest.split_once("](") {
        plain += &before.replace('[', "");
        rest = link.split_once(')').map_or("", |(_, rest)| rest);
    }
    plain += rest;
    let mut letters = plain.chars();
    let first = letters.next().map(|letter| letter.to_lowercase().to_string()).unwrap_or_default();
    match letters.clone().next().is_some_and(char::is_uppercase) {
        true => plain,
        false => first + letters.as_str(),
    }
}

fn function(
    own: &str,
    names: BTreeSet<String>,
    kind: Kind,
    documentation: Option<&Documentation>,
    forms: impl FnOnce(&str) -> Vec<String>,
) -> Function {
    let name = known_name(own, &names, kind);
    let mut forms = forms(&name);
    if forms.is_empty() {
        let syntax = documentation.map(|documentation| documentation.syntax_example.replacen(own, &name, 1));
        forms = vec![syntax.unwrap_or_else(|| format!("{name}(…)"))];
    }
    let meaning = meaning(&names, documentation);
    Function { name, names, there: None, forms, meaning }
}

fn scalars(session: &Session) -> Result<Vec<Function>> {
    let failed = |error: datafusion::error::DataFusionError| BenchError::Setup(error.to_string());
    let state = session.context().state();
    let udf = |name: String| state.udf(&name).map(|udf| (name, udf.name().to_owned()));
    let all = state.udfs().into_iter().map(udf).collect::<datafusion::error::Result<Vec<_>>>();
    let mut functions = Vec::new();
    for (own, names) in names(all.map_err(failed)?) {
        let Some(udf) = names.first().map(|name| state.udf(name)).transpose().map_err(failed)? else {
            continue;
        };
        let forms = |name: &str| signatures::of_scalar(name, &udf);
        functions.push(function(&own, names, Kind::Scalar, udf.documentation(), forms));
    }
    let over_lambdas =
        |name: String| state.higher_order_function(&name).map(|function| (name, function.name().to_owned()));
    let all = state.higher_order_function_names().into_iter().map(over_lambdas);
    let all = all.collect::<datafusion::error::Result<Vec<_>>>().map_err(failed)?;
    for (own, names) in self::names(all) {
        let described = names.iter().map(|name| format!("lambda {name}")).collect();
        let forms = |name: &str| vec![format!("{name}(ANY[], lambda)")];
        let function = function(&own, names, Kind::Scalar, None, forms);
        functions.push(Function { meaning: meaning(&described, None), ..function });
    }
    Ok(functions)
}

fn aggregates(session: &Session) -> Result<Vec<Function>> {
    let state = session.context().state();
    let all = state.aggregate_functions().iter().map(|(name, udaf)| (name.clone(), udaf.name().to_owned()));
    let one = |(own, names): (String, BTreeSet<String>)| {
        let udaf = names.first().and_then(|name| state.aggregate_functions().get(name))?;
        let forms = |name: &str| signatures::of_aggregate(name, udaf);
        Some(function(&own, names, Kind::Aggregate, udaf.documentation(), forms))
    };
    Ok(names(all).into_iter().filter_map(one).collect())
}

fn windows(session: &Session) -> Result<Vec<Function>> {
    let state = session.context().state();
    let all = state.window_functions().iter().map(|(name, udwf)| (name.clone(), udwf.name().to_owned()));
    let one = |(own, names): (String, BTreeSet<String>)| {
        let udwf = names.first().and_then(|name| state.window_functions().get(name))?;
        let forms = |name: &str| signatures::of_window(name, udwf);
        Some(function(&own, names, Kind::Window, udwf.documentation(), forms))
    };
    Ok(names(all).into_iter().filter_map(one).collect())
}

/// Functions in `FROM`, which are executed; one that the session has and the page does not is an error.
async fn table_functions(session: &Session, examples: &Examples<'_>) -> Result<Vec<Function>> {
    let mut functions = Vec::new();
    for table in tables() {
        examples.execute(table.example).await?;
        functions.push(Function::of_example(table.name, None, table.example, table.meaning));
    }
    let state = session.context().state();
    let unknown =
        state.table_functions().keys().find(|name| functions.iter().all(|table| table.name != **name));
    match unknown {
        Some(name) => Err(BenchError::Setup(format!(
            "{name} has no example: give it one in crates/bench/src/reference/tables.txt"
        ))),
        None => Ok(functions),
    }
}
