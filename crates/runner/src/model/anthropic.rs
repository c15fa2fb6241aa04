//! Anthropic's Messages.

use serde_json::{Value, json};

use super::{
    Call, Reply, Request, Turn, Used,
    http::{Shape, ToCome},
};

/// The version of the API that this is written for.
const VERSION: &str = "2023-06-01";
/// Tokens that a reply may have; the API wants a number.
const OUTPUT_MAX: u32 = 8_192;

#[derive(Debug, Clone, Copy)]
pub struct Messages;

impl Shape for Messages {
    fn path(&self) -> &'static str {
        "/v1/messages"
    }

    fn headers(&self, key: &str) -> Vec<(&'static str, String)> {
        vec![("x-api-key", key.to_owned()), ("anthropic-version", VERSION.to_owned())]
    }

    fn body(&self, request: &Request, stream: bool) -> Value {
        let mut messages = alternating(request.turns.iter().map(message));
        // What comes before stays the same from turn to turn: it is paid for once.
        if let Some(first) = messages.first_mut().and_then(|first| first["content"].get_mut(0)) {
            first["cache_control"] = json!({ "type": "ephemeral" });
        }
        let mut body = json!({
            "model": request.model, "max_tokens": OUTPUT_MAX, "system": [{ "type": "text", "text": request.system }],
            "messages": messages, "stream": stream,
        });
        if !request.tools.is_empty() {
            let tool = |tool: &super::Tool| json!({ "name": tool.name, "description": tool.description, "input_schema": tool.schema() });
            body["tools"] = request.tools.iter().map(tool).collect();
            if !request.may_call {
                body["tool_choice"] = json!({ "type": "none" });
            }
        }
        body
    }

    fn whole(&self, body: &Value, reply: &mut Reply, used: &mut Used) -> Result<(), String> {
        let content = body["content"].as_array().ok_or("the answer has no content")?;
        used.message_id = body["id"].as_str().map(str::to_owned);
        used.model = body["model"].as_str().map(str::to_owned);
        tokens(&body["usage"], used);
        for block in content {
            match block["type"].as_str() {
                Some("text") => reply.text.push_str(block["text"].as_str().unwrap_or_default()),
                Some("tool_use") => reply.calls.push(called(block, block["input"].clone())),
                _ => {}
            }
        }
        Ok(())
    }

    fn event(&self, event: &Value, reply: &mut Reply, used: &mut Used) -> Result<ToCome, String> {
        match event["type"].as_str() {
            Some("message_start") => {
                used.message_id = event["message"]["id"].as_str().map(str::to_owned);
                used.model = event["message"]["model"].as_str().map(str::to_owned);
                tokens(&event["message"]["usage"], used);
            }
            Some("content_block_start") if event["content_block"]["type"] == "tool_use" => {
                reply.calls.push(called(&event["content_block"], Value::String(String::new())));
            }
            Some("content_block_delta") => {
                if let Some(text) = event["delta"]["text"].as_str() {
                    reply.text.push_str(text);
                }
                if let (Some(Call { input: Value::String(input), .. }), Some(more)) =
                    (reply.calls.last_mut(), event["delta"]["partial_json"].as_str())
                {
                    input.push_str(more);
                }
            }
            Some("content_block_stop") => super::http::read_inputs(reply),
            Some("message_delta") => {
                tokens(&event["usage"], used);
                return Ok(ToCome::Rest);
            }
            Some("message_stop") => return Ok(ToCome::Nothing),
            Some("error") => {
                let what = event["error"]["message"].as_str().or(event["error"]["type"].as_str());
                return Err(what.unwrap_or("an error in the stream").to_owned());
            }
            _ => {}
        }
        Ok(ToCome::More)
    }
}

/// Joins messages of the same role that follow each other, as the end-of-run prompt follows the results of calls.
fn alternating(messages: impl Iterator<Item = Value>) -> Vec<Value> {
    let mut joined: Vec<Value> = Vec::new();
    for mut message in messages {
        match joined.last_mut().filter(|last| last["role"] == message["role"]) {
            Some(last) => {
                if let (Some(content), Some(more)) = (last["content"].as_array_mut(), message["content"].as_array_mut())
                {
                    content.append(more);
                }
            }
            None => joined.push(message),
        }
    }
    joined
}

fn message(turn: &Turn) -> Value {
    let text = |text: &String| json!({ "type": "text", "text": text });
    match turn {
        Turn::User(parts) => json!({ "role": "user", "content": parts.iter().map(text).collect::<Vec<_>>() }),
        Turn::Model { text: said, calls } => {
            // An empty text is refused.
            let said = Some(said).filter(|said| !said.trim().is_empty()).map(text);
            let calls = calls.iter().map(|call| {
                // So is an input that is no object.
                let input =
                    if call.input.is_object() { call.input.clone() } else { json!({ "unreadable": call.input }) };
                json!({ "type": "tool_use", "id": call.id, "name": call.name, "input": input })
            });
            let content: Vec<Value> = said.into_iter().chain(calls).collect();
            let content = if content.is_empty() { vec![text(&"(nothing)".to_owned())] } else { content };
            json!({ "role": "assistant", "content": content })
        }
        Turn::Results(results) => {
            let result = |result: &super::CallResult| json!({ "type": "tool_result", "tool_use_id": result.call, "content": result.text, "is_error": result.failed });
            json!({ "role": "user", "content": results.iter().map(result).collect::<Vec<_>>() })
        }
    }
}

fn called(block: &Value, input: Value) -> Call {
    let said = |name: &str| block[name].as_str().unwrap_or_default().to_owned();
    Call { id: said("id"), name: said("name"), input }
}

/// Later events of a stream say only what changed.
fn tokens(usage: &Value, used: &mut Used) {
    for (name, place) in [
        ("input_tokens", &mut used.input_tokens),
        ("output_tokens", &mut used.output_tokens),
        ("cache_creation_input_tokens", &mut used.cache_creation_tokens),
        ("cache_read_input_tokens", &mut used.cache_read_tokens),
    ] {
        *place = usage[name].as_i64().or(*place);
    }
}
