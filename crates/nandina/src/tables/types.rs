//! Types that statements have made. A database in a directory keeps the statements, beside those of its views.

use std::sync::Arc;

use nandina_functions::{OwnTypes, type_of};
use nandina_storage::Store;

use super::{Home, Tables};
use crate::error::{Error, Result};
use crate::planning::type_statement::{self, TypeStatement};

/// Begins the names under which statements are kept that make types: no view is called so.
const KEPT_AS: &str = "\u{1f}type ";

/// Whether the name under which a statement is kept is that of a type.
pub(super) fn is_of_type(name: &str) -> bool {
    name.starts_with(KEPT_AS)
}

/// The types that a store keeps. One whose statement is not understood any more is unknown.
pub(super) fn kept(store: &Store) -> Arc<OwnTypes> {
    let types = OwnTypes::default();
    let names = store.view_names().into_iter().filter(|name| is_of_type(name));
    for statement in names.filter_map(|name| store.view(&name)) {
        if let Ok(Some(TypeStatement::Create { name, of, .. })) = type_statement::parse(&statement)
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
        let store = match &self.home {
            Home::Directory(store, _) => Some(store),
            Home::Memory(_) => None,
        };
        match statement {
            TypeStatement::Create { name, if_not_exists, or_replace, of } => {
                if self.own_types.get(&name).is_some() && !or_replace {
                    return match if_not_exists {
                        true => Ok(()),
                        false => Err(Error::Query { message: format!("there is a type '{name}' already") }),
                    };
                }
                let data_type = type_of(&of, &self.own_types)?;
                if let Some(store) = store {
                    store.put_view(&format!("{KEPT_AS}{name}"), text)?;
                }
                self.own_types.set(&name, Some(data_type));
            }
            TypeStatement::Drop { name, if_exists } => {
                if self.own_types.get(&name).is_none() && !if_exists {
                    return Err(Error::Query { message: format!("there is no type '{name}'") });
                }
                if let Some(store) = store {
                    store.drop_view(&format!("{KEPT_AS}{name}"))?;
                }
                self.own_types.set(&name, None);
            }
        }
        Ok(())
    }
}
