//! The HTTP and MCP interfaces. Each page is rendered as JSON, Markdown or HTML from one view, and each action has an
//! endpoint below the page it belongs to.

pub mod actions;
pub mod address;
pub mod api;
pub mod assets;
pub mod blocks;
pub mod board;
pub mod caller;
mod controls;
pub mod format;
pub mod html;
mod in_process;
pub mod input;
pub mod live;
pub mod login;
pub mod markdown;
pub mod mcp;
pub mod metrics;
pub mod nouns;
pub mod offers;
pub mod page;
mod page_cache;
mod page_size;
pub mod pages;
pub mod problem;
pub mod rate;
pub mod safe_html;
pub mod schemas;
mod sentence;
pub mod serve;
pub mod site;
mod table;
pub mod version_graph;

pub use serve::{Settings, serve};
pub use site::{Site, SiteRequest, SiteResponse};
