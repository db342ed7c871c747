//! The names of a session as DataFusion asks for them.

use std::sync::Arc;

use async_trait::async_trait;
use datafusion::catalog::{CatalogProvider, CatalogProviderList, SchemaProvider, TableProvider};
use datafusion::common::{DataFusionError, Result, TableReference};
use nandina_storage::MAIN;

use super::names::Names;
use super::system::SystemSchema;
use super::{CATALOG, SCHEMA, SYSTEM, TEMPORARY};

/// All databases.
#[derive(Debug)]
pub(crate) struct AllDatabases(pub Arc<Names>);

impl CatalogProviderList for AllDatabases {
    fn register_catalog(&self, _: String, _: Arc<dyn CatalogProvider>) -> Option<Arc<dyn CatalogProvider>> {
        None
    }

    fn catalog_names(&self) -> Vec<String> {
        self.0.databases().all().into_iter().map(|(name, _)| name).collect()
    }

    fn catalog(&self, name: &str) -> Option<Arc<dyn CatalogProvider>> {
        let is_known = [CATALOG, SYSTEM, TEMPORARY].contains(&name) || self.0.databases().get(name).is_some();
        is_known.then(|| Arc::new(Schemas { names: Arc::clone(&self.0), database: name.to_owned() }) as _)
    }
}

/// The schemas of a database, or those that names without a database mean.
#[derive(Debug)]
struct Schemas {
    names: Arc<Names>,
    database: String,
}

impl CatalogProvider for Schemas {
    fn schema_names(&self) -> Vec<String> {
        self.names.databases().tables(&self.database).map(|tables| tables.schema_names()).unwrap_or_default()
    }

    fn schema(&self, name: &str) -> Option<Arc<dyn SchemaProvider>> {
        if let Some(system) = SystemSchema::named(&self.database, name, &self.names) {
            return Some(Arc::new(system));
        }
        let reference = |table: &str| match (self.database.as_str(), name) {
            (CATALOG, SCHEMA) => TableReference::bare(table),
            (CATALOG, schema) => TableReference::partial(schema, table),
            (database, schema) => TableReference::full(database, schema, table),
        };
        let names = &self.names;
        let is_there = match (self.database.as_str(), name) {
            (CATALOG, SCHEMA) => true,
            (CATALOG, schema) => names.schema_named(&[schema.to_owned()]).is_ok(),
            (TEMPORARY, schema) => schema == MAIN,
            (database, schema) => names.schema(database, schema).is_some(),
        };
        is_there.then(|| Arc::new(Tables { names: Arc::clone(names), any: reference("") }) as _)
    }
}

/// The tables and views that names of one form mean.
#[derive(Debug)]
struct Tables {
    names: Arc<Names>,
    /// A name of that form.
    any: TableReference,
}

impl Tables {
    fn reference(&self, table: &str) -> TableReference {
        match &self.any {
            TableReference::Bare { .. } => TableReference::bare(table),
            TableReference::Partial { schema, .. } => TableReference::partial(schema.as_ref(), table),
            TableReference::Full { catalog, schema, .. } => {
                TableReference::full(catalog.as_ref(), schema.as_ref(), table)
            }
        }
    }
}

#[async_trait]
impl SchemaProvider for Tables {
    fn table_names(&self) -> Vec<String> {
        let place = self.names.place(&self.reference("t"), false);
        place.map(|place| place.tables.names(&place.schema)).unwrap_or_default()
    }

    async fn table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>> {
        match self.names.find(&self.reference(name)) {
            Some(place) => Ok(place.tables.table(&place, &self.names).await?),
            None => Ok(super::system::bare(&self.any, name, &self.names).await?),
        }
    }

    fn register_table(
        &self,
        name: String,
        table: Arc<dyn TableProvider>,
    ) -> Result<Option<Arc<dyn TableProvider>>> {
        let place = self.names.place(&self.reference(&name), false)?;
        place.tables.register(&place, table).map_err(DataFusionError::from)?;
        Ok(None)
    }

    fn table_exist(&self, name: &str) -> bool {
        self.names.find(&self.reference(name)).is_some()
    }
}
