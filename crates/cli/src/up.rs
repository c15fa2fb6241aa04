//! `up`: the server, its pages and a worker in one process; `open`: a browser that is logged in.

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
use trackway_domain::{Error as Rule, command, sentence, words::TokenScope};
use trackway_runner::{Note, Serves, signals::Signals, worker};
use trackway_server::Site;

use crate::{
    door::{House, Outcome},
    environment,
    failure::Failure,
    location::Location,
    model,
    render::Shape,
    work,
};

/// Where it listens when it is not said.
const ADDRESS: &str = "127.0.0.1:7878";
/// How long a login link works.
const LINK_SECONDS: i64 = 600;
/// Requests a second that one token may make.
const RATE: u32 = 10_000;
/// Threads that may wait for the database.
const THREADS: usize = 64;
/// Files that the server wants to be able to have open.
const FILES_WANTED: u64 = 8_192;
/// Files of those that are not for connections: databases, logs, the worker's pipes.
const FILES_KEPT: u64 = 256;
/// How long a server may take to say whether it knows a link.
const SERVER_PATIENCE: Duration = Duration::from_secs(10);
/// How long connections may take to end.
const FAREWELL: Duration = Duration::from_secs(5);

fn listen() -> Arg {
    Arg::new("listen")
        .long("listen")
        .value_name("ADDRESS")
        .env(environment::LISTEN)
        .hide_env_values(true)
        .default_value(ADDRESS)
        .value_parser(clap::value_parser!(SocketAddr))
        .help("Where the server listens; port 0 takes a free one")
}

pub fn command() -> Command {
    Command::new("up")
        .about("Start the server with its pages, and a worker, until stopped")
        .long_about(
            format!("Start the server with its pages, and a worker, until stopped.\n\nThe worker runs scripts, and serves every agent that a model or {} drives, as far as there is one; --agent names those to serve instead. It listens on this machine only, unless it is told otherwise, and prints its address and a link that logs a browser in, once. Every page is there in HTML, Markdown and JSON. Stop with Ctrl-C or SIGTERM: what runs may finish.", CLIENTS.display_names()),
        )
        .args([
            listen(),
            Arg::new("host")
                .long("host")
                .value_name("NAME")
                .action(ArgAction::Append)
                .help("A name it may be called by, beside those of this machine; repeat for several"),
                        Arg::new("rate")
                .long("rate")
                .value_name("NUMBER")
                .value_parser(clap::value_parser!(u32))
                .help("How many requests a second one token may make (10000); 0 is no limit"),
            Arg::new("open").long("open").action(ArgAction::SetTrue).help("Open the pages in a browser, logged in"),
            Arg::new("no_work").long("no-work").action(ArgAction::SetTrue).help("Without a worker"),
        ])
        .args(work::arguments())
}

pub fn open_command() -> Command {
    Command::new("open").about("Open the pages in a browser, logged in; the link works once").arg(listen())
}

/// Serves, and works, until told to stop.
pub fn up(house: &House, location: &Location, matches: &ArgMatches) -> Result<Outcome, Failure> {
    let context = work::people_only(house)?;
    let wanted = address(matches)?;
    let listener = TcpListener::bind(wanted).map_err(|error| match error.kind() {
        ErrorKind::AddrInUse => Failure::from(
            Rule::conflict(format!("{wanted} is in use"))
                .hint("is it up already? --listen 127.0.0.1:0 takes a free port"),
        ),
        _ => error.into(),
    })?;
    listener.set_nonblocking(true)?;
    let address = listener.local_addr()?;
    let mut signals = Signals::listen()?;
    let site = Site::new(Arc::new(location.open()?));
    let settings = trackway_server::Settings {
        hosts: matches.get_many::<String>("host").into_iter().flatten().cloned().collect(),
        rate: matches.get_one::<u32>("rate").copied().unwrap_or(RATE),
        connections: connections(),
        ..trackway_server::Settings::default()
    };
    let (stop, stopped) = watch::channel(false);
    let server = serving(listener, site.clone(), settings, stopped)?;

    let mut stdout = std::io::stdout();
    writeln!(stdout, "Trackway is up at http://{address}/")?;
    let link = link(house, address)?;
    writeln!(stdout, "Log in with {link} (once, within 10 minutes)")?;
    stdout.flush()?;
    if matches.get_flag("open") && stdout.is_terminal() {
        browse(&link);
    }
    if !address.ip().is_loopback() {
        writeln!(
            anstream::stderr(),
            "note: it can be reached from other machines, and does not encrypt: put a proxy with TLS before it"
        )?;
    }

    let (tell, notes) = mpsc::channel();
    let told = tell.clone();
    thread::spawn(move || {
        loop {
            signals.wait();
            let _ = stop.send(true);
            if told.send(Note::Stop).is_err() {
                return;
            }
        }
    });
    let tally = if matches.get_flag("no_work") {
        let _ = notes.recv();
        worker::Tally::default()
    } else {
        let means = model::means(&location.model, || Ok(site));
        let settings = work::settings(matches, means, Serves::Everyone)?;
        worker::work(&house.core, &context, &settings, (&tell, &notes), &|event| work::tell(event))?
    };
    let begun = std::time::Instant::now();
    while !server.is_finished() && begun.elapsed() < FAREWELL {
        thread::sleep(Duration::from_millis(10));
    }
    Ok(Outcome::new(json!(tally), Shape::Fields))
}

/// How many connections may be open: each is an open file, and some are needed for everything else. The limit of the
/// process is raised as far as the system allows without asking.
fn connections() -> usize {
    let mut files = rustix::process::getrlimit(Resource::Nofile);
    if files.current.is_some_and(|current| current < FILES_WANTED) {
        let most = files.maximum.unwrap_or(FILES_WANTED).min(FILES_WANTED);
        if rustix::process::setrlimit(Resource::Nofile, Rlimit { current: Some(most), ..files }).is_ok() {
            files.current = Some(most);
        }
    }
    let files = files.current.unwrap_or(FILES_WANTED).min(FILES_WANTED);
    usize::try_from(files.saturating_sub(FILES_KEPT).max(1)).unwrap_or(1)
}

fn serving(
    listener: TcpListener,
    site: Site,
    settings: trackway_server::Settings,
    stop: watch::Receiver<bool>,
) -> Result<thread::JoinHandle<()>, Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .max_blocking_threads(THREADS)
        .enable_all()
        .build()?;
    Ok(thread::spawn(move || {
        // What reaches PostgreSQL may not end where nothing may block: it is held until that is over.
        let _kept = site.clone();
        let served = runtime.block_on(async {
            let listener = tokio::net::TcpListener::from_std(listener)?;
            trackway_server::serve(listener, site, settings, stop).await
        });
        if let Err(error) = served {
            let _ = writeln!(anstream::stderr(), "error: the server stopped: {error}");
        }
        runtime.shutdown_timeout(Duration::from_millis(100));
    }))
}

/// Makes a login link, and opens it where there is a browser.
pub fn open(house: &House, matches: &ArgMatches) -> Result<Outcome, Failure> {
    work::people_only(house)?;
    let address = address(matches)?;
    let nobody = |_| {
        Rule::not_found(format!("nothing answers at {address}"))
            .hint(sentence![command!("up"), " starts the server; --listen says where it is"])
    };
    let server = TcpStream::connect_timeout(&address, SERVER_PATIENCE).map_err(nobody)?;
    let url = link(house, address)?;
    check_server(&server, address, &url)?;
    let opened = std::io::stdout().is_terminal() && browse(&url);
    let mut outcome = Outcome::new(json!({ "url": url, "opened": opened }), Shape::Field("url"));
    outcome.remarks.push("note: the link works once, within 10 minutes".to_owned());
    Ok(outcome)
}

fn browse(url: &str) -> bool {
    let program = if cfg!(target_os = "macos") { "open" } else { "xdg-open" };
    let started =
        Process::new(program).arg(url).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
    started.is_ok_and(|status| status.success())
}

fn address(matches: &ArgMatches) -> Result<SocketAddr, Failure> {
    let given = matches.get_one::<SocketAddr>("listen").copied();
    given.ok_or_else(|| Rule::usage("--listen is ADDRESS:PORT").into())
}

/// Asks the server whether it knows the link, which leaves the link as it is: a server over another database does not.
fn check_server(mut server: &TcpStream, address: SocketAddr, url: &str) -> Result<(), Failure> {
    let path = url.find("/login").map_or("/login", |start| &url[start..]);
    server.set_read_timeout(Some(SERVER_PATIENCE))?;
    let host = format!("localhost:{}", address.port());
    let mut status = String::new();
    // What does not take this, or does not answer it, is not our server.
    let _ = write!(server, "HEAD {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n")
        .and_then(|()| BufReader::new(server).read_line(&mut status));
    match status.split(' ').nth(1) {
        Some("200") => Ok(()),
        Some("401") => Err(Rule::conflict(format!("the server at {address} is over another database"))
            .hint(sentence![
                "--db names the database it is over; ",
                command!("up", listen = "127.0.0.1:0"),
                " starts one over this",
            ])
            .into()),
        _ => Err(Rule::conflict(format!("what answers at {address} is not this version of Trackway"))
            .hint(sentence![command!("up"), " starts the server; --listen says where it is"])
            .into()),
    }
}

/// A link that logs the user in, once.
fn link(house: &House, address: SocketAddr) -> Result<String, Failure> {
    let create = CreateToken {
        name: Some("login link".to_owned()),
        person: None,
        expires: Some(house.core.now().plus_seconds(LINK_SECONDS)),
        scope: Some(TokenScope::Login),
    };
    let made = house.core.execute(&house.context()?, &create)?;
    // Everywhere is no name of this machine.
    let reached = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => SocketAddr::new(Ipv4Addr::LOCALHOST.into(), address.port()),
        IpAddr::V6(ip) if ip.is_unspecified() => SocketAddr::new(Ipv6Addr::LOCALHOST.into(), address.port()),
        _ => address,
    };
    Ok(format!("http://{reached}/login?code={}", made.token))
}
