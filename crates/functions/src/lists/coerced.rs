//! DataFusion's functions of lists, whose arguments are brought to one type of elements first: `list_contains([1], 1.5)`,
//! `list_concat([1], NULL)`, `[{'a': 1}, '{a: 2}']`.
//!
//! When types are settled, a call becomes one of DataFusion's, which its rules know.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use arrow::compute::can_cast_types;
use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::{Result, internal_err};
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::registry::FunctionRegistry;
use datafusion::logical_expr::simplify::{ExprSimplifyResult, SimplifyContext};
use datafusion::logical_expr::type_coercion::binary::type_union_resolution;
use datafusion::logical_expr::type_coercion::functions::fields_with_udf;
use datafusion::logical_expr::{
    ColumnarValue, Documentation, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl,
    Signature, Volatility,
};

use crate::casts::{Failed, cast_array, cast_call, enum_texts};
use crate::function::{element, list_of};

/// What the arguments are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Lists,
    ListAndElement,
    ElementAndList,
    /// Of which some are nested, and the others texts of such.
    Elements,
}

/// Functions by DataFusion's names, and the names here.
const FUNCTIONS: [(&str, Form, &[&str]); 8] = [
    ("make_array", Form::Elements, &[]),
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
            (Form::Elements, elements) => {
                let (texts, others): (Vec<_>, Vec<_>) =
                    elements.iter().filter(|of| !of.is_null()).cloned().partition(DataType::is_string);
                let are_nested = !others.is_empty() && others.iter().all(DataType::is_nested);
                let nested = if texts.is_empty() || !are_nested { None } else { common(&others) };
                nested.map(|nested| vec![nested; elements.len()])
            }
            _ => None,
        }
    }

    /// The types that the function is given, where they are others than those of the call.
    fn settled(&self, given: &[DataType]) -> Vec<DataType> {
        self.types(given).unwrap_or_else(|| given.to_vec())
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

    fn documentation(&self) -> Option<&Documentation> {
        self.function.documentation()
    }

    fn coerce_types(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        if let Some(types) = self.types(given) {
            // What DataFusion cannot cast is cast when the function is called.
            let can_cast = given.iter().zip(&types).all(|(from, to)| can_cast_types(from, to));
            return Ok(if can_cast { types } else { given.to_vec() });
        }
        let field = |given: &DataType| Arc::new(Field::new("argument", given.clone(), true));
        let given = self.ordered(given.iter().map(field).collect());
        let fields = fields_with_udf(&given, self.function.as_ref())?;
        Ok(self.ordered(fields.iter().map(|field| field.data_type().clone()).collect()))
    }

    fn return_type(&self, given: &[DataType]) -> Result<DataType> {
        self.function.return_type(&self.ordered(self.settled(given)))
    }

    fn return_field_from_args(&self, given: ReturnFieldArgs) -> Result<FieldRef> {
        let types: Vec<DataType> = given.arg_fields.iter().map(|field| field.data_type().clone()).collect();
        let fields = given.arg_fields.iter().zip(self.settled(&types));
        let fields = fields.map(|(field, of)| Arc::new(field.as_ref().clone().with_data_type(of))).collect();
        let (fields, scalars) = (self.ordered(fields), self.ordered(given.scalar_arguments.to_vec()));
        self.function
            .return_field_from_args(ReturnFieldArgs { arg_fields: &fields, scalar_arguments: &scalars })
    }

    fn simplify(&self, mut given: Vec<Expr>, context: &SimplifyContext) -> Result<ExprSimplifyResult> {
        let types = given.iter().map(|value| context.get_data_type(value)).collect::<Result<Vec<_>>>()?;
        for ((value, from), to) in given.iter_mut().zip(&types).zip(self.settled(&types)) {
            if *from != to {
                *value = cast_call(std::mem::take(value), &to, Failed::IsError);
            }
        }
        let call = ScalarFunction::new_udf(Arc::clone(&self.function), self.ordered(given));
        Ok(ExprSimplifyResult::Simplified(Expr::ScalarFunction(call)))
    }

    fn invoke_with_args(&self, mut call: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let types: Vec<DataType> = call.arg_fields.iter().map(|field| field.data_type().clone()).collect();
        for (place, to) in self.settled(&types).into_iter().enumerate() {
            let (Some(value), Some(field)) = (call.args.get_mut(place), call.arg_fields.get_mut(place))
            else {
                return internal_err!("{} is called with arguments without types", self.name);
            };
            if *field.data_type() != to {
                let values = value.to_array(call.number_rows)?;
                *value = ColumnarValue::Array(cast_array(&values, &to, Failed::IsError)?);
                *field = Arc::new(field.as_ref().clone().with_data_type(to));
            }
        }
        call.args = self.ordered(call.args);
        call.arg_fields = self.ordered(call.arg_fields);
        self.function.invoke_with_args(call)
    }
}
