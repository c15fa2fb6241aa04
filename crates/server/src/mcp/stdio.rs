//! The protocol over standard input and output, until the input ends.
//!
//! The SDK drops a line that it cannot read without a word, and stops for one that comes before the first request. Here
//! such a line gets an answer, and the next one is read.

use std::io;

use rmcp::{ServiceExt, service::ServerInitializeError};
use serde::{Deserialize, de::IgnoredAny};
use serde_json::{error::Category, json};
use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};

use super::Mcp;

/// Bytes of a line: the largest text an action takes, four bytes a character, and room around it.
const LINE_MAX: u64 = 6_000_000;
/// Bytes on their way from the checks to the SDK.
const BUFFER: usize = 65_536;

/// Serves until standard input ends.
pub async fn serve(mcp: Mcp) -> io::Result<()> {
    let (checked, input) = tokio::io::duplex(BUFFER);
    let pump = tokio::spawn(pump(BufReader::new(tokio::io::stdin()), checked, tokio::io::stdout()));
    let ended = match mcp.for_one_client().serve((input, tokio::io::stdout())).await {
        Ok(running) => running.waiting().await.map(drop).map_err(io::Error::other),
        Err(ServerInitializeError::ConnectionClosed(_)) => Ok(()),
        Err(error) => Err(io::Error::other(error)),
    };
    pump.abort();
    ended
}

/// As much of a message as decides what becomes of it.
#[derive(Deserialize)]
struct Envelope {
    id: Option<IgnoredAny>,
    method: Option<IgnoredAny>,
}

/// Passes lines on that hold a message, and answers the others.
async fn pump(
    mut from: impl AsyncBufRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    mut answers: impl AsyncWrite + Unpin,
) -> io::Result<()> {
    let mut line = Vec::new();
    let mut has_begun = false;
    loop {
        line.clear();
        if (&mut from).take(LINE_MAX).read_until(b'\n', &mut line).await? == 0 {
            return Ok(());
        }
        if line.last() != Some(&b'\n') && line.len() as u64 == LINE_MAX {
            skip_line(&mut from).await?;
            refuse(&mut answers, -32600, &format!("a message is at most {LINE_MAX} bytes")).await?;
            continue;
        }
        if line.iter().all(u8::is_ascii_whitespace) {
            continue;
        }
        match serde_json::from_slice::<Envelope>(&line) {
            Err(error) if matches!(error.classify(), Category::Syntax | Category::Eof) => {
                refuse(&mut answers, -32700, &format!("this line is not JSON: {error}")).await?;
                continue;
            }
            // Nothing can be told or answered before something was asked.
            Ok(envelope) if !has_begun && (envelope.id.is_none() || envelope.method.is_none()) => continue,
            Ok(_) => has_begun = true,
            Err(_) => {}
        }
        if line.last() != Some(&b'\n') {
            line.push(b'\n');
        }
        to.write_all(&line).await?;
        to.flush().await?;
    }
}

/// Reads on to the end of a line.
async fn skip_line(from: &mut (impl AsyncBufRead + Unpin)) -> io::Result<()> {
    loop {
        let there = from.fill_buf().await?;
        let newline = there.iter().position(|byte| *byte == b'\n');
        let read = newline.map_or(there.len(), |at| at + 1);
        from.consume(read);
        if newline.is_some() || read == 0 {
            return Ok(());
        }
    }
}

async fn refuse(answers: &mut (impl AsyncWrite + Unpin), code: i32, message: &str) -> io::Result<()> {
    let answer = json!({ "jsonrpc": "2.0", "id": null, "error": { "code": code, "message": message } });
    answers.write_all(format!("{answer}\n").as_bytes()).await?;
    answers.flush().await
}
