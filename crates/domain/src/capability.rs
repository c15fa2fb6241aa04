//! The table of capabilities and of who has them. An action whose capability is in no list is denied to everyone.

use crate::{Error, Result, command, sentence};

/// The class of a capability. It decides who has the capability without a grant, and who can receive one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CapabilityClass {
    /// An agent has it, unless its capabilities are set explicitly.
    Default,
    /// An agent has it if a person granted it.
    Granted,
    /// A run has it, for actions on itself.
    OwnRun,
    /// Only people have it. It cannot be granted to an agent.
    People,
}

/// The capabilities of an agent whose capabilities are not set explicitly.
pub const DEFAULT: &[&str] = &[
    "create_note",
    "update_note",
    "confirm_read",
    "create_decision",
    "add_options",
    "vote",
    "create_commitment",
    "commit",
    "queue_add",
    "update_scratchpad",
    "update_report",
    "send_message",
    "set_conversation",
    "set_experiment",
    "end_experiment",
    "set_testcase",
    "import_testcases",
    "stickie",
];

/// The capabilities that an agent has only by a grant.
pub const GRANTED: &[&str] = &[
    "delete",
    "archive",
    "pin",
    "close_decision",
    "set_role",
    "set_workflow",
    "set_workspace",
    "set_label",
    "set_task",
    "replace_task",
    "add_link",
    "set_package",
    "upgrade_packages",
    "start_run",
    "queue_take",
    "claim",
    "queue_cancel",
    "queue_requeue",
    "set_board",
    READ_SCRATCHPADS,
];

/// Reading the scratchpads of other agents. It is the only capability that a view requires; actions require all others.
pub const READ_SCRATCHPADS: &str = "read_scratchpads";

/// The capabilities that every run has for itself.
pub const OWN_RUN: &[&str] = &[
    "end_run",
    "record_step",
    "record_usage",
    "wake_run",
    "queue_heartbeat",
    "queue_complete",
    "queue_fail",
    "queue_release",
];

/// The capabilities that only people have.
pub const PEOPLE: &[&str] = &[
    "set_studio",
    "delete_studio",
    "set_person",
    "set_agent",
    "delete_agent",
    "cancel_run",
    "create_token",
    "revoke_token",
    "cleanup",
    "forget_session",
    "import_beads",
    "import_nagger",
    "set_route",
    "delete_route",
];

/// Every class with its capabilities.
pub const TABLE: [(CapabilityClass, &[&str]); 4] = [
    (CapabilityClass::Default, DEFAULT),
    (CapabilityClass::Granted, GRANTED),
    (CapabilityClass::OwnRun, OWN_RUN),
    (CapabilityClass::People, PEOPLE),
];

/// The class of a capability, if the capability exists.
pub fn class_of(capability: &str) -> Option<CapabilityClass> {
    TABLE.iter().find(|(_, names)| names.contains(&capability)).map(|(class, _)| *class)
}

/// Checks whether a person has a capability. People have all that exist.
pub fn check_person(capability: &str) -> Result<()> {
    match class_of(capability) {
        Some(_) => Ok(()),
        None => Err(Error::denied(format!("unknown capability {capability:?}"))),
    }
}

/// Checks whether an agent has a capability. `given` are the capabilities that were set for it; `None` means the
/// default.
pub fn check_agent(handle: &str, given: Option<&[String]>, capability: &str) -> Result<()> {
    let allowed = match class_of(capability) {
        None | Some(CapabilityClass::People) => false,
        Some(CapabilityClass::OwnRun) => true,
        Some(CapabilityClass::Default) => given.is_none_or(|given| given.iter().any(|name| name == capability)),
        Some(CapabilityClass::Granted) => given.is_some_and(|given| given.iter().any(|name| name == capability)),
    };
    if allowed {
        return Ok(());
    }
    let denied = Error::denied(format!("agent {handle} may not {capability}"));
    Err(match class_of(capability) {
        Some(CapabilityClass::Granted | CapabilityClass::Default) => denied.hint(sentence![
            "a person can grant it: ",
            command!("agent set", handle = handle, capability = capability),
            " (include the capabilities it should keep)",
        ]),
        _ => denied.hint("only people may do this"),
    })
}

/// Checks that an agent can be given these capabilities.
pub fn check_grant(names: &[String]) -> Result<()> {
    for name in names {
        match class_of(name) {
            Some(CapabilityClass::Default | CapabilityClass::Granted) => {}
            Some(CapabilityClass::OwnRun) => {
                return Err(Error::usage(format!("{name:?} needs no grant: every run may do it for itself")));
            }
            Some(CapabilityClass::People) => {
                return Err(Error::usage(format!("{name:?} is only for people and cannot be granted")));
            }
            None => {
                let known: Vec<_> = DEFAULT.iter().chain(GRANTED).copied().collect();
                return Err(
                    Error::usage(format!("{name:?} is not a capability")).hint(format!("one of: {}", known.join(", ")))
                );
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_capability_has_one_class() {
        let mut all: Vec<_> = TABLE.iter().flat_map(|(_, names)| names.iter()).collect();
        let count = all.len();
        all.sort();
        all.dedup();
        assert_eq!(all.len(), count);
    }

    #[test]
    fn unknown_capability_is_denied_to_everyone() {
        assert!(check_person("launch").is_err());
        assert!(check_agent("ada", Some(&["launch".into()]), "launch").is_err());
    }

    #[test]
    fn given_capabilities_replace_the_default() {
        let given = ["vote".to_owned(), "pin".to_owned()];
        assert!(check_agent("ada", Some(&given), "vote").is_ok());
        assert!(check_agent("ada", Some(&given), "pin").is_ok());
        assert!(check_agent("ada", Some(&given), "create_note").is_err());
        assert!(check_agent("ada", None, "create_note").is_ok());
        assert!(check_agent("ada", None, "pin").is_err());
        assert!(check_agent("ada", Some(&["set_agent".into()]), "set_agent").is_err());
    }
}
