//! A scalar function as a row of a table: what it is called, takes, returns, and its kernel.
//!
//! Arguments reach the kernel as arrays of one length, in the form that their [`Kind`] names, whatever they were
//! in: texts as `Utf8View`, integers as `Int64`, points in time as microseconds. Constant calls have one row.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use arrow::array::{Array as _, ArrayRef};
use arrow::datatypes::{DataType, Field, IntervalUnit, TimeUnit};
use datafusion::common::{Result, ScalarValue, exec_err, internal_err, plan_err};
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

use crate::casts::offset_times::is_timetz;
use crate::types::sql_type;

/// What an argument may be, and the type that the kernel sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Anything, as it is.
    Any,
    Text,
    Blob,
    Integer,
    Boolean,
    /// Any number, as `Float64`.
    Float,
    /// A date or timestamp, as microseconds without a time zone.
    Timestamp,
    Interval,
    /// What has parts such as hours: a date, timestamp, time or interval, as it is.
    Moment,
    /// A list of any kind, as `List`.
    List,
    /// A list of texts.
    Texts,
    /// A list of integers.
    Integers,
    /// A list of booleans.
    Booleans,
}

/// The type `TIMESTAMP`.
pub(crate) const MICROSECONDS: DataType = DataType::Timestamp(TimeUnit::Microsecond, None);
pub(crate) const NANOSECONDS: DataType = DataType::Timestamp(TimeUnit::Nanosecond, None);
pub(crate) const INTERVAL: DataType = DataType::Interval(IntervalUnit::MonthDayNano);

impl Kind {
    pub(crate) fn accept(self, given: &DataType) -> Option<DataType> {
        let given = match given {
            DataType::Dictionary(_, values) => values.as_ref(),
            given => given,
        };
        let is_null = given.is_null();
        let of_list = |kind: Kind| match given {
            DataType::Null => Some(list_of(kind.accept(&DataType::Null)?)),
            _ => Some(list_of(kind.accept(element(given)?)?)),
        };
        match self {
            Kind::Any => Some(given.clone()),
            Kind::Text => (given.is_string() || is_null).then_some(DataType::Utf8View),
            Kind::Blob => (given.is_binary() || is_null).then_some(DataType::Binary),
            Kind::Integer => (given.is_integer() || is_null).then_some(DataType::Int64),
            Kind::Boolean => (*given == DataType::Boolean || is_null).then_some(DataType::Boolean),
            Kind::Float => (given.is_numeric() || is_null).then_some(DataType::Float64),
            Kind::Timestamp => {
                let is_time = matches!(given, DataType::Date32 | DataType::Date64 | DataType::Timestamp(..));
                (is_time || is_null).then_some(MICROSECONDS)
            }
            Kind::Interval => {
                let is_length = matches!(given, DataType::Interval(_) | DataType::Duration(_));
                (is_length || is_null).then_some(INTERVAL)
            }
            Kind::Moment => match given {
                DataType::Null => Some(MICROSECONDS),
                given => (given.is_temporal() || is_timetz(given)).then(|| given.clone()),
            },
            Kind::List => match given {
                DataType::Null => Some(list_of(DataType::Null)),
                _ => Some(list_of(element(given)?.clone())),
            },
            Kind::Texts => of_list(Kind::Text),
            Kind::Integers => of_list(Kind::Integer),
            Kind::Booleans => of_list(Kind::Boolean),
        }
    }

    fn sql(self) -> &'static str {
        match self {
            Kind::Any => "ANY",
            Kind::Text => "VARCHAR",
            Kind::Blob => "BLOB",
            Kind::Integer => "BIGINT",
            Kind::Boolean => "BOOLEAN",
            Kind::Float => "DOUBLE",
            Kind::Timestamp => "TIMESTAMP",
            Kind::Interval => "INTERVAL",
            Kind::Moment => "TIMESTAMP",
            Kind::List => "ANY[]",
            Kind::Texts => "VARCHAR[]",
            Kind::Integers => "BIGINT[]",
            Kind::Booleans => "BOOLEAN[]",
        }
    }
}

/// A list of values of this type, which may be null.
pub(crate) fn list_of(element: DataType) -> DataType {
    DataType::List(Arc::new(Field::new_list_field(element, true)))
}

/// The type of a list's elements.
pub(crate) fn element(list: &DataType) -> Option<&DataType> {
    match list {
        DataType::List(field)
        | DataType::LargeList(field)
        | DataType::ListView(field)
        | DataType::LargeListView(field)
        | DataType::FixedSizeList(field, _) => Some(field.data_type()),
        _ => None,
    }
}

type Returns = fn(&[DataType]) -> Result<DataType>;
type Compute = fn(&[ArrayRef], &DataType) -> Result<ArrayRef>;

/// One function of a table.
#[derive(Debug)]
pub(crate) struct Kernel {
    /// Its name, then others that it has.
    names: &'static [&'static str],
    /// What it takes, in each of its forms.
    forms: &'static [&'static [Kind]],
    /// Whether the last argument may come any number of times, also not at all.
    repeats: bool,
    volatility: Volatility,
    returns: Returns,
    compute: Compute,
}

impl Kernel {
    pub(crate) const fn new(
        names: &'static [&'static str],
        forms: &'static [&'static [Kind]],
        returns: Returns,
        compute: Compute,
    ) -> Self {
        Kernel { names, forms, repeats: false, volatility: Volatility::Immutable, returns, compute }
    }

    pub(crate) const fn repeating(mut self) -> Self {
        self.repeats = true;
        self
    }

    /// A function that does something each time it is called.
    pub(crate) const fn volatile(mut self) -> Self {
        self.volatility = Volatility::Volatile;
        self
    }

    pub(crate) fn name(&self) -> &'static str {
        self.names.first().copied().unwrap_or_default()
    }

    fn accept(&self, given: &[DataType]) -> Option<Vec<DataType>> {
        self.forms.iter().find_map(|form| {
            let fits = match self.repeats {
                true => given.len() + 1 >= form.len(),
                false => given.len() == form.len(),
            };
            let last = form.last().copied();
            let kinds = form.iter().copied().chain(last.into_iter().cycle());
            let types = given.iter().zip(kinds).map(|(given, kind)| kind.accept(given));
            if fits { types.collect() } else { None }
        })
    }

    /// What it makes of arguments of any types that it takes.
    pub(crate) fn of(&self, given: &[ArrayRef]) -> Result<ArrayRef> {
        let types: Vec<DataType> = given.iter().map(|argument| argument.data_type().clone()).collect();
        let Some(taken) = self.accept(&types) else {
            let types: Vec<_> = types.iter().map(sql_type).collect();
            return plan_err!("{}({}) does not exist; write {}", self.name(), types.join(", "), self.usage());
        };
        let casts = given.iter().zip(&taken).map(|(argument, to)| Ok(arrow::compute::cast(argument, to)?));
        (self.compute)(&casts.collect::<Result<Vec<_>>>()?, &(self.returns)(&taken)?)
    }

    /// The forms, as a message shows them.
    fn usage(&self) -> String {
        let form = |form: &&[Kind]| {
            let kinds: Vec<_> = form.iter().map(|kind| kind.sql()).collect();
            format!("{}({}{})", self.name(), kinds.join(", "), if self.repeats { "…" } else { "" })
        };
        self.forms.iter().map(form).collect::<Vec<_>>().join(" or ")
    }

    pub(crate) fn function(&'static self) -> Arc<ScalarUDF> {
        let aliases = self.names.iter().skip(1).map(|&name| name.to_owned()).collect();
        let signature = Signature::user_defined(self.volatility);
        Arc::new(ScalarUDF::new_from_impl(Function { kernel: self, aliases, signature }))
    }
}

#[derive(Debug)]
struct Function {
    kernel: &'static Kernel,
    aliases: Vec<String>,
    signature: Signature,
}

impl PartialEq for Function {
    fn eq(&self, other: &Self) -> bool {
        self.kernel.name() == other.kernel.name()
    }
}

impl Eq for Function {}

impl Hash for Function {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.kernel.name().hash(state);
    }
}

impl ScalarUDFImpl for Function {
    fn name(&self) -> &str {
        self.kernel.name()
    }

    fn aliases(&self) -> &[String] {
        &self.aliases
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        let Some(types) = self.kernel.accept(given) else {
            let given: Vec<_> = given.iter().map(sql_type).collect();
            return plan_err!(
                "{}({}) does not exist; write {}",
                self.name(),
                given.join(", "),
                self.kernel.usage()
            );
        };
        Ok(types)
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        (self.kernel.returns)(arguments)
    }

    fn invoke_with_args(&self, call: ScalarFunctionArgs) -> Result<ColumnarValue> {
        invoke(&call, |arguments, returned| (self.kernel.compute)(arguments, returned))
    }
}

/// Calls a kernel with arrays; with arrays of one row where all arguments are constants.
pub(crate) fn invoke(
    call: &ScalarFunctionArgs,
    kernel: impl FnOnce(&[ArrayRef], &DataType) -> Result<ArrayRef>,
) -> Result<ColumnarValue> {
    let is_constant = call.args.iter().all(|argument| matches!(argument, ColumnarValue::Scalar(_)));
    let rows = if is_constant { 1 } else { call.number_rows };
    let arguments: Vec<ArrayRef> =
        call.args.iter().map(|argument| argument.to_array(rows)).collect::<Result<_>>()?;
    let computed = kernel(&arguments, call.return_field.data_type())?;
    if computed.len() != rows {
        return internal_err!("a function made {} rows of {rows}", computed.len());
    }
    Ok(match is_constant {
        true => ColumnarValue::Scalar(ScalarValue::try_from_array(&computed, 0)?),
        false => ColumnarValue::Array(computed),
    })
}

/// The arguments of a function that has this many.
pub(crate) fn arguments<const N: usize>(given: &[ArrayRef]) -> Result<&[ArrayRef; N]> {
    match given.first_chunk() {
        Some(arguments) => Ok(arguments),
        None => exec_err!("{N} arguments are needed, and there are {}", given.len()),
    }
}
