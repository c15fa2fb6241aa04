//! The log on standard error: failed requests, terminals and log levels.

use std::fs;

use crate::{
    hook::connection,
    mcp_client::Server,
    terminal::{Terminal, both_engines, run_in_pty, text},
};

both_engines! {
    fn failed_request_logs_one_line_without_secrets(terminal: Terminal) {
        let token = text(&terminal.json(&["token", "create"])["token"]);
        let server = Server::start(&terminal);
        let get = |path: &str| server.send(&format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}"), "").0;
        assert_eq!((get("/notes"), get("/notes/ffffffff")), (200, 404));
        connection(&terminal).batch("alter table notes rename to lost").unwrap();
        assert_eq!(get("/notes"), 500);
        let log = fs::read_to_string(terminal.home.path().join(Server::LOG)).unwrap();
        assert_eq!(log.lines().count(), 1, "{log}");
        assert!(log.contains("ERROR") && log.contains("method=GET path=\"/notes\" status=500") && log.contains("notes"), "{log}");
        assert!(!log.contains(&token), "{log}");
    }

    fn terminal_shows_results_and_no_log_lines(terminal: Terminal) {
        let init = run_in_pty(&terminal.command(&["init"]));
        assert_eq!(init.code, 0, "{}", init.stdout);
        assert!(init.stdout.starts_with("next: trackway connect claude-code"), "{}", init.stdout);
        let overview = run_in_pty(&terminal.command(&[]));
        assert_eq!(overview.code, 0, "{}", overview.stdout);
        assert!(overview.stdout.starts_with("\u{1b}[1mTrackway\u{1b}[0m "), "{:?}", overview.stdout);
        assert!(overview.stdout.contains("\u{1b}[1mnext:\u{1b}[0m for a guided demo: trackway demo"), "{:?}", overview.stdout);
        terminal.json(&["workflow", "set", "--name", "w"]);
        terminal.json(&["task", "set", "--workflow", "w", "--variant", "v", "--script", "true"]);
        terminal.json(&["queue", "add", "--task", "v"]);
        let work_output = run_in_pty(&terminal.command(&["work", "--once"]));
        assert_eq!(work_output.code, 0, "{}", work_output.stdout);
        assert!(work_output.stdout.contains(" v completed (") && !work_output.stdout.contains("tracing"), "{:?}", work_output.stdout);
        // Even with all log lines enabled, nothing panics.
        let mut command = terminal.command(&["work", "--once"]);
        command.env("TRACKWAY_LOG", "trace");
        let traced_output = run_in_pty(&command);
        assert_eq!((traced_output.code, traced_output.stdout.contains("panicked")), (0, false), "{}", traced_output.stdout);
    }

    fn unknown_log_level_is_an_error(terminal: Terminal) {
        let mut command = terminal.command(&["work", "--once"]);
        command.env("TRACKWAY_LOG", "loud");
        let output = crate::terminal::run_command(command);
        assert_eq!(output.code, 2);
        assert!(output.stderr.contains("loud") && output.stderr.contains("debug"), "{}", output.stderr);
    }
}
