//! The story that the demo tells.

use trackway_testkit::Engine;

use crate::terminal::Terminal;

#[test]
fn the_demo_tells_the_whole_story() {
    let terminal = Terminal::before_init(Engine::Sqlite);
    let mut command = terminal.command(&["demo"]);
    command.env_remove("TRACKWAY_DB").env("TMPDIR", terminal.home.path());
    let ran = crate::terminal::ran(command);
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""));
    for part in [
        "path     unit/go, unit/go-race, unit/go-fuzz",
        "coder  unit/go-race  unit/go-fuzz    major",
        "a lock     2         0",
        "vote           vote         1      lab     lab/decisions/How do we fix it?/a lock",
        "← task       unit/go-race @ 1",
        "← person     ada",
    ] {
        assert!(ran.stdout.contains(part), "{part}\n{}", ran.stdout);
    }
    // What it says at the end is true.
    let last: Vec<&str> = ran.stdout.trim_end().lines().rev().take(2).collect();
    let url = last[1].trim().strip_prefix("export TRACKWAY_DB=").unwrap();
    let note = last[0].trim().strip_prefix("trackway why ").unwrap();
    assert_eq!(terminal.json(&["why", note, "--db", url])["chain"][0]["kind"], "resource");
    let _ = std::fs::remove_dir_all(std::path::Path::new(url.strip_prefix("sqlite:").unwrap()).parent().unwrap());
}
