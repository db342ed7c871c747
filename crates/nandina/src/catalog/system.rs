//! Tables that show what there is: `information_schema`, and `duckdb_tables()` and the like.
//!
//! They are made when a statement names them, of the objects that there are then.

use std::sync::Arc;

use arrow::array::{ArrayRef, BooleanArray, Int64Array, RecordBatch, StringArray};
use async_trait::async_trait;
use datafusion::catalog::information_schema::InformationSchemaProvider;
use datafusion::catalog::{MemTable, SchemaProvider, TableProvider};
use datafusion::common::{Result, TableReference};
use nandina_functions::sql_type;
use nandina_storage::MAIN;

use super::names::{Names, Place};
use super::providers::AllDatabases;
use super::{CATALOG, SYSTEM, TEMPORARY};
use crate::settings;
use crate::tables::Kind;

const INFORMATION_SCHEMA: &str = "information_schema";

/// Functions in `FROM` that are such tables, of schema `main` of database `system`.
pub(crate) const FUNCTIONS: [&str; 9] = [
    "duckdb_tables",
    "duckdb_views",
    "duckdb_columns",
    "duckdb_schemas",
    "duckdb_databases",
    "duckdb_sequences",
    "duckdb_functions",
    "duckdb_settings",
    "sqlite_master",
];

#[derive(Debug)]
pub(crate) struct SystemSchema {
    names: Arc<Names>,
    is_information_schema: bool,
}

impl SystemSchema {
    /// The schema of a database if it is one of these.
    pub(crate) fn named(database: &str, schema: &str, names: &Arc<Names>) -> Option<Self> {
        let is_information_schema = schema == INFORMATION_SCHEMA;
        let is_main = database == SYSTEM && schema == MAIN || database == CATALOG && schema == SYSTEM;
        (is_information_schema || is_main)
            .then(|| SystemSchema { names: Arc::clone(names), is_information_schema })
    }
}

impl SystemSchema {
    /// The tables of `information_schema` that are as DataFusion has them: its settings, and the types of functions.
    fn datafusion(&self) -> InformationSchemaProvider {
        InformationSchemaProvider::new(Arc::new(AllDatabases(Arc::clone(&self.names))))
    }
}

#[async_trait]
impl SchemaProvider for SystemSchema {
    fn table_names(&self) -> Vec<String> {
        match self.is_information_schema {
            true => self.datafusion().table_names(),
            false => FUNCTIONS.map(str::to_owned).to_vec(),
        }
    }

    async fn table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>> {
        if !self.is_information_schema {
            return system(name, &self.names).await.map(provider).transpose();
        }
        match information_schema(name, &self.names).await {
            Some(columns) => provider(columns).map(Some),
            None => self.datafusion().table(name).await,
        }
    }

    fn table_exist(&self, name: &str) -> bool {
        self.table_names().iter().any(|known| known == name)
    }
}

/// What a name without a schema means when no table has it.
pub(crate) async fn bare(
    form: &TableReference,
    name: &str,
    names: &Names,
) -> Result<Option<Arc<dyn TableProvider>>> {
    match form {
        TableReference::Bare { .. } => system(name, names).await.map(provider).transpose(),
        _ => Ok(None),
    }
}

type Columns = Vec<(&'static str, ArrayRef)>;

fn provider(columns: Columns) -> Result<Arc<dyn TableProvider>> {
    let batch = RecordBatch::try_from_iter_with_nullable(
        columns.into_iter().map(|(name, values)| (name, values, true)),
    )?;
    Ok(Arc::new(MemTable::try_new(batch.schema(), vec![vec![batch]])?))
}

async fn information_schema(name: &str, names: &Names) -> Option<Columns> {
    match name {
        "schemata" => {
            let schemas = schemas(names);
            Some(vec![
                ("catalog_name", texts(schemas.iter().map(|(database, _)| Some(database.clone())))),
                ("schema_name", texts(schemas.iter().map(|(_, schema)| Some(schema.clone())))),
            ])
        }
        "tables" => {
            let relations = relations(names).await;
            let kind = |relation: &Relation| match (relation.is_view, relation.is_temporary()) {
                (true, _) => "VIEW",
                (false, true) => "LOCAL TEMPORARY",
                (false, false) => "BASE TABLE",
            };
            Some(vec![
                ("table_catalog", texts(relations.iter().map(|table| Some(table.place.database.clone())))),
                ("table_schema", texts(relations.iter().map(|table| Some(table.place.schema.clone())))),
                ("table_name", texts(relations.iter().map(|table| Some(table.place.name.clone())))),
                ("table_type", texts(relations.iter().map(|table| Some(kind(table).to_owned())))),
            ])
        }
        "columns" => {
            let relations = relations(names).await;
            let columns = of_columns(&relations);
            let is_nullable = |column: &Column| if column.is_nullable { "YES" } else { "NO" };
            Some(vec![
                (
                    "table_catalog",
                    texts(columns.iter().map(|(table, ..)| Some(table.place.database.clone()))),
                ),
                ("table_schema", texts(columns.iter().map(|(table, ..)| Some(table.place.schema.clone())))),
                ("table_name", texts(columns.iter().map(|(table, ..)| Some(table.place.name.clone())))),
                ("column_name", texts(columns.iter().map(|(.., column)| Some(column.name.clone())))),
                ("ordinal_position", numbers(columns.iter().map(|(_, at, _)| Some(*at)))),
                ("column_default", texts(columns.iter().map(|(.., column)| column.default.clone()))),
                (
                    "is_nullable",
                    texts(columns.iter().map(|(.., column)| Some(is_nullable(column).to_owned()))),
                ),
                ("data_type", texts(columns.iter().map(|(.., column)| Some(column.of.clone())))),
            ])
        }
        _ => None,
    }
}

async fn system(name: &str, names: &Names) -> Option<Columns> {
    Some(match name {
        "duckdb_tables" => {
            let tables: Vec<_> = relations(names).await.into_iter().filter(|table| !table.is_view).collect();
            let mut columns = places(&tables, "table_name");
            columns.extend([
                ("temporary", truths(tables.iter().map(Relation::is_temporary))),
                ("estimated_size", numbers(tables.iter().map(|table| table.rows))),
                ("column_count", numbers(tables.iter().map(|table| Some(table.columns.len() as i64)))),
            ]);
            columns
        }
        "duckdb_views" => {
            let views: Vec<_> = relations(names).await.into_iter().filter(|table| table.is_view).collect();
            let mut columns = places(&views, "view_name");
            columns.extend([
                ("temporary", truths(views.iter().map(Relation::is_temporary))),
                ("column_count", numbers(views.iter().map(|view| Some(view.columns.len() as i64)))),
                ("sql", texts(views.iter().map(|view| view.statement.clone()))),
            ]);
            columns
        }
        "duckdb_columns" => {
            let relations = relations(names).await;
            let columns = of_columns(&relations);
            vec![
                (
                    "database_name",
                    texts(columns.iter().map(|(table, ..)| Some(table.place.database.clone()))),
                ),
                ("schema_name", texts(columns.iter().map(|(table, ..)| Some(table.place.schema.clone())))),
                ("table_name", texts(columns.iter().map(|(table, ..)| Some(table.place.name.clone())))),
                ("column_name", texts(columns.iter().map(|(.., column)| Some(column.name.clone())))),
                ("column_index", numbers(columns.iter().map(|(_, at, _)| Some(*at)))),
                ("column_default", texts(columns.iter().map(|(.., column)| column.default.clone()))),
                ("is_nullable", truths(columns.iter().map(|(.., column)| column.is_nullable))),
                ("data_type", texts(columns.iter().map(|(.., column)| Some(column.of.clone())))),
            ]
        }
        "duckdb_schemas" => {
            let schemas = schemas(names);
            vec![
                ("database_name", texts(schemas.iter().map(|(database, _)| Some(database.clone())))),
                ("schema_name", texts(schemas.iter().map(|(_, schema)| Some(schema.clone())))),
            ]
        }
        "duckdb_databases" => {
            let databases = names.databases().all();
            let path = |directory: &Option<std::path::PathBuf>| {
                directory.as_ref().map(|directory| directory.display().to_string())
            };
            vec![
                ("database_name", texts(databases.iter().map(|(name, _)| Some(name.clone())))),
                ("path", texts(databases.iter().map(|(_, database)| path(&database.directory)))),
                ("readonly", truths(databases.iter().map(|(_, database)| database.is_read_only))),
            ]
        }
        "duckdb_sequences" => {
            let mut found = Vec::new();
            for (database, tables) in all_tables(names) {
                for sequence in tables.objects().sequences {
                    let (schema, name) = nandina_storage::parts(&sequence.name);
                    let last = tables.sequences().last(&tables, &sequence.name);
                    found.push((database.clone(), schema, name, sequence, last));
                }
            }
            vec![
                ("database_name", texts(found.iter().map(|found| Some(found.0.clone())))),
                ("schema_name", texts(found.iter().map(|found| Some(found.1.clone())))),
                ("sequence_name", texts(found.iter().map(|found| Some(found.2.clone())))),
                ("start_value", numbers(found.iter().map(|found| Some(found.3.start)))),
                ("min_value", numbers(found.iter().map(|found| Some(found.3.least)))),
                ("max_value", numbers(found.iter().map(|found| Some(found.3.greatest)))),
                ("increment_by", numbers(found.iter().map(|found| Some(found.3.increment)))),
                ("cycle", truths(found.iter().map(|found| found.3.cycles))),
                ("last_value", numbers(found.iter().map(|found| found.4))),
            ]
        }
        "duckdb_functions" => {
            let functions = functions(names);
            vec![
                ("function_name", texts(functions.iter().map(|(name, _)| Some(name.clone())))),
                ("function_type", texts(functions.iter().map(|(_, kind)| Some((*kind).to_owned())))),
            ]
        }
        "duckdb_settings" => {
            let settings = settings::NAMES.iter();
            vec![
                ("name", texts(settings.clone().map(|(name, _)| Some((*name).to_owned())))),
                ("description", texts(settings.map(|(_, description)| Some((*description).to_owned())))),
            ]
        }
        "sqlite_master" | "sqlite_schema" => {
            let relations = relations(names).await;
            let kind = |relation: &Relation| if relation.is_view { "view" } else { "table" };
            let name = |relation: &Relation| Some(relation.place.name.clone());
            vec![
                ("type", texts(relations.iter().map(|relation| Some(kind(relation).to_owned())))),
                ("name", texts(relations.iter().map(name))),
                ("tbl_name", texts(relations.iter().map(name))),
                ("sql", texts(relations.iter().map(|relation| relation.statement.clone()))),
            ]
        }
        _ => return None,
    })
}

/// A table or view.
pub(crate) struct Relation {
    pub place: Place,
    pub is_view: bool,
    pub statement: Option<String>,
    pub rows: Option<i64>,
    pub columns: Vec<Column>,
}

pub(crate) struct Column {
    pub name: String,
    pub of: String,
    pub is_nullable: bool,
    pub default: Option<String>,
}

impl Relation {
    pub(crate) fn is_temporary(&self) -> bool {
        self.place.database == TEMPORARY
    }
}

/// All tables and views.
pub(crate) async fn relations(names: &Names) -> Vec<Relation> {
    let mut relations = Vec::new();
    for (database, tables) in all_tables(names) {
        let views = tables.objects().views;
        for schema in tables.schema_names() {
            for name in tables.names(&schema) {
                let place = Place {
                    database: database.clone(),
                    tables: Arc::clone(&tables),
                    schema: schema.clone(),
                    name,
                };
                relations.push(relation(place, &views, names).await);
            }
        }
    }
    relations
}

async fn relation(place: Place, views: &[nandina_storage::Made], names: &Names) -> Relation {
    // A view may be over a table that is there no more.
    let table = place.tables.table(&place, names).await.ok().flatten();
    let rules = place.tables.rules(&place);
    let fields = table.map(|table| table.schema().fields().clone());
    let columns = fields.iter().flatten().map(|field| Column {
        name: field.name().clone(),
        of: sql_type(field.data_type()),
        is_nullable: field.is_nullable(),
        default: rules.default_of(field.name()).map(str::to_owned),
    });
    let view = views.iter().find(|view| view.name == place.qualified());
    Relation {
        columns: columns.collect(),
        is_view: place.kind() == Some(Kind::View),
        statement: view.map(|view| view.statement.clone()),
        rows: place.tables.rows(&place).await.ok().flatten().map(|rows| rows as i64),
        place,
    }
}

fn all_tables(names: &Names) -> Vec<(String, Arc<crate::tables::Tables>)> {
    let mut all: Vec<_> =
        names.databases().all().into_iter().map(|(name, database)| (name, database.tables)).collect();
    all.extend(names.temporary().tables().map(|tables| (TEMPORARY.to_owned(), tables)));
    all
}

fn schemas(names: &Names) -> Vec<(String, String)> {
    let all = all_tables(names).into_iter();
    all.flat_map(|(database, tables)| {
        tables.schema_names().into_iter().map(move |schema| (database.clone(), schema))
    })
    .collect()
}

fn functions(names: &Names) -> Vec<(String, &'static str)> {
    let Some(state) = names.session() else { return Vec::new() };
    let scalar = state.scalar_functions().keys().map(|name| (name.clone(), "scalar"));
    let aggregate = state.aggregate_functions().keys().map(|name| (name.clone(), "aggregate"));
    let table = state.table_functions().keys().map(|name| (name.clone(), "table"));
    let mut functions: Vec<_> = scalar.chain(aggregate).chain(table).collect();
    for (_, tables) in all_tables(names) {
        let macros = tables.objects().macros.into_iter();
        functions.extend(macros.map(|made| (nandina_storage::parts(&made.name).1, "macro")));
    }
    functions.sort();
    functions
}

fn of_columns(relations: &[Relation]) -> Vec<(&Relation, i64, &Column)> {
    let columns = relations.iter().flat_map(|relation| {
        relation.columns.iter().zip(1..).map(move |(column, at)| (relation, at, column))
    });
    columns.collect()
}

fn places(relations: &[Relation], name: &'static str) -> Columns {
    vec![
        ("database_name", texts(relations.iter().map(|table| Some(table.place.database.clone())))),
        ("schema_name", texts(relations.iter().map(|table| Some(table.place.schema.clone())))),
        (name, texts(relations.iter().map(|table| Some(table.place.name.clone())))),
    ]
}

fn texts(values: impl Iterator<Item = Option<String>>) -> ArrayRef {
    Arc::new(values.collect::<StringArray>())
}

fn numbers(values: impl Iterator<Item = Option<i64>>) -> ArrayRef {
    Arc::new(values.collect::<Int64Array>())
}

fn truths(values: impl Iterator<Item = bool>) -> ArrayRef {
    Arc::new(BooleanArray::from(values.collect::<Vec<_>>()))
}
