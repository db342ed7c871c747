//! `json_transform(json, structure)`: JSON as values of the types that a constant names, `{"a": "INTEGER", "b": ["DOUBLE"]}`.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray as _, ListArray, StringViewArray, StructArray, new_null_array};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::datatypes::{DataType, Field, FieldRef, Fields};
use datafusion::common::{Result, exec_err, plan_err};
use datafusion::logical_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use datafusion::sql::sqlparser::dialect::DuckDbDialect;
use datafusion::sql::sqlparser::parser::Parser;

use super::value::Json;
use super::{is_json, json_field, parse};
use crate::casts::{Failed, cast_array};
use crate::function::invoke;
use crate::type_names::{OwnTypes, type_of};

pub(super) fn functions() -> impl Iterator<Item = Arc<ScalarUDF>> {
    let transform = |name, alias: &str, failed| {
        let signature = Signature::user_defined(Volatility::Immutable);
        let function = Transform { name, aliases: vec![alias.to_owned()], failed, signature };
        Arc::new(ScalarUDF::new_from_impl(function))
    };
    [
        transform("json_transform", "from_json", Failed::IsNull),
        transform("json_transform_strict", "from_json_strict", Failed::IsError),
    ]
    .into_iter()
}

#[derive(Debug)]
struct Transform {
    name: &'static str,
    aliases: Vec<String>,
    failed: Failed,
    signature: Signature,
}

impl PartialEq for Transform {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for Transform {}

impl Hash for Transform {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}

/// The field that a structure describes.
fn field_of(name: &str, structure: &Json) -> Result<FieldRef> {
    let data_type = match structure {
        Json::Text(of) if of.eq_ignore_ascii_case("json") => {
            return Ok(Arc::new(json_field(name).as_ref().clone().with_name(name)));
        }
        Json::Text(of) if of.eq_ignore_ascii_case("null") => DataType::Null,
        Json::Text(of) => {
            let parsed = Parser::new(&DuckDbDialect {}).try_with_sql(of);
            match parsed.and_then(|mut parser| parser.parse_data_type()) {
                Ok(parsed) => type_of(&parsed, &OwnTypes::default())?,
                Err(_) => return plan_err!("'{of}' is not a type, in the structure of JSON"),
            }
        }
        Json::List(of) => match of.as_slice() {
            [of] => {
                let inner = field_of("item", of)?;
                DataType::List(inner)
            }
            _ => return plan_err!("a list in the structure of JSON has one element: [\"TYPE\"]"),
        },
        Json::Object(members) => {
            let fields = members.iter().map(|(name, of)| field_of(name, of));
            DataType::Struct(fields.collect::<Result<Fields>>()?)
        }
        other => return plan_err!("{} is not the name of a type in quotes", other.to_text()),
    };
    Ok(Arc::new(Field::new(name, data_type, true)))
}

/// The values of a field.
fn values_of(field: &Field, values: &[Option<&Json>], failed: Failed) -> Result<ArrayRef> {
    let mismatch = |value: &Json, wanted: &str| -> Result<()> {
        match failed {
            Failed::IsError => exec_err!("the JSON value {} is not {wanted}", value.to_text()),
            Failed::IsNull => Ok(()),
        }
    };
    match field.data_type() {
        DataType::Struct(fields) => {
            let mut valid = Vec::with_capacity(values.len());
            for value in values {
                if let Some(value) = value
                    && !matches!(value, Json::Object(_) | Json::Null)
                {
                    mismatch(value, "an object")?;
                }
                // As in DuckDB, what is not an object inside of a list has no members.
                valid.push(!matches!(value, None | Some(Json::Null)));
            }
            let columns = fields.iter().map(|field| {
                let members: Vec<Option<&Json>> = values
                    .iter()
                    .map(|value| match value {
                        Some(Json::Object(members)) => {
                            members.iter().find(|(name, _)| name == field.name()).map(|(_, value)| value)
                        }
                        _ => None,
                    })
                    .collect();
                values_of(field, &members, failed)
            });
            let columns = columns.collect::<Result<Vec<_>>>()?;
            let nulls = Some(NullBuffer::from(valid));
            let made = match columns.is_empty() {
                true => StructArray::new_empty_fields(values.len(), nulls),
                false => StructArray::try_new(fields.clone(), columns, nulls)?,
            };
            Ok(Arc::new(made))
        }
        DataType::List(inner) => {
            let mut elements = Vec::new();
            let mut offsets = vec![0_i32];
            let mut valid = Vec::with_capacity(values.len());
            for value in values {
                match value {
                    Some(Json::List(list)) => elements.extend(list.iter().map(Some)),
                    None | Some(Json::Null) => {}
                    Some(other) => mismatch(other, "a list")?,
                }
                valid.push(matches!(value, Some(Json::List(_))));
                offsets.push(elements.len() as i32);
            }
            let elements = values_of(inner, &elements, failed)?;
            let offsets = OffsetBuffer::new(offsets.into());
            Ok(Arc::new(ListArray::try_new(
                Arc::clone(inner),
                offsets,
                elements,
                Some(NullBuffer::from(valid)),
            )?))
        }
        DataType::Null => Ok(new_null_array(&DataType::Null, values.len())),
        of => {
            let is_json = is_json(field);
            let text = |value: &Option<&Json>| match value {
                Some(value) if is_json => Some(value.to_text()),
                Some(value) => (*value).clone().into_plain(),
                None => None,
            };
            let texts: ArrayRef = Arc::new(values.iter().map(text).collect::<StringViewArray>());
            cast_array(&texts, of, failed)
        }
    }
}

impl ScalarUDFImpl for Transform {
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
        match given {
            [json, structure] if (json.is_string() || json.is_null()) && structure.is_string() => {
                // The structure as it is: a constant in a cast is none while types are found.
                Ok(vec![DataType::Utf8View, structure.clone()])
            }
            _ => plan_err!("write {}(JSON, '{{\"name\": \"TYPE\"}}')", self.name),
        }
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        plan_err!("the structure in {} is a constant", self.name)
    }

    fn return_field_from_args(&self, call: ReturnFieldArgs) -> Result<FieldRef> {
        let structure = call.scalar_arguments.get(1).copied().flatten();
        match structure.and_then(|structure| structure.try_as_str().flatten()) {
            Some(structure) => field_of(self.name, &parse(structure)?),
            None => plan_err!("the structure in {} is a constant text", self.name),
        }
    }

    fn invoke_with_args(&self, call: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let field = Arc::clone(&call.return_field);
        invoke(&call, |given, _| {
            let Some(texts) = given.first() else { return plan_err!("{} needs JSON", self.name) };
            let parsed = texts.as_string_view().iter().map(|text| text.map(parse).transpose());
            let parsed = parsed.collect::<Result<Vec<_>>>()?;
            let values: Vec<Option<&Json>> = parsed.iter().map(Option::as_ref).collect();
            values_of(&field, &values, self.failed)
        })
    }
}
