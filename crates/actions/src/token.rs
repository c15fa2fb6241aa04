//! Tokens: shown once, kept as a hash, revocable, and a run's dies with the run.

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use trackway_domain::{
    Error as Rule, Id, Ref, Time, command, kind, sentence, text,
    words::{ActorKind, RunStatus, TokenScope},
};
use trackway_store::{
    Store, TenantId, Writer, params,
    sql::hex,
    tables::{Person, Token},
};
use uuid::Uuid;

use crate::{
    action::{Action, Done, Resource},
    context::{Actor, Context},
    core::run_is_over,
    error::Result,
    touched::Nothing,
};

/// Starts every token, so that scanners for leaked secrets can know one.
const PREFIX: &str = "trw_";

/// A new token: what to show once, and what to keep.
pub(crate) fn generate() -> Result<(String, Vec<u8>)> {
    let mut random = [0_u8; 24];
    getrandom::fill(&mut random).map_err(|error| Rule::usage(format!("no randomness: {error}")))?;
    let secret = format!("{PREFIX}{}", hex(&random));
    let hash = hash(&secret);
    Ok((secret, hash))
}

/// The token of a run. It names the run, so that what is kept of it stands with the run, and ends with it.
pub(crate) fn of_run(run: Id<kind::Run>) -> Result<(String, Vec<u8>)> {
    let (random, _) = generate()?;
    let secret = format!("{PREFIX}{}{}", run.uuid().simple(), &random[PREFIX.len()..]);
    let hash = hash(&secret);
    Ok((secret, hash))
}

/// The run that a token names, if it is of that sort.
fn named_run(secret: &str) -> Option<Id<kind::Run>> {
    let digits = secret.strip_prefix(PREFIX).filter(|digits| digits.len() == 32 + 48)?;
    Uuid::try_parse(digits.get(..32)?).ok().map(Id::from)
}

/// The context of whoever holds the token of a run.
fn enter_run(store: &Store, run: Id<kind::Run>, secret: &str) -> Result<Option<Context>> {
    let found = store.ask_unscoped::<(TenantId, Uuid, RunStatus, Option<Vec<u8>>)>(
        "select tenant_id, agent_id, status, token_hash from runs where id = ?1",
        params![run],
    )?;
    let Some((tenant, agent, status, kept)) = found.into_iter().next() else {
        return Ok(None);
    };
    if status != RunStatus::Running {
        return Err(run_is_over(status).into());
    }
    if kept.is_none() {
        return Err(Rule::denied("the run is about to end: its token was revoked").into());
    }
    // Compared as hashes: how far they agree tells nothing about the token.
    if kept != Some(hash(secret)) {
        return Ok(None);
    }
    Ok(Some(Context {
        tenant,
        actor: Actor::Agent(agent.into()),
        run: Some(run),
        token: None,
        newcomer: None,
        request: Uuid::now_v7(),
    }))
}

fn hash(secret: &str) -> Vec<u8> {
    Sha256::digest(secret.as_bytes()).to_vec()
}

/// What a token is shown for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    Work,
    Login,
}

/// The context of whoever holds a token.
pub(crate) fn enter(store: &Store, secret: &str, purpose: Purpose) -> Result<Context> {
    let refused = || Rule::denied("the token is not known here").hint("is TRACKWAY_TOKEN from this database?");
    if let Some(run) = named_run(secret).filter(|_| purpose == Purpose::Work) {
        return Ok(enter_run(store, run, secret)?.ok_or_else(refused)?);
    }
    let token = store
        .ask_unscoped::<Token>(
            &format!("{} where hash = ?1", <Token as trackway_store::Table>::select()),
            params![hash(secret)],
        )?
        .pop()
        .ok_or_else(refused)?;
    if let Some(run) = token.run_id {
        let status = store
            .read(token.tenant_id)?
            .one::<(RunStatus,)>("select status from runs where tenant_id = ?1 and id = ?2", params![run])?;
        match status {
            Some((RunStatus::Running,)) => {}
            Some((status,)) => return Err(run_is_over(status).into()),
            None => return Err(refused().into()),
        }
    }
    usable(&token, store.now())?;
    if (token.scope == TokenScope::Login) != (purpose == Purpose::Login) {
        return Err(refused().into());
    }
    Ok(Context {
        tenant: token.tenant_id,
        actor: match token.actor_kind {
            ActorKind::Person => Actor::Person(token.actor_id.into()),
            ActorKind::Agent => Actor::Agent(token.actor_id.into()),
        },
        run: token.run_id,
        token: Some(token.id),
        newcomer: None,
        request: Uuid::now_v7(),
    })
}

/// Looks again, inside a write: the token may have been revoked since, and may not be for writing.
pub(crate) fn check(action: &str, write: &mut Writer<'_>, token: Id<kind::Token>) -> Result<()> {
    let found = write
        .row::<Token>("where tenant_id = ?1 and id = ?2", params![token])?
        .ok_or_else(|| Rule::denied("the token is not known here"))?;
    usable(&found, write.now)?;
    match found.scope {
        TokenScope::All => Ok(()),
        TokenScope::Login if action == ExchangeLogin::NAME => Ok(()),
        TokenScope::Read => Err(Rule::denied("the token is for reading only").into()),
        TokenScope::Login => Err(Rule::denied("the token is for a login only").into()),
    }
}

fn usable(token: &Token, now: Time) -> Result<()> {
    if token.revoked_at.is_some() {
        return Err(Rule::denied("the token was revoked").into());
    }
    if token.expires_at.is_some_and(|expires| expires <= now) {
        return Err(Rule::denied("the token has expired").into());
    }
    Ok(())
}

/// Make a token for yourself, or for another person; it is shown once
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
#[serde(deny_unknown_fields)]
pub struct CreateToken {
    /// What it is for
    #[arg(long)]
    pub name: Option<String>,
    /// Whose it is (you, when left out)
    #[arg(long)]
    pub person: Option<Ref<kind::Person>>,
    /// When it stops working, as 2026-02-27 or 2026-02-27T09:30:00Z (never, when left out)
    #[arg(long, value_name = "TIME")]
    pub expires: Option<Time>,
    /// What it opens: all, read, or login (once, in a browser)
    #[arg(long)]
    pub scope: Option<TokenScope>,
}

/// A token, the only time it is shown.
#[derive(Debug, Serialize)]
pub struct NewToken {
    pub id: Id<kind::Token>,
    pub person: String,
    pub token: String,
    pub scope: TokenScope,
    pub expires_at: Option<Time>,
}

impl Action for CreateToken {
    const NAME: &'static str = "create_token";
    const COMMAND: (&'static str, &'static str) = ("token", "create");
    type Touched = Nothing;
    type Output = NewToken;

    fn perform(&self, context: &Context, write: &mut Writer<'_>) -> Result<Done<Self>> {
        let person = match (&self.person, context.actor) {
            (Some(person), _) => write.resolve(person)?,
            (None, Actor::Person(person)) => person,
            (None, Actor::Agent(_)) => return Err(Rule::denied("an agent has run tokens only").into()),
        };
        let name = self.name.as_deref().map(|name| text::line("name", name, text::LINE_MAX)).transpose()?;
        let scope = self.scope.unwrap_or(TokenScope::All);
        let (shown, resource) = make(context, write, person, name, scope, self.expires)?;
        Ok(Done::changed(shown, &resource, Nothing))
    }
}

/// Makes a token of a person.
fn make(
    context: &Context,
    write: &mut Writer<'_>,
    person: Id<kind::Person>,
    name: Option<String>,
    scope: TokenScope,
    expires_at: Option<Time>,
) -> Result<(NewToken, Resource<kind::Token>)> {
    let person = write
        .row::<Person>("where tenant_id = ?1 and id = ?2", params![person])?
        .ok_or_else(|| Rule::not_found("there is no such person"))?;
    let (secret, hash) = generate()?;
    let token = Token {
        id: write.new_id(),
        tenant_id: context.tenant,
        hash,
        actor_kind: ActorKind::Person,
        actor_id: person.id.uuid(),
        run_id: None,
        name: name.clone(),
        expires_at,
        revoked_at: None,
        created_at: write.now,
        scope,
    };
    write.insert(&token)?;
    let resource = Resource::outside(token.id, name.unwrap_or_else(|| format!("token of {}", person.handle)));
    resource.register(context, write)?;
    Ok((NewToken { id: token.id, person: person.handle, token: secret, scope, expires_at }, resource))
}

/// Trade the token of a login link for one that lasts; the link works once
///
/// Done by the server when the link is followed. It is at no other door.
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
#[serde(deny_unknown_fields)]
pub struct ExchangeLogin {
    /// When the login ends
    #[arg(long, value_name = "TIME")]
    pub until: Time,
}

impl Action for ExchangeLogin {
    const NAME: &'static str = "exchange_login";
    const CAPABILITY: &'static str = CreateToken::NAME;
    const COMMAND: (&'static str, &'static str) = ("token", "exchange");
    type Touched = Nothing;
    type Output = NewToken;

    fn perform(&self, context: &Context, write: &mut Writer<'_>) -> Result<Done<Self>> {
        let (Actor::Person(person), Some(token)) = (context.actor, context.token) else {
            return Err(Rule::denied("a login is for people, by a link").into());
        };
        let found = write.row_locked::<Token>("where tenant_id = ?1 and id = ?2", params![token])?;
        let Some(mut link) = found.filter(|found| found.scope == TokenScope::Login && found.revoked_at.is_none())
        else {
            return Err(Rule::denied("the login link was used already")
                .hint(sentence![command!("open"), " makes another"])
                .into());
        };
        link.revoked_at = Some(write.now);
        write.update(&link)?;
        let (shown, resource) =
            make(context, write, person, Some("browser".to_owned()), TokenScope::All, Some(self.until))?;
        Ok(Done::changed(shown, &resource, Nothing))
    }
}

/// Make a token stop working
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
#[serde(deny_unknown_fields)]
pub struct RevokeToken {
    /// The token's id
    pub token: Ref<kind::Token>,
}

impl Action for RevokeToken {
    const NAME: &'static str = "revoke_token";
    const COMMAND: (&'static str, &'static str) = ("token", "revoke");
    const REMOVES: bool = true;
    type Touched = Nothing;
    type Output = Token;

    fn perform(&self, _: &Context, write: &mut Writer<'_>) -> Result<Done<Self>> {
        let id = write.resolve(&self.token)?;
        let mut token = write
            .row_locked::<Token>("where tenant_id = ?1 and id = ?2", params![id])?
            .ok_or_else(|| Rule::not_found("there is no such token"))?;
        if token.revoked_at.is_some() {
            return Ok(Done::unchanged(token));
        }
        token.revoked_at = Some(write.now);
        write.update(&token)?;
        let resource = Resource::outside(id, token.name.clone().unwrap_or_else(|| "token".into()));
        Ok(Done::changed(token, &resource, Nothing))
    }
}
