//! How a command chooses its database, and what it reports about databases that it cannot use.

use std::{fs, os::unix::fs::PermissionsExt, os::unix::process::CommandExt};

use trackway_store::connection::Connection;
use trackway_testkit::Engine;

use crate::{
    hook::connection,
    terminal::{Terminal, column, run_command},
};

/// A user with an empty home directory.
fn new_user() -> Terminal {
    Terminal::uninitialized(Engine::Sqlite)
}

fn run_without_url(
    terminal: &Terminal,
    directory: &std::path::Path,
    arguments: &[&str],
) -> crate::terminal::CommandOutput {
    let mut command = terminal.command(arguments);
    command.env_remove("TRACKWAY_DB").current_dir(directory);
    run_command(command)
}

#[test]
fn user_database_is_created_on_first_use() {
    let terminal = new_user();
    let output = run_without_url(&terminal, terminal.home.path(), &["role", "set", "--name", "coder"]);
    assert_eq!(output.code, 0, "{}", output.stderr);
    assert!(terminal.home.path().join(".local/share/trackway/trackway.db").exists());
}

#[test]
fn nearest_project_database_wins_over_the_user_database() {
    let terminal = new_user();
    let project = terminal.home.path().join("project");
    let deep = project.join("src/deep");
    fs::create_dir_all(&deep).unwrap();
    assert_eq!(run_without_url(&terminal, &project, &["init"]).code, 0);
    assert_eq!(fs::read_to_string(project.join(".trackway/.gitignore")).unwrap(), "*\n");
    assert_eq!(run_without_url(&terminal, &deep, &["role", "set", "--name", "here"]).code, 0);
    assert_eq!(
        run_without_url(&terminal, &project, &["role", "list"]).stdout,
        "name\ttitle\tdescription\ttags\torigin\nhere\t\t\t\tset\n"
    );
    assert_eq!(
        run_without_url(&terminal, terminal.home.path(), &["role", "list"]).stdout,
        "name\ttitle\tdescription\ttags\torigin\n"
    );
    // A second `init` changes nothing.
    assert_eq!(run_without_url(&terminal, &project, &["init"]).stderr, "");
    // `init` in a subfolder of a project prints that earlier data stays in the project's database.
    let nested = run_without_url(&terminal, &deep, &["init"]);
    let expected = format!(
        "note: commands here used sqlite:{} until now; its data stays there. To import earlier sessions of Claude Code into the new database: trackway ingest\n",
        project.join(".trackway/trackway.db").display()
    );
    assert_eq!((nested.code, nested.stderr), (0, expected));
    assert_eq!(run_without_url(&terminal, &project, &["init", "--user"]).code, 0);
}

#[test]
fn inaccessible_project_database_is_an_error_instead_of_being_skipped() {
    let terminal = new_user();
    let home = terminal.home.path();
    let project = home.join("project");
    fs::create_dir(&project).unwrap();
    assert_eq!(run_without_url(&terminal, &project, &["init"]).code, 0);
    for open in [home, project.as_path()] {
        fs::set_permissions(open, fs::Permissions::from_mode(0o777)).unwrap();
    }
    let folder = project.join(".trackway");
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o700)).unwrap();
    // The superuser can enter any folder, so the command runs as another user.
    let run_as_other_user = |arguments: &[&str]| {
        let mut command = terminal.command(arguments);
        command.env_remove("TRACKWAY_DB").current_dir(&project).uid(65_534).gid(65_534);
        run_command(command)
    };
    let refused = run_as_other_user(&["role", "set", "--name", "x"]);
    assert_eq!(
        (refused.code, refused.stderr),
        (
            6,
            format!(
                "error: no access to {}: Permission denied (os error 13)\nhint: another user owns it; ask them for access, or name a database with --db sqlite:PATH\n",
                folder.display()
            )
        )
    );
    assert!(!home.join(".local/share/trackway").exists(), "no other database was created");
    let elsewhere = format!("sqlite:{}", home.join("own.db").display());
    assert_eq!(run_as_other_user(&["init", "--db", &elsewhere]).code, 0);
    assert_eq!(run_as_other_user(&["role", "set", "--name", "x", "--db", &elsewhere]).code, 0);
    // An unreadable configuration is an error, because it might name another database.
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)).unwrap();
    let config = folder.join("config.toml");
    fs::write(&config, "db = \"sqlite:elsewhere\"").unwrap();
    fs::set_permissions(&config, fs::Permissions::from_mode(0o600)).unwrap();
    let refused = run_as_other_user(&["role", "list"]);
    assert_eq!(
        (refused.code, refused.stderr),
        (
            2,
            format!(
                "error: {} cannot be read: Permission denied (os error 13)\nhint: to ignore this file, name the database with --db or TRACKWAY_DB\n",
                config.display()
            )
        )
    );
    assert_eq!(run_as_other_user(&["role", "list", "--db", &elsewhere]).code, 0);
}

#[test]
fn database_precedence_is_flag_environment_project_user() {
    let terminal = new_user();
    let home = terminal.home.path();
    let [flag, variable, project, user] =
        ["flag", "variable", "project", "user"].map(|name| format!("sqlite:{}", home.join(name).display()));
    for (url, role) in [(&flag, "flag"), (&variable, "variable"), (&project, "project"), (&user, "user")] {
        assert_eq!(run_without_url(&terminal, home, &["init", "--db", url]).code, 0);
        assert_eq!(run_without_url(&terminal, home, &["role", "set", "--name", role, "--db", url]).code, 0);
    }
    fs::create_dir_all(home.join(".config/trackway")).unwrap();
    fs::write(home.join(".config/trackway/config.toml"), format!("db = {user:?}\n")).unwrap();
    let roles = |arguments: &[&str], variable: Option<&str>, directory: &std::path::Path| {
        let mut command = terminal.command(&[&["role", "list"], arguments].concat());
        command.env_remove("TRACKWAY_DB").envs(variable.map(|url| ("TRACKWAY_DB", url))).current_dir(directory);
        run_command(command).stdout.lines().nth(1).unwrap().split('\t').next().unwrap().to_owned()
    };
    assert_eq!(roles(&[], None, home), "user");
    let directory = home.join("work");
    fs::create_dir_all(directory.join(".trackway")).unwrap();
    fs::write(directory.join(".trackway/config.toml"), format!("db = {project:?}\n")).unwrap();
    assert_eq!(roles(&[], None, &directory), "project");
    assert_eq!(roles(&[], Some(&variable), &directory), "variable");
    assert_eq!(roles(&["--db", &flag], Some(&variable), &directory), "flag");

    // A project's own database takes precedence over the user's configuration. An empty `.trackway` folder is no
    // project.
    let own = home.join("own");
    fs::create_dir_all(own.join("sub/.trackway")).unwrap();
    assert_eq!(run_without_url(&terminal, &own, &["init"]).code, 0);
    assert_eq!(run_without_url(&terminal, &own, &["role", "set", "--name", "own"]).code, 0);
    assert_eq!(roles(&[], None, &own.join("sub")), "own");

    fs::write(directory.join(".trackway/config.toml"), "colour = 1\n").unwrap();
    let broken = run_without_url(&terminal, &directory, &["role", "list"]);
    assert_eq!(broken.code, 2);
    assert!(broken.stderr.contains("config.toml cannot be read"), "{}", broken.stderr);
}

#[test]
fn file_that_is_no_database_is_rejected_unchanged() {
    let terminal = new_user();
    let file = terminal.home.path().join("notes.txt");
    let url = format!("sqlite:{}", file.display());
    for content in [&b"hello, this is no database at all\n"[..], &[0xff; 5_000]] {
        fs::write(&file, content).unwrap();
        for command in [&["role", "list"][..], &["init"]] {
            let (code, message) = terminal.expect_error(&[command, &["--db", &url]].concat());
            assert_eq!((code, message), (1, format!("{} is not a Trackway database", file.display())));
        }
        assert_eq!(fs::read(&file).unwrap(), content);
    }
}

#[test]
fn foreign_database_is_rejected_unchanged() {
    let terminal = new_user();
    let file = terminal.home.path().join("other.db");
    Connection::sqlite(&file, true)
        .unwrap()
        .batch("pragma journal_mode = delete; create table t (a); insert into t values (1)")
        .unwrap();
    let before = fs::read(&file).unwrap();
    for command in ["init", "status"] {
        assert_eq!(terminal.expect_error(&[command, "--db", &format!("sqlite:{}", file.display())]).0, 1);
    }
    assert_eq!(fs::read(&file).unwrap(), before);

    let terminal = Terminal::uninitialized(Engine::Postgres);
    Connection::postgres(&terminal.database.url_text()).unwrap().batch("create table t (a int)").unwrap();
    assert_eq!(terminal.expect_error(&["init"]).0, 1);
}

#[test]
fn database_with_a_newer_schema_is_rejected_unchanged() {
    for engine in [Engine::Sqlite, Engine::Postgres] {
        let terminal = Terminal::new(engine);
        let url = terminal.database.url_text();
        let mut connection = match url.strip_prefix("sqlite:") {
            Some(file) => Connection::sqlite(file.as_ref(), false).unwrap(),
            None => Connection::postgres(&url).unwrap(),
        };
        connection
            .batch("insert into trackway_migrations (version, name, applied_at) select 999, 'later', max(applied_at) from trackway_migrations")
            .unwrap();
        for command in [&["role", "list"][..], &["init"], &["role", "set", "--name", "x"]] {
            let (code, message) = terminal.expect_error(command);
            assert_eq!(code, 1);
            assert!(message.contains("is newer than this program (schema 999, this program knows"), "{message}");
        }
        connection.batch("delete from trackway_migrations where version = 999").unwrap();
        assert_eq!(terminal.json(&["role", "list"]), serde_json::json!([]));
    }
}

#[test]
fn missing_and_unreachable_databases_are_reported() {
    let terminal = new_user();
    assert_eq!(terminal.expect_error(&["role", "list"]).0, 3);
    assert_eq!(
        terminal.expect_error(&["role", "list", "--db", "mysql://x"]),
        (2, "\"mysql://x\" is not a database URL".into())
    );
    let (code, message) = terminal.expect_error(&["role", "list", "--db", "postgres://ada:secret@127.0.0.1:1/x"]);
    assert_eq!(code, 5);
    assert!(message.starts_with("PostgreSQL cannot be reached") && !message.contains("secret"), "{message}");
    let terminal = Terminal::uninitialized(Engine::Postgres);
    assert_eq!(terminal.expect_error(&["role", "list"]).0, 3);
    let missing = terminal.database.url_text().replace("trackway_test_", "no_such_");
    let (code, message) = terminal.expect_error(&["role", "list", "--db", &missing]);
    assert_eq!(code, 3);
    assert!(message.starts_with("there is no database at postgres://"), "{message}");
}

#[test]
fn init_and_restore_create_missing_postgres_databases() {
    let terminal = Terminal::new(Engine::Postgres);
    terminal.json(&["role", "set", "--name", "coder"]);
    let url = terminal.database.url_text();
    let (server, own) = url.rsplit_once('/').unwrap();
    let mut postgres = Connection::postgres(&format!("{server}/postgres")).unwrap();
    let (created, restored) = (format!("{own}_created"), format!("{own}_restored"));
    let at = |name: &str| format!("{server}/{name}");
    terminal.json(&["init", "--db", &at(&created)]);
    assert_eq!(terminal.json(&["role", "list", "--db", &at(&created)]), serde_json::json!([]));
    let file = terminal.home.path().join("backup.jsonl");
    terminal.json(&["backup", file.to_str().unwrap()]);
    terminal.json(&["restore", file.to_str().unwrap(), "--db", &at(&restored)]);
    assert_eq!(column(&terminal.json(&["role", "list", "--db", &at(&restored)]), "name"), ["coder"]);
    for name in [created, restored] {
        postgres.batch(&format!("drop database {name} with (force)")).unwrap();
    }
}

#[test]
fn read_only_directory_is_reported_and_no_data_is_lost() {
    let terminal = Terminal::new(Engine::Sqlite);
    let url = terminal.database.url_text();
    let file = std::path::Path::new(url.strip_prefix("sqlite:").unwrap());
    let directory = file.parent().unwrap();
    for path in [directory, file] {
        fs::set_permissions(path, fs::Permissions::from_mode(if path == file { 0o444 } else { 0o555 })).unwrap();
    }
    let mut command = terminal.command(&["role", "set", "--name", "x"]);
    // The superuser can write anywhere, so the command runs as another user.
    command.uid(65_534).gid(65_534).current_dir("/");
    if let Ok(output) = command.output() {
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{stderr}");
        assert!(stderr.contains("cannot be written"), "{stderr}");
    }
    fs::set_permissions(directory, fs::Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(file, fs::Permissions::from_mode(0o644)).unwrap();
    assert_eq!(terminal.json(&["role", "list"]), serde_json::json!([]));
}

#[test]
fn full_disk_is_reported_and_no_data_is_lost() {
    let terminal = Terminal::new(Engine::Sqlite);
    let url = terminal.database.url_text();
    let file = std::path::Path::new(url.strip_prefix("sqlite:").unwrap());
    let pages = fs::metadata(file).unwrap().len() / 4_096;
    // A limit on the file size stands in for a full disk.
    let long = "x".repeat(100_000);
    let note = ["note", "create", "--studio", "main", "--title", "big", "--body", &long];
    let mut script = std::process::Command::new("bash");
    let line = format!("ulimit -f {}; trap '' XFSZ; exec \"$0\" \"$@\"", pages * 4);
    script.arg("-c").arg(line).arg(env!("CARGO_BIN_EXE_trackway")).args(note);
    script
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .env("HOME", terminal.home.path())
        .env("USER", "ada")
        .env("TRACKWAY_DB", &url);
    let mut codes = Vec::new();
    for _ in 0..20 {
        let output = script.output().unwrap();
        codes.push(output.status.code().unwrap());
        if !output.status.success() {
            let stderr = String::from_utf8(output.stderr).unwrap();
            assert!(stderr.starts_with("error: "), "{stderr}");
            break;
        }
    }
    assert_eq!(codes.pop(), Some(1));
    assert_eq!(column(&terminal.json(&["note", "list"]), "title").len(), codes.len());
    terminal.json(&["note", "create", "--studio", "main", "--title", "after"]);
}

#[test]
fn concurrent_processes_all_write_successfully() {
    for engine in [Engine::Sqlite, Engine::Postgres] {
        let terminal = Terminal::new(engine);
        let children: Vec<_> = (0..16)
            .map(|number| {
                let name = format!("role{}", number % 4);
                terminal
                    .command(&["role", "set", "--name", &name, "--title", &number.to_string(), "--json"])
                    .spawn()
                    .unwrap()
            })
            .collect();
        for mut child in children {
            assert!(child.wait().unwrap().success());
        }
        let mut names = column(&terminal.json(&["role", "list"]), "name");
        names.sort();
        assert_eq!(names, ["role0", "role1", "role2", "role3"]);
    }
}

/// A killed process leaves either a note with its touch and its event, or none of them.
#[test]
fn killed_process_writes_a_note_completely_or_not_at_all() {
    for engine in [Engine::Sqlite, Engine::Postgres] {
        let terminal = Terminal::new(engine);
        let (run, token) = terminal.start_run(&["--agent", "worker"]);
        for micros in (0..40).map(|step| step * 500) {
            let mut command = terminal.command(&["note", "create", "--studio", "main", "--title", "x"]);
            let mut child = command.env("TRACKWAY_TOKEN", &token).stdout(std::process::Stdio::null()).spawn().unwrap();
            std::thread::sleep(std::time::Duration::from_micros(micros));
            child.kill().unwrap();
            child.wait().unwrap();
        }
        let notes = terminal.json(&["note", "list"]).as_array().unwrap().len();
        let touches = terminal.json(&["made", &run])["touches"].as_array().unwrap().len();
        let events = column(&terminal.json(&["event", "list", "--limit", "1000"]), "action");
        assert_eq!((touches, events.iter().filter(|action| *action == "create_note").count()), (notes, notes));
        terminal.json_with_token(Some(&token), &["note", "create", "--studio", "main", "--title", "after"]);
    }
}

#[test]
fn read_only_postgres_role_gets_a_privilege_error() {
    let terminal = Terminal::new(Engine::Postgres);
    let role = format!("reader_{}", uuid::Uuid::new_v4().simple());
    let mut owner = connection(&terminal);
    owner
        .batch(&format!(
            "create role {role}; grant usage on schema public to {role}; grant select on all tables in schema public to {role}"
        ))
        .unwrap();
    let url = format!("{}?options=-c%20role%3D{role}", terminal.database.url_text());
    assert_eq!(terminal.json(&["studio", "list", "--db", &url])[0]["name"], "main");
    let output = terminal.run(&["studio", "set", "--name", "x", "--db", &url]);
    assert_eq!(
        (output.code, output.stderr.as_str()),
        (
            6,
            "error: the PostgreSQL role lacks a privilege: permission denied for table studios\n\
             hint: use the URL of the role that owns the tables; nothing was changed\n"
        )
    );
    owner.batch(&format!("drop owned by {role}; drop role {role}")).unwrap();
}
