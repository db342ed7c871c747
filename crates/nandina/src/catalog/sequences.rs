//! Sequences: numbers that are given once each, also after a crash.
//!
//! ```text
//!   nextval ─► numbers set aside in memory ── when they run out ─► "given up to n + 32" is made lasting, then n, n + 1, …
//! ```
//!
//! A database that is closed forgets nothing; one whose process is killed leaves out those that were set aside.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use arrow::array::Int64Array;
use arrow::datatypes::DataType;
use datafusion::common::{DataFusionError, Result as DataFusionResult, ScalarValue, TableReference};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDFImpl, Signature, Volatility,
};
use nandina_storage::Sequence;
use parking_lot::Mutex;

use super::TEMPORARY;
use super::databases::Databases;
use super::names::{Names, Place};
use super::temporary::Temporary;
use crate::error::{Error, Result};
use crate::tables::Tables;

/// How many numbers are set aside beyond those that are wanted.
const AHEAD: usize = 32;

/// How far the sequences of a database are.
#[derive(Default)]
pub(crate) struct Sequences(Mutex<HashMap<String, Running>>);

#[derive(Debug, Clone, Copy, Default)]
struct Running {
    /// The last number that was given.
    given: Option<i64>,
    /// Numbers behind it that may be given without asking the store.
    set_aside: usize,
    /// The last one of this process, for `currval`.
    current: Option<i64>,
}

impl Sequences {
    /// The next numbers of a sequence.
    pub(crate) fn take(&self, tables: &Tables, name: &str, count: usize) -> Result<Vec<i64>> {
        let mut all = self.0.lock();
        let sequence = find(tables, name)?;
        let running =
            all.entry(name.to_owned()).or_insert(Running { given: sequence.given, ..Running::default() });
        let (mut numbers, mut last) = (Vec::with_capacity(count), running.given);
        for _ in 0..count {
            let Some(next) = sequence.after(last) else { return Err(ended(&sequence)) };
            numbers.push(next);
            last = Some(next);
        }
        if count > running.set_aside {
            // Numbers that come again must not be left out.
            let ahead = if sequence.cycles { 0 } else { AHEAD };
            let (mut until, mut set_aside) = (last, 0);
            while set_aside < ahead
                && let Some(next) = sequence.after(until)
            {
                (until, set_aside) = (Some(next), set_aside + 1);
            }
            tables.change_objects(|objects| {
                let stored = objects.sequences.iter_mut().find(|stored| stored.name == name);
                stored.ok_or_else(|| unknown(name))?.given = until;
                Ok(())
            })?;
            running.set_aside = count + set_aside;
        }
        running.set_aside -= count;
        running.given = last;
        running.current = last.or(running.current);
        Ok(numbers)
    }

    /// The number that `nextval` gave last.
    fn current(&self, tables: &Tables, name: &str) -> Result<i64> {
        find(tables, name)?;
        let current = self.0.lock().get(name).and_then(|running| running.current);
        current.ok_or_else(|| Error::Query {
            message: format!("sequence '{name}' has given no number yet; nextval('{name}') does"),
        })
    }

    /// The last number that was given, by any process.
    pub(crate) fn last(&self, tables: &Tables, name: &str) -> Option<i64> {
        match self.0.lock().get(name) {
            Some(running) => running.given,
            None => find(tables, name).ok()?.given,
        }
    }

    pub(crate) fn forget(&self, name: &str) {
        self.0.lock().remove(name);
    }

    /// The last numbers given of those sequences that have set more aside.
    pub(crate) fn unused(&self) -> Vec<(String, Option<i64>)> {
        let all = self.0.lock();
        let unused = all.iter().filter(|(_, running)| running.set_aside > 0);
        unused.map(|(name, running)| (name.clone(), running.given)).collect()
    }
}

fn find(tables: &Tables, name: &str) -> Result<Sequence> {
    tables.objects().sequences.into_iter().find(|sequence| sequence.name == name).ok_or_else(|| unknown(name))
}

fn unknown(name: &str) -> Error {
    Error::Query { message: format!("there is no sequence '{name}'; CREATE SEQUENCE {name} makes it") }
}

fn ended(sequence: &Sequence) -> Error {
    let Sequence { name, least, greatest, .. } = sequence;
    let end =
        if sequence.increment < 0 { format!("MINVALUE {least}") } else { format!("MAXVALUE {greatest}") };
    Error::Query {
        message: format!("sequence '{name}' has reached its {end}; make it with CYCLE to begin again"),
    }
}

/// The place of the sequence that a name means, as a text that means it everywhere.
pub(crate) fn full_name(names: &Names, written: &str) -> Result<String> {
    let reference = TableReference::parse_str(written);
    let found = names.find_with(&reference, |place: &Place| {
        let name = place.qualified();
        let is_there = place.tables.objects().sequences.iter().any(|sequence| sequence.name == name);
        is_there.then(|| format!("{}:{name}", place.database))
    });
    found.ok_or_else(|| unknown(written))
}

/// `nextval` and `currval`. Their argument is what [`full_name`] gives: plans of views are used by all sessions.
pub(crate) struct SequenceFunction {
    name: &'static str,
    databases: Weak<Databases>,
    temporary: Weak<Temporary>,
    signature: Signature,
}

impl SequenceFunction {
    pub(crate) const NAMES: [&str; 2] = ["nextval", "currval"];

    pub(crate) fn all(names: &Names) -> impl Iterator<Item = Self> {
        Self::NAMES.into_iter().map(|name| SequenceFunction {
            name,
            databases: Arc::downgrade(names.databases()),
            temporary: Arc::downgrade(names.temporary()),
            signature: Signature::string(1, Volatility::Volatile),
        })
    }

    fn tables(&self, database: &str) -> Result<Arc<Tables>> {
        let found = match database {
            TEMPORARY => self.temporary.upgrade().and_then(|temporary| temporary.tables()),
            database => self.databases.upgrade().and_then(|databases| databases.tables(database)),
        };
        found.ok_or_else(|| Error::Query { message: format!("there is no database '{database}' any more") })
    }
}

impl std::fmt::Debug for SequenceFunction {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(self.name)
    }
}

impl PartialEq for SequenceFunction {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name && Weak::ptr_eq(&self.databases, &other.databases)
    }
}

impl Eq for SequenceFunction {}

impl std::hash::Hash for SequenceFunction {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}

impl ScalarUDFImpl for SequenceFunction {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    /// As it was written, without the place of the sequence.
    fn schema_name(&self, arguments: &[Expr]) -> DataFusionResult<String> {
        let name = match arguments {
            [Expr::Literal(value, _)] => value.try_as_str().flatten().unwrap_or_default(),
            _ => "…",
        };
        let name = name.split_once(':').map_or(name, |(_, name)| name);
        Ok(format!("{}('{name}')", self.name))
    }

    fn return_type(&self, _: &[DataType]) -> DataFusionResult<DataType> {
        Ok(DataType::Int64)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> DataFusionResult<ColumnarValue> {
        let name = match args.args.first() {
            Some(ColumnarValue::Scalar(value)) => value.try_as_str().flatten(),
            _ => None,
        };
        let Some((database, name)) = name.and_then(|name| name.split_once(':')) else {
            let message = format!("{}: write the name of a sequence, as {0}('ids')", self.name);
            return Err(Error::unsupported(message).into());
        };
        let tables = self.tables(database).map_err(DataFusionError::from)?;
        let rows = args.number_rows;
        if self.name == "currval" {
            let current = tables.sequences().current(&tables, name)?;
            return Ok(ColumnarValue::Scalar(ScalarValue::Int64(Some(current))));
        }
        let numbers = tables.sequences().take(&tables, name, rows)?;
        Ok(ColumnarValue::Array(Arc::new(Int64Array::from(numbers))))
    }
}
