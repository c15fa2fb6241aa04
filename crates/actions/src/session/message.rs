//! Records prompts and the agents' replies as messages.

use trackway_domain::{
    Id, Time,
    enums::{ActorKind, MessageStatus},
    kind,
    observed::ObservedFact,
    text,
};
use trackway_store::{params, tables::Message};
use uuid::Uuid;

use super::SessionRecorder;
use crate::{action::Resource, error::Result, message::content};

impl SessionRecorder<'_, '_> {
    pub(super) fn record_reply(&mut self, observed: &ObservedFact, reply: &str, line: Option<&str>) -> Result<()> {
        let run = self.run_of(observed)?;
        self.record_message(observed.at, reply, Some(run), line)?;
        Ok(())
    }

    /// Stores a message of this session. Its sender is the agent of the run `from`, or else the person. A transcript
    /// line is stored only once.
    pub(super) fn record_message(
        &mut self,
        at: Time,
        raw_body: &str,
        from: Option<Id<kind::Run>>,
        line: Option<&str>,
    ) -> Result<Option<Id<kind::Message>>> {
        let body = text::cut(&text::clean(raw_body), text::BODY_MAX - 1);
        if body.trim().is_empty() {
            return Ok(None);
        }
        let session = self.session.id;
        let line = line.filter(|line| line.chars().count() <= 300 && !line.contains(char::is_control));
        if let Some(line) = line {
            let known = self.write.one::<(Id<kind::Message>,)>(
                "select id from messages where tenant_id = ?1 and session_id = ?2 and line = ?3",
                params![session, line],
            )?;
            if let Some((id,)) = known {
                return Ok(Some(id));
            }
        }
        let agent = from.map(|run| self.agent_of(run)).transpose()?.flatten();
        let content = content::store(self.context, self.write, &body)?.id;
        let message = Message {
            id: Id::new(at),
            tenant_id: self.context.tenant,
            content_id: content,
            from_actor_kind: if agent.is_some() { ActorKind::Agent } else { ActorKind::Person },
            from_actor_id: agent.unwrap_or_else(|| self.context.actor.id()),
            from_run_id: from,
            session_id: Some(session),
            line: line.map(Into::into),
            created_at: at,
            from_task_id: None,
            to_kind: None,
            to_id: None,
            in_reply_to: None,
            conversation_id: None,
            experiment_id: None,
            role_id: None,
            status: MessageStatus::Ingested,
            error_message: None,
            title: None,
            goal: None,
            tags: Vec::new(),
        };
        self.write.insert(&message)?;
        self.register(&Resource::new(message.id, format!("messages/{}", message.id.short())))?;
        self.count("message");
        Ok(Some(message.id))
    }

    pub(super) fn agent_of(&mut self, run: Id<kind::Run>) -> Result<Option<Uuid>> {
        if let Some(agent) = self.agents_of_runs.get(&run) {
            return Ok(*agent);
        }
        let agent =
            self.write.one::<(Uuid,)>("select agent_id from runs where tenant_id = ?1 and id = ?2", params![run])?;
        let agent = agent.map(|(agent,)| agent);
        self.agents_of_runs.insert(run, agent);
        Ok(agent)
    }
}
