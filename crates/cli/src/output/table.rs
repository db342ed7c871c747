//! A result as a table for people.
//!
//! Only the rows that will be shown are kept; the others are counted.
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

use arrow::array::RecordBatch;
use arrow::datatypes::{DataType, SchemaRef};
use arrow::util::display::{ArrayFormatter, FormatOptions};
use console::{measure_text_width, pad_str, truncate_str};
use nandina::format_count;

use crate::failure::Result;

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

/// Collects what will be shown of a result.
pub struct Table {
    schema: SchemaRef,
    limits: TableLimits,
    cells: Vec<Vec<String>>,
    rows: u64,
}

impl Table {
    pub fn new(schema: SchemaRef, limits: TableLimits) -> Self {
        Table { schema, limits, cells: Vec::new(), rows: 0 }
    }

    pub fn push(&mut self, batch: &RecordBatch) -> Result<()> {
        self.rows += batch.num_rows() as u64;
        let wanted = match self.limits.rows {
            0 => batch.num_rows(),
            limit => batch.num_rows().min(limit.saturating_sub(self.cells.len())),
        };
        if wanted == 0 {
            return Ok(());
        }
        let options = FormatOptions::default().with_null("NULL");
        let formatters: Result<Vec<ArrayFormatter<'_>>, _> =
            batch.columns().iter().map(|column| ArrayFormatter::try_new(column.as_ref(), &options)).collect();
        let formatters = formatters.map_err(nandina::Error::from)?;
        for row in 0..wanted {
            self.cells
                .push(formatters.iter().map(|column| one_line(&column.value(row).to_string())).collect());
        }
        Ok(())
    }

    /// The finished text.
    pub fn render(&self) -> Result<String> {
        let names: Vec<String> = self.schema.fields().iter().map(|field| one_line(field.name())).collect();
        let numeric: Vec<bool> =
            self.schema.fields().iter().map(|field| is_number(field.data_type())).collect();
        let mut text = String::new();
        if !names.is_empty() {
            let widths = self.widths(&names);
            rule(&mut text, &widths, ["┌", "┬", "┐"]);
            line(&mut text, &names, &widths, &numeric);
            rule(&mut text, &widths, ["├", "┼", "┤"]);
            for row in &self.cells {
                line(&mut text, row, &widths, &numeric);
            }
            rule(&mut text, &widths, ["└", "┴", "┘"]);
        }
        let hidden = self.rows - self.cells.len() as u64;
        if hidden > 0 {
            text.push_str(&format!("… {} more row{}\n", format_count(hidden), plural(hidden)));
        }
        if self.limits.has_footer {
            text.push_str(&format!("({} row{})\n", format_count(self.rows), plural(self.rows)));
        }
        Ok(text)
    }

    /// Widths that show everything, or as much as fits: the widest columns give way first.
    fn widths(&self, names: &[String]) -> Vec<usize> {
        let mut widths: Vec<usize> = names.iter().map(|name| measure_text_width(name)).collect();
        for row in &self.cells {
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

fn rule(text: &mut String, widths: &[usize], [left, middle, right]: [&str; 3]) {
    let bars: Vec<String> = widths.iter().map(|width| "─".repeat(width + 2)).collect();
    text.push_str(left);
    text.push_str(&bars.join(middle));
    text.push_str(right);
    text.push('\n');
}

fn line(text: &mut String, cells: &[String], widths: &[usize], numeric: &[bool]) {
    for ((cell, width), is_number) in cells.iter().zip(widths).zip(numeric) {
        let alignment = if *is_number { console::Alignment::Right } else { console::Alignment::Left };
        let shown = truncate_str(cell, *width, "…");
        text.push_str("│ ");
        text.push_str(&pad_str(&shown, *width, alignment, None));
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

fn is_number(data_type: &DataType) -> bool {
    data_type.is_numeric()
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
        table.push(&batch).unwrap();
        table.render().unwrap()
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
