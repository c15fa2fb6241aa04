//! OpenAI's Chat Completions API, which many other servers implement.

use serde_json::{Value, json};

use super::{
    Call, CallUsage, Reply, Request, Turn,
    http::{StreamState, WireFormat},
};

#[derive(Debug, Clone, Copy)]
pub struct ChatCompletions;

impl WireFormat for ChatCompletions {
    fn path(&self) -> &'static str {
        "/chat/completions"
    }

    fn headers(&self, key: &str) -> Vec<(&'static str, String)> {
        vec![("authorization", format!("Bearer {key}"))]
    }

    fn body(&self, request: &Request, stream: bool) -> Value {
        let mut messages = vec![json!({ "role": "system", "content": request.system })];
        messages.extend(request.turns.iter().flat_map(messages_of));
        let mut body = json!({ "model": request.model, "messages": messages, "stream": stream });
        if stream {
            body["stream_options"] = json!({ "include_usage": true });
        }
        if !request.tools.is_empty() {
            let tool = |tool: &super::Tool| {
                let function =
                    json!({ "name": tool.name, "description": tool.description, "parameters": tool.schema() });
                json!({ "type": "function", "function": function })
            };
            body["tools"] = request.tools.iter().map(tool).collect();
            if !request.may_call {
                body["tool_choice"] = json!("none");
            }
        }
        body
    }

    fn parse_body(&self, body: &Value, reply: &mut Reply, call_usage: &mut CallUsage) -> Result<(), String> {
        let message = body.pointer("/choices/0/message").ok_or("the answer has no choices")?;
        read_usage(body, call_usage);
        reply.text.push_str(message["content"].as_str().unwrap_or_default());
        for call in message["tool_calls"].as_array().into_iter().flatten() {
            add_call(reply, call);
        }
        super::http::parse_inputs(reply);
        Ok(())
    }

    fn parse_event(&self, event: &Value, reply: &mut Reply, call_usage: &mut CallUsage) -> Result<StreamState, String> {
        if let Some(error) = event.get("error").filter(|error| !error.is_null()) {
            return Err(error["message"].as_str().unwrap_or("an error in the stream").to_owned());
        }
        read_usage(event, call_usage);
        let delta = &event["choices"][0]["delta"];
        reply.text.push_str(delta["content"].as_str().unwrap_or_default());
        for call in delta["tool_calls"].as_array().into_iter().flatten() {
            let index = call["index"].as_u64().and_then(|index| usize::try_from(index).ok()).unwrap_or_default();
            match reply.calls.get_mut(index) {
                Some(Call { input: Value::String(input), .. }) => {
                    input.push_str(call["function"]["arguments"].as_str().unwrap_or_default());
                }
                _ => add_call(reply, call),
            }
        }
        // The usage follows the last event of the reply, and not every server sends `[DONE]`.
        Ok(if event["choices"][0]["finish_reason"].is_string() {
            StreamState::UsageMayFollow
        } else {
            StreamState::More
        })
    }
}

fn add_call(reply: &mut Reply, call: &Value) {
    let function = &call["function"];
    reply.calls.push(Call {
        id: call["id"].as_str().unwrap_or_default().to_owned(),
        name: function["name"].as_str().unwrap_or_default().to_owned(),
        input: Value::String(function["arguments"].as_str().unwrap_or_default().to_owned()),
    });
}

fn read_usage(body: &Value, call_usage: &mut CallUsage) {
    call_usage.message_id = body["id"].as_str().map(str::to_owned).or(call_usage.message_id.take());
    call_usage.model = body["model"].as_str().map(str::to_owned).or(call_usage.model.take());
    let usage = &body["usage"];
    let cached = usage["prompt_tokens_details"]["cached_tokens"].as_i64();
    // This API counts cached tokens as prompt tokens.
    let fresh = usage["prompt_tokens"].as_i64().map(|prompt| prompt - cached.unwrap_or_default());
    call_usage.input_tokens = fresh.or(call_usage.input_tokens);
    call_usage.output_tokens = usage["completion_tokens"].as_i64().or(call_usage.output_tokens);
    call_usage.cache_read_tokens = cached.or(call_usage.cache_read_tokens);
}

fn messages_of(turn: &Turn) -> Vec<Value> {
    match turn {
        Turn::User(parts) => vec![json!({ "role": "user", "content": parts.join("\n\n") })],
        Turn::Model { text, calls } => {
            let mut message = json!({ "role": "assistant", "content": text });
            if !calls.is_empty() {
                let call = |call: &Call| {
                    let arguments = match &call.input {
                        Value::String(unreadable) => unreadable.clone(),
                        input => input.to_string(),
                    };
                    json!({ "id": call.id, "type": "function", "function": { "name": call.name, "arguments": arguments } })
                };
                message["tool_calls"] = calls.iter().map(call).collect();
            }
            vec![message]
        }
        Turn::Results(results) => results
            .iter()
            .map(|result| json!({ "role": "tool", "tool_call_id": result.call, "content": result.text }))
            .collect(),
    }
}
