//! Tenant isolation: no action can read or change a row of another tenant, whichever id it is given.

use serde_json::{Map, Value, json};
use trackway_actions::{
    Context,
    registry::{ACTIONS, ActionEntry},
};
use trackway_domain::ErrorKind;
use trackway_store::{Clock, params};
use trackway_testkit::{Snapshot, TestEnv, engines, id};
use uuid::Uuid;

/// The name of all rows of the visitor's tenant.
const OWN_NAME: &str = "own";
/// Part of the names of all rows of the other tenant. It must not appear in errors.
const SECRET_NAME: &str = "secret";

/// Fields that accept an id although their schema says text.
const REFERENCE_AS_TEXT: [(&str, &str); 3] = [("create_note", "about"), ("vote", "option"), ("send_message", "to")];

/// Actions without reference fields, which cannot address rows of another tenant.
const WITHOUT_REFERENCES: [&str; 12] = [
    "set_role",
    "set_workspace",
    "set_label",
    "set_studio",
    "set_person",
    "update_scratchpad",
    "import_beads",
    "import_nagger",
    "cleanup_contents",
    "cleanup_leases",
    "cleanup_events",
    "cleanup_messages",
];

/// Creates one row of every kind, all with the same name.
fn create_one_of_each_kind(env: &TestEnv, context: &Context, name: &str) {
    let act = |action, input| env.execute_json_as(context, action, input).unwrap();
    act("set_role", json!({ "name": name }));
    act("set_workflow", json!({ "name": name }));
    act("set_workspace", json!({ "name": name }));
    act("set_label", json!({ "key": name, "name": name }));
    act("set_studio", json!({ "name": name }));
    act("set_person", json!({ "handle": name }));
    act("set_agent", json!({ "handle": name }));
    act("set_task", json!({ "workflow": name, "variant": name }));
    act("set_task", json!({ "workflow": name, "variant": format!("{name}/2"), "replaces": name }));
    act("add_link", json!({ "from": name, "to": format!("{name}/2"), "type": "blocks" }));
    act("set_package", json!({ "role": name, "task": name }));
    act("create_token", json!({ "name": name }));
    act("start_run", json!({ "agent": name, "task": name }));
    act("queue_add", json!({ "task": name }));
    act("queue_take", json!({}));
    let note = act("create_note", json!({ "studio": name, "title": name }));
    act("confirm_read", json!({ "note": note["id"] }));
    let decision = act("create_decision", json!({ "studio": name, "question": name, "options": [name] }));
    act("vote", json!({ "decision": decision["id"], "option": name, "accept": true }));
    let commitment = act("create_commitment", json!({ "studio": name, "title": name, "critical_mass": 1 }));
    act("commit", json!({ "commitment": commitment["id"] }));
    act("set_scratchpad", json!({ "agent": name, "content": name }));
    act("set_report", json!({ "agent": name, "task": name, "one_liner": name, "tldr": name, "content": name }));
    let conversation = act("set_conversation", json!({ "title": name }));
    let experiment = act("set_experiment", json!({ "title": name, "conversation": conversation["id"] }));
    act("set_testcase", json!({ "title": name, "experiment": experiment["id"] }));
    act("set_route", json!({ "tag": name, "task": name }));
    act("send_message", json!({ "body": name, "experiment": experiment["id"] }));
    act("set_board", json!({ "name": name }));
    act("set_stickie", json!({ "board": name, "name": name }));
    act("set_stickie", json!({ "board": name, "name": format!("{name}/2") }));
    act("relate_stickies", json!({ "from": name, "to": format!("{name}/2"), "type": "USES" }));
}

fn registered_ids(env: &TestEnv) -> Vec<Uuid> {
    let found =
        env.read(|reader| Ok(reader.query::<(Uuid,)>("select id from registry where tenant_id = ?1", params![])?));
    found.into_iter().map(|(id,)| id).collect()
}

fn schema(action: &ActionEntry) -> Value {
    (action.schema)().to_value()
}

fn fields(schema: &Value) -> Map<String, Value> {
    schema["properties"].as_object().cloned().unwrap_or_default()
}

/// The fields that reference a row, according to the schema.
fn reference_fields(action: &ActionEntry) -> Vec<String> {
    let names =
        |name: &str, field: &Value| field["format"] == "reference" || REFERENCE_AS_TEXT.contains(&(action.name, name));
    fields(&schema(action)).into_iter().filter(|(name, field)| names(name, field)).map(|(name, _)| name).collect()
}

/// A value for every required field. Texts and references get `text`.
fn required_fields(action: &ActionEntry, text: &str) -> Map<String, Value> {
    let schema = schema(action);
    let value = |field: &Value| match field["type"].as_str() {
        Some("string") if field.get("enum").is_none() => json!(text),
        Some("integer") => json!(1),
        Some("array") => json!([text]),
        _ => first_enum_value(&schema, field),
    };
    let names = schema["required"].as_array().cloned().unwrap_or_default();
    names.iter().filter_map(Value::as_str).map(|name| (name.to_owned(), value(&schema["properties"][name]))).collect()
}

/// The first value of an enum, which the schema defines under `$defs`. An empty object for an object.
fn first_enum_value(schema: &Value, field: &Value) -> Value {
    let list = field["$ref"].as_str().and_then(|path| schema.pointer(path.trim_start_matches('#'))).unwrap_or(field);
    if list["type"] == "object" {
        return json!({});
    }
    if list["format"] == "date-time" {
        return json!(Clock::system().now());
    }
    list.pointer("/enum/0").or_else(|| list.pointer("/oneOf/0/const")).cloned().unwrap_or_else(|| panic!("{list}"))
}

engines! {
    fn actions_cannot_reference_rows_of_another_tenant(env: TestEnv) {
        create_one_of_each_kind(&env, &env.ada, SECRET_NAME);
        let visitor = env.another_tenant("other");
        create_one_of_each_kind(&env, &visitor, OWN_NAME);
        let decision = env
            .execute_json_as(&visitor, "create_decision", json!({ "studio": OWN_NAME, "question": OWN_NAME, "options": [OWN_NAME] }))
            .unwrap();
        let decision = id::<trackway_domain::kind::Decision>(&decision);
        let foreign = registered_ids(&env);
        let (theirs, own) = (env.snapshot(), Snapshot::take(&env.core, &visitor));

        let mut without_references = Vec::new();
        for action in ACTIONS {
            let reference_fields = reference_fields(action);
            if reference_fields.is_empty() {
                without_references.push(action.name);
            }
            for reference in &reference_fields {
                for id in &foreign {
                    let mut input = required_fields(action, OWN_NAME);
                    if action.name == "vote" {
                        input.insert("decision".into(), json!(decision));
                    }
                    input.insert(reference.clone(), json!(id));
                    let shown = json!(input).to_string();
                    let outcome = env.execute_json_as(&visitor, action.name, input.into());
                    let Err(error) = outcome else {
                        panic!("{} {shown} succeeded: {outcome:?}", action.name);
                    };
                    assert!(
                        matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Usage | ErrorKind::Denied),
                        "{} {shown}: {error}",
                        action.name
                    );
                    assert!(
                        !format!("{error} {:?}", error.hint()).contains(SECRET_NAME),
                        "{} {shown}: {error}",
                        action.name
                    );
                }
            }
        }
        for id in &foreign {
            for folder in [json!({ "stickies": [{ "file": "a.stickie.yaml", "id": id }] }), json!({ "board": { "id": id } })] {
                let error = env.execute_json_as(&visitor, "sync_board", json!({ "board": OWN_NAME, "folder": folder })).unwrap_err();
                assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
                let error = env.execute_json_as(&visitor, "sync_board", json!({ "folder": folder })).unwrap_err();
                assert!(!error.to_string().contains(SECRET_NAME), "{error}");
            }
        }
        own.assert_unchanged(&env.core);
        assert_eq!(without_references, WITHOUT_REFERENCES);

        // Given a foreign id as the name, these actions create a row of this name in the visitor's own tenant, or fail.
        // They must not change the row with this id.
        for id in &foreign {
            for name in WITHOUT_REFERENCES {
                let action = ACTIONS.iter().find(|action| action.name == name).unwrap();
                let _ = env.execute_json_as(&visitor, name, required_fields(action, &id.to_string()).into());
            }
        }
        // A cleanup by age deletes only rows of the visitor's own tenant.
        for name in ["cleanup_events", "cleanup_messages"] {
            env.execute_json_as(&visitor, name, json!({ "before": env.now() })).unwrap();
        }
        theirs.assert_unchanged(&env.core);
    }
}
