//! What the numbers were measured on, and how to measure them again.

use std::fs;

use trackway_store::{Clock, Url, connection::Connection};

use crate::{Outcome, place::Places};

/// The machine, the engines and the command, as a Markdown list.
pub fn description(places: &Places) -> Outcome<String> {
    let mut lines = vec![
        format!("- date: {}", Clock::system().now()),
        format!("- machine: {} cores ({}), {} MB of memory", cores(), processor(), memory_mb()),
        format!("- kernel: Linux {}", first_line("/proc/sys/kernel/osrelease")),
        format!("- load before: {}", first_line("/proc/loadavg")),
        format!("- SQLite {} (WAL, synchronous = normal), in {}", rusqlite::version(), places.directory().display()),
    ];
    lines.push(match places.server() {
        Some(server) => format!("- {}", server_description(server)?),
        None => "- PostgreSQL: skipped, no --postgres URL was given".to_owned(),
    });
    lines.push(format!("- command: `{}{}{}`", affinity(), niceness(), command()));
    Ok(lines.join("\n"))
}

fn server_description(server: &str) -> Outcome<String> {
    let mut connection = Connection::postgres(server)?;
    let mut setting = |name: &str| {
        connection
            .query::<(String,)>(&format!("select current_setting('{name}')"), &[])
            .map(|rows| rows.into_iter().next().map_or_else(String::new, |(value,)| value))
    };
    Ok(format!(
        "PostgreSQL {}: shared_buffers = {}, fsync = {}, synchronous_commit = {}, on a unix socket",
        setting("server_version")?,
        setting("shared_buffers")?,
        setting("fsync")?,
        setting("synchronous_commit")?
    ))
}

/// The command line, without a password.
fn command() -> String {
    let shown = |argument: String| Url::parse(&argument).map_or(argument, |url| url.to_string());
    std::env::args().map(shown).collect::<Vec<_>>().join(" ")
}

/// The cores this process was kept to, as the command that did it.
fn affinity() -> String {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let allowed = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap_or_default().trim();
    let all = format!("0-{}", cores().saturating_sub(1));
    if allowed.is_empty() || allowed == all { String::new() } else { format!("taskset -c {allowed} ") }
}

/// How much this process was put before others, as the command that did it.
fn niceness() -> String {
    // The field is the 19th; the second is the program's name, in parentheses, and may hold spaces.
    let status = first_line("/proc/self/stat");
    let niceness = status.rsplit(')').next().and_then(|rest| rest.split_whitespace().nth(16));
    niceness.filter(|niceness| *niceness != "0").map_or_else(String::new, |niceness| format!("nice -n {niceness} "))
}

fn first_line(file: &str) -> String {
    fs::read_to_string(file).unwrap_or_default().lines().next().unwrap_or_default().to_owned()
}

/// Every core of the machine, whichever this process may use.
fn cores() -> usize {
    let all = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    all.lines().filter(|line| line.starts_with("processor")).count()
}

fn processor() -> String {
    let all = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = all.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or_default();
    name.trim_start_matches([' ', '\t', ':']).to_owned()
}

fn memory_mb() -> u64 {
    let all = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let kilobytes = all.lines().find_map(|line| line.strip_prefix("MemTotal:")?.trim().split(' ').next()?.parse().ok());
    kilobytes.unwrap_or(0) / 1_024
}
