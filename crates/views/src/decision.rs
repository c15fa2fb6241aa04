//! Decisions and their results.

use serde::{Deserialize, Serialize};
use trackway_domain::{Id, Ref, Time, kind, vote_results::OptionResult};
use trackway_store::{Reader, Result, display::DecisionRow, params, row, table::DisplayRow};

use crate::{
    page::{Filter, ListPage, Order, Page, shorten_columns},
    studio_list::studio_list_view,
    view::View,
};

studio_list_view!(
    /// List decisions, newest first
    ListDecisions, "decision", DecisionRow, decision, "d", &["d.description"], &["id", "studio", "question", "status", "author", "run_id", "deadline", "created_at"], |_, _| {}
);

/// Show a decision with its votes and results
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
pub struct ShowDecision {
    /// The decision
    pub decision: Ref<kind::Decision>,
}

row! {
    /// A vote with its author and the run that last changed it.
    pub struct VoteRow {
        id: Id<kind::Vote>,
        option: String,
        author: Option<String>,
        run_id: Option<Id<kind::Run>>,
        accepted: bool,
        preferred: bool,
        updated_at: Time,
    }
}

/// Maximum number of votes that are shown, oldest first. The results count all votes.
const VOTES_MAX: i64 = 1_000;

/// A decision with its results and votes.
#[derive(Debug, PartialEq, Serialize)]
pub struct DecisionDetails {
    #[serde(flatten)]
    pub decision: DecisionRow,
    pub results: Vec<OptionResult>,
    pub votes: Vec<VoteRow>,
}

impl View for ShowDecision {
    const COMMAND: (&'static str, &'static str) = ("decision", "show");
    const ALIAS: Option<&'static str> = Some("get");
    type Output = DecisionDetails;

    fn answer(&self, read: &mut Reader<'_>, _: Time) -> Result<DecisionDetails> {
        let id = read.resolve(&self.decision)?;
        Ok(DecisionDetails {
            decision: read.display_row_by_id("d", id)?,
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

/// Show the results of a decision, leading option first
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
