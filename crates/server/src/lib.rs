//! The doors over HTTP: every page in JSON, Markdown and HTML from one view, every action below its page. Thin.

pub mod act;
pub mod address;
pub mod api;
pub mod assets;
pub mod blocks;
pub mod board;
pub mod caller;
mod fit;
pub mod format;
pub mod graph;
pub mod html;
pub mod input;
mod inside;
mod kept;
pub mod live;
pub mod login;
pub mod markdown;
pub mod mcp;
pub mod metrics;
pub mod nouns;
pub mod offers;
pub mod page;
pub mod pages;
pub mod problem;
pub mod prose;
pub mod rate;
pub mod schemas;
mod sentence;
pub mod serve;
pub mod site;
mod table;
mod ways;

pub use serve::{Settings, serve};
pub use site::{Answer, Question, Site};
