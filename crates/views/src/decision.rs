//! Decisions and their results.

use serde::{Deserialize, Serialize};
use trackway_domain::{Id, Ref, Time, kind, vote_results::OptionResult};
use trackway_store::{Reader, Result, display::DecisionShown, params, row, table::Shown};

use crate::{
    page::{Filter, Listed, Order, Page, cut_texts},
    studio::in_studios,
    view::View,
};

in_studios!(
    /// List decisions, newest first
    ListDecisions, "decision", DecisionShown, decision, "d", &["d.description"], &["id", "studio", "question", "status", "author", "run_id", "deadline", "created_at"], |_, _| {}
);

/// Show a decision with its results
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
pub struct ShowDecision {
    /// The decision
    pub decision: Ref<kind::Decision>,
}

row! {
    /// A vote, with who cast it, and the run that cast it last.
    pub struct VoteShown {
        id: Id<kind::Vote>,
        option: String,
        author: Option<String>,
        run_id: Option<Id<kind::Run>>,
        accepted: bool,
        preferred: bool,
        updated_at: Time,
    }
}

/// Votes of a decision that are shown, the first ones cast; the results count all of them.
const VOTES_MAX: i64 = 1_000;

/// A decision in full.
#[derive(Debug, PartialEq, Serialize)]
pub struct DecisionInFull {
    #[serde(flatten)]
    pub decision: DecisionShown,
    pub results: Vec<OptionResult>,
    pub votes: Vec<VoteShown>,
}

impl View for ShowDecision {
    const COMMAND: (&'static str, &'static str) = ("decision", "show");
    const ALIAS: Option<&'static str> = Some("get");
    type Output = DecisionInFull;

    fn answer(&self, read: &mut Reader<'_>, _: Time) -> Result<DecisionInFull> {
        let id = read.resolve(&self.decision)?;
        Ok(DecisionInFull {
            decision: read.shown_by_id("d", id)?,
            results: read.decision_results(id)?,
            votes: read.query(
                "select v.id, o.title, g.display_path,
                 (select x.run_id from run_resources x where x.resource_id = v.id and x.resource_type = 'vote' order by x.last_at desc limit 1),
                 v.accepted, v.preferred, v.updated_at
                 from decision_options o join votes v on v.option_id = o.id left join registry g on g.id = v.actor_id
                 where o.tenant_id = ?1 and o.decision_id = ?2 order by v.created_at, v.id limit ?3",
                params![id, VOTES_MAX],
            )?,
        })
    }
}

/// Show the results of a decision, the leading option first
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
pub struct DecisionResults {
    /// The decision
    pub decision: Ref<kind::Decision>,
}

impl View for DecisionResults {
    const COMMAND: (&'static str, &'static str) = ("decision", "results");
    const COLUMNS: &'static [&'static str] = &["option", "accepted", "preferred"];
    type Output = Vec<OptionResult>;

    fn answer(&self, read: &mut Reader<'_>, _: Time) -> Result<Self::Output> {
        let id = read.resolve(&self.decision)?;
        read.decision_results(id)
    }
}
