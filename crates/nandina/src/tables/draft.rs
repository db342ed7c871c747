//! What a table is to be, as `ALTER TABLE` changes it step by step.

use std::collections::HashSet;
use std::sync::Arc;

use arrow::datatypes::{Field, FieldRef, Schema, SchemaRef};
use datafusion::execution::SessionState;
use datafusion::sql::sqlparser::ast::{Expr, Ident};
use nandina_storage::{ColumnDefault, IndexDefinition, Table, TableRules};

use super::rows;
use crate::catalog::names::Place;
use crate::error::{Error, Result};
use crate::planning::alter_statement::Alteration;
use crate::planning::altered_rows::{self, AlteredColumn, Demand, Value};
use crate::planning::check_columns;
use crate::planning::creation::{Creation, Key};
use crate::suggestion;

pub(super) struct Draft {
    place: Place,
    /// The table's name before, for messages.
    table: String,
    name: String,
    columns: Vec<Column>,
    metadata: std::collections::HashMap<String, String>,
    defaults: Vec<ColumnDefault>,
    always_numbered: Vec<String>,
    checks: Vec<Check>,
    indexes: Vec<Index>,
    dropped_indexes: Vec<String>,
    drops_column: bool,
    /// Names of indexes of other tables.
    taken: HashSet<String>,
}

struct Column {
    field: FieldRef,
    value: Value,
    /// Whether it could not be null before.
    was_required: bool,
}

struct Check {
    name: String,
    text: String,
    is_new: bool,
}

struct Index {
    name: String,
    columns: Vec<String>,
    is_unique: bool,
    is_primary: bool,
    is_new: bool,
}

impl Draft {
    /// A table as it is.
    pub(super) fn of(
        place: &Place,
        schema: &Schema,
        rules: &TableRules,
        indexes: impl Iterator<Item = IndexDefinition>,
        taken: HashSet<String>,
    ) -> Result<Self> {
        let column = |field: &FieldRef| Column {
            field: Arc::clone(field),
            value: Value::Own(field.name().clone()),
            was_required: !field.is_nullable(),
        };
        let names = check_columns::names(&place.name, rules)?;
        let check = |(name, text): (String, &String)| Check { name, text: text.clone(), is_new: false };
        let name_of = |column: &usize| schema.fields().get(*column).map(|field| field.name().clone());
        let index = |index: IndexDefinition| Index {
            columns: index.columns.iter().filter_map(name_of).collect(),
            name: index.name,
            is_unique: index.is_unique,
            is_primary: index.is_primary,
            is_new: false,
        };
        Ok(Self {
            place: place.clone(),
            table: place.name.clone(),
            name: place.name.clone(),
            columns: schema.fields().iter().map(column).collect(),
            metadata: schema.metadata().clone(),
            defaults: rules.defaults.clone(),
            always_numbered: rules.always_numbered.clone(),
            checks: names.into_iter().zip(&rules.checks).map(check).collect(),
            indexes: indexes.map(index).collect(),
            dropped_indexes: Vec::new(),
            drops_column: false,
            taken,
        })
    }

    /// The same after these changes.
    pub(super) fn altered(mut self, state: &SessionState, alterations: &[Alteration]) -> Result<Self> {
        for alteration in alterations {
            self.alter(state, alteration)?;
        }
        Ok(self)
    }

    fn alter(&mut self, state: &SessionState, alteration: &Alteration) -> Result<()> {
        match alteration {
            Alteration::RenameTable { name } => self.name.clone_from(name),
            Alteration::RenameColumn { column, name } => self.rename(column, name)?,
            Alteration::AddColumn { field, if_not_exists, creation } => {
                match (self.find(field.name()), *if_not_exists) {
                    (Some(_), true) => {}
                    (Some(_), false) => return Err(self.has_column(field.name())),
                    (None, _) => self.add(state, field, creation)?,
                }
            }
            Alteration::DropColumn { column, if_exists, cascade } => match (self.find(column), *if_exists) {
                (None, true) => {}
                _ => self.drop_column(column, *cascade)?,
            },
            Alteration::SetType { column, of, using } => self.set_type(column, of, using.as_deref())?,
            Alteration::SetDefault { column, expression } => {
                let column = self.column(column)?.field.name().clone();
                self.drop_default(&column);
                self.defaults.push(ColumnDefault { column, expression: expression.clone() });
            }
            Alteration::DropDefault { column } => {
                let column = self.column(column)?.field.name().clone();
                self.drop_default(&column);
            }
            Alteration::SetNullable { column, is_nullable } => self.set_nullable(column, *is_nullable)?,
            Alteration::AddConstraint { creation } => self.constrain(creation)?,
            Alteration::DropConstraint { name, if_exists } => self.drop_constraint(name, *if_exists)?,
            Alteration::DropPrimaryKey => {
                let primary =
                    self.indexes.iter().find(|index| index.is_primary).map(|index| index.name.clone());
                let none = || Error::unsupported(format!("table '{}' has no primary key", self.table));
                self.drop_constraint(&primary.ok_or_else(none)?, false)?;
            }
        }
        Ok(())
    }

    fn find(&self, name: &str) -> Option<usize> {
        let exact = self.columns.iter().position(|column| column.field.name() == name);
        exact
            .or_else(|| self.columns.iter().position(|column| column.field.name().eq_ignore_ascii_case(name)))
    }

    fn column(&mut self, name: &str) -> Result<&mut Column> {
        let found = self.find(name);
        let unknown = || {
            let hint =
                suggestion::phrase(name, self.columns.iter().map(|column| column.field.name().as_str()));
            Error::UnknownColumn { name: format!("{}.{name}", self.table), hint }
        };
        let found = found.ok_or_else(unknown)?;
        self.columns.get_mut(found).ok_or_else(|| Error::bug("a column that was found is not there"))
    }

    fn has_column(&self, name: &str) -> Error {
        Error::unsupported(format!("table '{}' has a column '{name}' already", self.table))
    }

    fn rename(&mut self, column: &str, name: &str) -> Result<()> {
        let old = self.column(column)?.field.name().clone();
        if old == name {
            return Ok(());
        }
        if self.columns.iter().any(|other| other.field.name() == name) {
            return Err(self.has_column(name));
        }
        let column = self.column(&old)?;
        column.field = Arc::new(column.field.as_ref().clone().with_name(name));
        for default in self.defaults.iter_mut().filter(|default| default.column == old) {
            name.clone_into(&mut default.column);
        }
        for numbered in self.always_numbered.iter_mut().filter(|numbered| **numbered == old) {
            name.clone_into(numbered);
        }
        for check in &mut self.checks {
            check.text = check_columns::renamed(&check.text, &old, name)?;
        }
        for of_index in self.indexes.iter_mut().flat_map(|index| &mut index.columns).filter(|of| **of == old)
        {
            name.clone_into(of_index);
        }
        Ok(())
    }

    fn add(&mut self, state: &SessionState, field: &FieldRef, creation: &Creation) -> Result<()> {
        if !creation.identities.is_empty() {
            let name = field.name();
            return Err(Error::unsupported(format!(
                "column '{name}': ALTER TABLE adds no columns that are numbered; CREATE SEQUENCE s, and ADD {name} BIGINT DEFAULT \
                 nextval('s')"
            )));
        }
        let default = creation.rules.default_of(field.name()).unwrap_or("NULL");
        let value = Value::Computed(Box::new(altered_rows::default(state, &self.place, default)?));
        self.defaults.extend(creation.rules.defaults.iter().cloned());
        self.columns.push(Column { field: Arc::clone(field), value, was_required: false });
        self.constrain(creation)
    }

    fn drop_column(&mut self, column: &str, cascade: bool) -> Result<()> {
        let column = self.column(column)?.field.name().clone();
        if self.columns.len() == 1 {
            let table = &self.table;
            return Err(Error::unsupported(format!(
                "table '{table}' has no other column than '{column}': DROP TABLE {table} removes it"
            )));
        }
        let mut needs = Vec::with_capacity(self.checks.len());
        for check in &self.checks {
            needs.push(check_columns::of(&check.text)?.contains(&column));
        }
        if !cascade {
            let indexes =
                self.indexes.iter().filter(|index| index.columns.contains(&column)).map(Index::for_message);
            let checks = self.checks.iter().zip(&needs).filter(|(_, needs)| **needs);
            let checks =
                checks.map(|(check, _)| format!("constraint '{}' (CHECK ({}))", check.name, check.text));
            let dependants = indexes.chain(checks).collect::<Vec<_>>();
            if !dependants.is_empty() {
                return Err(Error::unsupported(format!(
                    "column '{column}' of table '{}' is needed by {}: DROP COLUMN {column} CASCADE drops it with that",
                    self.table,
                    dependants.join(", ")
                )));
            }
        }
        let mut needs = needs.into_iter();
        self.checks.retain(|_| needs.next() != Some(true));
        self.indexes.retain(|index| !index.columns.contains(&column));
        self.drop_default(&column);
        self.columns.retain(|other| *other.field.name() != column);
        self.drops_column = true;
        Ok(())
    }

    fn drop_default(&mut self, column: &str) {
        self.defaults.retain(|default| default.column != column);
        self.always_numbered.retain(|numbered| numbered != column);
    }

    fn set_type(&mut self, column: &str, of: &FieldRef, using: Option<&Expr>) -> Result<()> {
        let column = self.column(column)?;
        let value = match (&column.value, using) {
            (_, Some(using)) => Value::Computed(Box::new(using.clone())),
            (Value::Own(_), None) if column.field.data_type() == of.data_type() => return Ok(()),
            (Value::Own(name), None) => {
                Value::Computed(Box::new(Expr::Identifier(Ident::with_quote('"', name))))
            }
            (Value::Computed(_), None) => column.value.clone(),
        };
        let field: Field = of.as_ref().clone();
        column.field =
            Arc::new(field.with_name(column.field.name()).with_nullable(column.field.is_nullable()));
        column.value = value;
        Ok(())
    }

    fn set_nullable(&mut self, column: &str, is_nullable: bool) -> Result<()> {
        let name = self.column(column)?.field.name().clone();
        let primary = self.indexes.iter().find(|index| index.is_primary && index.columns.contains(&name));
        if let (Some(primary), true) = (primary, is_nullable) {
            return Err(Error::unsupported(format!(
                "column '{name}' of table '{}' is in its primary key, which has no nulls: DROP CONSTRAINT {} first",
                self.table, primary.name
            )));
        }
        let column = self.column(&name)?;
        column.field = Arc::new(column.field.as_ref().clone().with_nullable(is_nullable));
        Ok(())
    }

    /// Adds keys and checks.
    fn constrain(&mut self, creation: &Creation) -> Result<()> {
        for (name, text) in creation.rules.named_checks() {
            for column in check_columns::of(text)? {
                self.column(&column)?;
            }
            let name = match name {
                Some(name) if self.has_constraint(name) => {
                    return Err(Error::unsupported(format!(
                        "table '{}' has a constraint '{name}' already",
                        self.table
                    )));
                }
                Some(name) => name.to_owned(),
                None => {
                    let mut taken = self.checks.iter().map(|check| check.name.clone()).collect();
                    check_columns::free_name(&mut taken, &self.table, text)?
                }
            };
            self.checks.push(Check { name, text: text.to_owned(), is_new: true });
        }
        creation.keys.iter().try_for_each(|key| self.add_key(key))
    }

    fn has_constraint(&self, name: &str) -> bool {
        self.checks.iter().any(|check| check.name == name)
            || self.indexes.iter().any(|index| index.name == name)
    }

    fn add_key(&mut self, key: &Key) -> Result<()> {
        if key.is_primary && self.indexes.iter().any(|index| index.is_primary) {
            return Err(Error::unsupported(format!("table '{}' has a primary key already", self.table)));
        }
        let mut taken = self.taken.clone();
        taken.extend(self.indexes.iter().map(|index| index.name.clone()));
        taken.extend(self.checks.iter().map(|check| check.name.clone()));
        if let Some(name) = key.name.as_ref().filter(|name| taken.contains(*name)) {
            return Err(Error::unsupported(format!("there is an index or constraint '{name}' already")));
        }
        let schema = self.schema();
        for made in rows::indexes(&taken, &self.table, &schema, vec![key.clone()])? {
            let columns = self.names_of(&made);
            if made.is_primary {
                columns.iter().try_for_each(|column| self.set_nullable(column, false))?;
            }
            let IndexDefinition { name, is_unique, is_primary, .. } = made;
            self.indexes.push(Index { name, columns, is_unique, is_primary, is_new: true });
        }
        Ok(())
    }

    fn names_of(&self, index: &IndexDefinition) -> Vec<String> {
        let column = |column: &usize| self.columns.get(*column).map(|column| column.field.name().clone());
        index.columns.iter().filter_map(column).collect()
    }

    fn drop_constraint(&mut self, name: &str, if_exists: bool) -> Result<()> {
        if let Some(at) = self.indexes.iter().position(|index| index.name == name && index.is_unique) {
            let index = self.indexes.remove(at);
            if !index.is_new {
                self.dropped_indexes.push(index.name);
            }
            return Ok(());
        }
        if let Some(at) = self.checks.iter().position(|check| check.name == name) {
            self.checks.remove(at);
            return Ok(());
        }
        if if_exists {
            return Ok(());
        }
        let unique = self.indexes.iter().filter(|index| index.is_unique).map(|index| index.name.as_str());
        let all = unique.chain(self.checks.iter().map(|check| check.name.as_str())).collect::<Vec<_>>();
        let hint = match all.as_slice() {
            [] => "; it has none".to_owned(),
            all => format!("; there are: {}", all.join(", ")),
        };
        Err(Error::Query { message: format!("table '{}' has no constraint '{name}'{hint}", self.table) })
    }
}

/// What has become of it.
impl Draft {
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn schema(&self) -> SchemaRef {
        let fields = self.columns.iter().map(|column| Arc::clone(&column.field)).collect::<Vec<_>>();
        Arc::new(Schema::new_with_metadata(fields, self.metadata.clone()))
    }

    pub(super) fn rules(&self) -> TableRules {
        let (defaults, always_numbered) = (self.defaults.clone(), self.always_numbered.clone());
        let mut rules = TableRules { defaults, always_numbered, ..TableRules::default() };
        for check in &self.checks {
            rules.add_check(Some(check.name.clone()), check.text.clone());
        }
        rules
    }

    pub(super) fn columns(&self) -> Vec<AlteredColumn> {
        let column =
            |column: &Column| AlteredColumn { field: Arc::clone(&column.field), value: column.value.clone() };
        self.columns.iter().map(column).collect()
    }

    /// Whether rows have other values than before.
    pub(super) fn has_other_columns(&self) -> bool {
        self.drops_column || self.columns.iter().any(|column| matches!(column.value, Value::Computed(_)))
    }

    /// Whether the rows of a table have to be written anew: also for keys of rows that are in segments, and where the old index stays
    /// until there is another one.
    pub(super) fn is_written_anew(&self, table: &Table) -> bool {
        let moves = table.has_segments() || !self.dropped_indexes.is_empty();
        self.has_other_columns() || (self.has_new_indexes() && moves)
    }

    /// What is asked of rows that was not before.
    pub(super) fn demands(&self) -> Vec<Demand> {
        let table = &self.table;
        let mut demands = Vec::new();
        for column in self.columns.iter().filter(|column| !column.field.is_nullable()) {
            let is_known = column.was_required && matches!(column.value, Value::Own(_));
            if !is_known {
                let name = column.field.name();
                let check = format!("{} IS NOT NULL", Ident::with_quote('"', name));
                let message = format!(
                    "column '{name}' of table '{table}' would have nulls, and is to be NOT NULL: give the rows values first, or a \
                     column that is added a DEFAULT"
                );
                demands.push(Demand { check, message });
            }
        }
        let has_other_values = self.columns.iter().any(|column| matches!(column.value, Value::Computed(_)));
        for Check { name, text, .. } in self.checks.iter().filter(|check| check.is_new || has_other_values) {
            let message = format!("CHECK ({text}) of table '{table}' fails for a row: constraint '{name}'");
            demands.push(Demand { check: text.clone(), message });
        }
        demands
    }

    pub(super) fn has_indexes(&self) -> bool {
        !self.indexes.is_empty()
    }

    pub(super) fn has_new_indexes(&self) -> bool {
        self.indexes.iter().any(|index| index.is_new)
    }

    pub(super) fn indexes(&self) -> impl Iterator<Item = IndexDefinition> {
        self.indexes.iter().map(|index| self.definition(index))
    }

    pub(super) fn new_indexes(&self) -> impl Iterator<Item = IndexDefinition> {
        self.indexes.iter().filter(|index| index.is_new).map(|index| self.definition(index))
    }

    fn definition(&self, index: &Index) -> IndexDefinition {
        let number = |name: &String| self.columns.iter().position(|column| column.field.name() == name);
        IndexDefinition {
            name: index.name.clone(),
            columns: index.columns.iter().filter_map(number).collect(),
            is_unique: index.is_unique,
            is_primary: index.is_primary,
        }
    }

    pub(super) fn dropped_indexes(&self) -> &[String] {
        &self.dropped_indexes
    }
}

impl Index {
    fn for_message(&self) -> String {
        match (self.is_primary, self.is_unique) {
            (true, _) => format!("the primary key '{}'", self.name),
            (false, true) => format!("the unique index '{}'", self.name),
            (false, false) => format!("the index '{}'", self.name),
        }
    }
}
