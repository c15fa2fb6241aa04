//! How a reply goes out: its bytes, and the pauses, silences and cuts between them.

use std::{collections::VecDeque, io, time::Duration};

use axum::body::Body;
use futures_util::stream;

use super::{
    reply::{Reply, Shape},
    scenario::Block,
};

#[derive(Debug)]
enum Step {
    Send(String),
    Wait(Duration),
    /// Breaks off in the middle of what is sent next.
    Cut,
    BreakOff,
}

/// The steps of sending one body.
#[derive(Debug)]
pub struct Delivery {
    steps: VecDeque<Step>,
}

impl Delivery {
    /// A body in one piece.
    pub fn whole(body: String, blocks: &[Block]) -> Self {
        let mut steps: VecDeque<_> = blocks.iter().flat_map(trouble).collect();
        steps.push_back(Step::Send(body));
        Self { steps }
    }

    /// A stream of events, its parts in the order of the blocks.
    pub fn stream(shape: &dyn Shape, reply: &Reply, blocks: &[Block]) -> Self {
        let mut steps = VecDeque::new();
        let mut opening = shape.opening(reply);
        let mut place = 0;
        for block in blocks {
            // A pause before everything else is one before the stream begins.
            if matches!(block, Block::Text { .. } | Block::Tool { .. } | Block::Cut { .. }) {
                steps.extend(opening.drain(..).map(Step::Send));
            }
            if matches!(block, Block::Text { .. } | Block::Tool { .. }) {
                steps.extend(shape.part(reply, place).into_iter().map(Step::Send));
                place += 1;
            }
            steps.extend(trouble(block));
        }
        steps.extend(opening.into_iter().chain(shape.closing(reply)).map(Step::Send));
        Self { steps }
    }

    /// The body, once the pauses before its first byte are over.
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
                    let rest = self.steps.into_iter().find_map(|step| match step {
                        Step::Send(text) => Some(text),
                        _ => None,
                    })?;
                    let half = rest[..rest.floor_char_boundary(rest.len() / 2)].to_owned();
                    return Some((Ok(half), Self { steps: VecDeque::from([Step::BreakOff]) }));
                }
                Step::BreakOff => {
                    // Lets the server send what it holds: with the error it throws that away.
                    tokio::task::yield_now().await;
                    return Some((Err(io::Error::other("scripted")), Self { steps: VecDeque::new() }));
                }
            }
        }
    }
}

fn trouble(block: &Block) -> Vec<Step> {
    match block {
        Block::Delay { delay_ms } => vec![Step::Wait(Duration::from_millis(*delay_ms))],
        Block::Hang { hang, .. } => vec![Step::Wait(Duration::from_secs(*hang)), Step::BreakOff],
        Block::Cut { .. } => vec![Step::Cut],
        _ => Vec::new(),
    }
}
