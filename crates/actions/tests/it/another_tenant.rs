//! Walls between tenants: no action reaches what belongs to another one, by any of the ids it could be given.

use serde_json::{Map, Value, json};
use trackway_actions::{
    Context,
    registry::{ACTIONS, Entry},
};
use trackway_domain::ErrorKind;
use trackway_store::{Clock, params};
use trackway_testkit::{Snapshot, TestEnv, engines, id};
use uuid::Uuid;

/// The name of everything that the visitor's own tenant has.
const OWN: &str = "own";
/// In the name of everything that the visitor must not learn about.
const SECRET: &str = "secret";

/// Takes an id, though its schema says text.
const REFERENCE_AS_TEXT: [(&str, &str); 3] = [("create_note", "about"), ("vote", "option"), ("send_message", "to")];

/// The actions that name nothing but what they make, and so cannot reach anything.
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

/// One thing of every kind, all of the same name.
fn furnish(env: &TestEnv, context: &Context, name: &str) {
    let act = |action, input| env.act_as(context, action, input).unwrap();
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

fn registered(env: &TestEnv) -> Vec<Uuid> {
    let found =
        env.read(|reader| Ok(reader.query::<(Uuid,)>("select id from registry where tenant_id = ?1", params![])?));
    found.into_iter().map(|(id,)| id).collect()
}

fn schema(action: &Entry) -> Value {
    (action.schema)().to_value()
}

fn fields(schema: &Value) -> Map<String, Value> {
    schema["properties"].as_object().cloned().unwrap_or_default()
}

/// The fields that name something: the schema says so.
fn references(action: &Entry) -> Vec<String> {
    let names =
        |name: &str, field: &Value| field["format"] == "reference" || REFERENCE_AS_TEXT.contains(&(action.name, name));
    fields(&schema(action)).into_iter().filter(|(name, field)| names(name, field)).map(|(name, _)| name).collect()
}

/// A value for every required field: texts and references are `text`.
fn required(action: &Entry, text: &str) -> Map<String, Value> {
    let schema = schema(action);
    let value = |field: &Value| match field["type"].as_str() {
        Some("string") if field.get("enum").is_none() => json!(text),
        Some("integer") => json!(1),
        Some("array") => json!([text]),
        _ => first_word(&schema, field),
    };
    let names = schema["required"].as_array().cloned().unwrap_or_default();
    names.iter().filter_map(Value::as_str).map(|name| (name.to_owned(), value(&schema["properties"][name]))).collect()
}

/// The first word of a closed list, which the schema holds apart; of an object, nothing.
fn first_word(schema: &Value, field: &Value) -> Value {
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
    fn no_action_reaches_into_another_tenant(env: TestEnv) {
        furnish(&env, &env.ada, SECRET);
        let visitor = env.another_tenant("other");
        furnish(&env, &visitor, OWN);
        let decision = env
            .act_as(&visitor, "create_decision", json!({ "studio": OWN, "question": OWN, "options": [OWN] }))
            .unwrap();
        let decision = id::<trackway_domain::kind::Decision>(&decision);
        let foreign = registered(&env);
        let (theirs, own) = (env.snapshot(), Snapshot::of(&env.core, &visitor));

        let mut without_references = Vec::new();
        for action in ACTIONS {
            let references = references(action);
            if references.is_empty() {
                without_references.push(action.name);
            }
            for reference in &references {
                for id in &foreign {
                    let mut input = required(action, OWN);
                    if action.name == "vote" {
                        input.insert("decision".into(), json!(decision));
                    }
                    input.insert(reference.clone(), json!(id));
                    let shown = json!(input).to_string();
                    let outcome = env.act_as(&visitor, action.name, input.into());
                    let Err(error) = outcome else {
                        panic!("{} {shown} was done: {outcome:?}", action.name);
                    };
                    assert!(
                        matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Usage | ErrorKind::Denied),
                        "{} {shown}: {error}",
                        action.name
                    );
                    assert!(
                        !format!("{error} {:?}", error.hint()).contains(SECRET),
                        "{} {shown}: {error}",
                        action.name
                    );
                }
            }
        }
        for id in &foreign {
            for folder in [json!({ "stickies": [{ "file": "a.stickie.yaml", "id": id }] }), json!({ "board": { "id": id } })] {
                let error = env.act_as(&visitor, "sync_board", json!({ "board": OWN, "folder": folder })).unwrap_err();
                assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
                let error = env.act_as(&visitor, "sync_board", json!({ "folder": folder })).unwrap_err();
                assert!(!error.to_string().contains(SECRET), "{error}");
            }
        }
        own.assert_unchanged(&env.core);
        assert_eq!(without_references, WITHOUT_REFERENCES);

        // Those make something of that name at home, or are refused; what is of the same id stays as it is.
        for id in &foreign {
            for name in WITHOUT_REFERENCES {
                let action = ACTIONS.iter().find(|action| action.name == name).unwrap();
                let _ = env.act_as(&visitor, name, required(action, &id.to_string()).into());
            }
        }
        // What goes by its age goes at home only.
        for name in ["cleanup_events", "cleanup_messages"] {
            env.act_as(&visitor, name, json!({ "before": env.now() })).unwrap();
        }
        theirs.assert_unchanged(&env.core);
    }
}
