//! DataFusion's functions of lists, whose arguments are brought to one type of elements first: `list_contains([1], 1.5)`,
//! `list_concat([1], NULL)`.
//!
//! When types are settled, a call becomes one of DataFusion's, which its rules know.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::Result;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::registry::FunctionRegistry;
use datafusion::logical_expr::simplify::{ExprSimplifyResult, SimplifyContext};
use datafusion::logical_expr::type_coercion::binary::type_union_resolution;
use datafusion::logical_expr::type_coercion::functions::fields_with_udf;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

use crate::casts::enum_texts;
use crate::function::{element, list_of};

/// What the arguments are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Lists,
    ListAndElement,
    ElementAndList,
}

/// Functions by DataFusion's names, and the names here.
const FUNCTIONS: [(&str, Form, &[&str]); 7] = [
    ("array_has", Form::ListAndElement, &["list_has", "array_contains", "list_contains"]),
    ("array_has_all", Form::Lists, &["list_has_all"]),
    ("array_has_any", Form::Lists, &["list_has_any", "arrays_overlap"]),
    ("array_concat", Form::Lists, &["array_cat", "list_concat", "list_cat"]),
    ("array_append", Form::ListAndElement, &["list_append", "array_push_back", "list_push_back"]),
    ("array_prepend", Form::ElementAndList, &["list_prepend"]),
    ("array_positions", Form::ListAndElement, &["list_positions"]),
];

/// Puts them in the place of DataFusion's.
pub(crate) fn register(registry: &mut dyn FunctionRegistry) -> Result<()> {
    for (name, form, aliases) in FUNCTIONS {
        let function = Coerced::new(name, registry.udf(name)?, form, aliases);
        registry.register_udf(Arc::new(ScalarUDF::from(function)))?;
    }
    // The other way round.
    let prepend = registry.udf("array_prepend")?;
    let aliases = ["list_push_front"];
    let push = Coerced::new("array_push_front", prepend, Form::ListAndElement, &aliases);
    registry.register_udf(Arc::new(ScalarUDF::from(push)))?;
    Ok(())
}

#[derive(Debug)]
struct Coerced {
    name: &'static str,
    function: Arc<ScalarUDF>,
    form: Form,
    /// Whether the function takes the arguments the other way round.
    is_swapped: bool,
    aliases: Vec<String>,
    signature: Signature,
}

impl PartialEq for Coerced {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for Coerced {}

impl Hash for Coerced {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}

impl Coerced {
    fn new(name: &'static str, function: Arc<ScalarUDF>, form: Form, aliases: &[&str]) -> Self {
        Coerced {
            name,
            is_swapped: name != function.name(),
            function,
            form,
            aliases: aliases.iter().map(|&alias| alias.to_owned()).collect(),
            signature: Signature::user_defined(Volatility::Immutable),
        }
    }

    /// Arguments in the order of the function, or back in that of the call.
    fn ordered<T>(&self, mut arguments: Vec<T>) -> Vec<T> {
        if self.is_swapped {
            arguments.reverse();
        }
        arguments
    }

    fn types(&self, given: &[DataType]) -> Option<Vec<DataType>> {
        let of_list = |list: &DataType| match list {
            DataType::Null => Some(DataType::Null),
            list => element(list).cloned(),
        };
        match (self.form, given) {
            (Form::Lists, lists) => {
                let elements = lists.iter().map(of_list).collect::<Option<Vec<_>>>()?;
                Some(vec![list_of(common(&elements)?); lists.len()])
            }
            (Form::ListAndElement, [list, of_element]) => {
                let both = common(&[of_list(list)?, of_element.clone()])?;
                Some(vec![list_of(both.clone()), both])
            }
            (Form::ElementAndList, [of_element, list]) => {
                let both = common(&[of_list(list)?, of_element.clone()])?;
                Some(vec![both.clone(), list_of(both)])
            }
            _ => None,
        }
    }
}

/// The type that values of all of these have.
pub(super) fn common(types: &[DataType]) -> Option<DataType> {
    let known: Vec<DataType> = types.iter().filter(|of| !of.is_null()).cloned().collect();
    let Some(first) = known.first() else { return Some(DataType::Null) };
    if known.iter().all(|of| of == first) {
        return Some(first.clone());
    }
    if known.iter().any(|of| enum_texts(of).is_some()) {
        return Some(DataType::Utf8View);
    }
    // A truth value among numbers is one of them.
    let is_number = |of: &DataType| of.is_numeric();
    let is_number_or_truth = |of: &DataType| of.is_numeric() || *of == DataType::Boolean;
    let numbers: Vec<DataType> = known.iter().filter(|of| is_number(of)).cloned().collect();
    match !numbers.is_empty() && known.iter().all(is_number_or_truth) {
        true => type_union_resolution(&numbers),
        false => type_union_resolution(&known),
    }
}

impl ScalarUDFImpl for Coerced {
    fn name(&self) -> &str {
        self.name
    }

    fn aliases(&self) -> &[String] {
        &self.aliases
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        if let Some(types) = self.types(given) {
            return Ok(types);
        }
        let field = |given: &DataType| Arc::new(Field::new("argument", given.clone(), true));
        let given = self.ordered(given.iter().map(field).collect());
        let fields = fields_with_udf(&given, self.function.as_ref())?;
        Ok(self.ordered(fields.iter().map(|field| field.data_type().clone()).collect()))
    }

    fn return_type(&self, given: &[DataType]) -> Result<DataType> {
        self.function.return_type(&self.ordered(given.to_vec()))
    }

    fn return_field_from_args(&self, given: ReturnFieldArgs) -> Result<FieldRef> {
        let (fields, scalars) =
            (self.ordered(given.arg_fields.to_vec()), self.ordered(given.scalar_arguments.to_vec()));
        self.function
            .return_field_from_args(ReturnFieldArgs { arg_fields: &fields, scalar_arguments: &scalars })
    }

    fn simplify(&self, given: Vec<Expr>, _: &SimplifyContext) -> Result<ExprSimplifyResult> {
        let call = ScalarFunction::new_udf(Arc::clone(&self.function), self.ordered(given));
        Ok(ExprSimplifyResult::Simplified(Expr::ScalarFunction(call)))
    }

    fn invoke_with_args(&self, mut call: ScalarFunctionArgs) -> Result<ColumnarValue> {
        call.args = self.ordered(call.args);
        call.arg_fields = self.ordered(call.arg_fields);
        self.function.invoke_with_args(call)
    }
}
