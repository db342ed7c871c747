//! Tables of text, for terminals and for Markdown.

/// Columns are right-aligned except the first `left` ones.
#[derive(Debug, Clone)]
pub struct Table {
    left: usize,
    header: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Table {
    pub fn new<S: Into<String>>(left: usize, header: impl IntoIterator<Item = S>) -> Self {
        Self { left, header: header.into_iter().map(Into::into).collect(), rows: Vec::new() }
    }

    pub fn row<S: Into<String>>(&mut self, cells: impl IntoIterator<Item = S>) {
        self.rows.push(cells.into_iter().map(Into::into).collect());
    }

    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    fn widths(&self) -> Vec<usize> {
        let width = |column: usize| {
            let cells = std::iter::once(&self.header).chain(&self.rows).filter_map(|row| row.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        (0..self.header.len()).map(width).collect()
    }

    fn line(&self, row: &[String], widths: &[usize], separator: &str) -> String {
        let cell = |(column, width): (usize, &usize)| {
            let text = row.get(column).map_or("", String::as_str);
            if column < self.left { format!("{text:<width$}") } else { format!("{text:>width$}") }
        };
        let cells: Vec<String> = widths.iter().enumerate().map(cell).collect();
        cells.join(separator)
    }

    /// For a terminal: the header underlined.
    pub fn to_text(&self) -> String {
        let widths = self.widths();
        let rule: Vec<String> = widths.iter().map(|width| "─".repeat(*width)).collect();
        let mut text = format!("{}\n{}\n", self.line(&self.header, &widths, "  "), rule.join("──"));
        for row in &self.rows {
            text.push_str(self.line(row, &widths, "  ").trim_end());
            text.push('\n');
        }
        text
    }

    pub fn to_markdown(&self) -> String {
        let widths = self.widths();
        let rule = |(column, width): (usize, &usize)| {
            let dashes = "-".repeat((*width).max(3) - 1);
            if column < self.left { format!("{dashes}-") } else { format!("{dashes}:") }
        };
        let rules: Vec<String> = widths.iter().enumerate().map(rule).collect();
        let mut text =
            format!("| {} |\n| {} |\n", self.line(&self.header, &widths, " | "), rules.join(" | "));
        for row in &self.rows {
            text.push_str(&format!("| {} |\n", self.line(row, &widths, " | ")));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let mut table = Table::new(1, ["engine", "time"]);
        assert!(table.is_empty());
        table.row(["ours", "1.5"]);
        table.row(["the other", "12.25"]);
        let lines = ["engine      time", "────────────────", "ours         1.5", "the other  12.25", ""];
        assert_eq!(table.to_text(), lines.join("\n"));
        assert_eq!(
            table.to_markdown(),
            "| engine    |  time |\n| --------- | ----: |\n| ours      |   1.5 |\n| the other | 12.25 |\n"
        );
    }
}
