//! Walking through the parts of a statement.
//!
//! The parser's own `visit` is generic over the visitor: each type of visitor has its own copy of the code for all 550 types of parts that
//! statements have, guards of the stack included. With forty visitors that was most of this crate's code, and of the time to compile
//! it. Here they share one copy, which calls them as trait objects.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Expr, ObjectName, Query, Select, Statement, TableFactor, ValueWithSpan, Visit, VisitMut, Visitor,
    VisitorMut,
};

pub(crate) trait Walk {
    /// Shows the parts of this to a visitor.
    fn walk<V: Visitor>(&self, visitor: &mut V) -> ControlFlow<V::Break>;
}

pub(crate) trait WalkMut {
    /// Shows the parts of this to a visitor, which may change them.
    fn walk_mut<V: VisitorMut>(&mut self, visitor: &mut V) -> ControlFlow<V::Break>;
}

/// Shows the expressions in a part to a closure, the outer ones first.
pub(crate) fn walk_expressions<B>(
    part: &impl Walk,
    each: impl FnMut(&Expr) -> ControlFlow<B>,
) -> ControlFlow<B> {
    struct Expressions<F>(F);

    impl<B, F: FnMut(&Expr) -> ControlFlow<B>> Visitor for Expressions<F> {
        type Break = B;

        fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<B> {
            self.0(expr)
        }
    }

    part.walk(&mut Expressions(each))
}

/// Lets a closure change the expressions in a part, the inner ones first.
pub(crate) fn walk_expressions_mut<B>(
    part: &mut impl WalkMut,
    each: impl FnMut(&mut Expr) -> ControlFlow<B>,
) -> ControlFlow<B> {
    struct Expressions<F>(F);

    impl<B, F: FnMut(&mut Expr) -> ControlFlow<B>> VisitorMut for Expressions<F> {
        type Break = B;

        fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<B> {
            self.0(expr)
        }
    }

    part.walk_mut(&mut Expressions(each))
}

/// Shows the names of tables in a part to a closure.
pub(crate) fn walk_relations<B>(
    part: &impl Walk,
    each: impl FnMut(&ObjectName) -> ControlFlow<B>,
) -> ControlFlow<B> {
    struct Relations<F>(F);

    impl<B, F: FnMut(&ObjectName) -> ControlFlow<B>> Visitor for Relations<F> {
        type Break = B;

        fn pre_visit_relation(&mut self, relation: &ObjectName) -> ControlFlow<B> {
            self.0(relation)
        }
    }

    part.walk(&mut Relations(each))
}

/// A visitor that breaks off without a value, which is kept.
struct Kept<'v, V, B> {
    visitor: &'v mut V,
    broken_by: Option<B>,
}

impl<V, B> Kept<'_, V, B> {
    fn kept(&mut self, flow: ControlFlow<B>) -> ControlFlow<()> {
        flow.map_break(|value| self.broken_by = Some(value))
    }

    fn end(self, flow: ControlFlow<()>) -> ControlFlow<B> {
        match (flow, self.broken_by) {
            (ControlFlow::Continue(()), None) => ControlFlow::Continue(()),
            (ControlFlow::Break(()), Some(value)) => ControlFlow::Break(value),
            (ControlFlow::Continue(()), Some(_)) | (ControlFlow::Break(()), None) => {
                unreachable!("a walk breaks off where the visitor does")
            }
        }
    }
}

/// Any visitor.
struct Dynamic<V>(V);

/// Has `Kept` and `Dynamic` forward what they are shown.
macro_rules! forward {
    ($Visitor:ident: $($method:ident($Part:ty))+) => {
        impl<V: $Visitor> $Visitor for Kept<'_, V, V::Break> {
            type Break = ();

            $(fn $method(&mut self, part: $Part) -> ControlFlow<()> {
                let flow = self.visitor.$method(part);
                self.kept(flow)
            })+
        }

        impl $Visitor for Dynamic<&mut dyn $Visitor<Break = ()>> {
            type Break = ();

            $(fn $method(&mut self, part: $Part) -> ControlFlow<()> {
                self.0.$method(part)
            })+
        }
    };
}

forward! {
    Visitor:
    pre_visit_query(&Query)
    post_visit_query(&Query)
    pre_visit_select(&Select)
    post_visit_select(&Select)
    pre_visit_relation(&ObjectName)
    post_visit_relation(&ObjectName)
    pre_visit_table_factor(&TableFactor)
    post_visit_table_factor(&TableFactor)
    pre_visit_expr(&Expr)
    post_visit_expr(&Expr)
    pre_visit_statement(&Statement)
    post_visit_statement(&Statement)
    pre_visit_value(&ValueWithSpan)
    post_visit_value(&ValueWithSpan)
}

forward! {
    VisitorMut:
    pre_visit_query(&mut Query)
    post_visit_query(&mut Query)
    pre_visit_select(&mut Select)
    post_visit_select(&mut Select)
    pre_visit_relation(&mut ObjectName)
    post_visit_relation(&mut ObjectName)
    pre_visit_table_factor(&mut TableFactor)
    post_visit_table_factor(&mut TableFactor)
    pre_visit_expr(&mut Expr)
    post_visit_expr(&mut Expr)
    pre_visit_statement(&mut Statement)
    post_visit_statement(&mut Statement)
    pre_visit_value(&mut ValueWithSpan)
    post_visit_value(&mut ValueWithSpan)
}

impl<P: Visit> Walk for P {
    #[expect(clippy::disallowed_methods, reason = "this is the one place that does it")]
    fn walk<V: Visitor>(&self, visitor: &mut V) -> ControlFlow<V::Break> {
        let mut kept = Kept { visitor, broken_by: None };
        let flow = self.visit(&mut Dynamic(&mut kept as &mut dyn Visitor<Break = ()>));
        kept.end(flow)
    }
}

impl<P: VisitMut> WalkMut for P {
    #[expect(clippy::disallowed_methods, reason = "this is the one place that does it")]
    fn walk_mut<V: VisitorMut>(&mut self, visitor: &mut V) -> ControlFlow<V::Break> {
        let mut kept = Kept { visitor, broken_by: None };
        let flow = self.visit(&mut Dynamic(&mut kept as &mut dyn VisitorMut<Break = ()>));
        kept.end(flow)
    }
}

#[cfg(test)]
mod tests {
    use datafusion::sql::sqlparser::ast::Value;
    use datafusion::sql::sqlparser::dialect::DuckDbDialect;
    use datafusion::sql::sqlparser::parser::Parser;

    use super::*;

    /// Writes down all that it is shown, and breaks off at a number.
    struct Shown(Vec<String>, Option<&'static str>);

    impl Shown {
        fn note(&mut self, what: &str, part: &impl std::fmt::Display) -> ControlFlow<String> {
            self.0.push(format!("{what} {part}"));
            ControlFlow::Continue(())
        }
    }

    impl Visitor for Shown {
        type Break = String;

        fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<String> {
            self.note("query", query)
        }

        fn post_visit_select(&mut self, select: &Select) -> ControlFlow<String> {
            self.note("select", select)
        }

        fn pre_visit_relation(&mut self, relation: &ObjectName) -> ControlFlow<String> {
            self.note("relation", relation)
        }

        fn pre_visit_value(&mut self, value: &ValueWithSpan) -> ControlFlow<String> {
            match &value.value {
                Value::Number(number, _) if Some(number.to_string().as_str()) == self.1 => {
                    ControlFlow::Break(number.to_string())
                }
                _ => self.note("value", value),
            }
        }
    }

    fn parsed(sql: &str) -> Vec<Statement> {
        Parser::parse_sql(&DuckDbDialect {}, sql).unwrap()
    }

    #[test]
    fn every_part_is_shown_until_the_visitor_breaks_off() {
        let statements = parsed("SELECT a + 1 FROM t WHERE b = 2");
        let mut shown = Shown(Vec::new(), None);
        assert_eq!(statements.walk(&mut shown), ControlFlow::Continue(()));
        let text = "SELECT a + 1 FROM t WHERE b = 2";
        let query = format!("query {text}");
        assert_eq!(
            shown.0,
            [query.as_str(), "value 1", "relation t", "value 2", format!("select {text}").as_str()]
        );
        let mut shown = Shown(Vec::new(), Some("2"));
        assert_eq!(statements.walk(&mut shown), ControlFlow::Break("2".to_owned()));
        assert_eq!(shown.0, [query.as_str(), "value 1", "relation t"]);
    }

    #[test]
    fn parts_are_changed() {
        let mut statements = parsed("SELECT a + 1 FROM t WHERE a = 2");
        let renamed = walk_expressions_mut(&mut statements, |expr| {
            if let Expr::Identifier(name) = expr {
                name.value.push('x');
            }
            ControlFlow::<()>::Continue(())
        });
        assert!(renamed.is_continue());
        assert_eq!(statements[0].to_string(), "SELECT ax + 1 FROM t WHERE ax = 2");
        let found = walk_relations(&statements, |name| ControlFlow::Break(name.to_string()));
        assert_eq!(found, ControlFlow::Break("t".to_owned()));
        let mut names = 0;
        let all = walk_expressions(&statements, |expr| {
            names += u32::from(matches!(expr, Expr::Identifier(_)));
            ControlFlow::<()>::Continue(())
        });
        assert_eq!((all, names), (ControlFlow::Continue(()), 2));
    }
}
