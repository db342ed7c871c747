//! Texts compared with a few others, as views are: by length and first bytes, all rows alike.
//!
//! A view of up to twelve bytes holds its text, so that two of them are equal if they are the same number. Comparing
//! texts byte by byte instead takes another course for each row, which no processor predicts.

use std::sync::Arc;

use datafusion::arrow::array::{Array, BooleanArray, BooleanBufferBuilder, StringViewArray, make_view};
use datafusion::arrow::buffer::BooleanBuffer;
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{BinaryExpr, Column, InListExpr, Literal};

/// Each row is compared with every text: beyond so many, looking a text up in a hash table costs less.
const MOST_TEXTS: usize = 16;

/// The longest text that a view holds.
const INLINE_BYTES: usize = 12;

/// `column = 'a'`, `column <> 'a'`, `column = 'a' OR column = 'b'`, `column [NOT] IN ('a', 'b')`.
#[derive(Debug, PartialEq)]
pub(super) struct TextSet {
    texts: Vec<String>,
    negated: bool,
}

impl TextSet {
    /// The test that `expression` is, if it is one of few texts; it looks at one column.
    pub fn of(expression: &Arc<dyn PhysicalExpr>) -> Option<Self> {
        Self::parse(expression).filter(|set| set.texts.len() <= MOST_TEXTS)
    }

    fn parse(expression: &Arc<dyn PhysicalExpr>) -> Option<Self> {
        if let Some(list) = expression.downcast_ref::<InListExpr>() {
            list.expr().downcast_ref::<Column>()?;
            let texts = list.list().iter().map(text).collect::<Option<_>>()?;
            return Some(Self { texts, negated: list.negated() });
        }
        let binary = expression.downcast_ref::<BinaryExpr>()?;
        let (left, right) = (binary.left(), binary.right());
        match binary.op() {
            Operator::Eq | Operator::NotEq => {
                let sides = [(left, right), (right, left)];
                let (_, text) = sides
                    .into_iter()
                    .find_map(|(column, literal)| Some((column.downcast_ref::<Column>()?, text(literal)?)))?;
                Some(Self { texts: vec![text], negated: *binary.op() == Operator::NotEq })
            }
            Operator::Or => {
                let (mut left, right) = (Self::parse(left)?, Self::parse(right)?);
                left.texts.extend(right.texts);
                (!left.negated && !right.negated).then_some(left)
            }
            _ => None,
        }
    }

    /// One flag per row; of a null nothing is true.
    pub fn test(&self, texts: &StringViewArray) -> BooleanArray {
        let equal = self.equal(texts);
        let passing = if self.negated { !&equal } else { equal };
        let passing = match texts.nulls() {
            Some(nulls) => &passing & nulls.inner(),
            None => passing,
        };
        BooleanArray::new(passing, None)
    }

    fn equal(&self, texts: &StringViewArray) -> BooleanBuffer {
        let views = texts.views();
        let view = |text: &String| make_view(text.as_bytes(), 0, 0);
        let (short, long): (Vec<&String>, Vec<&String>) =
            self.texts.iter().partition(|text| text.len() <= INLINE_BYTES);
        let short: Vec<u128> = short.into_iter().map(view).collect();
        // Length and first four bytes: what views of longer texts have in common.
        let heads: Vec<u64> = long.iter().map(|text| view(text) as u64).collect();
        // No text ends the search: that would be a branch.
        let is_short = |row: u128| short.iter().fold(false, |found, &text| found | (text == row));
        let has_head = |row: u128| heads.iter().fold(false, |found, &head| found | (head == row as u64));
        let row = |row: usize| views[row];
        if heads.is_empty() {
            return BooleanBuffer::collect_bool(views.len(), |at| is_short(row(at)));
        }
        let candidates = BooleanBuffer::collect_bool(views.len(), |at| has_head(row(at)));
        let mut equal = BooleanBufferBuilder::new(views.len());
        equal.append_n(views.len(), false);
        for at in candidates.set_indices() {
            equal.set_bit(at, texts.is_valid(at) && long.iter().any(|text| *text == texts.value(at)));
        }
        let equal = equal.finish();
        if short.is_empty() {
            return equal;
        }
        &equal | &BooleanBuffer::collect_bool(views.len(), |at| is_short(row(at)))
    }
}

fn text(expression: &Arc<dyn PhysicalExpr>) -> Option<String> {
    expression.downcast_ref::<Literal>()?.value().try_as_str()?.map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::array::{AsArray, RecordBatch};
    use datafusion::arrow::datatypes::{DataType, Field, Schema};
    use datafusion::common::ScalarValue;
    use datafusion::physical_expr::expressions::{in_list, lit};
    use proptest::prelude::*;

    use super::*;

    const TEXTS: [&str; 9] = [
        "",
        "MAIL",
        "SHIP",
        "MAIL\0",
        "twelve bytes",
        "thirteen byte",
        "thirteen bits",
        "DELIVER IN PERSON",
        "DELIVER IN PARTS!",
    ];

    fn column() -> Arc<dyn PhysicalExpr> {
        Arc::new(Column::new("t", 0))
    }

    fn literal(text: &str) -> Arc<dyn PhysicalExpr> {
        lit(ScalarValue::Utf8View(Some(text.to_owned())))
    }

    fn schema() -> Arc<Schema> {
        Arc::new(Schema::new(vec![Field::new("t", DataType::Utf8View, true)]))
    }

    /// A test of each form, of some of the texts.
    fn expression() -> impl Strategy<Value = Arc<dyn PhysicalExpr>> {
        let some = || prop::collection::vec(prop::sample::select(&TEXTS[..]), 1..5);
        let comparison = |operator| {
            move |texts: Vec<&'static str>| {
                Arc::new(BinaryExpr::new(column(), operator, literal(texts[0]))) as Arc<dyn PhysicalExpr>
            }
        };
        let either = |texts: Vec<&'static str>| {
            let equal = |text: &str| {
                Arc::new(BinaryExpr::new(literal(text), Operator::Eq, column())) as Arc<dyn PhysicalExpr>
            };
            let or =
                |left, right| Arc::new(BinaryExpr::new(left, Operator::Or, right)) as Arc<dyn PhysicalExpr>;
            texts.into_iter().map(equal).reduce(or).unwrap()
        };
        let list = |(texts, negated): (Vec<&'static str>, bool)| {
            in_list(column(), texts.into_iter().map(literal).collect(), &negated, &schema()).unwrap()
        };
        prop_oneof![
            some().prop_map(comparison(Operator::Eq)),
            some().prop_map(comparison(Operator::NotEq)),
            some().prop_map(either),
            (some(), any::<bool>()).prop_map(list),
        ]
    }

    proptest! {
        #[test]
        fn sets_of_texts_hold_what_expressions_do(
            expression in expression(),
            rows in prop::collection::vec(prop::option::weighted(0.9, prop::sample::select(&TEXTS[..])), 0..200),
        ) {
            let texts = StringViewArray::from_iter(rows);
            let batch = RecordBatch::try_new(schema(), vec![Arc::new(texts.clone())]).unwrap();
            let right = expression.evaluate(&batch).unwrap().into_array(texts.len()).unwrap();
            let right: Vec<bool> = right.as_boolean().iter().map(|flag| flag == Some(true)).collect();
            let ours = TextSet::of(&expression).unwrap().test(&texts);
            prop_assert_eq!(ours.values().iter().collect::<Vec<_>>(), right);
        }
    }

    #[test]
    fn other_expressions_are_none() {
        let equal =
            |left, right| Arc::new(BinaryExpr::new(left, Operator::Eq, right)) as Arc<dyn PhysicalExpr>;
        let null = lit(ScalarValue::Utf8View(None));
        let unequal: Arc<dyn PhysicalExpr> =
            Arc::new(BinaryExpr::new(column(), Operator::NotEq, literal("a")));
        let or = Arc::new(BinaryExpr::new(equal(column(), literal("a")), Operator::Or, unequal))
            as Arc<dyn PhysicalExpr>;
        let many = (0..=MOST_TEXTS).map(|text| literal(&text.to_string())).collect();
        let many = in_list(column(), many, &false, &schema()).unwrap();
        let less: Arc<dyn PhysicalExpr> = Arc::new(BinaryExpr::new(column(), Operator::Lt, literal("a")));
        for expression in
            [equal(column(), column()), equal(column(), null), equal(column(), lit(5_i64)), or, less, many]
        {
            assert_eq!(TextSet::of(&expression), None, "{expression}");
        }
    }
}
