//! What stands in studios: notes, decisions, commitments.

use serde::{Deserialize, Serialize};
use trackway_domain::{Id, Ref, Time, kind, vote_results::OptionResult, words::ActorKind};
use trackway_store::{
    Reader, Result,
    display::{CommitmentShown, DecisionShown, NoteShown},
    params, row,
    table::Shown,
};

use crate::{
    page::{Filter, Listed, Order, Page, cut_texts},
    view::View,
};

row! {
    /// Who read which revision.
    pub struct ReadBy {
        actor: Option<String>,
        actor_kind: ActorKind,
        note_revision: i64,
        read_at: Time,
    }
}

row! {
    /// An earlier text of a note.
    pub struct NoteRevisionShown {
        number: i64,
        title: String,
        body: String,
        by: Option<String>,
        run_id: Option<Id<kind::Run>>,
        created_at: Time,
    }
}

/// Show a note with who read it and what was said about it
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
pub struct ShowNote {
    /// The note
    pub note: Ref<kind::Note>,
}

/// A note in full.
#[derive(Debug, PartialEq, Serialize)]
pub struct NoteInFull {
    #[serde(flatten)]
    pub note: NoteShown,
    pub read_by: Vec<ReadBy>,
    pub comments: Vec<NoteShown>,
}

impl View for ShowNote {
    const COMMAND: (&'static str, &'static str) = ("note", "show");
    const ALIAS: Option<&'static str> = Some("get");
    type Output = NoteInFull;

    fn answer(&self, read: &mut Reader<'_>, _: Time) -> Result<NoteInFull> {
        let id = read.resolve(&self.note)?;
        Ok(NoteInFull {
            note: read.shown_by_id("n", id)?,
            read_by: read.query(
                "select g.display_path, c.actor_kind, c.note_revision, c.read_at from confirmations c
                 left join registry g on g.id = c.actor_id where c.tenant_id = ?1 and c.note_id = ?2 order by c.read_at, c.id",
                params![id],
            )?,
            comments: read.shown("where n.tenant_id = ?1 and n.about_id = ?2 and n.deleted_at is null order by n.id", params![id])?,
        })
    }
}

/// Show every text a note has had, newest first
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
pub struct NoteHistory {
    /// The note
    pub note: Ref<kind::Note>,
}

impl View for NoteHistory {
    const COMMAND: (&'static str, &'static str) = ("note", "history");
    const COLUMNS: &'static [&'static str] = &["number", "title", "by", "run_id", "created_at"];
    type Output = Vec<NoteRevisionShown>;

    fn answer(&self, read: &mut Reader<'_>, _: Time) -> Result<Self::Output> {
        let id = read.resolve_even_deleted(&self.note)?;
        read.query(
            "select r.number, r.title, r.body, g.display_path, r.run_id, r.created_at from note_revisions r
             left join registry g on g.id = r.actor_id where r.tenant_id = ?1 and r.note_id = ?2 order by r.number desc",
            params![id],
        )
    }
}

/// Declares the list of something that stands in studios.
macro_rules! in_studios {
    ($(#[$meta:meta])* $list:ident, $noun:literal, $shown:ty, $row:ident, $alias:literal, $long:expr, $columns:expr, $settle:expr) => {
        $(#[$meta])*
        #[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
        pub struct $list {
            /// Only in this studio
            #[arg(long)]
            pub studio: Option<Ref<kind::Studio>>,
            /// Archived ones too
            #[arg(long)]
            #[serde(default)]
            pub archived: bool,
            #[command(flatten)]
            #[serde(flatten)]
            pub page: Page,
        }

        impl View for $list {
            const COMMAND: (&'static str, &'static str) = ($noun, "list");
            const COLUMNS: &'static [&'static str] = $columns;
            type Output = Listed<$shown>;

            fn answer(&self, read: &mut Reader<'_>, now: Time) -> Result<Self::Output> {
                let studio = read.resolve_optional(self.studio.as_ref())?;
                let mut filter = Filter::default()
                    .always(concat!($alias, ".deleted_at is null"))
                    .and(concat!($alias, ".studio_id = ?"), studio.as_ref());
                if !self.archived {
                    filter = filter.always(concat!($alias, ".archived_at is null"));
                }
                let select = cut_texts(<$shown>::select(), $long);
                let mut listed =
                    self.page.read(read, &select, $alias, filter, Order::NewestFirst, |shown: &$shown| shown.$row.id.uuid())?;
                let settle: fn(&mut $shown, Time) = $settle;
                listed.rows.iter_mut().for_each(|shown| settle(shown, now));
                Ok(listed)
            }

            fn more(output: &Self::Output) -> Option<String> {
                output.more.clone()
            }
        }
    };
}

in_studios!(
    /// List notes, newest first
    ListNotes, "note", NoteShown, note, "n", &["n.body"], &["id", "studio", "title", "revision", "pinned", "about", "author", "run_id", "updated_at"], |_, _| {}
);
in_studios!(
    /// List decisions, newest first
    ListDecisions, "decision", DecisionShown, decision, "d", &["d.description"], &["id", "studio", "question", "status", "author", "run_id", "deadline", "created_at"], |_, _| {}
);
in_studios!(
    /// List commitments, newest first
    ListCommitments, "commitment", CommitmentShown, commitment, "c", &["c.description"], &["id", "studio", "title", "status", "author", "run_id", "members", "critical_mass", "deadline"],
    |shown, now| shown.commitment.settle(now)
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

/// Show a commitment and who committed
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
pub struct ShowCommitment {
    /// The commitment
    pub commitment: Ref<kind::Commitment>,
}

/// A commitment in full.
#[derive(Debug, PartialEq, Serialize)]
pub struct CommitmentInFull {
    #[serde(flatten)]
    pub commitment: CommitmentShown,
    pub committed: Vec<String>,
}

impl View for ShowCommitment {
    const COMMAND: (&'static str, &'static str) = ("commitment", "show");
    const ALIAS: Option<&'static str> = Some("get");
    type Output = CommitmentInFull;

    fn answer(&self, read: &mut Reader<'_>, now: Time) -> Result<CommitmentInFull> {
        let id = read.resolve(&self.commitment)?;
        let mut commitment = read.shown_by_id::<CommitmentShown>("c", id)?;
        commitment.commitment.settle(now);
        let committed = read.query::<(String,)>(
            "select g.display_path from commitment_members m join registry g on g.id = m.actor_id
             where m.tenant_id = ?1 and m.commitment_id = ?2 order by m.created_at, m.actor_id",
            params![id],
        )?;
        Ok(CommitmentInFull { commitment, committed: committed.into_iter().map(|(name,)| name).collect() })
    }
}
