//! What names in SQL mean in a session.

use std::fmt;
use std::sync::{Arc, OnceLock, Weak};

use datafusion::common::TableReference;
use datafusion::execution::SessionState;
use nandina_storage::MAIN;
use parking_lot::RwLock;

use super::databases::Databases;
use super::temporary::Temporary;
use super::{CATALOG, SCHEMA, TEMPORARY};
use crate::error::{Error, Result};
use crate::tables::{Kind, Tables};

/// A schema of a database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SchemaName {
    pub database: String,
    pub schema: String,
}

/// Where an object is, or is to be.
#[derive(Clone)]
pub(crate) struct Place {
    pub database: String,
    pub tables: Arc<Tables>,
    pub schema: String,
    pub name: String,
}

/// The objects that a session can name, and its search path.
pub(crate) struct Names {
    databases: Arc<Databases>,
    temporary: Arc<Temporary>,
    /// Whether what is temporary is found.
    sees_temporary: bool,
    /// Where names without a schema are looked for. New objects go into the first.
    path: RwLock<Arc<[SchemaName]>>,
    /// What views are planned with.
    session: OnceLock<Weak<RwLock<SessionState>>>,
}

impl fmt::Debug for Names {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Names").field("path", &*self.path.read()).finish_non_exhaustive()
    }
}

impl Names {
    pub(crate) fn new(databases: Arc<Databases>, temporary: Arc<Temporary>) -> Arc<Self> {
        let main = SchemaName { database: databases.main().to_owned(), schema: MAIN.to_owned() };
        Arc::new(Names {
            databases,
            temporary,
            sees_temporary: true,
            path: RwLock::new([main].into()),
            session: OnceLock::new(),
        })
    }

    /// The same objects, with names as an object of a schema means them: one that lasts knows nothing of what is
    /// temporary, or of the session's search path.
    pub(crate) fn within(&self, database: &str, schema: &str) -> Arc<Self> {
        let is_temporary = database == TEMPORARY;
        let own = SchemaName { database: database.to_owned(), schema: schema.to_owned() };
        Arc::new(Names {
            databases: Arc::clone(&self.databases),
            temporary: Arc::clone(&self.temporary),
            sees_temporary: is_temporary,
            path: RwLock::new(if is_temporary { self.path() } else { [own].into() }),
            session: self.session.clone(),
        })
    }

    /// Plans views with this state from now on.
    pub(crate) fn plan_views_with(&self, session: Weak<RwLock<SessionState>>) {
        // A session sets it once, when it starts.
        let _ = self.session.set(session);
    }

    pub(crate) fn session(&self) -> Option<SessionState> {
        let session = self.session.get().and_then(Weak::upgrade)?;
        let state = session.read().clone();
        Some(state)
    }

    pub(crate) fn session_reference(&self) -> Weak<RwLock<SessionState>> {
        self.session.get().cloned().unwrap_or_default()
    }

    pub(crate) fn databases(&self) -> &Arc<Databases> {
        &self.databases
    }

    pub(crate) fn temporary(&self) -> &Arc<Temporary> {
        &self.temporary
    }

    pub(crate) fn path(&self) -> Arc<[SchemaName]> {
        Arc::clone(&self.path.read())
    }

    /// The schema that new objects go into.
    pub(crate) fn current(&self) -> SchemaName {
        let main = || SchemaName { database: self.databases.main().to_owned(), schema: MAIN.to_owned() };
        self.path.read().first().cloned().unwrap_or_else(main)
    }

    /// `USE`, `SET schema` and `SET search_path`: each a schema, a database, or both with a dot between.
    pub(crate) fn set_path(&self, written: &[Vec<String>]) -> Result<()> {
        let path = written.iter().map(|name| self.schema_named(name)).collect::<Result<Vec<_>>>()?;
        if !path.is_empty() {
            *self.path.write() = path.into();
        }
        Ok(())
    }

    /// The schema that the parts of a name mean.
    pub(crate) fn schema_named(&self, parts: &[String]) -> Result<SchemaName> {
        let found = match parts {
            [one] => self.schema_or_database(one),
            [database, schema] => self.schema(database, schema).map(|found| found.0),
            _ => None,
        };
        found.ok_or_else(|| {
            let name = parts.join(".");
            Error::Query {
                message: format!(
                    "there is no schema or database '{name}'; CREATE SCHEMA {name} or ATTACH … AS {name} makes one"
                ),
            }
        })
    }

    fn schema_or_database(&self, name: &str) -> Option<SchemaName> {
        let current = self.current().database;
        let found = self.schema(&current, name).or_else(|| self.schema(name, MAIN));
        found.map(|found| found.0)
    }

    /// A schema that exists.
    pub(crate) fn schema(&self, database: &str, schema: &str) -> Option<(SchemaName, Arc<Tables>)> {
        let tables = match database {
            TEMPORARY => self.temporary.tables().filter(|_| self.sees_temporary),
            database => self.databases.tables(database),
        }?;
        let name = SchemaName { database: database.to_owned(), schema: schema.to_owned() };
        tables.has_schema(schema).then_some((name, tables))
    }

    /// What `look_up` finds first of the places where an object of this name may be.
    fn first_of<T>(
        &self,
        reference: &TableReference,
        mut look_up: impl FnMut(Place) -> Option<T>,
    ) -> Option<T> {
        let mut within = |database: &str, schema: &str| {
            let (found, tables) = self.schema(database, schema)?;
            let SchemaName { database, schema } = found;
            look_up(Place { database, tables, schema, name: reference.table().to_owned() })
        };
        let catalog = reference.catalog().filter(|catalog| *catalog != CATALOG);
        let schema = reference.schema().filter(|schema| *schema != SCHEMA);
        match (catalog, schema) {
            (Some(database), Some(schema)) => within(database, schema),
            (_, Some(name)) => {
                let found = self.schema_or_database(name)?;
                within(&found.database, &found.schema)
            }
            (_, None) => {
                if let Some(found) = within(TEMPORARY, MAIN) {
                    return Some(found);
                }
                let path = self.path();
                if let Some(found) = path.iter().find_map(|name| within(&name.database, &name.schema)) {
                    return Some(found);
                }
                within(&self.current().database, MAIN)
            }
        }
    }

    /// The table or view that a name means.
    pub(crate) fn find(&self, reference: &TableReference) -> Option<Place> {
        self.first_of(reference, |place| place.kind().is_some().then_some(place))
    }

    /// Objects of other kinds than tables and views: the first that `look_up` finds.
    pub(crate) fn find_with<T>(
        &self,
        reference: &TableReference,
        look_up: impl Fn(&Place) -> Option<T>,
    ) -> Option<T> {
        self.first_of(reference, |place| look_up(&place))
    }

    /// Where a new object of this name is to be.
    pub(crate) fn place(&self, reference: &TableReference, is_temporary: bool) -> Result<Place> {
        let name = reference.table();
        if crate::files::names::looks_like_path(name) {
            return Err(Error::unsupported(format!(
                "'{name}' would read as a file; use COPY … TO '{name}' to write one, or another name for a table"
            )));
        }
        let is_in_temporary = [reference.schema(), reference.catalog()].contains(&Some(TEMPORARY));
        if is_temporary || is_in_temporary {
            if !is_in_temporary && reference.schema().is_some_and(|schema| schema != SCHEMA) {
                return Err(Error::unsupported(format!(
                    "'{reference}': what is temporary is in no schema; write just '{name}'"
                )));
            }
            return Ok(Place {
                database: TEMPORARY.to_owned(),
                tables: self.temporary.tables_or_new()?,
                schema: MAIN.to_owned(),
                name: name.to_owned(),
            });
        }
        let mut parts = Vec::new();
        parts.extend(reference.catalog().filter(|catalog| *catalog != CATALOG).map(str::to_owned));
        parts.extend(reference.schema().filter(|schema| *schema != SCHEMA).map(str::to_owned));
        let found = if parts.is_empty() { self.current() } else { self.schema_named(&parts)? };
        let Some((found, tables)) = self.schema(&found.database, &found.schema) else {
            return Err(Error::Query {
                message: format!(
                    "schema '{}.{}' is there no more; USE another one",
                    found.database, found.schema
                ),
            });
        };
        Ok(Place { database: found.database, tables, schema: found.schema, name: name.to_owned() })
    }
}

impl Place {
    /// As the store names it, and as messages do.
    pub(crate) fn qualified(&self) -> String {
        nandina_storage::qualified(&self.schema, &self.name)
    }

    pub(crate) fn kind(&self) -> Option<Kind> {
        self.tables.kind(&self.schema, &self.name)
    }
}
