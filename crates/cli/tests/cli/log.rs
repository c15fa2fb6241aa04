//! What fails in a process that stays is a line in its log.

use std::fs;

use crate::{
    hook::connection,
    mcp_client::Server,
    terminal::{Terminal, both_engines, run_in_pty, text},
};

both_engines! {
    fn a_request_that_fails_is_one_line_and_no_secret_is_in_it(terminal: Terminal) {
        let token = text(&terminal.json(&["token", "create"])["token"]);
        let server = Server::start(&terminal);
        let ask = |path: &str| server.send(&format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}"), "").0;
        assert_eq!((ask("/notes"), ask("/notes/ffffffff")), (200, 404));
        connection(&terminal).batch("alter table notes rename to lost").unwrap();
        assert_eq!(ask("/notes"), 500);
        let log = fs::read_to_string(terminal.home.path().join(Server::LOG)).unwrap();
        assert_eq!(log.lines().count(), 1, "{log}");
        assert!(log.contains("ERROR") && log.contains("method=GET path=\"/notes\" status=500") && log.contains("notes"), "{log}");
        assert!(!log.contains(&token), "{log}");
    }

    fn a_terminal_sees_what_was_done_and_nothing_of_the_log(terminal: Terminal) {
        let begun = run_in_pty(&terminal.command(&["init"]));
        assert_eq!(begun.code, 0, "{}", begun.stdout);
        assert!(begun.stdout.starts_with("next: trackway connect claude-code"), "{}", begun.stdout);
        let seen = run_in_pty(&terminal.command(&[]));
        assert_eq!(seen.code, 0, "{}", seen.stdout);
        assert!(seen.stdout.starts_with("\u{1b}[1mTrackway\u{1b}[0m "), "{:?}", seen.stdout);
        assert!(seen.stdout.contains("\u{1b}[1mnext:\u{1b}[0m trackway demo"), "{:?}", seen.stdout);
        terminal.json(&["workflow", "set", "--name", "w"]);
        terminal.json(&["task", "set", "--workflow", "w", "--variant", "v", "--script", "true"]);
        terminal.json(&["queue", "add", "--task", "v"]);
        let worked = run_in_pty(&terminal.command(&["work", "--once"]));
        assert_eq!(worked.code, 0, "{}", worked.stdout);
        assert!(worked.stdout.contains(" v completed (") && !worked.stdout.contains("tracing"), "{:?}", worked.stdout);
        // What the log does say is one plain line.
        let mut command = terminal.command(&["work", "--once"]);
        command.env("TRACKWAY_LOG", "trace");
        let told = run_in_pty(&command);
        assert_eq!((told.code, told.stdout.contains("panicked")), (0, false), "{}", told.stdout);
    }

    fn a_level_that_does_not_exist_is_said(terminal: Terminal) {
        let mut command = terminal.command(&["work", "--once"]);
        command.env("TRACKWAY_LOG", "loud");
        let output = crate::terminal::run_command(command);
        assert_eq!(output.code, 2);
        assert!(output.stderr.contains("loud") && output.stderr.contains("debug"), "{}", output.stderr);
    }
}
