//! Several machines at one PostgreSQL: a cable that is pulled, and connections that nobody can listen in to.
//!
//! Machines are network namespaces, which takes root to make: for others there is nothing to test here.

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

/// Someone who types commands on one of several machines.
struct Machine<'network> {
    terminal: Terminal,
    network: &'network Network,
    machine: u8,
}

impl<'network> Machine<'network> {
    fn at(network: &'network Network, machine: u8, url: &str) -> Self {
        Self { terminal: Terminal::uninitialized_at_url(url), network, machine }
    }

    fn run(&self, arguments: &[&str]) -> CommandOutput {
        let mut command = self.terminal.command(arguments);
        run_command(self.network.command_on(self.machine, command.arg("--json")))
    }

    #[track_caller]
    fn json(&self, arguments: &[&str]) -> Value {
        let output = self.run(arguments);
        assert_eq!(output.code, 0, "{arguments:?}: {}", output.stderr);
        serde_json::from_str::<Value>(&output.stdout).unwrap()["data"].clone()
    }

    /// A worker on this machine, and where it writes what it has to say.
    fn works(&self, arguments: &[&str]) -> Worker {
        let mut command = self.terminal.command(&[&["work"], arguments].concat());
        command.env("PATH", std::env::var_os("PATH").unwrap());
        let said = fs::File::create(self.home().join("said")).unwrap();
        Worker(self.network.command_on(self.machine, &command).stdout(Stdio::null()).stderr(said).spawn().unwrap())
    }

    fn home(&self) -> &Path {
        self.terminal.home.path()
    }

    fn said(&self) -> String {
        fs::read_to_string(self.home().join("said")).unwrap()
    }
}

#[test]
fn a_machine_that_is_cut_off_loses_its_lease_and_comes_back() {
    let Some(network) = Network::create(3) else { return };
    let server = RemoteServer::start(&network, 1);
    let (left, right) = (Machine::at(&network, 2, &server.url), Machine::at(&network, 3, &server.url));
    left.json(&["init"]);
    left.json(&["workflow", "set", "--name", "ops"]);
    let script = format!(
        "if mkdir {0}/first 2>/dev/null; then sleep 40; echo late >> {0}/made; else echo $TRACKWAY_RUN >> {0}/made; fi",
        left.home().display()
    );
    left.json(&["task", "set", "--workflow", "ops", "--variant", "t", "--recurring", "true", "--script", &script]);
    let item = text(&left.json(&["queue", "add", "--task", "t"])["id"]);
    let _left_worker = left.works(&["--lease", "5"]);
    wait_for(|| left.home().join("first").exists().then_some(()));
    network.cut_link(2);

    // Who is cut off is told so, soon.
    let begun = Instant::now();
    let output = left.run(&["queue", "size"]);
    assert_eq!(output.code, 5, "{}", output.stderr);
    assert!(output.stderr.contains("PostgreSQL cannot be reached"), "{}", output.stderr);
    assert!(begun.elapsed() < Duration::from_secs(8), "{:?}", begun.elapsed());

    // Its lease ends, and another machine does the work.
    let right_worker = right.works(&["--lease", "5"]);
    let status = |machine: &Machine<'_>, item: &str| text(&machine.json(&["queue", "get", item])["status"]);
    wait_for(|| (status(&right, &item) == "completed").then_some(()));
    wait_for(|| left.said().contains("PostgreSQL cannot be reached").then_some(()));
    network.restore_link(2);
    drop(right_worker);

    // What it did meanwhile counts no more.
    let shown = right.json(&["queue", "get", &item]);
    assert_eq!((&shown["fence"], &shown["attempt"]), (&json!(2), &json!(2)), "{shown:#}");
    let late = left.run(&["queue", "complete", "--id", &item, "--fence", "1"]);
    assert_eq!(late.code, 4, "{}", late.stderr);
    wait_for(|| left.said().contains("the database is available again").then_some(()));
    wait_for(|| left.said().contains("lost: cancelled, taken by another worker").then_some(()));
    assert_eq!(fs::read_to_string(left.home().join("made")).unwrap().trim(), text(&shown["run_id"]));

    // And it works on.
    let next = text(&left.json(&["queue", "add", "--task", "t"])["id"]);
    wait_for(|| (status(&left, &next) == "completed").then_some(()));
}

/// Runs `openssl` in a directory.
fn openssl(directory: &Path, line: &str) {
    let output = Command::new("openssl").args(line.split(' ')).current_dir(directory).output().unwrap();
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Gives a server a certificate for `db.test`, and lets it encrypt; the authority is left in `ca.crt`.
fn certify(server: &RemoteServer, at: &Path) {
    openssl(
        at,
        "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout ca.key -out ca.crt -days 2 -subj /CN=authority",
    );
    openssl(
        at,
        "req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout server.key -out server.csr -subj /CN=db.test -addext subjectAltName=DNS:db.test",
    );
    openssl(
        at,
        "x509 -req -in server.csr -CA ca.crt -CAkey ca.key -CAcreateserial -out server.crt -days 2 -copy_extensions copy",
    );
    let owner = fs::metadata(server.data_folder()).unwrap();
    for name in ["server.key", "server.crt"] {
        let to = server.data_folder().join(name);
        fs::copy(at.join(name), &to).unwrap();
        fs::set_permissions(&to, fs::Permissions::from_mode(0o600)).unwrap();
        chown(&to, Some(owner.uid()), Some(owner.gid())).unwrap();
    }
    // Over the network encrypted only.
    fs::write(server.data_folder().join("pg_hba.conf"), "local all all trust\nhostssl all all samenet trust\n").unwrap();
    let mut connection = Connection::postgres(&server.socket_url()).unwrap();
    connection.batch("alter system set ssl = on").unwrap();
    connection.batch("select pg_reload_conf()").unwrap();
}

#[test]
fn the_way_to_a_server_is_encrypted_as_much_as_is_asked_for() {
    let Some(network) = Network::create(2) else { return };
    let server = RemoteServer::start(&network, 1);
    let machine = Machine::at(&network, 2, &server.url);
    // A server that does not encrypt will do, unless it is asked to.
    machine.json(&["init"]);
    let said = machine.run(&["queue", "size", "--db", &format!("{}?sslmode=require", server.url)]);
    assert_eq!(said.code, 5, "{}", said.stderr);
    assert!(said.stderr.contains("server does not support TLS"), "{}", said.stderr);

    certify(&server, machine.home());
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

    // A worker waits at an encrypted bell like at any other.
    let machine = Machine::at(&network, 2, &url("db.test", &format!("&sslmode=verify-full{authority}")));
    machine.json(&["workflow", "set", "--name", "ops"]);
    machine.json(&["task", "set", "--workflow", "ops", "--variant", "t", "--script", "echo ok"]);
    let _worker = machine.works(&[]);
    let item = text(&machine.json(&["queue", "add", "--task", "t"])["id"]);
    wait_for(|| (machine.json(&["queue", "get", &item])["status"] == "completed").then_some(()));
    let mut side = Connection::postgres(&server.socket_url()).unwrap();
    let encrypted = side.query::<(i64,)>("select count(*) from pg_stat_ssl where ssl", &[]).unwrap();
    assert!(encrypted[0].0 >= 2, "{encrypted:?}");
}
