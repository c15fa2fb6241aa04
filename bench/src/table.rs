//! Markdown tables whose columns line up in plain text too, and a plot made of characters.

use std::{fmt::Write, time::Duration};

use crate::measure::shown;

/// Characters of the longest bar of a plot.
const BAR_MAX: f64 = 50.0;

/// A table on its way to the page.
#[derive(Debug)]
pub struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    pub fn new<const COLUMNS: usize>(headings: [&str; COLUMNS]) -> Self {
        Self::with(&headings)
    }

    /// One whose number of columns is known when it runs.
    pub fn with(headings: &[&str]) -> Self {
        Self { rows: vec![headings.iter().map(|heading| (*heading).to_owned()).collect()] }
    }

    pub fn row<const COLUMNS: usize>(&mut self, cells: [String; COLUMNS]) {
        self.rows.push(cells.to_vec());
    }

    /// A row with as many cells as there are headings.
    pub fn add(&mut self, cells: Vec<String>) {
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
        for (place, row) in self.rows.iter().enumerate() {
            for (cell, width) in row.iter().zip(&widths) {
                // What cannot fail is not worth a sentence: a String takes every write.
                let _ = write!(out, "| {cell:<width$} ");
            }
            out.push_str("|\n");
            if place == 0 {
                for width in &widths {
                    let _ = write!(out, "|{}", "-".repeat(width + 2));
                }
                out.push_str("|\n");
            }
        }
        out
    }
}

/// Whether a target was met, as a cell.
pub fn verdict(met: bool) -> String {
    if met { "yes" } else { "NO" }.to_owned()
}

/// Prints a bar for each label, as long as its time.
pub fn plot(title: &str, bars: &[(String, Duration)]) {
    let longest = bars.iter().map(|(_, time)| time.as_secs_f64()).fold(0.0, f64::max);
    let width = bars.iter().map(|(label, _)| label.len()).max().unwrap_or(0);
    println!("\n{title}\n");
    for (label, time) in bars {
        let share = time.as_secs_f64() / longest;
        let length = (1..=50_u32).filter(|place| f64::from(*place) <= share * BAR_MAX).count();
        println!("    {label:>width$} | {} {}", "#".repeat(length), shown(*time));
    }
}
