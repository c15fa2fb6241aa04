//! A description of the machine and of the command, so that a measurement can be repeated.

use std::fs;

use trackway_store::{Clock, Url, connection::Connection};

use crate::{BenchResult, databases::Databases};

/// The machine, the engine versions and the command, as a Markdown list.
pub fn description(databases: &Databases) -> BenchResult<String> {
    let mut lines = vec![
        format!("- date: {}", Clock::system().now()),
        format!("- machine: {} cores ({}), {} MB of memory", cores(), processor(), memory_mb()),
        format!("- kernel: Linux {}", first_line("/proc/sys/kernel/osrelease")),
        format!("- load average before: {}", first_line("/proc/loadavg")),
        format!("- SQLite {} (WAL, synchronous = normal), in {}", rusqlite::version(), databases.directory().display()),
    ];
    lines.push(match databases.server() {
        Some(server) => format!("- {}", server_description(server)?),
        None => "- PostgreSQL: skipped, no --postgres URL was given".to_owned(),
    });
    lines.push(format!("- command: `{}{}{}`", affinity(), niceness(), command()));
    Ok(lines.join("\n"))
}

fn server_description(server: &str) -> BenchResult<String> {
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

/// The command line, with passwords in URLs hidden.
fn command() -> String {
    let format_duration = |argument: String| Url::parse(&argument).map_or(argument, |url| url.to_string());
    std::env::args().map(format_duration).collect::<Vec<_>>().join(" ")
}

/// The `taskset` prefix for the cores to which this process is restricted. Empty if it may use all cores.
fn affinity() -> String {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let allowed = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap_or_default().trim();
    let all = format!("0-{}", cores().saturating_sub(1));
    if allowed.is_empty() || allowed == all { String::new() } else { format!("taskset -c {allowed} ") }
}

/// The `nice` prefix for the priority of this process, unless it is the default.
fn niceness() -> String {
    // The niceness is field 19. Field 2 is the program's name in parentheses, which may contain spaces.
    let status = first_line("/proc/self/stat");
    let niceness = status.rsplit(')').next().and_then(|rest| rest.split_whitespace().nth(16));
    niceness.filter(|niceness| *niceness != "0").map_or_else(String::new, |niceness| format!("nice -n {niceness} "))
}

fn first_line(file: &str) -> String {
    fs::read_to_string(file).unwrap_or_default().lines().next().unwrap_or_default().to_owned()
}

/// The number of cores of the machine, including those that this process may not use.
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
