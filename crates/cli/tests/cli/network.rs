//! Several machines with one PostgreSQL server: cut network links and encrypted connections.
//!
//! The machines are network namespaces. Creating these requires root; without root the tests pass without testing.

use std::{
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt, chown},
    path::Path,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use trackway_store::connection::Connection;
use trackway_testkit::{Network, RemoteServer};

use crate::{
    terminal::{CommandOutput, Terminal, run_command, text},
    work::{Worker, wait_for},
};

/// A terminal on one of several machines.
struct Machine<'network> {
    terminal: Terminal,
    network: &'network Network,
    number: u8,
}

impl<'network> Machine<'network> {
    fn new(network: &'network Network, number: u8, url: &str) -> Self {
        Self { terminal: Terminal::uninitialized_at_url(url), network, number }
    }

    fn run(&self, arguments: &[&str]) -> CommandOutput {
        let mut command = self.terminal.command(arguments);
        run_command(self.network.command_on(self.number, command.arg("--json")))
    }

    #[track_caller]
    fn json(&self, arguments: &[&str]) -> Value {
        let output = self.run(arguments);
        assert_eq!(output.code, 0, "{arguments:?}: {}", output.stderr);
        serde_json::from_str::<Value>(&output.stdout).unwrap()["data"].clone()
    }

    /// Starts a worker on this machine, with its standard error in a file.
    fn start_worker(&self, arguments: &[&str]) -> Worker {
        let mut command = self.terminal.command(&[&["work"], arguments].concat());
        command.env("PATH", std::env::var_os("PATH").unwrap());
        let stderr = fs::File::create(self.home().join("worker.stderr")).unwrap();
        Worker(self.network.command_on(self.number, &command).stdout(Stdio::null()).stderr(stderr).spawn().unwrap())
    }

    fn home(&self) -> &Path {
        self.terminal.home.path()
    }

    fn worker_stderr(&self) -> String {
        fs::read_to_string(self.home().join("worker.stderr")).unwrap()
    }
}

#[test]
fn disconnected_worker_loses_its_lease_and_works_again_after_reconnecting() {
    let Some(network) = Network::create(3) else { return };
    let server = RemoteServer::start(&network, 1);
    let (first, second) = (Machine::new(&network, 2, &server.url), Machine::new(&network, 3, &server.url));
    first.json(&["init"]);
    first.json(&["workflow", "set", "--name", "ops"]);
    let script = format!(
        "if mkdir {0}/first 2>/dev/null; then sleep 40; echo late >> {0}/made; else echo $TRACKWAY_RUN >> {0}/made; fi",
        first.home().display()
    );
    first.json(&["task", "set", "--workflow", "ops", "--variant", "t", "--recurring", "true", "--script", &script]);
    let item = text(&first.json(&["queue", "add", "--task", "t"])["id"]);
    let _first_worker = first.start_worker(&["--lease", "5"]);
    wait_for(|| first.home().join("first").exists().then_some(()));
    network.cut_link(2);

    // A command on the disconnected machine fails soon.
    let started_at = Instant::now();
    let output = first.run(&["queue", "size"]);
    assert_eq!(output.code, 5, "{}", output.stderr);
    assert!(output.stderr.contains("PostgreSQL cannot be reached"), "{}", output.stderr);
    assert!(started_at.elapsed() < Duration::from_secs(8), "{:?}", started_at.elapsed());

    // The lease expires, and a worker on another machine takes the item.
    let second_worker = second.start_worker(&["--lease", "5"]);
    let status = |machine: &Machine<'_>, item: &str| text(&machine.json(&["queue", "get", item])["status"]);
    wait_for(|| (status(&second, &item) == "completed").then_some(()));
    wait_for(|| first.worker_stderr().contains("PostgreSQL cannot be reached").then_some(()));
    network.restore_link(2);
    drop(second_worker);

    // The first worker can no longer complete the item.
    let shown = second.json(&["queue", "get", &item]);
    assert_eq!((&shown["fence"], &shown["attempt"]), (&json!(2), &json!(2)), "{shown:#}");
    let late = first.run(&["queue", "complete", "--id", &item, "--fence", "1"]);
    assert_eq!(late.code, 4, "{}", late.stderr);
    wait_for(|| first.worker_stderr().contains("the database is available again").then_some(()));
    wait_for(|| first.worker_stderr().contains("lost: cancelled, taken by another worker").then_some(()));
    assert_eq!(fs::read_to_string(first.home().join("made")).unwrap().trim(), text(&shown["run_id"]));

    // The first worker takes further items.
    let next = text(&first.json(&["queue", "add", "--task", "t"])["id"]);
    wait_for(|| (status(&first, &next) == "completed").then_some(()));
}

/// Runs `openssl` in a directory.
fn openssl(directory: &Path, line: &str) {
    let output = Command::new("openssl").args(line.split(' ')).current_dir(directory).output().unwrap();
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Gives the server a certificate for `db.test` and enables TLS. The certificate authority is in `ca.crt`.
fn enable_tls(server: &RemoteServer, folder: &Path) {
    openssl(
        folder,
        "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout ca.key -out ca.crt -days 2 -subj /CN=authority",
    );
    openssl(
        folder,
        "req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout server.key -out server.csr -subj /CN=db.test -addext subjectAltName=DNS:db.test",
    );
    openssl(
        folder,
        "x509 -req -in server.csr -CA ca.crt -CAkey ca.key -CAcreateserial -out server.crt -days 2 -copy_extensions copy",
    );
    let owner = fs::metadata(server.data_folder()).unwrap();
    for name in ["server.key", "server.crt"] {
        let to = server.data_folder().join(name);
        fs::copy(folder.join(name), &to).unwrap();
        fs::set_permissions(&to, fs::Permissions::from_mode(0o600)).unwrap();
        chown(&to, Some(owner.uid()), Some(owner.gid())).unwrap();
    }
    // Network connections must be encrypted.
    fs::write(server.data_folder().join("pg_hba.conf"), "local all all trust\nhostssl all all samenet trust\n")
        .unwrap();
    let mut connection = Connection::postgres(&server.socket_url()).unwrap();
    connection.batch("alter system set ssl = on").unwrap();
    connection.batch("select pg_reload_conf()").unwrap();
}

#[test]
fn connections_are_encrypted_and_verified_as_sslmode_requires() {
    let Some(network) = Network::create(2) else { return };
    let server = RemoteServer::start(&network, 1);
    let machine = Machine::new(&network, 2, &server.url);
    // A server without TLS is accepted unless sslmode requires TLS.
    machine.json(&["init"]);
    let refused = machine.run(&["queue", "size", "--db", &format!("{}?sslmode=require", server.url)]);
    assert_eq!(refused.code, 5, "{}", refused.stderr);
    assert!(refused.stderr.contains("server does not support TLS"), "{}", refused.stderr);

    enable_tls(&server, machine.home());
    let (address, home) = (Network::address(1), machine.home().display().to_string());
    let url = |name: &str, more: &str| format!("postgres://postgres@{name}/postgres?hostaddr={address}{more}");
    wait_for(|| (machine.run(&["queue", "size", "--db", &url("db.test", "&sslmode=require")]).code == 0).then_some(()));
    let authority = format!("&sslrootcert={home}/ca.crt");
    for good in [
        url("db.test", ""),
        url("other.test", "&sslmode=prefer"),
        url("other.test", "&sslmode=require"),
        url("other.test", &format!("&sslmode=verify-ca{authority}")),
        url("db.test", &format!("&sslmode=verify-full{authority}")),
    ] {
        let output = machine.run(&["queue", "size", "--db", &good]);
        assert_eq!(output.code, 0, "{good}: {}", output.stderr);
    }
    for (bad, why) in [
        (url("db.test", "&sslmode=disable"), "no encryption"),
        (url("other.test", &format!("&sslmode=verify-full{authority}")), "not valid for name"),
        (url("db.test", "&sslmode=verify-full"), "UnknownIssuer"),
        (url("db.test", "&sslrootcert=system"), "UnknownIssuer"),
        (url("db.test", "&sslmode=verify-full&sslrootcert=/none"), "sslrootcert /none"),
    ] {
        let output = machine.run(&["queue", "size", "--db", &bad]);
        assert!(output.code != 0 && output.stderr.contains(why), "{bad}: {}", output.stderr);
    }

    // Queue notifications reach a worker over an encrypted connection.
    let machine = Machine::new(&network, 2, &url("db.test", &format!("&sslmode=verify-full{authority}")));
    machine.json(&["workflow", "set", "--name", "ops"]);
    machine.json(&["task", "set", "--workflow", "ops", "--variant", "t", "--script", "echo ok"]);
    let _worker = machine.start_worker(&[]);
    let item = text(&machine.json(&["queue", "add", "--task", "t"])["id"]);
    wait_for(|| (machine.json(&["queue", "get", &item])["status"] == "completed").then_some(()));
    let mut side = Connection::postgres(&server.socket_url()).unwrap();
    let encrypted = side.query::<(i64,)>("select count(*) from pg_stat_ssl where ssl", &[]).unwrap();
    assert!(encrypted[0].0 >= 2, "{encrypted:?}");
}
