//! A result as a table for people.
//!
//! Columns are as wide as the first few megabytes of text ask for; rows behind those are written as they come, so that a
//! table of any length takes little memory. Rows that will not be shown are counted.
//!
//! ```text
//!   ┌────────────┬───────┐
//!   │ o_orderkey │ total │      numbers to the right, text to the left
//!   ├────────────┼───────┤
//!   │          1 │ 12.50 │
//!   └────────────┴───────┘
//!   … 41 more rows
//!   (42 rows)                    on a terminal
//! ```

use std::io::Write;

use arrow::array::{Array as _, RecordBatch, StringViewArray};
use arrow::datatypes::SchemaRef;
use console::{Alignment, measure_text_width, pad_str, truncate_str};
use nandina::format_count;

use super::output_failure;
use crate::failure::Result;

/// Text that is looked at before columns get their widths.
const MOST_WAITING_BYTES: usize = 4 << 20;

/// Narrowest that a column gets to make a table fit the terminal.
const NARROWEST: usize = 8;

/// How much of a result is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TableLimits {
    /// Rows; 0 is all.
    pub rows: usize,
    /// Columns of the terminal; none where a program reads.
    pub width: Option<usize>,
    /// Whether the number of rows is written below.
    pub has_footer: bool,
}

/// Writes what will be shown of a result.
pub struct Table {
    schema: SchemaRef,
    limits: TableLimits,
    /// Rows that wait for the columns' widths.
    waiting: Vec<Vec<String>>,
    waiting_bytes: usize,
    /// Once known.
    columns: Option<Vec<Column>>,
    shown: usize,
    rows: u64,
}

fn text_at(column: &StringViewArray, row: usize) -> &str {
    if column.is_null(row) { "NULL" } else { column.value(row) }
}

/// How a column is shown.
struct Column {
    width: usize,
    alignment: Alignment,
    /// Whether longer values are cut.
    is_cut: bool,
}

impl Table {
    pub fn new(schema: SchemaRef, limits: TableLimits) -> Self {
        Table { schema, limits, waiting: Vec::new(), waiting_bytes: 0, columns: None, shown: 0, rows: 0 }
    }

    pub fn push(&mut self, batch: &RecordBatch, out: &mut dyn Write) -> Result<()> {
        self.rows += batch.num_rows() as u64;
        let wanted = match self.limits.rows {
            0 => batch.num_rows(),
            limit => batch.num_rows().min(limit.saturating_sub(self.shown)),
        };
        if wanted == 0 {
            return Ok(());
        }
        self.shown += wanted;
        let columns = batch.columns().iter().map(|column| nandina::texts_of(&column.slice(0, wanted)));
        let columns = columns.collect::<nandina::Result<Vec<_>>>()?;
        let mut text = String::new();
        for row in 0..wanted {
            let cells: Vec<String> = columns.iter().map(|column| one_line(text_at(column, row))).collect();
            match &self.columns {
                Some(columns) => line(&mut text, &cells, columns),
                None => {
                    self.waiting_bytes +=
                        cells.iter().map(|cell| cell.len() + size_of::<String>()).sum::<usize>();
                    self.waiting.push(cells);
                    if self.waiting_bytes > MOST_WAITING_BYTES {
                        self.begin(&mut text);
                    }
                }
            }
            if text.len() > MOST_WAITING_BYTES {
                out.write_all(text.as_bytes()).map_err(output_failure)?;
                text.clear();
            }
        }
        out.write_all(text.as_bytes()).map_err(output_failure)
    }

    /// Writes the remaining rows, and the end.
    pub fn finish(mut self, out: &mut dyn Write) -> Result<()> {
        let mut text = String::new();
        self.begin(&mut text);
        if let Some(columns) = self.columns.filter(|columns| !columns.is_empty()) {
            rule(&mut text, &columns, ["└", "┴", "┘"]);
        }
        let hidden = self.rows - self.shown as u64;
        if hidden > 0 {
            text.push_str(&format!("… {} more row{}\n", format_count(hidden), plural(hidden)));
        }
        if self.limits.has_footer {
            text.push_str(&format!("({} row{})\n", format_count(self.rows), plural(self.rows)));
        }
        out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(output_failure)
    }

    /// Gives the columns their widths, and writes the head and the rows that have waited for them.
    fn begin(&mut self, text: &mut String) {
        if self.columns.is_some() {
            return;
        }
        let fields = self.schema.fields();
        let names: Vec<String> = fields.iter().map(|field| one_line(field.name())).collect();
        let columns: Vec<Column> = self
            .widths(&names)
            .into_iter()
            .zip(fields)
            .map(|(width, field)| Column {
                width,
                alignment: if field.data_type().is_numeric() { Alignment::Right } else { Alignment::Left },
                is_cut: self.limits.width.is_some(),
            })
            .collect();
        if !columns.is_empty() {
            rule(text, &columns, ["┌", "┬", "┐"]);
            line(text, &names, &columns);
            rule(text, &columns, ["├", "┼", "┤"]);
            for row in std::mem::take(&mut self.waiting) {
                line(text, &row, &columns);
            }
        }
        self.columns = Some(columns);
    }

    /// Widths that show everything, or as much as fits: the widest columns give way first.
    fn widths(&self, names: &[String]) -> Vec<usize> {
        let mut widths: Vec<usize> = names.iter().map(|name| measure_text_width(name)).collect();
        for row in &self.waiting {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(measure_text_width(cell));
            }
        }
        let Some(terminal) = self.limits.width else { return widths };
        // Every column takes two spaces and a bar beside its text, and one bar stands in front.
        let available = terminal.saturating_sub(3 * widths.len() + 1);
        while widths.iter().sum::<usize>() > available {
            let Some(widest) = widths.iter_mut().max() else { break };
            if *widest <= NARROWEST {
                break;
            }
            *widest -= 1;
        }
        widths
    }
}

fn rule(text: &mut String, columns: &[Column], [left, middle, right]: [&str; 3]) {
    let bars: Vec<String> = columns.iter().map(|column| "─".repeat(column.width + 2)).collect();
    text.push_str(left);
    text.push_str(&bars.join(middle));
    text.push_str(right);
    text.push('\n');
}

fn line(text: &mut String, cells: &[String], columns: &[Column]) {
    for (cell, column) in cells.iter().zip(columns) {
        let shown = match column.is_cut {
            true => truncate_str(cell, column.width, "…"),
            false => cell.into(),
        };
        text.push_str("│ ");
        text.push_str(&pad_str(&shown, column.width, column.alignment, None));
        text.push(' ');
    }
    text.push_str("│\n");
}

/// Line breaks and other control characters would tear the table.
fn one_line(text: &str) -> String {
    if !text.contains(char::is_control) {
        return text.to_owned();
    }
    text.chars().flat_map(|c| if c.is_control() { c.escape_default().collect() } else { vec![c] }).collect()
}

fn plural(count: u64) -> &'static str {
    if count == 1 { "" } else { "s" }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::{ArrayRef, Int64Array, StringArray};
    use std::sync::Arc;

    fn batch() -> RecordBatch {
        let numbers: ArrayRef = Arc::new(Int64Array::from(vec![Some(1), Some(1000), None]));
        let texts: ArrayRef = Arc::new(StringArray::from(vec![Some("ä"), None, Some("two\nlines")]));
        RecordBatch::try_from_iter([("n", numbers), ("text", texts)]).unwrap()
    }

    fn render(limits: TableLimits) -> String {
        let batch = batch();
        let mut table = Table::new(batch.schema(), limits);
        let mut out = Vec::new();
        table.push(&batch, &mut out).unwrap();
        table.finish(&mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn long_tables_are_written_as_they_come() {
        let texts: ArrayRef = Arc::new(StringArray::from(vec!["x".repeat(1 << 20); 8]));
        let batch = RecordBatch::try_from_iter([("t", texts)]).unwrap();
        let limits = TableLimits { rows: 0, width: None, has_footer: true };
        let (mut table, mut out) = (Table::new(batch.schema(), limits), Vec::new());
        table.push(&batch, &mut out).unwrap();
        assert!(out.len() > 8 << 20 && table.waiting.is_empty());
        let longer: ArrayRef = Arc::new(StringArray::from(vec!["y".repeat(2 << 20)]));
        table.push(&RecordBatch::try_new(batch.schema(), vec![longer]).unwrap(), &mut out).unwrap();
        table.finish(&mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert_eq!(text.matches('x').count(), 8 << 20);
        assert_eq!(text.matches('y').count(), 2 << 20, "longer values are not cut");
        assert!(text.ends_with("┘\n(9 rows)\n"));
    }

    #[test]
    fn columns_are_aligned() {
        let text = render(TableLimits { rows: 0, width: None, has_footer: true });
        assert_eq!(
            text,
            "┌──────┬────────────┐\n\
             │    n │ text       │\n\
             ├──────┼────────────┤\n\
             │    1 │ ä          │\n\
             │ 1000 │ NULL       │\n\
             │ NULL │ two\\nlines │\n\
             └──────┴────────────┘\n\
             (3 rows)\n"
        );
    }

    #[test]
    fn rows_beyond_the_limit_are_counted() {
        let text = render(TableLimits { rows: 1, width: None, has_footer: false });
        assert!(text.ends_with("┘\n… 2 more rows\n"), "{text}");
        assert!(!text.contains("1000"));
    }

    #[test]
    fn wide_columns_are_cut_to_the_terminal() {
        let text = render(TableLimits { rows: 0, width: Some(20), has_footer: false });
        assert!(text.lines().all(|line| measure_text_width(line) <= 20), "{text}");
        assert!(text.contains("two\\nlin…"), "{text}");
    }
}
