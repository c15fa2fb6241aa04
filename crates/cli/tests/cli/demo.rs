//! The output of `trackway demo`.

use std::path::Path;

use snapbox::{Assert, Data, data::DataFormat};
use trackway_testkit::{Engine, copy_program};

use crate::terminal::Terminal;

fn run_demo(terminal: &Terminal) -> crate::terminal::CommandOutput {
    let mut command = terminal.command(&["demo"]);
    command.env_remove("TRACKWAY_DB").env("TMPDIR", terminal.home.path()).env("CLICOLOR_FORCE", "1").env("USER", "sam");
    crate::terminal::run_command(command)
}

/// The picture in the README shows the last part of the demo, with random ids replaced by fixed ones.
#[test]
fn readme_picture_matches_the_demo_output() {
    let printed = run_demo(&Terminal::uninitialized(Engine::Sqlite)).stdout;
    let (_, part) = printed.split_once("Import a session of Claude Code").unwrap();
    let (part, _) = part.split_once("The demo database is still there").unwrap();
    let part = regex::Regex::new("[^ ]*trackway-demo-[0-9a-f]+").unwrap().replace_all(part, "~");
    let mut ids: Vec<String> = Vec::new();
    let id = regex::Regex::new("[0-9a-f]{8}\\b").unwrap();
    let masked = id.replace_all(&part, |found: &regex::Captures<'_>| {
        let index = ids.iter().position(|id| *id == found[0]).unwrap_or_else(|| {
            ids.push(found[0].to_owned());
            ids.len() - 1
        });
        format!("{:08x}", 0x9e37_79b1_u32.wrapping_mul(u32::try_from(index).unwrap() + 3))
    });
    let masked =
        format!("\x1b[1mImport a session of Claude Code{}", masked.trim_end().trim_end_matches("\x1b[1m").trim_end());
    let picture = anstyle_svg::Term::new().min_width_px(900).render_svg(&masked);
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/demo.svg");
    Assert::new().action_env("SNAPSHOTS").eq(picture, Data::read_from(&file, None).is(DataFormat::Text));
}

/// The scripts of the demo call `trackway`. They must run the binary of the demo even if it has another name.
#[test]
fn demo_works_when_the_binary_is_renamed() {
    let terminal = Terminal::uninitialized(Engine::Sqlite);
    let program = terminal.home.path().join("tw");
    copy_program(env!("CARGO_BIN_EXE_trackway").as_ref(), &program);
    let mut command = std::process::Command::new(&program);
    command.arg("demo").env_clear().env("HOME", terminal.home.path()).env("TMPDIR", terminal.home.path());
    command.env("USER", "sam").current_dir(terminal.home.path());
    let output = crate::terminal::run_command(command);
    assert_eq!((output.code, output.stderr.as_str()), (0, ""));
    assert!(output.stdout.contains("Looked into: The kettle reports 212 degrees"), "{}", output.stdout);
}

#[test]
fn demo_prints_every_step() {
    let terminal = Terminal::uninitialized(Engine::Sqlite);
    let mut output = run_demo(&terminal);
    output.stdout = regex::Regex::new("\\x1b\\[[0-9;]*m").unwrap().replace_all(&output.stdout, "").into_owned();
    assert_eq!((output.code, output.stderr.as_str()), (0, ""));
    for part in [
        "path     unit/go, unit/go-race, unit/go-fuzz",
        "coder  unit/go-race  unit/go-fuzz    major",
        "a lock     2         0",
        "vote           vote         1      lab     lab/decisions/How do we fix it?/a lock",
        "← task       unit/go-race @ 1",
        "← person     sam",
        "cache/fix completed",
        "The cache has one lock now. Measure reads before touching it again.",
        "\"latestTaskAgentReport\": \"Two writers shared one map. A lock around it fixes the race; reads cost 3 % more.\"",
        "cache/review completed",
        "← agent      margaret",
        "← task       cache/review @ 1",
        "← agent      linus",
        "← task       cache/fix @ 1",
        "margaret  3      6400          210            0.022",
        "triage completed",
        // The column is narrow, so the line is wrapped before its last word.
        "looked into: The «kettle» reports 212",
        "← route      tag bug",
        "← message    The kettle reports 212 degrees",
        "coder a2eb6f54e72329b79",
        "← spawn      toolu_0004_0 review the timer (by meta_json)",
        "← message    Add a tea timer to the kitchen page, and have it reviewed.",
    ] {
        assert!(output.stdout.contains(part), "{part}\n{}", output.stdout);
    }
    // The two commands that the demo prints at its end work.
    let last: Vec<&str> = output.stdout.trim_end().lines().rev().take(2).collect();
    let url = last[1].trim().strip_prefix("export TRACKWAY_DB=").unwrap();
    let note = last[0].trim().strip_prefix("trackway why ").unwrap();
    assert_eq!(terminal.json(&["why", note, "--db", url])["chain"][0]["kind"], "resource");
    let _ = std::fs::remove_dir_all(Path::new(url.strip_prefix("sqlite:").unwrap()).parent().unwrap());
}
