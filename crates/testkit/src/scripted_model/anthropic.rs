//! The format of Anthropic's Messages API.

use serde_json::{Value, json};

use super::reply::{ApiFormat, Part, Reply, pieces};

#[derive(Debug)]
pub struct AnthropicMessages;

impl ApiFormat for AnthropicMessages {
    fn complete(&self, reply: &Reply) -> Value {
        json!({
            "id": message_id(reply), "type": "message", "role": "assistant", "model": reply.model,
            "content": reply.parts.iter().map(content).collect::<Vec<_>>(),
            "stop_reason": stop_reason(reply), "stop_sequence": null, "usage": reply.usage,
        })
    }

    fn opening(&self, reply: &Reply) -> Vec<String> {
        // Like the real API, reports the input tokens at the start and the output tokens at the end.
        let mut usage = json!(reply.usage);
        usage["output_tokens"] = json!(reply.usage.output_tokens.min(1));
        let message = json!({
            "id": message_id(reply), "type": "message", "role": "assistant", "model": reply.model,
            "content": [], "stop_reason": null, "stop_sequence": null, "usage": usage,
        });
        vec![event(json!({ "type": "message_start", "message": message })), event(json!({ "type": "ping" }))]
    }

    fn part(&self, reply: &Reply, index: usize) -> Vec<String> {
        let part = &reply.parts[index];
        let (empty, deltas): (Value, Vec<Value>) = match part {
            Part::Text(text) => (
                json!({ "type": "text", "text": "" }),
                pieces(text).map(|piece| json!({ "type": "text_delta", "text": piece })).collect(),
            ),
            Part::Call { id, tool, input } => (
                json!({ "type": "tool_use", "id": format!("toolu_{id}"), "name": tool, "input": {} }),
                pieces(&json!(input).to_string())
                    .map(|piece| json!({ "type": "input_json_delta", "partial_json": piece }))
                    .collect(),
            ),
        };
        let start = json!({ "type": "content_block_start", "index": index, "content_block": empty });
        let deltas =
            deltas.into_iter().map(|delta| json!({ "type": "content_block_delta", "index": index, "delta": delta }));
        let stop = json!({ "type": "content_block_stop", "index": index });
        std::iter::once(start).chain(deltas).chain([stop]).map(event).collect()
    }

    fn closing(&self, reply: &Reply) -> Vec<String> {
        vec![
            event(json!({
                "type": "message_delta",
                "delta": { "stop_reason": stop_reason(reply), "stop_sequence": null },
                "usage": { "output_tokens": reply.usage.output_tokens },
            })),
            event(json!({ "type": "message_stop" })),
        ]
    }

    fn error(&self, status: u16) -> Value {
        let kind = match status {
            400 => "invalid_request_error",
            401 => "authentication_error",
            403 => "permission_error",
            404 => "not_found_error",
            413 => "request_too_large",
            429 => "rate_limit_error",
            529 => "overloaded_error",
            _ => "api_error",
        };
        json!({ "type": "error", "error": { "type": kind, "message": "scripted" } })
    }
}

fn message_id(reply: &Reply) -> String {
    format!("msg_{}", reply.id)
}

fn content(part: &Part) -> Value {
    match part {
        Part::Text(text) => json!({ "type": "text", "text": text }),
        Part::Call { id, tool, input } => {
            json!({ "type": "tool_use", "id": format!("toolu_{id}"), "name": tool, "input": input })
        }
    }
}

fn stop_reason(reply: &Reply) -> &'static str {
    if reply.calls_tools() { "tool_use" } else { "end_turn" }
}

fn event(data: Value) -> String {
    format!("event: {}\ndata: {data}\n\n", data["type"].as_str().expect("an event with a type"))
}
