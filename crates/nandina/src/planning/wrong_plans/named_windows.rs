//! Named windows, replaced by their definitions.
//!
//! DataFusion forgets what a window is made from: `OVER (w ORDER BY x)` partitions by nothing, and so does `w2 AS (w)`.

use std::collections::HashMap;
use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Expr, Ident, NamedWindowExpr, Query, Select, SetExpr, VisitorMut, WindowSpec, WindowType,
};

use crate::error::{Error, Result};
use crate::planning::walk::WalkMut as _;

/// Names are told apart as those of tables are.
fn folded(name: &Ident) -> String {
    match name.quote_style {
        Some(_) => name.value.clone(),
        None => name.value.to_lowercase(),
    }
}

/// Replaces the names of windows in a query by what its `WINDOW` clause says of them.
pub(super) fn replace(query: &mut Query) -> Result<()> {
    let SetExpr::Select(select) = query.body.as_mut() else { return Ok(()) };
    let defined = definitions(select)?;
    if defined.is_empty() {
        return Ok(());
    }
    select.named_window.clear();
    let mut replacing = Replacing { defined, queries: 0 };
    let mut replace_all = || {
        query.order_by.walk_mut(&mut replacing)?;
        select.projection.walk_mut(&mut replacing)?;
        select.qualify.walk_mut(&mut replacing)
    };
    match replace_all() {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(error) => Err(error),
    }
}

fn definitions(select: &Select) -> Result<HashMap<String, WindowSpec>> {
    let mut defined = HashMap::new();
    for named in &select.named_window {
        let (name, definition) = (folded(&named.0), &named.1);
        let spec = match definition {
            NamedWindowExpr::NamedWindow(other) => known(&defined, other)?.clone(),
            NamedWindowExpr::WindowSpec(spec) => complete(&defined, spec)?,
        };
        if defined.insert(name, spec).is_some() {
            return Err(Error::Syntax {
                message: format!("the window \"{}\" is defined twice", named.0.value),
            });
        }
    }
    Ok(defined)
}

fn known<'a>(defined: &'a HashMap<String, WindowSpec>, name: &Ident) -> Result<&'a WindowSpec> {
    defined.get(&folded(name)).ok_or_else(|| Error::Syntax {
        message: format!("there is no window \"{}\"; windows are defined before they are used", name.value),
    })
}

/// A window with what it takes over from the one that it names.
fn complete(defined: &HashMap<String, WindowSpec>, spec: &WindowSpec) -> Result<WindowSpec> {
    let Some(name) = &spec.window_name else { return Ok(spec.clone()) };
    let base = known(defined, name)?;
    let refusal = |what: &str| Error::Syntax { message: format!("the window \"{}\" {what}", name.value) };
    if !spec.partition_by.is_empty() {
        return Err(refusal("cannot be given another PARTITION BY"));
    }
    if !base.order_by.is_empty() && !spec.order_by.is_empty() {
        return Err(refusal("has an ORDER BY already"));
    }
    if base.window_frame.is_some() {
        return Err(refusal(
            "has a frame, so that nothing can be added to it; write OVER name, without parentheses",
        ));
    }
    let order_by = if spec.order_by.is_empty() { &base.order_by } else { &spec.order_by };
    Ok(WindowSpec {
        window_name: None,
        partition_by: base.partition_by.clone(),
        order_by: order_by.clone(),
        window_frame: spec.window_frame.clone(),
    })
}

struct Replacing {
    defined: HashMap<String, WindowSpec>,
    /// Queries around an expression: windows of a query are not known in those inside it.
    queries: usize,
}

impl VisitorMut for Replacing {
    type Break = Error;

    fn pre_visit_query(&mut self, _query: &mut Query) -> ControlFlow<Error> {
        self.queries += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _query: &mut Query) -> ControlFlow<Error> {
        self.queries -= 1;
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expression: &mut Expr) -> ControlFlow<Error> {
        let Expr::Function(function) = expression else { return ControlFlow::Continue(()) };
        if self.queries > 0 {
            return ControlFlow::Continue(());
        }
        let spec = match &function.over {
            None => return ControlFlow::Continue(()),
            Some(WindowType::NamedWindow(name)) => known(&self.defined, name).cloned(),
            Some(WindowType::WindowSpec(spec)) => complete(&self.defined, spec),
        };
        match spec {
            Ok(spec) => function.over = Some(WindowType::WindowSpec(spec)),
            Err(error) => return ControlFlow::Break(error),
        }
        ControlFlow::Continue(())
    }
}
