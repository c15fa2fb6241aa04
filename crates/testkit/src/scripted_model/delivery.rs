//! Sends a reply: its bytes, and the delays and faults between them.

use std::{collections::VecDeque, io, time::Duration};

use axum::body::Body;
use futures_util::stream;

use super::{
    reply::{ApiFormat, Reply},
    scenario::Block,
};

#[derive(Debug)]
enum Step {
    Send(String),
    Wait(Duration),
    /// Sends half of the next text and drops the connection.
    Cut,
    Disconnect,
}

/// The remaining steps of sending one body.
#[derive(Debug)]
pub struct Delivery {
    steps: VecDeque<Step>,
}

impl Delivery {
    /// Sends a complete body.
    pub fn complete(body: String, blocks: &[Block]) -> Self {
        let mut steps: VecDeque<_> = blocks.iter().flat_map(fault_steps).collect();
        steps.push_back(Step::Send(body));
        Self { steps }
    }

    /// Sends a stream of events, with the reply's parts in the order of the blocks.
    pub fn stream(format: &dyn ApiFormat, reply: &Reply, blocks: &[Block]) -> Self {
        let mut steps = VecDeque::new();
        let mut opening = format.opening(reply);
        let mut part_index = 0;
        for block in blocks {
            // A delay before all text and tools must come before the first byte of the stream.
            if matches!(block, Block::Text { .. } | Block::Tool { .. } | Block::Cut { .. }) {
                steps.extend(opening.drain(..).map(Step::Send));
            }
            if matches!(block, Block::Text { .. } | Block::Tool { .. }) {
                steps.extend(format.part(reply, part_index).into_iter().map(Step::Send));
                part_index += 1;
            }
            steps.extend(fault_steps(block));
        }
        steps.extend(opening.into_iter().chain(format.closing(reply)).map(Step::Send));
        Self { steps }
    }

    /// Waits for the delays before the first byte, then returns the body.
    pub async fn begin(mut self) -> Body {
        while let Some(Step::Wait(pause)) = self.steps.front() {
            tokio::time::sleep(*pause).await;
            self.steps.pop_front();
        }
        Body::from_stream(stream::unfold(self, Self::next))
    }

    async fn next(mut self) -> Option<(io::Result<String>, Self)> {
        loop {
            match self.steps.pop_front()? {
                Step::Send(text) => return Some((Ok(text), self)),
                Step::Wait(pause) => tokio::time::sleep(pause).await,
                Step::Cut => {
                    let text = self.steps.into_iter().find_map(|step| match step {
                        Step::Send(text) => Some(text),
                        _ => None,
                    })?;
                    let half = text[..text.floor_char_boundary(text.len() / 2)].to_owned();
                    return Some((Ok(half), Self { steps: VecDeque::from([Step::Disconnect]) }));
                }
                Step::Disconnect => {
                    // The server discards unsent data when the body fails, so give it a chance to send first.
                    tokio::task::yield_now().await;
                    return Some((Err(io::Error::other("scripted")), Self { steps: VecDeque::new() }));
                }
            }
        }
    }
}

fn fault_steps(block: &Block) -> Vec<Step> {
    match block {
        Block::Delay { delay_ms } => vec![Step::Wait(Duration::from_millis(*delay_ms))],
        Block::Hang { hang, .. } => vec![Step::Wait(Duration::from_secs(*hang)), Step::Disconnect],
        Block::Cut { .. } => vec![Step::Cut],
        _ => Vec::new(),
    }
}
