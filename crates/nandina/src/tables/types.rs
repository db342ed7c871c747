//! Types that statements have made, which are kept with the other objects of a database.

use std::sync::Arc;

use nandina_functions::{OwnTypes, type_of};
use nandina_storage::{Made, Objects};

use super::Tables;
use crate::error::{Error, Result};
use crate::planning::type_statement::{self, TypeStatement};

/// The types of a database. One whose statement is not understood any more is unknown.
pub(super) fn kept(objects: &Objects) -> Arc<OwnTypes> {
    let types = OwnTypes::default();
    for made in &objects.types {
        if let Ok(Some(TypeStatement::Create { name, of, .. })) = type_statement::parse(&made.statement)
            && let Ok(data_type) = type_of(&of, &types)
        {
            types.set(&name, Some(data_type));
        }
    }
    Arc::new(types)
}

impl Tables {
    /// Types by their names, which all sessions know.
    pub(crate) fn own_types(&self) -> &Arc<OwnTypes> {
        &self.own_types
    }

    /// Makes or forgets a type. Tables that have it keep it.
    pub(crate) fn run_type_statement(&self, statement: TypeStatement, text: &str) -> Result<()> {
        match statement {
            TypeStatement::Create { name, if_not_exists, or_replace, of } => {
                if self.own_types.get(&name).is_some() && !or_replace {
                    return match if_not_exists {
                        true => Ok(()),
                        false => Err(Error::Query { message: format!("there is a type '{name}' already") }),
                    };
                }
                let data_type = type_of(&of, &self.own_types)?;
                self.change_objects(|objects| {
                    objects.types.retain(|made| made.name != name);
                    objects.types.push(Made { name: name.clone(), statement: text.to_owned() });
                    Ok(())
                })?;
                self.own_types.set(&name, Some(data_type));
            }
            TypeStatement::Drop { name, if_exists } => {
                if self.own_types.get(&name).is_none() {
                    return match if_exists {
                        true => Ok(()),
                        false => Err(Error::Query { message: format!("there is no type '{name}'") }),
                    };
                }
                self.home.shrink(&[], |objects| {
                    objects.types.retain(|made| made.name != name);
                    Ok(())
                })?;
                self.own_types.set(&name, None);
            }
        }
        Ok(())
    }
}
