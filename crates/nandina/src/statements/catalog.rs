//! Statements about the catalog: what they do.

use std::sync::Arc;

use arrow::array::{ArrayRef, BooleanArray, ListBuilder, StringArray, StringBuilder};
use datafusion::common::TableReference;
use datafusion::execution::SessionState;
use datafusion::execution::memory_pool::MemoryConsumer;
use datafusion::sql::sqlparser::ast::ObjectName;
use nandina_exec::rows::blocking;
use nandina_functions::sql_type;
use nandina_storage::{Made, Objects, Sequence};

use crate::catalog::databases::{Attached, name_of};
use crate::catalog::names::{Names, Place, SchemaName};
use crate::catalog::{databases, system};
use crate::database::Database;
use crate::error::{Error, Result};
use crate::files::names::absolute_path;
use crate::options::Options;
use crate::planning::catalog_statement::{self, CatalogStatement, IfThere, Shown};
use crate::planning::parameters::PreparedStatements;
use crate::planning::{self, Planned};
use crate::query::{Answer, Query};
use crate::tables::plan_views_again;

/// Runs a statement about the catalog.
pub(crate) async fn run(
    database: &Database,
    state: &Arc<SessionState>,
    statement: CatalogStatement,
) -> Result<Query> {
    let names = names_of(state)?;
    match statement {
        CatalogStatement::CreateSchema { name, if_there } => create_schema(&names, &name, if_there)?,
        CatalogStatement::DropSchema { name, if_exists, cascade } => {
            match (names.schema_named(&name), if_exists) {
                (Ok(found), _) => drop_schema(&names, &found, cascade)?,
                (Err(_), true) => {}
                (Err(error), false) => return Err(error),
            }
        }
        CatalogStatement::CreateSequence { name, sequence, if_there, is_temporary } => {
            create_sequence(&names.place(&name, is_temporary)?, *sequence, if_there)?;
        }
        CatalogStatement::DropSequence { name, if_exists } => drop_sequence(&names, &name, if_exists)?,
        CatalogStatement::CreateMacro { name, if_there, is_temporary, statement } => {
            create_macro(&names.place(&name, is_temporary)?, statement, if_there)?;
            plan_views_again();
        }
        CatalogStatement::DropMacro { name, if_exists } => {
            drop_macro(&names, &name, if_exists)?;
            plan_views_again();
        }
        CatalogStatement::RenameView { view, if_exists, name } => match names.find(&view) {
            Some(place) => place.tables.rename_view(&place, &name)?,
            None if if_exists => {}
            None => return Err(Error::UnknownTable { name: view.to_string(), hint: String::new() }),
        },
        CatalogStatement::Attach { path, name, is_read_only, if_there } => {
            attach(database, &names, &path, name, is_read_only, if_there)?;
        }
        CatalogStatement::Detach { name, if_exists } => detach(&names, &name, if_exists)?,
        CatalogStatement::Use { name } => names.set_path(&[name])?,
        CatalogStatement::Deallocate { name } => {
            let prepared = state.config().get_extension::<PreparedStatements>();
            prepared.map_or(Ok(()), |prepared| prepared.remove(name.as_deref()))?;
        }
        CatalogStatement::Describe { query } => return describe(state, &names, &query).await,
        CatalogStatement::Show(Shown::Databases) => {
            let all = names.databases().all();
            return one_column("database_name", all.into_iter().map(|(name, _)| name));
        }
        CatalogStatement::Show(Shown::Schemas) => {
            let current = names.current().database;
            let tables = names.databases().tables(&current);
            let schemas = tables.map(|tables| tables.schema_names()).unwrap_or_default();
            return one_column("schema_name", schemas.into_iter());
        }
        CatalogStatement::Checkpoint => {
            for (_, attached) in names.databases().all() {
                blocking(|| attached.tables.checkpoint())?;
            }
        }
        CatalogStatement::Vacuum { table } => vacuum(state, &names, table.as_ref()).await?,
        CatalogStatement::Backup { directory } => backup(database, &names, &directory)?,
        CatalogStatement::Show(Shown::AllTables) => return show_all_tables(&names).await,
        CatalogStatement::Prepare { .. } | CatalogStatement::Execute { .. } => {
            unreachable!("they are taken care of where statements are planned")
        }
        CatalogStatement::Nothing => {}
    }
    Query::nothing()
}

async fn vacuum(state: &SessionState, names: &Names, table: Option<&ObjectName>) -> Result<()> {
    let memory = MemoryConsumer::new("VACUUM").register(&state.runtime_env().memory_pool);
    let Some(table) = table else {
        let attached = names.databases().all().into_iter().map(|(_, attached)| attached.tables);
        for tables in attached.chain(names.temporary().tables()) {
            tables.vacuum(None, &memory).await?;
        }
        return Ok(());
    };
    let reference = catalog_statement::reference(table).map_err(Error::from_parser)?;
    let unknown = || Error::UnknownTable { name: reference.to_string(), hint: String::new() };
    let place = names.find(&reference).ok_or_else(unknown)?;
    place.tables.vacuum(Some(&place.qualified()), &memory).await
}

fn names_of(state: &SessionState) -> Result<Arc<Names>> {
    let names = state.config().get_extension::<Names>();
    names.ok_or_else(|| Error::bug("a session has no names"))
}

/// Copies the current database into a directory.
fn backup(database: &Database, names: &Names, directory: &str) -> Result<()> {
    let current = names.current().database;
    let Some(tables) = names.databases().tables(&current) else {
        return Err(names.databases().unknown(&current));
    };
    let directory = Database::new_directory(&absolute_path(directory)?)?;
    let device = database.media().directory(&directory);
    let device = device.map_err(|error| Error::Database { path: directory, message: error.to_string() })?;
    blocking(|| tables.backup(&device))
}

fn create_schema(names: &Names, written: &[String], if_there: IfThere) -> Result<()> {
    let (database, schema) = match written {
        [schema] => (names.current().database, schema),
        [database, schema] => (database.clone(), schema),
        _ => return Err(Error::unsupported("a schema is written as name, or as database.name")),
    };
    let Some(tables) = names.databases().tables(&database) else {
        return Err(names.databases().unknown(&database));
    };
    tables.change_objects(|objects| {
        let is_there = schema == nandina_storage::MAIN || objects.schemas.contains(schema);
        match (is_there, if_there) {
            (true, IfThere::Keep) => {}
            (true, IfThere::Fail) => return Err(there_is("schema", schema)),
            (true, IfThere::Replace) => {
                return Err(Error::unsupported(format!("schema '{schema}' is there; DROP SCHEMA it first")));
            }
            (false, _) => objects.schemas.push(schema.clone()),
        }
        Ok(())
    })
}

fn drop_schema(names: &Names, found: &SchemaName, cascade: bool) -> Result<()> {
    if names.path().contains(found) {
        return Err(Error::unsupported(format!(
            "schema '{}' is in use; USE another one before it is dropped",
            found.schema
        )));
    }
    let tables = names.databases().tables(&found.database);
    tables.map_or(Ok(()), |tables| tables.drop_schema(&found.schema, cascade))
}

fn there_is(kind: &str, name: &str) -> Error {
    Error::Query { message: format!("there is a {kind} '{name}' already") }
}

fn create_sequence(place: &Place, sequence: Sequence, if_there: IfThere) -> Result<()> {
    let name = place.qualified();
    let is_made = place.tables.change_objects(|objects| {
        if objects.sequences.iter().any(|other| other.name == name) {
            match if_there {
                IfThere::Fail => return Err(there_is("sequence", &name)),
                IfThere::Keep => return Ok(false),
                IfThere::Replace => objects.sequences.retain(|other| other.name != name),
            }
        }
        objects.sequences.push(Sequence { name: name.clone(), ..sequence });
        Ok(true)
    })?;
    if is_made {
        place.tables.sequences().forget(&name);
    }
    Ok(())
}

fn drop_sequence(names: &Names, reference: &TableReference, if_exists: bool) -> Result<()> {
    let dropped = drop_object(names, reference, if_exists, "sequence", |objects, name| {
        let before = objects.sequences.len();
        objects.sequences.retain(|sequence| sequence.name != name);
        objects.sequences.len() < before
    })?;
    if let Some(place) = dropped {
        place.tables.sequences().forget(&place.qualified());
    }
    Ok(())
}

fn create_macro(place: &Place, statement: String, if_there: IfThere) -> Result<()> {
    let name = place.qualified();
    place.tables.change_objects(|objects| {
        if objects.macros.iter().any(|other| other.name == name) {
            match if_there {
                IfThere::Fail => return Err(there_is("macro", &name)),
                IfThere::Keep => return Ok(()),
                IfThere::Replace => objects.macros.retain(|other| other.name != name),
            }
        }
        objects.macros.push(Made { name: name.clone(), statement });
        Ok(())
    })
}

fn drop_macro(names: &Names, reference: &TableReference, if_exists: bool) -> Result<()> {
    drop_object(names, reference, if_exists, "macro", |objects, name| {
        let before = objects.macros.len();
        objects.macros.retain(|made| made.name != name);
        objects.macros.len() < before
    })?;
    Ok(())
}

/// Drops the first object that a name means: `remove` says whether it was there.
fn drop_object(
    names: &Names,
    reference: &TableReference,
    if_exists: bool,
    kind: &str,
    remove: impl Fn(&mut Objects, &str) -> bool,
) -> Result<Option<Place>> {
    let found = names.find_with(reference, |place| {
        remove(&mut place.tables.objects(), &place.qualified()).then(|| place.clone())
    });
    match found {
        Some(place) => {
            let name = place.qualified();
            place.tables.change_objects(|objects| Ok(remove(objects, &name)))?;
            Ok(Some(place))
        }
        None if if_exists => Ok(None),
        None => Err(Error::Query { message: format!("there is no {kind} '{reference}'") }),
    }
}

fn attach(
    database: &Database,
    names: &Names,
    path: &str,
    name: Option<String>,
    is_read_only: bool,
    if_there: IfThere,
) -> Result<()> {
    let is_in_memory = path.is_empty() || path == ":memory:";
    let directory = if is_in_memory { None } else { Some(absolute_path(path)?) };
    let own_name = || match &directory {
        Some(directory) => name_of(directory),
        None => Some("memory".to_owned()),
    };
    let Some(name) = name.or_else(own_name) else {
        return Err(Error::unsupported(format!("ATTACH '{path}': say AS name, as the path has none")));
    };
    let databases: &databases::Databases = names.databases();
    if if_there == IfThere::Keep && databases.get(&name).is_some() {
        return Ok(());
    }
    databases.check_name(&name)?;
    let read_only = is_read_only || database.options().read_only;
    let tables = match &directory {
        Some(directory) => {
            let options = Options { read_only, ..database.options().clone() };
            Database::tables_in(directory, &options, database.media())?
        }
        None => database.tables_in_memory()?,
    };
    databases.attach(&name, Attached { tables, directory, is_read_only: read_only && !is_in_memory })
}

fn detach(names: &Names, name: &str, if_exists: bool) -> Result<()> {
    if names.path().iter().any(|used| used.database == name) {
        return Err(Error::unsupported(format!(
            "database '{name}' is in use; USE {} before it is detached",
            names.databases().main()
        )));
    }
    match names.databases().get(name) {
        None if if_exists => return Ok(()),
        _ => names.databases().detach(name)?,
    }
    plan_views_again();
    Ok(())
}

async fn describe(state: &Arc<SessionState>, names: &Names, query: &str) -> Result<Query> {
    let Planned::Plan(plan, _) = planning::plan_text(state, query).await? else {
        return Err(Error::unsupported("only a table or a query can be described"));
    };
    // Defaults are those of the table, if it is one.
    let table = query.strip_prefix("SELECT * FROM ").map(TableReference::parse_str);
    let place = table.and_then(|table| names.find(&table));
    let rules = place.map(|place| place.tables.rules(&place)).unwrap_or_default();
    let fields = plan.schema().fields();
    let texts = |values: Vec<Option<String>>| Arc::new(StringArray::from(values)) as ArrayRef;
    let nullable = |is_nullable| Some(if is_nullable { "YES" } else { "NO" }.to_owned());
    let nothing = || texts(vec![None; fields.len()]);
    Query::columns(
        Answer::Rows,
        vec![
            ("column_name", texts(fields.iter().map(|field| Some(field.name().clone())).collect())),
            ("column_type", texts(fields.iter().map(|field| Some(sql_type(field.data_type()))).collect())),
            ("null", texts(fields.iter().map(|field| nullable(field.is_nullable())).collect())),
            ("key", nothing()),
            (
                "default",
                texts(fields.iter().map(|field| rules.default_of(field.name()).map(str::to_owned)).collect()),
            ),
            ("extra", nothing()),
        ],
    )
}

fn one_column(name: &'static str, values: impl Iterator<Item = String>) -> Result<Query> {
    let values = StringArray::from(values.collect::<Vec<_>>());
    Query::columns(Answer::Rows, vec![(name, Arc::new(values) as ArrayRef)])
}

async fn show_all_tables(names: &Names) -> Result<Query> {
    let relations = system::relations(names).await;
    let texts = |values: Vec<String>| Arc::new(StringArray::from(values)) as ArrayRef;
    let lists = |of: fn(&system::Column) -> &str| {
        let mut lists = ListBuilder::new(StringBuilder::new());
        for relation in &relations {
            lists.append_value(relation.columns.iter().map(|column| Some(of(column))));
        }
        Arc::new(lists.finish()) as ArrayRef
    };
    let temporary = relations.iter().map(system::Relation::is_temporary).collect::<Vec<_>>();
    Query::columns(
        Answer::Rows,
        vec![
            ("database", texts(relations.iter().map(|table| table.place.database.clone()).collect())),
            ("schema", texts(relations.iter().map(|table| table.place.schema.clone()).collect())),
            ("name", texts(relations.iter().map(|table| table.place.name.clone()).collect())),
            ("column_names", lists(|column| &column.name)),
            ("column_types", lists(|column| &column.of)),
            ("temporary", Arc::new(BooleanArray::from(temporary)) as ArrayRef),
        ],
    )
}

/// The tables and views that a session finds by their bare names, and how they are shown.
pub(crate) fn visible(names: &Names) -> Vec<Place> {
    let mut found: Vec<Place> = Vec::new();
    let temporary = SchemaName {
        database: crate::catalog::TEMPORARY.to_owned(),
        schema: nandina_storage::MAIN.to_owned(),
    };
    for schema in std::iter::once(temporary).chain(names.path().iter().cloned()) {
        let Some((name, tables)) = names.schema(&schema.database, &schema.schema) else { continue };
        for table in tables.names(&name.schema) {
            // One that another hides is not shown twice.
            if !found.iter().any(|other| other.name == table) {
                let tables = Arc::clone(&tables);
                let (database, schema) = (name.database.clone(), name.schema.clone());
                found.push(Place { database, tables, schema, name: table });
            }
        }
    }
    found.sort_by(|one, other| one.name.cmp(&other.name));
    found
}
