//! Export of a run as W3C PROV-JSON, for provenance tools other than Trackway.

use serde::Deserialize;
use serde_json::{Map, Value, json};
use trackway_domain::{
    Id, Ref, Time,
    kind::{self, ActionType},
};
use trackway_store::{Reader, Result, display::RunRow, params, tables::Agent};

use crate::{
    made::{TouchRow, touches},
    view::View,
};

/// Export a run and its descendant runs as W3C PROV-JSON
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
pub struct ExportTrace {
    /// The run, by id; `last` is the newest run
    pub run: Ref<kind::Run>,
}

/// A PROV document under construction.
#[derive(Default)]
struct Document {
    sections: Map<String, Value>,
    relations: usize,
}

impl Document {
    fn put(&mut self, section: &str, key: String, value: Value) {
        let entries = self.sections.entry(section).or_insert_with(|| json!({}));
        if let Value::Object(entries) = entries {
            entries.insert(key, value);
        }
    }

    fn relate(&mut self, relation: &str, value: Value) {
        self.relations += 1;
        self.put(relation, format!("_:r{}", self.relations), value);
    }
}

fn prov_id(kind: &str, id: impl std::fmt::Display) -> String {
    format!("trackway:{kind}/{id}")
}

impl View for ExportTrace {
    const COMMAND: (&'static str, &'static str) = ("trace", "export");
    type Output = Value;

    fn answer(&self, read: &mut Reader<'_>, _: Time) -> Result<Value> {
        let root = read.resolve(&self.run)?;
        let mut document = Document::default();
        document.put("prefix", "trackway".into(), json!("urn:trackway:"));
        let mut pending = vec![root];
        while let Some(run) = pending.pop() {
            add_run(read, &mut document, run)?;
            let children = read.query::<(Id<kind::Run>,)>(
                "select id from runs where tenant_id = ?1 and parent_run_id = ?2 order by id desc",
                params![run],
            )?;
            pending.extend(children.into_iter().map(|(child,)| child));
        }
        Ok(Value::Object(document.sections))
    }
}

/// The PROV relation for a touch. PROV allows one generation and one invalidation of an entity, so every other touch is
/// an influence.
fn relation(action: ActionType) -> &'static str {
    match action {
        ActionType::Create
        | ActionType::AddOption
        | ActionType::Vote
        | ActionType::Confirm
        | ActionType::Send
        | ActionType::Report => "wasGeneratedBy",
        ActionType::Delete => "wasInvalidatedBy",
        ActionType::Update | ActionType::Commit | ActionType::Close | ActionType::Pin | ActionType::Archive => {
            "wasInfluencedBy"
        }
    }
}

fn touch_relation(touch: &TouchRow, entity: &str, activity: &str) -> Value {
    let (entity_key, activity_key, time_key) = match relation(touch.action_type) {
        "wasInfluencedBy" => ("prov:influencee", "prov:influencer", "trackway:time"),
        _ => ("prov:entity", "prov:activity", "prov:time"),
    };
    json!({ entity_key: entity, activity_key: activity, time_key: touch.first_at, "trackway:action": touch.action_type, "trackway:times": touch.times })
}

fn add_run(read: &mut Reader<'_>, document: &mut Document, id: Id<kind::Run>) -> Result<()> {
    let shown = read.display_row_by_id::<RunRow>("u", id)?;
    let run = &shown.run;
    let activity = prov_id("run", run.id);
    let mut about = json!({
        "prov:startTime": run.started_at,
        "trackway:status": run.status,
        "trackway:mode": run.mode,
    });
    if let Some(ended) = run.ended_at {
        about["prov:endTime"] = json!(ended);
    }
    if let Some(outcome) = &run.outcome {
        about["trackway:outcome"] = json!(outcome);
    }
    document.put("activity", activity.clone(), about);

    let agent = prov_id("agent", run.agent_id);
    let mut association = json!({ "prov:activity": activity, "prov:agent": agent });
    if let Some(role) = &shown.role {
        association["prov:role"] = json!(role);
    }
    if let (Some(task), Some(variant), Some(revision)) = (run.task_id, &shown.task, run.task_revision) {
        let plan = prov_id("task", format!("{task}@{revision}"));
        document.put(
            "entity",
            plan.clone(),
            json!({ "prov:type": { "$": "prov:Plan", "type": "prov:QUALIFIED_NAME" }, "prov:label": variant }),
        );
        association["prov:plan"] = json!(plan);
    }
    document.put(
        "agent",
        agent.clone(),
        json!({ "prov:type": { "$": "prov:SoftwareAgent", "type": "prov:QUALIFIED_NAME" }, "prov:label": shown.agent }),
    );
    document.relate("wasAssociatedWith", association);
    if let (Some(person), Some(handle)) = (run.initiated_by, &shown.initiated_by) {
        let person = prov_id("person", person);
        document.put(
            "agent",
            person.clone(),
            json!({ "prov:type": { "$": "prov:Person", "type": "prov:QUALIFIED_NAME" }, "prov:label": handle }),
        );
        document.relate(
            "actedOnBehalfOf",
            json!({ "prov:delegate": agent, "prov:responsible": person, "prov:activity": activity }),
        );
    }
    if let Some(parent) = run.parent_run_id {
        document
            .relate("wasInformedBy", json!({ "prov:informed": activity, "prov:informant": prov_id("run", parent) }));
    }
    if let Some(subagent) = read.row::<Agent>("where tenant_id = ?1 and id = ?2", params![run.agent_id])?
        && let Some(parent) = subagent.parent_id
    {
        document
            .relate("actedOnBehalfOf", json!({ "prov:delegate": agent, "prov:responsible": prov_id("agent", parent) }));
    }

    for touch in touches(read, id)? {
        let entity = prov_id(touch.resource_type.as_str(), touch.resource_id);
        let mut about = json!({ "prov:label": touch.display_path, "trackway:type": touch.resource_type });
        if let Some(studio) = &touch.studio {
            about["trackway:studio"] = json!(studio);
        }
        document.put("entity", entity.clone(), about);
        document.relate(relation(touch.action_type), touch_relation(&touch, &entity, &activity));
        if touch.action_type == ActionType::Create {
            document.relate("wasAttributedTo", json!({ "prov:entity": entity, "prov:agent": agent }));
        }
    }
    Ok(())
}
