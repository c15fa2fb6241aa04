//! Arguments that name agent clients.

use std::ffi::OsStr;

use clap::{
    Arg, ArgMatches, Command, Error,
    builder::{PossibleValue, PossibleValuesParser, TypedValueParser},
};
use trackway_capture::client::Client;
use trackway_clients::CLIENTS;

/// Parses the name of a client on the command line. Also accepts the client's name in the database.
#[derive(Debug, Clone)]
pub struct ClientParser;

impl TypedValueParser for ClientParser {
    type Value = &'static dyn Client;

    fn parse_ref(&self, command: &Command, argument: Option<&Arg>, value: &OsStr) -> Result<Self::Value, Error> {
        if let Some(client) = value.to_str().and_then(|name| CLIENTS.by_command_name(name)) {
            return Ok(client);
        }
        let names = PossibleValuesParser::new(CLIENTS.0.iter().map(|client| client.command_name()));
        let name = names.parse_ref(command, argument, value)?;
        CLIENTS.by_command_name(&name).ok_or_else(|| Error::new(clap::error::ErrorKind::InvalidValue))
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        let value = |client: &&'static dyn Client| {
            PossibleValue::new(client.command_name()).help(client.display_name()).alias(client.name())
        };
        Some(Box::new(CLIENTS.0.iter().map(value)))
    }
}

/// The clients that the arguments name, each once.
pub fn named_clients(matches: &ArgMatches, argument: &str) -> Vec<&'static dyn Client> {
    let mut clients: Vec<&'static dyn Client> = Vec::new();
    for client in matches.get_many::<&'static dyn Client>(argument).into_iter().flatten() {
        if clients.iter().all(|known| known.name() != client.name()) {
            clients.push(*client);
        }
    }
    clients
}

#[cfg(test)]
mod tests {
    use trackway_domain::enums::{Driver, Runner};

    use super::*;

    #[test]
    fn agent_set_accepts_both_names_of_every_client_that_can_be_started() {
        for client in CLIENTS.0.iter().filter(|client| client.launcher().is_some()) {
            for name in [client.command_name(), client.name()] {
                let line = ["trackway", "agent", "set", "--handle", "a", "--runner", name];
                let matches = crate::arguments::command().get_matches_from(line);
                let (_, matches) = matches.subcommand().unwrap();
                let (_, matches) = matches.subcommand().unwrap();
                let runner = matches.get_one::<Runner>("runner").copied();
                assert_eq!(runner.map(Runner::driver), Some(Driver::Client(client.name())));
            }
        }
    }
}
