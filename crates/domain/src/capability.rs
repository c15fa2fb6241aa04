//! Who may do what: the one table. An action whose capability stands in no list is denied to everyone.

use crate::{Error, Result, command, sentence};

/// The list a capability stands in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Allowance {
    /// Agents may, when their capabilities are not given.
    Default,
    /// Agents may when it is granted to them.
    Granted,
    /// A run may, about itself.
    OwnRun,
    /// People only: no agent can be granted this.
    People,
}

/// What agents may do when none are given.
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

/// What agents may do only with a grant.
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

/// Reading the scratchpads of other agents. The only capability that a view requires, not an action.
pub const READ_SCRATCHPADS: &str = "read_scratchpads";

/// What a run may do about itself.
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

/// What only people may do.
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

/// Every list with its name.
pub const TABLE: [(Allowance, &[&str]); 4] = [
    (Allowance::Default, DEFAULT),
    (Allowance::Granted, GRANTED),
    (Allowance::OwnRun, OWN_RUN),
    (Allowance::People, PEOPLE),
];

/// The list a capability stands in, if any.
pub fn allowance(capability: &str) -> Option<Allowance> {
    TABLE.iter().find(|(_, names)| names.contains(&capability)).map(|(allowance, _)| *allowance)
}

/// Checks a person. People may do everything that is listed.
pub fn check_person(capability: &str) -> Result<()> {
    match allowance(capability) {
        Some(_) => Ok(()),
        None => Err(Error::denied(format!("{capability:?} is in no list of who may do what"))),
    }
}

/// Checks an agent against what it was given; `None` means the default list.
pub fn check_agent(handle: &str, given: Option<&[String]>, capability: &str) -> Result<()> {
    let allowed = match allowance(capability) {
        None | Some(Allowance::People) => false,
        Some(Allowance::OwnRun) => true,
        Some(Allowance::Default) => given.is_none_or(|given| given.iter().any(|name| name == capability)),
        Some(Allowance::Granted) => given.is_some_and(|given| given.iter().any(|name| name == capability)),
    };
    if allowed {
        return Ok(());
    }
    let denied = Error::denied(format!("agent {handle} may not {capability}"));
    Err(match allowance(capability) {
        Some(Allowance::Granted | Allowance::Default) => denied.hint(sentence![
            "a person can grant it: ",
            command!("agent set", handle = handle, capability = capability),
            " (with the others it should keep)",
        ]),
        _ => denied.hint("this is for people"),
    })
}

/// Checks a list of capabilities that is about to be given to an agent.
pub fn check_grant(names: &[String]) -> Result<()> {
    for name in names {
        match allowance(name) {
            Some(Allowance::Default | Allowance::Granted) => {}
            Some(Allowance::OwnRun) => {
                return Err(Error::usage(format!("{name:?} needs no grant: every run may do it about itself")));
            }
            Some(Allowance::People) => {
                return Err(Error::usage(format!("{name:?} is for people, it cannot be granted")));
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
    fn no_capability_stands_in_two_lists() {
        let mut all: Vec<_> = TABLE.iter().flat_map(|(_, names)| names.iter()).collect();
        let count = all.len();
        all.sort();
        all.dedup();
        assert_eq!(all.len(), count);
    }

    #[test]
    fn nobody_may_do_what_is_not_listed() {
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
