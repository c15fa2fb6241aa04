//! MCP over standard input and output.
//!
//! The SDK silently drops lines that it cannot parse, and stops if such a line comes before the first request. This
//! module checks the lines first: it answers an invalid line with an error and continues with the next one.

use std::io;

use rmcp::{ServiceExt, service::ServerInitializeError};
use serde::{Deserialize, de::IgnoredAny};
use serde_json::{error::Category, json};
use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};

use super::Mcp;

/// Maximum size of a line, in bytes: the largest text of an action at four bytes per character, plus some space.
const LINE_MAX: u64 = 6_000_000;
/// Size of the buffer between the checks and the SDK, in bytes.
const BUFFER: usize = 65_536;

/// Serves until standard input ends.
pub async fn serve(mcp: Mcp) -> io::Result<()> {
    let (checked, input) = tokio::io::duplex(BUFFER);
    let forwarding = tokio::spawn(forward_messages(BufReader::new(tokio::io::stdin()), checked, tokio::io::stdout()));
    let ended = match mcp.for_one_client().serve((input, tokio::io::stdout())).await {
        Ok(running) => running.waiting().await.map(drop).map_err(io::Error::other),
        Err(ServerInitializeError::ConnectionClosed(_)) => Ok(()),
        Err(error) => Err(io::Error::other(error)),
    };
    forwarding.abort();
    ended
}

/// The fields of a message that decide how to treat it.
#[derive(Deserialize)]
struct Envelope {
    id: Option<IgnoredAny>,
    method: Option<IgnoredAny>,
}

/// Forwards valid messages to the SDK, and answers the other lines.
async fn forward_messages(
    mut from: impl AsyncBufRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    mut answers: impl AsyncWrite + Unpin,
) -> io::Result<()> {
    let mut line = Vec::new();
    let mut has_request = false;
    loop {
        line.clear();
        if (&mut from).take(LINE_MAX).read_until(b'\n', &mut line).await? == 0 {
            return Ok(());
        }
        if line.last() != Some(&b'\n') && line.len() as u64 == LINE_MAX {
            skip_line(&mut from).await?;
            answer_error(&mut answers, -32600, &format!("the message is longer than {LINE_MAX} bytes")).await?;
            continue;
        }
        if line.iter().all(u8::is_ascii_whitespace) {
            continue;
        }
        match serde_json::from_slice::<Envelope>(&line) {
            Err(error) if matches!(error.classify(), Category::Syntax | Category::Eof) => {
                answer_error(&mut answers, -32700, &format!("the line is not JSON: {error}")).await?;
                continue;
            }
            // Notifications and responses before the first request are ignored.
            Ok(envelope) if !has_request && (envelope.id.is_none() || envelope.method.is_none()) => continue,
            Ok(_) => has_request = true,
            Err(_) => {}
        }
        if line.last() != Some(&b'\n') {
            line.push(b'\n');
        }
        to.write_all(&line).await?;
        to.flush().await?;
    }
}

async fn skip_line(from: &mut (impl AsyncBufRead + Unpin)) -> io::Result<()> {
    loop {
        let buffer = from.fill_buf().await?;
        let newline = buffer.iter().position(|byte| *byte == b'\n');
        let read = newline.map_or(buffer.len(), |at| at + 1);
        from.consume(read);
        if newline.is_some() || read == 0 {
            return Ok(());
        }
    }
}

async fn answer_error(answers: &mut (impl AsyncWrite + Unpin), code: i32, message: &str) -> io::Result<()> {
    let answer = json!({ "jsonrpc": "2.0", "id": null, "error": { "code": code, "message": message } });
    answers.write_all(format!("{answer}\n").as_bytes()).await?;
    answers.flush().await
}
