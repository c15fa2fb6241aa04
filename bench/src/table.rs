//! Markdown tables with aligned columns, and bar charts of `#` characters.

use std::{fmt::Write, time::Duration};

use crate::measure::format_duration;

/// Length of the longest bar, in characters.
const BAR_MAX: f64 = 50.0;

#[derive(Debug)]
pub struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    pub fn new<const COLUMNS: usize>(headings: [&str; COLUMNS]) -> Self {
        Self::with_headings(&headings)
    }

    /// Like [`Table::new`], for a number of columns known only at run time.
    pub fn with_headings(headings: &[&str]) -> Self {
        Self { rows: vec![headings.iter().map(|heading| (*heading).to_owned()).collect()] }
    }

    pub fn row<const COLUMNS: usize>(&mut self, cells: [String; COLUMNS]) {
        self.rows.push(cells.to_vec());
    }

    /// Adds a row. It must have as many cells as there are headings.
    pub fn add_row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }

    pub fn print(&self) {
        println!("{}", self.markdown());
    }

    fn markdown(&self) -> String {
        let columns = self.rows.first().map_or(0, Vec::len);
        let width = |column: usize| self.rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
        let widths: Vec<usize> = (0..columns).map(width).collect();
        let mut out = String::from("\n");
        for (index, row) in self.rows.iter().enumerate() {
            for (cell, width) in row.iter().zip(&widths) {
                // Writing to a String cannot fail.
                let _ = write!(out, "| {cell:<width$} ");
            }
            out.push_str("|\n");
            if index == 0 {
                for width in &widths {
                    let _ = write!(out, "|{}", "-".repeat(width + 2));
                }
                out.push_str("|\n");
            }
        }
        out
    }
}

/// The cell that tells whether a target was met.
pub fn verdict(met: bool) -> String {
    if met { "yes" } else { "NO" }.to_owned()
}

/// Prints a bar chart: one bar per label, with a length proportional to its duration.
pub fn plot(title: &str, bars: &[(String, Duration)]) {
    let longest = bars.iter().map(|(_, time)| time.as_secs_f64()).fold(0.0, f64::max);
    let width = bars.iter().map(|(label, _)| label.len()).max().unwrap_or(0);
    println!("\n{title}\n");
    for (label, time) in bars {
        let share = time.as_secs_f64() / longest;
        let length = (1..=50_u32).filter(|length| f64::from(*length) <= share * BAR_MAX).count();
        println!("    {label:>width$} | {} {}", "#".repeat(length), format_duration(*time));
    }
}
