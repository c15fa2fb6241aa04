//! The format of OpenAI's chat completions.

use serde_json::{Value, json};

use super::reply::{ApiFormat, Part, Reply, pieces};

/// The creation time in every reply.
const CREATED: u64 = 1_750_000_000;

#[derive(Debug)]
pub struct ChatCompletions {
    /// Whether a stream ends with the usage. The request decides this.
    pub usage_in_stream: bool,
}

impl ChatCompletions {
    pub fn for_request(request: &Value) -> Self {
        Self { usage_in_stream: request["stream_options"]["include_usage"] == json!(true) }
    }

    fn chunk(&self, reply: &Reply, delta: Value, finish_reason: Option<&str>) -> String {
        let mut chunk = response_base(reply, "chat.completion.chunk");
        chunk["choices"] = json!([{ "index": 0, "delta": delta, "logprobs": null, "finish_reason": finish_reason }]);
        if self.usage_in_stream {
            chunk["usage"] = Value::Null;
        }
        event(&chunk)
    }
}

impl ApiFormat for ChatCompletions {
    fn complete(&self, reply: &Reply) -> Value {
        let mut text: Option<String> = None;
        let mut calls = Vec::new();
        for part in &reply.parts {
            match part {
                Part::Text(more) => text.get_or_insert_default().push_str(more),
                Part::Call { id, tool, input } => calls.push(json!({
                    "id": format!("call_{id}"), "type": "function",
                    "function": { "name": tool, "arguments": json!(input).to_string() },
                })),
            }
        }
        let mut message = json!({ "role": "assistant", "content": text, "refusal": null });
        if !calls.is_empty() {
            message["tool_calls"] = json!(calls);
        }
        let mut completion = response_base(reply, "chat.completion");
        completion["choices"] =
            json!([{ "index": 0, "message": message, "logprobs": null, "finish_reason": finish_reason(reply) }]);
        completion["usage"] = usage(reply);
        completion
    }

    fn opening(&self, reply: &Reply) -> Vec<String> {
        vec![self.chunk(reply, json!({ "role": "assistant", "content": "" }), None)]
    }

    fn part(&self, reply: &Reply, index: usize) -> Vec<String> {
        let deltas: Vec<Value> = match &reply.parts[index] {
            Part::Text(text) => pieces(text).map(|piece| json!({ "content": piece })).collect(),
            Part::Call { id, tool, input } => {
                let calls_before = reply.parts[..index].iter().filter(|part| matches!(part, Part::Call { .. })).count();
                let start = json!({
                    "index": calls_before, "id": format!("call_{id}"), "type": "function",
                    "function": { "name": tool, "arguments": "" },
                });
                let arguments = json!(input).to_string();
                let argument_deltas = pieces(&arguments)
                    .map(|piece| json!({ "index": calls_before, "function": { "arguments": piece } }));
                std::iter::once(start).chain(argument_deltas).map(|call| json!({ "tool_calls": [call] })).collect()
            }
        };
        deltas.into_iter().map(|delta| self.chunk(reply, delta, None)).collect()
    }

    fn closing(&self, reply: &Reply) -> Vec<String> {
        let mut events = vec![self.chunk(reply, json!({}), Some(finish_reason(reply)))];
        if self.usage_in_stream {
            let mut last = response_base(reply, "chat.completion.chunk");
            last["choices"] = json!([]);
            last["usage"] = usage(reply);
            events.push(event(&last));
        }
        events.push("data: [DONE]\n\n".to_owned());
        events
    }

    fn error(&self, status: u16) -> Value {
        let kind = match status {
            400..=428 => "invalid_request_error",
            429 => "rate_limit_exceeded",
            _ => "server_error",
        };
        json!({ "error": { "message": "scripted", "type": kind, "param": null, "code": null } })
    }
}

fn response_base(reply: &Reply, object: &str) -> Value {
    json!({ "id": format!("chatcmpl-{}", reply.id), "object": object, "created": CREATED, "model": reply.model })
}

/// OpenAI counts cached input as part of the prompt.
fn usage(reply: &Reply) -> Value {
    let usage = reply.usage;
    let prompt = usage.input_tokens + usage.cache_creation_input_tokens + usage.cache_read_input_tokens;
    json!({
        "prompt_tokens": prompt, "completion_tokens": usage.output_tokens,
        "total_tokens": prompt + usage.output_tokens,
        "prompt_tokens_details": { "cached_tokens": usage.cache_read_input_tokens },
    })
}

fn finish_reason(reply: &Reply) -> &'static str {
    if reply.calls_tools() { "tool_calls" } else { "stop" }
}

fn event(data: &Value) -> String {
    format!("data: {data}\n\n")
}
