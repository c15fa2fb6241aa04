//! `trackway up`: runs the server and a worker in one process. `trackway open`: opens the pages in a browser.

use std::{
    io::{BufRead, BufReader, ErrorKind, IsTerminal, Write},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream},
    process::{Command as Process, Stdio},
    sync::{Arc, mpsc},
    thread,
    time::Duration,
};

use clap::{Arg, ArgAction, ArgMatches, Command};
use rustix::process::{Resource, Rlimit};
use serde_json::json;
use tokio::sync::watch;
use trackway_actions::token::CreateToken;
use trackway_clients::CLIENTS;
use trackway_domain::{Error as Rule, command, enums::TokenScope, sentence};
use trackway_runner::{AgentSelection, WorkerMessage, signals::Signals, worker};
use trackway_server::Site;

use crate::{
    dispatch::{App, CommandOutcome},
    environment,
    failure::Failure,
    location::Location,
    model,
    render::Layout,
    work,
};

const DEFAULT_ADDRESS: &str = "127.0.0.1:7878";
const LINK_LIFETIME_SECONDS: i64 = 600;
/// Requests per second for one token.
const DEFAULT_RATE: u32 = 10_000;
/// Threads for blocking database calls.
const BLOCKING_THREADS: usize = 64;
/// The limit of open files that the server requests.
const OPEN_FILES_MAX: u64 = 8_192;
/// Open files that are reserved for databases, logs and the worker's pipes.
const RESERVED_FILES: u64 = 256;
/// The timeout for checking a login link with the server.
const SERVER_TIMEOUT: Duration = Duration::from_secs(10);
/// Time for connections to close when the server stops.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(5);

fn listen() -> Arg {
    Arg::new("listen")
        .long("listen")
        .value_name("ADDRESS")
        .env(environment::LISTEN)
        .hide_env_values(true)
        .default_value(DEFAULT_ADDRESS)
        .value_parser(clap::value_parser!(SocketAddr))
        .help("Address of the server. Port 0 selects a free port")
}

pub fn command() -> Command {
    Command::new("up")
        .about("Run the server and a worker, until stopped")
        .long_about(
            format!("Run the server and a worker, until stopped.\n\nThe server listens on this machine only, unless --listen names another address. It prints its address and a login link that works once. Every page is available as HTML, Markdown and JSON. The worker runs scripts, and all agents that use a model or {}, if the model or the client is available on this machine. --agent selects other agents. Stop with Ctrl-C or SIGTERM: running tasks may finish.", CLIENTS.display_names()),
        )
        .args([
            listen(),
            Arg::new("host")
                .long("host")
                .value_name("NAME")
                .action(ArgAction::Append)
                .help("Additional allowed Host header. Repeatable"),
            Arg::new("rate")
                .long("rate")
                .value_name("NUMBER")
                .value_parser(clap::value_parser!(u32))
                .help("Maximum requests per second for one token; 0 for no limit [default: 10000]"),
            Arg::new("open").long("open").action(ArgAction::SetTrue).help("Open the pages in your browser, and log it in"),
            Arg::new("no_work").long("no-work").action(ArgAction::SetTrue).help("Do not run a worker"),
        ])
        .args(work::arguments())
}

pub fn open_command() -> Command {
    Command::new("open")
        .about("Open the pages of a running server in your browser, and log it in")
        .arg(listen().help("Address of the running server"))
}

pub fn up(app: &App, location: &Location, matches: &ArgMatches) -> Result<CommandOutcome, Failure> {
    let context = work::require_person(app)?;
    let requested_address = address(matches)?;
    let listener = TcpListener::bind(requested_address).map_err(|error| match error.kind() {
        ErrorKind::AddrInUse => Failure::from(
            Rule::conflict(format!("{requested_address} is in use"))
                .hint("the server may be running already; to use a free port: --listen 127.0.0.1:0"),
        ),
        _ => error.into(),
    })?;
    listener.set_nonblocking(true)?;
    let address = listener.local_addr()?;
    let mut signals = Signals::listen()?;
    let site = Site::new(Arc::new(location.open()?));
    let settings = trackway_server::Settings {
        hosts: matches.get_many::<String>("host").into_iter().flatten().cloned().collect(),
        rate: matches.get_one::<u32>("rate").copied().unwrap_or(DEFAULT_RATE),
        max_connections: connections(),
        ..trackway_server::Settings::default()
    };
    let (stop, stopped) = watch::channel(false);
    let server = start_server(listener, site.clone(), settings, stopped)?;

    let mut stdout = std::io::stdout();
    writeln!(stdout, "Trackway is up at http://{address}/")?;
    let link = create_login_link(app, address)?;
    writeln!(stdout, "Log in with {link} (once, within 10 minutes)")?;
    stdout.flush()?;
    if matches.get_flag("open") && stdout.is_terminal() {
        open_browser(&link);
    }
    if !address.ip().is_loopback() {
        writeln!(
            anstream::stderr(),
            "note: other machines can reach the server, and it does not encrypt: put a TLS proxy in front of it"
        )?;
    }

    let (sender, messages) = mpsc::channel();
    let stop_sender = sender.clone();
    thread::spawn(move || {
        loop {
            signals.wait();
            let _ = stop.send(true);
            if stop_sender.send(WorkerMessage::Stop).is_err() {
                return;
            }
        }
    });
    let tally = if matches.get_flag("no_work") {
        let _ = messages.recv();
        worker::Tally::default()
    } else {
        let backend = model::backend(&location.model, || Ok(site));
        let settings = work::settings(matches, backend, AgentSelection::Everyone)?;
        worker::work(&app.core, &context, &settings, (&sender, &messages), &|event| work::print_event(event))?
    };
    let start = std::time::Instant::now();
    while !server.is_finished() && start.elapsed() < SHUTDOWN_TIMEOUT {
        thread::sleep(Duration::from_millis(10));
    }
    Ok(CommandOutcome::new(json!(tally), Layout::Fields))
}

/// The maximum number of connections. Each needs an open file, so this raises the limit of open files as far as the
/// system allows.
fn connections() -> usize {
    let mut files = rustix::process::getrlimit(Resource::Nofile);
    if files.current.is_some_and(|current| current < OPEN_FILES_MAX) {
        let most = files.maximum.unwrap_or(OPEN_FILES_MAX).min(OPEN_FILES_MAX);
        if rustix::process::setrlimit(Resource::Nofile, Rlimit { current: Some(most), ..files }).is_ok() {
            files.current = Some(most);
        }
    }
    let files = files.current.unwrap_or(OPEN_FILES_MAX).min(OPEN_FILES_MAX);
    usize::try_from(files.saturating_sub(RESERVED_FILES).max(1)).unwrap_or(1)
}

fn start_server(
    listener: TcpListener,
    site: Site,
    settings: trackway_server::Settings,
    stop: watch::Receiver<bool>,
) -> Result<thread::JoinHandle<()>, Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .max_blocking_threads(BLOCKING_THREADS)
        .enable_all()
        .build()?;
    Ok(thread::spawn(move || {
        // A connection to PostgreSQL must not be closed inside the async runtime, where blocking panics. This clone
        // keeps the connections open until the runtime has stopped.
        let _site = site.clone();
        let result = runtime.block_on(async {
            let listener = tokio::net::TcpListener::from_std(listener)?;
            trackway_server::serve(listener, site, settings, stop).await
        });
        if let Err(error) = result {
            let _ = writeln!(anstream::stderr(), "error: the server stopped: {error}");
        }
        runtime.shutdown_timeout(Duration::from_millis(100));
    }))
}

/// Creates a login link, and opens it in a browser if there is one.
pub fn open(app: &App, matches: &ArgMatches) -> Result<CommandOutcome, Failure> {
    work::require_person(app)?;
    let address = address(matches)?;
    let unreachable = |_| {
        Rule::not_found(format!("no server at {address}")).hint(sentence![
            "start the server: ",
            command!("up"),
            "; or name its address with --listen"
        ])
    };
    let server = TcpStream::connect_timeout(&address, SERVER_TIMEOUT).map_err(unreachable)?;
    let url = create_login_link(app, address)?;
    check_server(&server, address, &url)?;
    let opened = std::io::stdout().is_terminal() && open_browser(&url);
    let mut outcome = CommandOutcome::new(json!({ "url": url, "opened": opened }), Layout::Field("url"));
    outcome.remarks.push("note: the link works once, within 10 minutes".to_owned());
    Ok(outcome)
}

fn open_browser(url: &str) -> bool {
    let program = if cfg!(target_os = "macos") { "open" } else { "xdg-open" };
    let started =
        Process::new(program).arg(url).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
    started.is_ok_and(|status| status.success())
}

fn address(matches: &ArgMatches) -> Result<SocketAddr, Failure> {
    let address = matches.get_one::<SocketAddr>("listen").copied();
    address.ok_or_else(|| Rule::usage("--listen must be ADDRESS:PORT").into())
}

/// Checks that the server uses the same database, because otherwise the server rejects the link. The link stays valid,
/// because a HEAD request does not use it up.
fn check_server(mut server: &TcpStream, address: SocketAddr, url: &str) -> Result<(), Failure> {
    let path = url.find("/login").map_or("/login", |start| &url[start..]);
    server.set_read_timeout(Some(SERVER_TIMEOUT))?;
    let host = format!("localhost:{}", address.port());
    let mut status = String::new();
    // Ignore errors: the status then stays empty, which means that another program listens at the address.
    let _ = write!(server, "HEAD {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n")
        .and_then(|()| BufReader::new(server).read_line(&mut status));
    match status.split(' ').nth(1) {
        Some("200") => Ok(()),
        Some("401") => Err(Rule::conflict(format!("the server at {address} uses another database"))
            .hint(sentence![
                "name the database of that server with --db; or start a server for this database: ",
                command!("up", listen = "127.0.0.1:0"),
            ])
            .into()),
        _ => Err(Rule::conflict(format!("the program at {address} is not this version of Trackway"))
            .hint(sentence!["start the server: ", command!("up"), "; or name its address with --listen"])
            .into()),
    }
}

/// Creates a link that logs the user in once.
fn create_login_link(app: &App, address: SocketAddr) -> Result<String, Failure> {
    let create = CreateToken {
        name: Some("login link".to_owned()),
        person: None,
        expires: Some(app.core.now().plus_seconds(LINK_LIFETIME_SECONDS)),
        scope: Some(TokenScope::Login),
    };
    let created = app.core.execute(&app.context()?, &create)?;
    // A browser cannot open the unspecified address.
    let host = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => SocketAddr::new(Ipv4Addr::LOCALHOST.into(), address.port()),
        IpAddr::V6(ip) if ip.is_unspecified() => SocketAddr::new(Ipv6Addr::LOCALHOST.into(), address.port()),
        _ => address,
    };
    Ok(format!("http://{host}/login?code={}", created.token))
}
