//! TPC-H data: the tables of the benchmark, generated at any scale, as files or inside SQL.
//!
//! ```sql
//! CREATE TABLE orders AS SELECT * FROM tpch('orders', 0.1);
//! ```
//!
//! Every part of a table can be generated on its own (the generator jumps to the state of its random numbers
//! there), which is what lets all processors work at one file: see [`generate_files`].

mod function;
mod generate;
mod ordered;

use std::str::FromStr;

use arrow::array::{RecordBatch, RecordBatchReader};
use arrow::datatypes::SchemaRef;
use arrow::error::ArrowError;
use tpchgen::generators::{
    CustomerGenerator, LineItemGenerator, NationGenerator, OrderGenerator, PartGenerator, PartSuppGenerator,
    RegionGenerator, SupplierGenerator,
};
use tpchgen_arrow::{
    CustomerArrow, LineItemArrow, NationArrow, OrderArrow, PartArrow, PartSuppArrow, RegionArrow,
    SupplierArrow,
};

use crate::error::Error;
use crate::suggestion;

pub use function::TpchFunction;
pub use generate::{FileFormat, GeneratedFile, Request, generate_files};

/// A table of TPC-H.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Table {
    Region,
    Nation,
    Supplier,
    Customer,
    Part,
    PartSupp,
    Orders,
    LineItem,
}

/// Batches of one part of a table.
pub type Batches = Box<dyn Iterator<Item = Result<RecordBatch, ArrowError>> + Send>;

impl Table {
    /// All tables, small ones first.
    pub const ALL: [Table; 8] = [
        Table::Region,
        Table::Nation,
        Table::Supplier,
        Table::Customer,
        Table::Part,
        Table::PartSupp,
        Table::Orders,
        Table::LineItem,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Table::Region => "region",
            Table::Nation => "nation",
            Table::Supplier => "supplier",
            Table::Customer => "customer",
            Table::Part => "part",
            Table::PartSupp => "partsupp",
            Table::Orders => "orders",
            Table::LineItem => "lineitem",
        }
    }

    pub fn schema(self) -> SchemaRef {
        match self {
            Table::Region => RegionArrow::schema_ref(),
            Table::Nation => NationArrow::schema_ref(),
            Table::Supplier => SupplierArrow::schema_ref(),
            Table::Customer => CustomerArrow::schema_ref(),
            Table::Part => PartArrow::schema_ref(),
            Table::PartSupp => PartSuppArrow::schema_ref(),
            Table::Orders => OrderArrow::schema_ref(),
            Table::LineItem => LineItemArrow::schema_ref(),
        }
    }

    /// Rows at a scale; for lineitem the expected number, as orders have one to seven lines at random.
    pub fn rows(self, scale: f64) -> u64 {
        let scaled = |base: f64| (base * scale) as u64;
        match self {
            Table::Region => 5,
            Table::Nation => 25,
            Table::Supplier => scaled(10_000.0),
            Table::Customer => scaled(150_000.0),
            Table::Part => scaled(200_000.0),
            Table::PartSupp => scaled(800_000.0),
            Table::Orders => scaled(1_500_000.0),
            Table::LineItem => scaled(6_001_215.0),
        }
    }

    /// The rows of part `part` (from 0) of `parts`, in batches of about `batch_rows`.
    ///
    /// The two fixed tables have a single part: any other part of them is empty.
    pub fn batches(self, scale: f64, part: usize, parts: usize, batch_rows: usize) -> Batches {
        // The generator counts parts from 1.
        let (number, count) = (part as i32 + 1, parts as i32);
        match self {
            Table::Region | Table::Nation if part > 0 => Box::new(std::iter::empty()),
            Table::Region => {
                Box::new(RegionArrow::new(RegionGenerator::new(scale, 1, 1)).with_batch_size(batch_rows))
            }
            Table::Nation => {
                Box::new(NationArrow::new(NationGenerator::new(scale, 1, 1)).with_batch_size(batch_rows))
            }
            Table::Supplier => boxed(
                SupplierArrow::new(SupplierGenerator::new(scale, number, count)).with_batch_size(batch_rows),
            ),
            Table::Customer => boxed(
                CustomerArrow::new(CustomerGenerator::new(scale, number, count)).with_batch_size(batch_rows),
            ),
            Table::Part => {
                boxed(PartArrow::new(PartGenerator::new(scale, number, count)).with_batch_size(batch_rows))
            }
            Table::PartSupp => boxed(
                PartSuppArrow::new(PartSuppGenerator::new(scale, number, count)).with_batch_size(batch_rows),
            ),
            Table::Orders => {
                boxed(OrderArrow::new(OrderGenerator::new(scale, number, count)).with_batch_size(batch_rows))
            }
            Table::LineItem => boxed(
                LineItemArrow::new(LineItemGenerator::new(scale, number, count)).with_batch_size(batch_rows),
            ),
        }
    }
}

fn boxed(reader: impl RecordBatchReader + Send + 'static) -> Batches {
    Box::new(reader)
}

impl FromStr for Table {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self, Error> {
        let found = Table::ALL.into_iter().find(|table| table.name().eq_ignore_ascii_case(name));
        found.ok_or_else(|| Error::UnknownTable {
            name: name.to_owned(),
            hint: suggestion::phrase(name, Table::ALL.iter().map(|table| table.name())),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(table: Table, parts: usize) -> usize {
        (0..parts)
            .flat_map(|part| table.batches(0.01, part, parts, 1000))
            .map(|batch| batch.unwrap().num_rows())
            .sum()
    }

    #[test]
    fn parts_make_up_the_table() {
        for table in Table::ALL {
            let whole = count(table, 1);
            assert_eq!(whole, count(table, 3), "{}", table.name());
            if table == Table::LineItem {
                assert!(whole.abs_diff(table.rows(0.01) as usize) < 1000, "{whole}");
            } else {
                assert_eq!(whole as u64, table.rows(0.01), "{}", table.name());
            }
        }
    }

    #[test]
    fn tables_are_found_by_name() {
        assert_eq!("LineItem".parse::<Table>().unwrap(), Table::LineItem);
        assert!("linitem".parse::<Table>().unwrap_err().to_string().contains("did you mean 'lineitem'"));
    }
}
