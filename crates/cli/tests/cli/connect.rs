//! `connect` and `disconnect`: which settings they edit, what they write, and that they preserve everything else.

use std::{
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt, symlink},
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::Stdio,
};

use serde_json::{Value, json};
use snapbox::str;
use trackway_testkit::{Engine, copy_program, write_program};

use crate::terminal::{CommandOutput, Terminal, run_command};

/// Settings before Trackway is connected.
const SETTINGS: &str = r#"{
    "model": "opus",
    "hooks": {
        "Stop": [{"hooks": [{"type": "command", "command": "say done"}]}]
    },
    "permissions": {"deny": ["Read(.env)"]}
}
"#;

/// A user with a home directory and a project in it.
struct TestUser {
    terminal: Terminal,
}

impl TestUser {
    fn new() -> Self {
        let user = Self { terminal: Terminal::uninitialized(Engine::Sqlite) };
        fs::create_dir_all(user.project().join(".git")).unwrap();
        user
    }

    fn with_settings(settings: &str) -> Self {
        let user = Self::new();
        fs::create_dir(user.project().join(".claude")).unwrap();
        fs::write(user.settings(), settings).unwrap();
        user
    }

    fn home(&self) -> &Path {
        self.terminal.home.path()
    }

    fn project(&self) -> PathBuf {
        self.home().join("project")
    }

    fn settings(&self) -> PathBuf {
        self.project().join(".claude/settings.json")
    }

    fn backup(&self) -> PathBuf {
        self.project().join(".claude/settings.json.trackway-backup")
    }

    fn settings_text(&self) -> String {
        fs::read_to_string(self.settings()).unwrap()
    }

    fn command(&self, line: &str) -> std::process::Command {
        let mut command = self.terminal.command(&line.split(' ').collect::<Vec<_>>());
        command.current_dir(self.project());
        command
    }

    /// Runs a command line in the project.
    fn run(&self, line: &str) -> CommandOutput {
        run_command(self.command(line))
    }

    #[track_caller]
    fn json(&self, line: &str) -> Value {
        let output = self.run(&format!("{line} --json"));
        assert_eq!((output.code, output.stderr.as_str()), (0, ""));
        let answer: Value = serde_json::from_str(&output.stdout).unwrap();
        answer["data"].clone()
    }

    /// Runs a command line that must fail and leave all files unchanged.
    #[track_caller]
    fn expect_error(&self, line: &str) -> (i32, String) {
        let before = files_below(self.home());
        let output = self.run(line);
        assert_eq!(files_below(self.home()), before);
        (output.code, self.mask_paths(&output.stderr))
    }

    /// Replaces paths that differ between test runs by placeholders.
    fn mask_paths(&self, text: &str) -> String {
        text.replace(self.home().to_str().unwrap(), "[HOME]").replace(env!("CARGO_BIN_EXE_trackway"), "[TRACKWAY]")
    }
}

/// All files below a directory with their contents.
fn files_below(directory: &Path) -> Vec<(PathBuf, Option<Vec<u8>>)> {
    let mut result = Vec::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() && !path.is_symlink() {
            result.extend(files_below(&path));
        } else {
            result.push((path.clone(), fs::read(&path).ok()));
        }
    }
    result.sort();
    result
}

/// The Trackway hooks in a settings text, as (event, command).
fn trackway_hooks(text: &str) -> Vec<(String, String)> {
    let settings: Value = serde_json::from_str(text).unwrap();
    let mut result = Vec::new();
    for (event, groups) in settings["hooks"].as_object().unwrap() {
        for hook in groups.as_array().unwrap().iter().flat_map(|group| group["hooks"].as_array().unwrap()) {
            let command = hook["command"].as_str().unwrap();
            if command.contains("trackway") {
                result.push((event.clone(), command.to_owned()));
            }
        }
    }
    result
}

#[test]
fn connect_reports_its_changes_and_disconnect_reverts_them() {
    let user = TestUser::with_settings(SETTINGS);
    snapbox::assert_data_eq!(
        user.mask_paths(&user.run("connect claude-code").stdout),
        str![[r#"
Connected Claude Code in [HOME]/project/.claude/settings.json
hooks: 10 events run [TRACKWAY] hook
memory: subagents
mcp: [HOME]/project/.mcp.json starts trackway mcp
backup: [HOME]/project/.claude/settings.json.trackway-backup
next: start Claude Code in [HOME]/project; its /hooks command lists the hooks. To undo: trackway disconnect claude-code --project

"#]]
    );
    let connected = user.settings_text();
    assert_eq!(trackway_hooks(&connected).len(), 10);
    assert!(connected.contains(r#"[{"hooks": [{"type": "command", "command": "say done"}]}, {"hooks""#));
    assert!(connected.ends_with("    \"permissions\": {\"deny\": [\"Read(.env)\"]}\n}\n"));
    assert_eq!(fs::read_to_string(user.backup()).unwrap(), SETTINGS);

    snapbox::assert_data_eq!(
        user.mask_paths(&user.run("connect claude-code").stdout),
        str![[r#"
Claude Code is already connected in [HOME]/project/.claude/settings.json
hooks: 10 events run [TRACKWAY] hook
memory: subagents
mcp: [HOME]/project/.mcp.json starts trackway mcp
backup: [HOME]/project/.claude/settings.json.trackway-backup
next: to undo: trackway disconnect claude-code --project

"#]]
    );
    assert_eq!(user.settings_text(), connected);

    snapbox::assert_data_eq!(
        user.mask_paths(&user.run("disconnect claude-code").stdout),
        str![[r#"
Disconnected Claude Code in [HOME]/project/.claude/settings.json
mcp: removed [HOME]/project/.mcp.json, which contained nothing else
next: open sessions may keep the hooks until they end

"#]]
    );
    assert_eq!(files_below(&user.project()), [(user.settings(), Some(SETTINGS.into()))]);
    snapbox::assert_data_eq!(
        user.mask_paths(&user.run("disconnect claude-code").stdout),
        str![[r#"
No Trackway hooks in [HOME]/project/.claude/settings.json
next: to add them: trackway connect claude-code --project

"#]]
    );
}

#[test]
fn connect_and_disconnect_report_their_changes_as_json() {
    let user = TestUser::with_settings(SETTINGS);
    let mut answer = user.json("connect claude-code --memory off");
    assert_eq!(answer["events"].as_array_mut().unwrap().len(), 10);
    answer["events"] = json!([]);
    assert_eq!(
        answer,
        json!({
            "client": "claude-code",
            "scope": "project",
            "file": user.settings(),
            "project": user.project(),
            "outcome": "connected",
            "backup": user.backup(),
            "command": format!("{} hook --memory off", env!("CARGO_BIN_EXE_trackway")),
            "memory": "off",
            "events": [],
            "left_out": [],
            "mcp": { "file": user.project().join(".mcp.json"), "outcome": "connected", "backup": null },
        })
    );
    assert_eq!(
        user.json("disconnect claude-code"),
        json!({
            "client": "claude-code",
            "scope": "project",
            "file": user.settings(),
            "project": user.project(),
            "outcome": "disconnected",
            "backup": null,
            "mcp": { "file": user.project().join(".mcp.json"), "outcome": "removed", "backup": null },
        })
    );
}

#[test]
fn dry_run_prints_a_diff_and_changes_nothing() {
    let user = TestUser::with_settings("{\n  \"hooks\": {\n    \"Stop\": [\n      1\n    ]\n  }\n}");
    let before = files_below(user.home());
    let output = user.run("connect claude-code --dry-run");
    assert_eq!((output.code, output.stderr.as_str()), (0, "dry run: nothing was changed\n"));
    snapbox::assert_data_eq!(
        user.mask_paths(&output.stdout),
        str![[r#"
--- [HOME]/project/.claude/settings.json
+++ [HOME]/project/.claude/settings.json
@@ -1,7 +1,118 @@
 {
   "hooks": {
     "Stop": [
-      1
+      1,
+      {
+        "hooks": [
+          {
+            "type": "command",
+            "command": "[TRACKWAY] hook",
+            "timeout": 10
+          }
+        ]
+      }
+    ],
+    "SessionStart": [
...
     ]
   }
 }
/ No newline at end of file
--- /dev/null
+++ [HOME]/project/.mcp.json
@@ -0,0 +1,11 @@
+{
+  "mcpServers": {
+    "trackway": {
+      "type": "stdio",
+      "command": "[TRACKWAY]",
+      "args": [
+        "mcp"
+      ]
+    }
+  }
+}

"#]]
    );
    assert!(user.run("connect claude-code --user --dry-run").stdout.starts_with("--- /dev/null\n+++ "));
    assert_eq!(files_below(user.home()), before);

    user.json("connect claude-code");
    let before = files_below(user.home());
    let diff = user.run("disconnect claude-code --dry-run").stdout;
    assert!(diff.contains("\n-      1,\n") && diff.contains("\n+      1\n"), "{diff}");
    let unchanged = user.run("connect claude-code --dry-run --json").stdout;
    let unchanged: Value = serde_json::from_str(&unchanged).unwrap();
    assert_eq!((&unchanged["dry_run"], &unchanged["data"]["outcome"]), (&json!(true), &json!("unchanged")));
    assert_eq!(files_below(user.home()), before);
}

#[test]
fn connect_uses_project_settings_inside_a_project_and_user_settings_elsewhere() {
    let user = TestUser::new();
    let file = |directory: &Path, arguments: &str, config: Option<&Path>| {
        let mut command = user.command(&format!("connect claude-code {arguments}--dry-run --json"));
        command.current_dir(directory).envs(config.map(|config| ("CLAUDE_CONFIG_DIR", config)));
        let answer: Value = serde_json::from_str(&run_command(command).stdout).unwrap();
        user.mask_paths(answer["data"]["file"].as_str().unwrap())
    };
    let (home, project) = (user.home().to_owned(), user.project());
    let (deep, nested, loose) = (project.join("src/deep"), project.join("nested/src"), home.join("loose"));
    for directory in [&deep, &nested, &loose, &project.join("nested/.trackway")] {
        fs::create_dir_all(directory).unwrap();
    }
    assert_eq!(file(&deep, "", None), "[HOME]/project/.claude/settings.json");
    assert_eq!(file(&nested, "", None), "[HOME]/project/nested/.claude/settings.json");
    assert_eq!(file(&deep, "--user ", None), "[HOME]/.claude/settings.json");
    assert_eq!(file(&loose, "", None), "[HOME]/.claude/settings.json");
    assert_eq!(file(&loose, "--project ", None), "[HOME]/loose/.claude/settings.json");
    assert_eq!(file(&loose, "", Some(&home.join("elsewhere"))), "[HOME]/elsewhere/settings.json");
    assert_eq!(user.expect_error("connect claude-code --project --user").0, 2);
}

#[test]
fn connect_and_disconnect_mention_other_connected_settings() {
    let user = TestUser::new();
    user.json("connect claude-code --user");
    let connected = user.run("connect claude-code");
    assert_eq!(
        user.mask_paths(&connected.stderr),
        "note: [HOME]/.claude/settings.json is also connected; a hook command that is the same in both files runs only once\n"
    );
    let disconnected = user.run("disconnect claude-code");
    assert_eq!(
        user.mask_paths(&disconnected.stderr),
        "note: [HOME]/.claude/settings.json is still connected; to disconnect it: trackway disconnect claude-code --user\n"
    );
}

#[test]
fn connect_keeps_the_memory_mode_unless_given() {
    let user = TestUser::with_settings(SETTINGS);
    assert_eq!(user.json("connect claude-code --memory all")["outcome"], "connected");
    let again = user.json("connect claude-code");
    assert_eq!((&again["outcome"], &again["memory"]), (&json!("unchanged"), &json!("all")));
    let other = user.json("connect claude-code --memory subagents");
    assert_eq!((&other["outcome"], &other["backup"]), (&json!("updated"), &json!(user.backup())));
    let command = format!("{} hook", env!("CARGO_BIN_EXE_trackway"));
    assert!(trackway_hooks(&user.settings_text()).iter().all(|(_, hook)| *hook == command));
    assert_eq!(fs::read_to_string(user.backup()).unwrap(), SETTINGS);
    user.json("disconnect claude-code");
    assert_eq!(user.settings_text(), SETTINGS);
    assert_eq!(user.expect_error("connect claude-code --memory some").0, 2);
}

#[test]
fn disconnect_removes_files_that_connect_created_and_keeps_files_that_were_empty() {
    let user = TestUser::new();
    assert_eq!(user.json("connect claude-code")["backup"], Value::Null);
    assert_eq!(user.json("disconnect claude-code")["outcome"], "removed");
    assert!(!user.settings().exists());
    for text in ["", "{}", "{}\n", "\u{feff}"] {
        let user = TestUser::with_settings(text);
        user.json("connect claude-code");
        user.json("disconnect claude-code");
        assert_eq!(files_below(&user.project()), [(user.settings(), Some(text.into()))]);
    }
    // Claude Code itself may rewrite the settings in its own layout.
    let user = TestUser::with_settings("{ }");
    user.json("connect claude-code");
    let rewritten: Value = serde_json::from_str(&user.settings_text()).unwrap();
    fs::write(user.settings(), format!("{rewritten:#}")).unwrap();
    user.json("disconnect claude-code");
    assert_eq!(user.settings_text(), "{ }");
}

#[test]
fn disconnect_keeps_edits_made_after_connect() {
    let user = TestUser::with_settings(SETTINGS);
    user.json("connect claude-code");
    fs::write(user.settings(), user.settings_text().replace("opus", "haiku")).unwrap();
    assert_eq!(user.json("disconnect claude-code")["backup"], json!(user.backup()));
    assert_eq!(user.settings_text(), SETTINGS.replace("opus", "haiku"));
    assert_eq!(fs::read_to_string(user.backup()).unwrap(), SETTINGS);
}

#[test]
fn connect_rejects_invalid_settings_and_leaves_the_file_unchanged() {
    let user = TestUser::with_settings("{\n  \"model\": \"opus\",\n  // mine\n}\n");
    snapbox::assert_data_eq!(
        user.expect_error("connect claude-code").1,
        str![[r#"
error: [HOME]/project/.claude/settings.json, line 3, column 3: expected a key in double quotes, found a comment (Claude Code reads plain JSON)
hint: the file was left as it is; correct it and try again

"#]]
    );
    assert_eq!(user.expect_error("connect claude-code --dry-run").0, 1);
    assert_eq!(user.expect_error("disconnect claude-code").0, 1);
    let error_for = |text: &[u8]| {
        fs::write(user.settings(), text).unwrap();
        let (code, error) = user.expect_error("connect claude-code");
        assert_eq!(code, 1);
        let first = error.lines().next().unwrap().to_owned();
        first.strip_prefix("error: [HOME]/project/.claude/settings.json").unwrap().to_owned()
    };
    assert_eq!(error_for(b"{\"hooks\": 1}"), ", line 1, column 11: \"hooks\" must be an object, but is a plain value");
    assert_eq!(
        error_for(b"{\"hooks\": {\"Stop\": {}}}"),
        ", line 1, column 20: the hooks of \"Stop\" must be an array, but are an object"
    );
    assert_eq!(error_for(b"{\"a\": \"\xff\"}"), " is not UTF-8 from byte 8 on");
}

#[test]
fn connect_reports_unreadable_and_unwritable_settings() {
    let user = TestUser::new();
    let folder = user.project().join(".claude");
    fs::write(&folder, "a file").unwrap();
    let (code, error) = user.expect_error("connect claude-code");
    assert_eq!(
        (code, error.as_str()),
        (1, "error: [HOME]/project/.claude/settings.json cannot be read: not a directory\nhint: nothing was changed\n")
    );
    fs::remove_file(&folder).unwrap();
    fs::create_dir_all(user.settings()).unwrap();
    assert_eq!(
        user.expect_error("connect claude-code"),
        (1, "error: [HOME]/project/.claude/settings.json is not a file\n".into())
    );
    fs::remove_dir(user.settings()).unwrap();
    symlink("settings.json", user.settings()).unwrap();
    assert_eq!(
        user.expect_error("connect claude-code").1.lines().next().unwrap(),
        "error: [HOME]/project/.claude/settings.json cannot be read: its symbolic links form a cycle"
    );
    fs::remove_file(user.settings()).unwrap();
    fs::write(user.settings(), SETTINGS).unwrap();
    fs::set_permissions(user.settings(), fs::Permissions::from_mode(0o444)).unwrap();
    assert_eq!(
        user.expect_error("connect claude-code"),
        (
            1,
            "error: [HOME]/project/.claude/settings.json is read-only\nhint: nothing was changed; make it writable first\n".into()
        )
    );

    let mut command = user.command("connect claude-code --user");
    command.env_remove("HOME");
    let output = run_command(command);
    assert_eq!(
        (output.code, output.stderr.as_str()),
        (2, "error: cannot find the home directory: HOME is not set\nhint: connect a project: --project\n")
    );
}

#[test]
fn connect_reports_an_unwritable_settings_directory() {
    let user = TestUser::with_settings(SETTINGS);
    for open in [user.home(), &user.project()] {
        fs::set_permissions(open, fs::Permissions::from_mode(0o755)).unwrap();
    }
    fs::set_permissions(user.project().join(".claude"), fs::Permissions::from_mode(0o555)).unwrap();
    let before = files_below(user.home());
    // The superuser can write anywhere, so the command runs as another user.
    let mut command = user.command("connect claude-code");
    command.uid(65_534).gid(65_534);
    if let Ok(output) = command.output() {
        let error = user.mask_paths(&String::from_utf8(output.stderr).unwrap());
        assert_eq!(
            (output.status.code(), error.as_str()),
            (
                Some(1),
                "error: [HOME]/project/.claude/settings.json cannot be written: permission denied\nhint: nothing was changed\n"
            )
        );
    }
    assert_eq!(files_below(user.home()), before);
    fs::set_permissions(user.project().join(".claude"), fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn connect_follows_symbolic_links_and_keeps_permissions() {
    let user = TestUser::new();
    let dotfiles = user.home().join("dotfiles");
    fs::create_dir_all(&dotfiles).unwrap();
    fs::create_dir(user.project().join(".claude")).unwrap();
    symlink("../../dotfiles/claude.json", user.settings()).unwrap();
    // The target of the link does not exist yet.
    user.json("connect claude-code");
    assert_eq!(trackway_hooks(&fs::read_to_string(dotfiles.join("claude.json")).unwrap()).len(), 10);
    fs::write(dotfiles.join("claude.json"), SETTINGS).unwrap();
    fs::set_permissions(dotfiles.join("claude.json"), fs::Permissions::from_mode(0o640)).unwrap();
    user.json("connect claude-code");
    assert!(user.settings().is_symlink());
    for file in [dotfiles.join("claude.json"), user.backup()] {
        assert_eq!(fs::metadata(&file).unwrap().mode() & 0o777, 0o640, "{}", file.display());
    }
    assert_eq!(files_below(&dotfiles).len(), 1);
    user.json("disconnect claude-code");
    assert_eq!(user.settings_text(), SETTINGS);
    assert!(user.settings().is_symlink());
}

#[test]
fn connect_handles_ten_megabytes_of_settings() {
    let rules: Vec<String> = (0..10_000).map(|number| format!("\"Bash({number} {}:*)\"", "x".repeat(1_000))).collect();
    let text =
        format!("{{\n  \"permissions\": {{\n    \"allow\": [\n      {}\n    ]\n  }}\n}}\n", rules.join(",\n      "));
    assert!(text.len() > 10_000_000);
    let user = TestUser::with_settings(&text);
    assert!(user.run("connect claude-code --dry-run").stdout.lines().count() < 200);
    user.json("connect claude-code");
    assert_eq!(trackway_hooks(&user.settings_text()).len(), 10);
    user.json("disconnect claude-code");
    assert!(user.settings_text() == text);
}

#[test]
fn concurrent_connects_leave_valid_settings() {
    for settings in [None, Some(SETTINGS)] {
        let user = settings.map_or_else(TestUser::new, TestUser::with_settings);
        let children: Vec<_> = (0..12)
            .map(|number| {
                let memory = ["off", "subagents", "all"][number % 3];
                let mut command = user.command(&format!("connect claude-code --memory {memory}"));
                command.stdout(Stdio::null()).spawn().unwrap()
            })
            .collect();
        for mut child in children {
            assert!(child.wait().unwrap().success());
        }
        let commands = trackway_hooks(&user.settings_text());
        assert_eq!(commands.len(), 10);
        assert!(commands.iter().all(|(_, command)| *command == commands[0].1));
        assert_eq!(fs::read_to_string(user.backup()).ok().as_deref(), settings);
        user.json("disconnect claude-code");
        let left: Vec<_> = settings.map(|settings| (user.settings(), Some(settings.into()))).into_iter().collect();
        assert_eq!(files_below(&user.project()), left);
    }
}

#[test]
fn connect_omits_events_that_an_old_client_does_not_support() {
    let user = TestUser::new();
    let bin = user.home().join("bin");
    fs::create_dir(&bin).unwrap();
    write_program(&bin.join("claude"), "#!/bin/sh\necho '1.0.128 (Claude Code)'\n");
    // Hooks run the link in `PATH`, because the link may outlive the file to which it points.
    symlink(env!("CARGO_BIN_EXE_trackway"), bin.join("trackway")).unwrap();
    let mut command = user.command("connect claude-code");
    command.env("PATH", format!("{}:/usr/bin:/bin", bin.display()));
    let output = run_command(command);
    assert_eq!(
        output.stderr,
        "note: Claude Code 1.0.128 does not support PostToolUseFailure, SubagentStart; after updating it, connect again\n"
    );
    let commands = trackway_hooks(&user.settings_text());
    assert_eq!(commands.len(), 8);
    assert_eq!(commands[0].1, format!("{} hook", bin.join("trackway").display()));
    user.json("connect claude-code");
    assert_eq!(trackway_hooks(&user.settings_text()).len(), 10);
}

#[test]
fn connect_rejects_a_renamed_binary() {
    let user = TestUser::new();
    let other = user.home().join("tw");
    copy_program(env!("CARGO_BIN_EXE_trackway").as_ref(), &other);
    let mut command = std::process::Command::new(other);
    command.args(["connect", "claude-code"]).env_clear().env("HOME", user.home()).current_dir(user.project());
    let output = run_command(command);
    assert_eq!(output.code, 2);
    assert!(
        user.mask_paths(&output.stderr).starts_with("error: cannot recognise hooks that run [HOME]/tw"),
        "{}",
        output.stderr
    );
}

#[test]
fn connect_writes_the_plugin_to_the_given_folder() {
    let user = TestUser::new();
    let output = user.run("connect claude-code --plugin tools/plugin --memory all");
    assert_eq!(output.stderr, "note: the plugin runs `trackway`, which is not in your PATH\n");
    snapbox::assert_data_eq!(
        user.mask_paths(&output.stdout),
        str![[r#"
Wrote the plugin to [HOME]/project/tools/plugin
hooks: 10 events run trackway hook --memory all
memory: all
next: claude --plugin-dir [HOME]/project/tools/plugin

"#]]
    );
    let folder = user.project().join("tools/plugin");
    assert_eq!(trackway_hooks(&fs::read_to_string(folder.join("hooks/hooks.json")).unwrap()).len(), 10);
    let servers: Value = serde_json::from_str(&fs::read_to_string(folder.join(".mcp.json")).unwrap()).unwrap();
    let server = json!({ "type": "stdio", "command": "trackway", "args": ["mcp"] });
    assert_eq!(servers, json!({ "mcpServers": { "trackway": server } }));
    assert_eq!(user.json("connect claude-code --plugin tools/plugin --memory all")["outcome"], "unchanged");
    assert!(
        user.run("connect claude-code --plugin tools/plugin --dry-run")
            .stdout
            .contains("\n-            \"command\": \"trackway hook --memory all\",\n")
    );
    assert!(!user.settings().exists());

    fs::write(folder.join(".claude-plugin/plugin.json"), "{\"name\": \"other\"}").unwrap();
    let (code, error) = user.expect_error("connect claude-code --plugin tools/plugin");
    assert_eq!((code, error.lines().next()), (4, Some("error: tools/plugin contains the plugin \"other\"")));
    assert_eq!(user.expect_error("connect claude-code --plugin x --user").0, 2);
}
