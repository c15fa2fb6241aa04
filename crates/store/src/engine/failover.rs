//! Connects to PostgreSQL: chooses the server, limits the time for each attempt, and detects servers that stopped
//! answering.
//!
//! A URL may list several servers, of which only one accepts writes; after a failover, another one does. Name lookup,
//! connection, encryption and login of each server share one timeout, so that a server which accepts a connection and
//! never answers does not prevent attempts at the others.

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

/// Time for connecting to one server, unless the URL gives another.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Time after which an unresponsive connection is closed, that is, one whose server does not acknowledge data or does
/// not answer keepalive probes. The default of the operating system is hours.
const UNRESPONSIVE_MAX: Duration = Duration::from_secs(15);
const KEEPALIVE_IDLE: Duration = Duration::from_secs(5);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(2);
const KEEPALIVE_RETRIES: u32 = 5;
/// The driver's default. If the URL does not set the value, the driver reports this default.
const DRIVER_KEEPALIVE_IDLE: Duration = Duration::from_hours(2);

/// The part of a connection that reads and writes its socket.
pub(crate) type SocketTask = tokio_postgres::Connection<Socket, Encrypted>;

/// The parsed URL of a PostgreSQL database.
#[derive(Debug)]
struct ServerConfig {
    config: Config,
    encryption: Encryption,
}

/// A server to try: one address of a host name, an IP address or a Unix socket.
#[derive(Debug)]
struct Candidate {
    host: Option<Host>,
    address: Option<IpAddr>,
    port: u16,
}

/// Connects to the first server of the URL that accepts the connection.
pub(crate) async fn connect(url: &str) -> Result<(Client, SocketTask)> {
    let servers = ServerConfig::parse(url)?;
    let limit = servers.config.get_connect_timeout().copied().unwrap_or(CONNECT_TIMEOUT);
    let (candidates, mut failures) = servers.candidates(limit).await;
    for candidate in candidates {
        let config = servers.config_for(&candidate);
        let failure = match timeout(limit, config.connect(servers.encryption.clone())).await {
            Ok(Ok(connected)) => return Ok(connected),
            Ok(Err(error)) => error.into(),
            Err(_) => Error::Unreachable(format!("no answer within {} s", limit.as_secs_f32())),
        };
        failures.push((candidate.to_string(), failure));
    }
    let is_missing = |failure: &(String, Error)| matches!(failure.1, Error::Missing(_));
    // A host name may have several addresses, but they are one server. If that server reports that the database is
    // missing, that is the result.
    let is_one = servers.config.get_hosts().len() <= 1 && failures.iter().any(is_missing);
    if is_one || (!failures.is_empty() && failures.iter().all(is_missing)) {
        return Err(Error::Missing(without_password(url)));
    }
    Err(combined_error(failures))
}

/// A runtime that drives one connection on the thread of its caller.
pub(crate) fn single_thread_runtime() -> Result<Runtime> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Error::Unreachable(error.to_string()))
}

impl ServerConfig {
    fn parse(url: &str) -> Result<Self> {
        let unusable = |why: String| Error::UnusableUrl { url: without_password(url), why };
        let (tls_options, driver_options) = Encryption::split(parameters(url).map_err(unusable)?);
        let encryption = Encryption::new(tls_options).map_err(unusable)?;
        let bare = url.split_once('?').map_or(url, |(address, _)| address);
        let mut config: Config =
            format!("{bare}?{driver_options}").parse().map_err(|error: tokio_postgres::Error| {
                let why = std::error::Error::source(&error).map(ToString::to_string);
                unusable(why.unwrap_or_else(|| error.to_string()))
            })?;
        if config.get_hosts().is_empty() && config.get_hostaddrs().is_empty() {
            return Err(unusable("it has no host".into()));
        }
        config.ssl_mode(encryption.mode());
        config.application_name("trackway");
        // Settings of the session. `lock_timeout` is the same as on SQLite. The TCP settings make the server notice
        // within seconds that this process is gone, so that it releases its locks. `enable_seqscan=off`: every frequent
        // query has an index, and a plan with a sequential scan, made while the table was short, would remain cached
        // while the table grows. `jit=off`: compiling takes longer than such queries. `force_generic_plan`: to plan the
        // query that takes an item costs more than to run it. Without this setting, PostgreSQL would soon plan each
        // statement again, because of its cost estimates. Options from the URL come last and take precedence.
        let url_options = config.get_options().unwrap_or_default();
        let (unresponsive_ms, idle, every) =
            (UNRESPONSIVE_MAX.as_millis(), KEEPALIVE_IDLE.as_secs(), KEEPALIVE_INTERVAL.as_secs());
        config.options(format!(
            "-c lock_timeout=5s -c enable_seqscan=off -c jit=off -c plan_cache_mode=force_generic_plan -c tcp_user_timeout={unresponsive_ms} -c tcp_keepalives_idle={idle} \
             -c tcp_keepalives_interval={every} -c tcp_keepalives_count={KEEPALIVE_RETRIES} {url_options}"
        ));
        // Of several servers, use the one that accepts writes.
        if config.get_hosts().len().max(config.get_hostaddrs().len()) > 1 {
            config.target_session_attrs(TargetSessionAttrs::ReadWrite);
        }
        if config.get_keepalives_idle() == DRIVER_KEEPALIVE_IDLE {
            config.keepalives_idle(KEEPALIVE_IDLE);
        }
        config.keepalives_interval(config.get_keepalives_interval().unwrap_or(KEEPALIVE_INTERVAL));
        config.keepalives_retries(config.get_keepalives_retries().unwrap_or(KEEPALIVE_RETRIES));
        config.tcp_user_timeout(config.get_tcp_user_timeout().copied().unwrap_or(UNRESPONSIVE_MAX));
        Ok(Self { config, encryption })
    }

    /// Returns the servers to try, in order, and the errors of host names that cannot be resolved.
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
                    Err(_) => failures.push((name.clone(), Error::Unreachable("the name lookup timed out".into()))),
                },
                (host, address) => {
                    candidates.push(Candidate { host: host.cloned(), address: address.copied(), port });
                }
            }
        }
        (candidates, failures)
    }

    /// The configuration for connecting to one server.
    fn config_for(&self, candidate: &Candidate) -> Config {
        let all = &self.config;
        let mut one = Config::new();
        all.get_user().map(|user| one.user(user));
        all.get_password().map(|password| one.password(password));
        all.get_dbname().map(|name| one.dbname(name));
        all.get_options().map(|options| one.options(options));
        all.get_application_name().map(|name| one.application_name(name));
        all.get_tcp_user_timeout().map(|timeout| one.tcp_user_timeout(*timeout));
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
                // A Unix socket needs no encryption, and offering it would cost a round trip.
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

/// Combines the errors of all servers. The result is `Unreachable`, which callers retry, if at least one of them may
/// become reachable.
fn combined_error(mut failures: Vec<(String, Error)>) -> Error {
    if failures.len() == 1
        && let Some((_, only)) = failures.pop()
    {
        return only;
    }
    let is_retryable = failures.is_empty() || failures.iter().any(|(_, error)| matches!(error, Error::Unreachable(_)));
    let why = failures.iter().map(|(server, error)| {
        let why = match error {
            Error::Unreachable(why) | Error::ConnectionRejected(why) => why.clone(),
            other => other.to_string(),
        };
        format!("{server}: {why}")
    });
    let why = why.collect::<Vec<_>>().join("; ");
    if is_retryable { Error::Unreachable(why) } else { Error::ConnectionRejected(why) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(url: &str) -> Config {
        ServerConfig::parse(url).unwrap().config
    }

    #[test]
    fn keepalive_defaults_apply_unless_url_sets_them() {
        let default = read("postgres://ada@a/d");
        assert_eq!(default.get_tcp_user_timeout(), Some(&Duration::from_secs(15)));
        assert_eq!(default.get_keepalives_idle(), Duration::from_secs(5));
        let custom = read("postgres://ada@a/d?tcp_user_timeout=60&keepalives_idle=30&connect_timeout=2");
        assert_eq!(custom.get_tcp_user_timeout(), Some(&Duration::from_mins(1)));
        assert_eq!(custom.get_keepalives_idle(), Duration::from_secs(30));
        assert_eq!(custom.get_connect_timeout(), Some(&Duration::from_secs(2)));
    }

    #[test]
    fn several_servers_require_one_that_accepts_writes() {
        assert_eq!(read("postgres://a/d").get_target_session_attrs(), TargetSessionAttrs::Any);
        assert_eq!(read("postgres://a,b:6000/d").get_target_session_attrs(), TargetSessionAttrs::ReadWrite);
        assert_eq!(read("postgres://a,b:6000/d").get_ports(), [5432, 6000]);
    }

    #[test]
    fn errors_about_urls_hide_the_password() {
        for (url, why) in [
            (
                "postgres://ada:secret@a/d?sslmode=maybe",
                "sslmode must be disable, prefer, require, verify-ca or verify-full",
            ),
            ("postgres://ada:secret@a/d?fast=yes", "unknown option `fast`"),
            ("postgres:///d", "it has no host"),
            ("postgres://ada:secret@a/d?sslmode=verify-full&sslrootcert=/none", "sslrootcert /none"),
        ] {
            let error = ServerConfig::parse(url).unwrap_err().to_string();
            assert!(error.contains(why) && !error.contains("secret"), "{error}");
        }
    }

    #[test]
    fn silent_server_does_not_prevent_attempt_at_next_server() {
        // This listener never accepts.
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let silent = listener.local_addr().unwrap().port();
        let url = format!("postgres://ada@127.0.0.1:{silent},127.0.0.1:1/d?connect_timeout=1");
        let error = single_thread_runtime().unwrap().block_on(connect(&url)).err().unwrap();
        let error = error.to_string();
        assert!(
            error.contains(&format!("127.0.0.1 port {silent}: no answer within 1 s; 127.0.0.1 port 1: ")),
            "{error}"
        );
    }

    #[test]
    fn combined_error_is_retryable_if_any_server_may_return() {
        let refused = || Error::ConnectionRejected("no such role".into());
        let unreachable = || Error::Unreachable("connection refused".into());
        let error = combined_error(vec![("a".into(), refused()), ("b".into(), unreachable())]);
        assert!(matches!(&error, Error::Unreachable(why) if why == "a: no such role; b: connection refused"));
        assert!(matches!(
            combined_error(vec![("a".into(), refused()), ("b".into(), refused())]),
            Error::ConnectionRejected(_)
        ));
        assert!(
            matches!(combined_error(vec![("a".into(), refused())]), Error::ConnectionRejected(why) if why == "no such role")
        );
    }
}
