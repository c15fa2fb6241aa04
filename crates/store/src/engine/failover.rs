//! Reaching PostgreSQL: which of several servers, how long to wait, and when a silent one counts as gone.
//!
//! A URL may name several servers, of which one takes writes: after a failover it is another. Each gets the same time
//! for all of it (name, connection, encryption, login), so that one which accepts and never answers keeps nobody from
//! the next.

use std::{net::IpAddr, time::Duration};

use tokio::{net::lookup_host, runtime::Runtime, time::timeout};
use tokio_postgres::{
    Client, Config, Socket,
    config::{Host, SslMode, TargetSessionAttrs},
};

use crate::{
    engine::tls::{Encrypted, Encryption},
    error::{Error, Result},
    url::{parameters, without_password},
};

/// How long a server may take until it can be asked, when the URL does not say.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// After how long without a sign of life a connection is given up: what was sent is not acknowledged, or the other side
/// does not answer when it is asked for one. The system's own answer is hours.
const SILENCE_MAX: Duration = Duration::from_secs(15);
const ASK_AFTER: Duration = Duration::from_secs(5);
const ASK_EVERY: Duration = Duration::from_secs(2);
const ASK_TIMES: u32 = 5;
/// What the driver takes when the URL does not say.
const DRIVERS_ASK_AFTER: Duration = Duration::from_hours(2);

/// The half of a connection that carries bytes.
pub(crate) type Carrier = tokio_postgres::Connection<Socket, Encrypted>;

/// How to reach the database of a URL.
#[derive(Debug)]
struct Address {
    config: Config,
    encryption: Encryption,
}

/// A server, or one of the addresses of its name.
#[derive(Debug)]
struct Candidate {
    host: Option<Host>,
    address: Option<IpAddr>,
    port: u16,
}

/// Connects to the first server of a URL that will do.
pub(crate) async fn connect(url: &str) -> Result<(Client, Carrier)> {
    let address = Address::read(url)?;
    let limit = address.config.get_connect_timeout().copied().unwrap_or(CONNECT_TIMEOUT);
    let (candidates, mut failures) = address.candidates(limit).await;
    for candidate in candidates {
        let config = address.config_for(&candidate);
        let failure = match timeout(limit, config.connect(address.encryption.clone())).await {
            Ok(Ok(connected)) => return Ok(connected),
            Ok(Err(error)) => error.into(),
            Err(_) => Error::Unreachable(format!("no answer within {} s", limit.as_secs_f32())),
        };
        failures.push((candidate.to_string(), failure));
    }
    let is_missing = |failure: &(String, Error)| matches!(failure.1, Error::Missing(_));
    // A name may have several addresses, and all of them are one server.
    let is_one = address.config.get_hosts().len() <= 1 && failures.iter().any(is_missing);
    if is_one || (!failures.is_empty() && failures.iter().all(is_missing)) {
        return Err(Error::Missing(without_password(url)));
    }
    Err(together(failures))
}

/// A runtime that drives one connection on the caller's own thread.
pub(crate) fn small_runtime() -> Result<Runtime> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Error::Unreachable(error.to_string()))
}

impl Address {
    fn read(url: &str) -> Result<Self> {
        let unusable = |why: String| Error::Address { url: without_password(url), why };
        let (ours, theirs) = Encryption::split(parameters(url).map_err(unusable)?);
        let encryption = Encryption::new(ours).map_err(unusable)?;
        let bare = url.split_once('?').map_or(url, |(address, _)| address);
        let mut config: Config = format!("{bare}?{theirs}").parse().map_err(|error: tokio_postgres::Error| {
            let why = std::error::Error::source(&error).map(ToString::to_string);
            unusable(why.unwrap_or_else(|| error.to_string()))
        })?;
        if config.get_hosts().is_empty() && config.get_hostaddrs().is_empty() {
            return Err(unusable("it names no host".into()));
        }
        config.ssl_mode(encryption.mode());
        config.application_name("trackway");
        // It waits for others as long as SQLite does, and notices as soon as we do when we are gone, to let go of what we held.
        // There is an index for whatever is asked every day: a plan that reads a whole table, made while it was short, would
        // be kept while it grows long. Such plans are not worth compiling either. What is written is planned once, whatever the
        // values: making the plan of a take takes longer than taking, and the server, which compares what it expects of a plan
        // today with what it expected of others long ago, would soon make one for each.
        // What was given in the URL comes after, and wins.
        let given = config.get_options().unwrap_or_default();
        let (silence_ms, idle, every) = (SILENCE_MAX.as_millis(), ASK_AFTER.as_secs(), ASK_EVERY.as_secs());
        config.options(format!(
            "-c lock_timeout=5s -c enable_seqscan=off -c jit=off -c plan_cache_mode=force_generic_plan -c tcp_user_timeout={silence_ms} -c tcp_keepalives_idle={idle} \
             -c tcp_keepalives_interval={every} -c tcp_keepalives_count={ASK_TIMES} {given}"
        ));
        // Of several, the one that takes writes is meant.
        if config.get_hosts().len().max(config.get_hostaddrs().len()) > 1 {
            config.target_session_attrs(TargetSessionAttrs::ReadWrite);
        }
        if config.get_keepalives_idle() == DRIVERS_ASK_AFTER {
            config.keepalives_idle(ASK_AFTER);
        }
        config.keepalives_interval(config.get_keepalives_interval().unwrap_or(ASK_EVERY));
        config.keepalives_retries(config.get_keepalives_retries().unwrap_or(ASK_TIMES));
        config.tcp_user_timeout(config.get_tcp_user_timeout().copied().unwrap_or(SILENCE_MAX));
        Ok(Self { config, encryption })
    }

    /// Where to try, in order, and why some places cannot be tried.
    async fn candidates(&self, limit: Duration) -> (Vec<Candidate>, Vec<(String, Error)>) {
        let (hosts, addresses, ports) = (self.config.get_hosts(), self.config.get_hostaddrs(), self.config.get_ports());
        let (mut candidates, mut failures) = (Vec::new(), Vec::new());
        for number in 0..hosts.len().max(addresses.len()) {
            let (host, port) = (hosts.get(number), ports.get(number).or(ports.first()).copied().unwrap_or(5432));
            match (host, addresses.get(number)) {
                (Some(Host::Tcp(name)), None) => match timeout(limit, lookup_host((name.as_str(), port))).await {
                    Ok(Ok(found)) => candidates.extend(found.map(|at| Candidate {
                        host: host.cloned(),
                        address: Some(at.ip()),
                        port,
                    })),
                    Ok(Err(error)) => failures.push((name.clone(), Error::Unreachable(error.to_string()))),
                    Err(_) => failures.push((name.clone(), Error::Unreachable("its name is not known in time".into()))),
                },
                (host, address) => {
                    candidates.push(Candidate { host: host.cloned(), address: address.copied(), port });
                }
            }
        }
        (candidates, failures)
    }

    /// What to say to one of the servers.
    fn config_for(&self, candidate: &Candidate) -> Config {
        let all = &self.config;
        let mut one = Config::new();
        all.get_user().map(|user| one.user(user));
        all.get_password().map(|password| one.password(password));
        all.get_dbname().map(|name| one.dbname(name));
        all.get_options().map(|options| one.options(options));
        all.get_application_name().map(|name| one.application_name(name));
        all.get_tcp_user_timeout().map(|silence| one.tcp_user_timeout(*silence));
        all.get_keepalives_interval().map(|every| one.keepalives_interval(every));
        all.get_keepalives_retries().map(|times| one.keepalives_retries(times));
        one.keepalives(all.get_keepalives()).keepalives_idle(all.get_keepalives_idle());
        one.ssl_mode(all.get_ssl_mode()).ssl_negotiation(all.get_ssl_negotiation());
        one.target_session_attrs(all.get_target_session_attrs()).channel_binding(all.get_channel_binding());
        match &candidate.host {
            Some(Host::Tcp(name)) => {
                one.host(name);
            }
            #[cfg(unix)]
            Some(Host::Unix(folder)) => {
                // There is nobody in between, and asking would cost a round trip.
                one.host_path(folder).ssl_mode(SslMode::Disable);
            }
            None => {}
        }
        candidate.address.map(|address| one.hostaddr(address));
        one.port(candidate.port);
        one
    }
}

impl std::fmt::Display for Candidate {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (&self.host, self.address) {
            (Some(Host::Tcp(name)), Some(address)) if *name != address.to_string() => {
                write!(formatter, "{name} ({address}) port {}", self.port)
            }
            (_, Some(address)) => write!(formatter, "{address} port {}", self.port),
            #[cfg(unix)]
            (Some(Host::Unix(folder)), None) => formatter.write_str(&folder.display().to_string()),
            (Some(Host::Tcp(name)), None) => write!(formatter, "{name} port {}", self.port),
            (None, None) => Ok(()),
        }
    }
}

/// One error for all that was tried. As long as one of them may be there later, it is worth another try.
fn together(mut failures: Vec<(String, Error)>) -> Error {
    if failures.len() == 1
        && let Some((_, only)) = failures.pop()
    {
        return only;
    }
    let is_passing = failures.is_empty() || failures.iter().any(|(_, error)| matches!(error, Error::Unreachable(_)));
    let why = failures.iter().map(|(place, error)| {
        let why = match error {
            Error::Unreachable(why) | Error::Refused(why) => why.clone(),
            other => other.to_string(),
        };
        format!("{place}: {why}")
    });
    let why = why.collect::<Vec<_>>().join("; ");
    if is_passing { Error::Unreachable(why) } else { Error::Refused(why) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(url: &str) -> Config {
        Address::read(url).unwrap().config
    }

    #[test]
    fn silence_is_noticed_unless_the_url_says_otherwise() {
        let usual = read("postgres://ada@a/d");
        assert_eq!(usual.get_tcp_user_timeout(), Some(&Duration::from_secs(15)));
        assert_eq!(usual.get_keepalives_idle(), Duration::from_secs(5));
        let said = read("postgres://ada@a/d?tcp_user_timeout=60&keepalives_idle=30&connect_timeout=2");
        assert_eq!(said.get_tcp_user_timeout(), Some(&Duration::from_mins(1)));
        assert_eq!(said.get_keepalives_idle(), Duration::from_secs(30));
        assert_eq!(said.get_connect_timeout(), Some(&Duration::from_secs(2)));
    }

    #[test]
    fn of_several_servers_the_one_that_takes_writes_is_meant() {
        assert_eq!(read("postgres://a/d").get_target_session_attrs(), TargetSessionAttrs::Any);
        assert_eq!(read("postgres://a,b:6000/d").get_target_session_attrs(), TargetSessionAttrs::ReadWrite);
        assert_eq!(read("postgres://a,b:6000/d").get_ports(), [5432, 6000]);
    }

    #[test]
    fn what_cannot_be_used_is_named_without_the_password() {
        for (url, why) in [
            (
                "postgres://ada:secret@a/d?sslmode=maybe",
                "sslmode is disable, prefer, require, verify-ca or verify-full",
            ),
            ("postgres://ada:secret@a/d?fast=yes", "unknown option `fast`"),
            ("postgres:///d", "it names no host"),
            ("postgres://ada:secret@a/d?sslmode=verify-full&sslrootcert=/none", "sslrootcert /none"),
        ] {
            let said = Address::read(url).unwrap_err().to_string();
            assert!(said.contains(why) && !said.contains("secret"), "{said}");
        }
    }

    #[test]
    fn a_server_that_accepts_and_never_answers_keeps_nobody_from_the_next() {
        // Connections wait to be accepted, and nobody does.
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let silent = listener.local_addr().unwrap().port();
        let url = format!("postgres://ada@127.0.0.1:{silent},127.0.0.1:1/d?connect_timeout=1");
        let said = small_runtime().unwrap().block_on(connect(&url)).err().unwrap();
        let said = said.to_string();
        assert!(said.contains(&format!("127.0.0.1 port {silent}: no answer within 1 s; 127.0.0.1 port 1: ")), "{said}");
    }

    #[test]
    fn while_one_server_may_come_back_it_is_worth_waiting() {
        let refused = || Error::Refused("no such role".into());
        let away = || Error::Unreachable("connection refused".into());
        let said = together(vec![("a".into(), refused()), ("b".into(), away())]);
        assert!(matches!(&said, Error::Unreachable(why) if why == "a: no such role; b: connection refused"));
        assert!(matches!(together(vec![("a".into(), refused()), ("b".into(), refused())]), Error::Refused(_)));
        assert!(matches!(together(vec![("a".into(), refused())]), Error::Refused(why) if why == "no such role"));
    }
}
