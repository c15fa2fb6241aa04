//! Anthropic's Messages API.

use serde_json::{Value, json};

use super::{
    Call, CallUsage, Reply, Request, Turn,
    http::{StreamState, WireFormat},
};

const API_VERSION: &str = "2023-06-01";
/// Maximum tokens of a reply. The API requires this parameter.
const OUTPUT_TOKENS_MAX: u32 = 8_192;

#[derive(Debug, Clone, Copy)]
pub struct Messages;

impl WireFormat for Messages {
    fn path(&self) -> &'static str {
        "/v1/messages"
    }

    fn headers(&self, key: &str) -> Vec<(&'static str, String)> {
        vec![("x-api-key", key.to_owned()), ("anthropic-version", API_VERSION.to_owned())]
    }

    fn body(&self, request: &Request, stream: bool) -> Value {
        let mut messages = alternating(request.turns.iter().map(message));
        // The system prompt, the tools and the first text stay the same from turn to turn: let the provider cache them.
        if let Some(first) = messages.first_mut().and_then(|first| first["content"].get_mut(0)) {
            first["cache_control"] = json!({ "type": "ephemeral" });
        }
        let mut body = json!({
            "model": request.model, "max_tokens": OUTPUT_TOKENS_MAX, "system": [{ "type": "text", "text": request.system }],
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

    fn parse_body(&self, body: &Value, reply: &mut Reply, call_usage: &mut CallUsage) -> Result<(), String> {
        let content = body["content"].as_array().ok_or("the answer has no content")?;
        call_usage.message_id = body["id"].as_str().map(str::to_owned);
        call_usage.model = body["model"].as_str().map(str::to_owned);
        update_tokens(&body["usage"], call_usage);
        for block in content {
            match block["type"].as_str() {
                Some("text") => reply.text.push_str(block["text"].as_str().unwrap_or_default()),
                Some("tool_use") => reply.calls.push(parse_call(block, block["input"].clone())),
                _ => {}
            }
        }
        Ok(())
    }

    fn parse_event(&self, event: &Value, reply: &mut Reply, call_usage: &mut CallUsage) -> Result<StreamState, String> {
        match event["type"].as_str() {
            Some("message_start") => {
                call_usage.message_id = event["message"]["id"].as_str().map(str::to_owned);
                call_usage.model = event["message"]["model"].as_str().map(str::to_owned);
                update_tokens(&event["message"]["usage"], call_usage);
            }
            Some("content_block_start") if event["content_block"]["type"] == "tool_use" => {
                reply.calls.push(parse_call(&event["content_block"], Value::String(String::new())));
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
            Some("content_block_stop") => super::http::parse_inputs(reply),
            Some("message_delta") => {
                update_tokens(&event["usage"], call_usage);
                return Ok(StreamState::UsageMayFollow);
            }
            Some("message_stop") => return Ok(StreamState::Ended),
            Some("error") => {
                let what = event["error"]["message"].as_str().or(event["error"]["type"].as_str());
                return Err(what.unwrap_or("an error in the stream").to_owned());
            }
            _ => {}
        }
        Ok(StreamState::More)
    }
}

/// Joins consecutive messages of the same role, because the API requires alternating roles. The closing prompt, for
/// example, follows the results of calls.
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
        Turn::Model { text: reply_text, calls } => {
            // The API rejects an empty text.
            let reply_text = Some(reply_text).filter(|text| !text.trim().is_empty()).map(text);
            let calls = calls.iter().map(|call| {
                // The API rejects an input that is not an object.
                let input =
                    if call.input.is_object() { call.input.clone() } else { json!({ "unreadable": call.input }) };
                json!({ "type": "tool_use", "id": call.id, "name": call.name, "input": input })
            });
            let content: Vec<Value> = reply_text.into_iter().chain(calls).collect();
            let content = if content.is_empty() { vec![text(&"(nothing)".to_owned())] } else { content };
            json!({ "role": "assistant", "content": content })
        }
        Turn::Results(results) => {
            let result = |result: &super::CallResult| json!({ "type": "tool_result", "tool_use_id": result.call, "content": result.text, "is_error": result.is_error });
            json!({ "role": "user", "content": results.iter().map(result).collect::<Vec<_>>() })
        }
    }
}

fn parse_call(block: &Value, input: Value) -> Call {
    let string = |name: &str| block[name].as_str().unwrap_or_default().to_owned();
    Call { id: string("id"), name: string("name"), input }
}

/// Updates the token counts. Later events of a stream contain only the counts that changed.
fn update_tokens(usage: &Value, call_usage: &mut CallUsage) {
    for (name, count) in [
        ("input_tokens", &mut call_usage.input_tokens),
        ("output_tokens", &mut call_usage.output_tokens),
        ("cache_creation_input_tokens", &mut call_usage.cache_creation_tokens),
        ("cache_read_input_tokens", &mut call_usage.cache_read_tokens),
    ] {
        *count = usage[name].as_i64().or(*count);
    }
}
