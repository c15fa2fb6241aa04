//! Tokens. A token is shown once and stored as a hash. It can be revoked. The token of a run expires with the run.

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use trackway_domain::{
    Error as Rule, Id, Ref, Time, command,
    enums::{ActorKind, RunStatus, TokenScope},
    kind, sentence, text,
};
use trackway_store::{
    Store, TenantId, Writer, params,
    sql::hex,
    tables::{Person, Token},
};
use uuid::Uuid;

use crate::{
    action::{Action, ActionOutcome, Resource},
    context::{Actor, Context},
    core::run_ended_error,
    error::Result,
    touched::NoTouches,
};

/// Prefix of every token, by which secret scanners recognise a leaked token.
const PREFIX: &str = "trw_";

/// Generates a token. Returns the secret, to be shown once, and its hash, to be stored.
pub(crate) fn generate() -> Result<(String, Vec<u8>)> {
    let mut random = [0_u8; 24];
    getrandom::fill(&mut random).map_err(|error| {
        Rule::usage(format!("cannot generate a token, because the system provides no random bytes: {error}"))
    })?;
    let secret = format!("{PREFIX}{}", hex(&random));
    let hash = hash(&secret);
    Ok((secret, hash))
}

/// Generates the token of a run. The token contains the run's id, so its hash is stored in the run's row and is cleared
/// when the run ends.
pub(crate) fn generate_for_run(run: Id<kind::Run>) -> Result<(String, Vec<u8>)> {
    let (random, _) = generate()?;
    let secret = format!("{PREFIX}{}{}", run.uuid().simple(), &random[PREFIX.len()..]);
    let hash = hash(&secret);
    Ok((secret, hash))
}

/// The run id in a token, if it is the token of a run.
fn parse_run_id(secret: &str) -> Option<Id<kind::Run>> {
    let digits = secret.strip_prefix(PREFIX).filter(|digits| digits.len() == 32 + 48)?;
    Uuid::try_parse(digits.get(..32)?).ok().map(Id::from)
}

/// Creates the context for the token of a run. Returns `None` if the token is wrong.
fn authenticate_run_token(store: &Store, run: Id<kind::Run>, secret: &str) -> Result<Option<Context>> {
    let found = store.query_unscoped::<(TenantId, Uuid, RunStatus, Option<Vec<u8>>)>(
        "select tenant_id, agent_id, status, token_hash from runs where id = ?1",
        params![run],
    )?;
    let Some((tenant, agent, status, stored_hash)) = found.into_iter().next() else {
        return Ok(None);
    };
    if status != RunStatus::Running {
        return Err(run_ended_error(status).into());
    }
    if stored_hash.is_none() {
        return Err(Rule::denied("the run's token was revoked, because the run is about to end").into());
    }
    // Comparing hashes leaks nothing about the token through timing.
    if stored_hash != Some(hash(secret)) {
        return Ok(None);
    }
    Ok(Some(Context {
        tenant,
        actor: Actor::Agent(agent.into()),
        run: Some(run),
        token: None,
        unregistered_handle: None,
        request: Uuid::now_v7(),
    }))
}

fn hash(secret: &str) -> Vec<u8> {
    Sha256::digest(secret.as_bytes()).to_vec()
}

/// The purpose for which the caller presents a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    Work,
    Login,
}

/// Creates the context for a token.
pub(crate) fn authenticate(store: &Store, secret: &str, purpose: Purpose) -> Result<Context> {
    let unknown_token = || Rule::denied("unknown token").hint("check that TRACKWAY_TOKEN comes from this database");
    if let Some(run) = parse_run_id(secret).filter(|_| purpose == Purpose::Work) {
        return Ok(authenticate_run_token(store, run, secret)?.ok_or_else(unknown_token)?);
    }
    let token = store
        .query_unscoped::<Token>(
            &format!("{} where hash = ?1", <Token as trackway_store::Table>::select()),
            params![hash(secret)],
        )?
        .pop()
        .ok_or_else(unknown_token)?;
    if let Some(run) = token.run_id {
        let status = store
            .read(token.tenant_id)?
            .one::<(RunStatus,)>("select status from runs where tenant_id = ?1 and id = ?2", params![run])?;
        match status {
            Some((RunStatus::Running,)) => {}
            Some((status,)) => return Err(run_ended_error(status).into()),
            None => return Err(unknown_token().into()),
        }
    }
    check_usable(&token, store.now())?;
    if (token.scope == TokenScope::Login) != (purpose == Purpose::Login) {
        return Err(unknown_token().into());
    }
    Ok(Context {
        tenant: token.tenant_id,
        actor: match token.actor_kind {
            ActorKind::Person => Actor::Person(token.actor_id.into()),
            ActorKind::Agent => Actor::Agent(token.actor_id.into()),
        },
        run: token.run_id,
        token: Some(token.id),
        unregistered_handle: None,
        request: Uuid::now_v7(),
    })
}

/// Checks the token again inside a write transaction: it may have been revoked since, or may not allow this write.
pub(crate) fn recheck(action: &str, write: &mut Writer<'_>, token: Id<kind::Token>) -> Result<()> {
    let found = write
        .row::<Token>("where tenant_id = ?1 and id = ?2", params![token])?
        .ok_or_else(|| Rule::denied("unknown token"))?;
    check_usable(&found, write.now)?;
    match found.scope {
        TokenScope::All => Ok(()),
        TokenScope::Login if action == ExchangeLogin::NAME => Ok(()),
        TokenScope::Read => Err(Rule::denied("the token only allows reading").into()),
        TokenScope::Login => Err(Rule::denied("the token only allows logging in").into()),
    }
}

fn check_usable(token: &Token, now: Time) -> Result<()> {
    if token.revoked_at.is_some() {
        return Err(Rule::denied("the token was revoked").into());
    }
    if token.expires_at.is_some_and(|expires| expires <= now) {
        return Err(Rule::denied("the token has expired").into());
    }
    Ok(())
}

/// Create a token for yourself or for another person
///
/// The output shows the token only once.
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
#[serde(deny_unknown_fields)]
pub struct CreateToken {
    /// Name: what the token is for
    #[arg(long)]
    pub name: Option<String>,
    /// Person that the token is for [default: you]
    #[arg(long)]
    pub person: Option<Ref<kind::Person>>,
    /// Expiry time, such as 2026-02-27 or 2026-02-27T09:30:00Z [default: never]
    #[arg(long, value_name = "TIME")]
    pub expires: Option<Time>,
    /// Scope: all, read, or login (logs a browser in, once) [default: all]
    #[arg(long)]
    pub scope: Option<TokenScope>,
}

/// A new token. The secret is shown only here.
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
    type Touched = NoTouches;
    type Output = NewToken;

    fn perform(&self, context: &Context, write: &mut Writer<'_>) -> Result<ActionOutcome<Self>> {
        let Self { name, person, expires, scope } = self;
        let person = match (person, context.actor) {
            (Some(person), _) => write.resolve(person)?,
            (None, Actor::Person(person)) => person,
            (None, Actor::Agent(_)) => {
                return Err(Rule::denied("an agent cannot have tokens other than those of its runs").into());
            }
        };
        let name = name.as_deref().map(|name| text::check_line("name", name, text::LINE_MAX)).transpose()?;
        let scope = scope.unwrap_or(TokenScope::All);
        let (shown, resource) = create_for_person(context, write, person, name, scope, *expires)?;
        Ok(ActionOutcome::changed(shown, &resource, NoTouches))
    }
}

/// Creates a token for a person.
fn create_for_person(
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
    let resource = Resource::new(token.id, name.unwrap_or_else(|| format!("token of {}", person.handle)));
    resource.register(context, write)?;
    Ok((NewToken { id: token.id, person: person.handle, token: secret, scope, expires_at }, resource))
}

/// Exchange the token of a login link for a browser token; the link works once
///
/// The server executes this action when a browser opens the link. No interface offers it.
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
#[serde(deny_unknown_fields)]
pub struct ExchangeLogin {
    /// Expiry time of the login
    #[arg(long, value_name = "TIME")]
    pub until: Time,
}

impl Action for ExchangeLogin {
    const NAME: &'static str = "exchange_login";
    const CAPABILITY: &'static str = CreateToken::NAME;
    const COMMAND: (&'static str, &'static str) = ("token", "exchange");
    type Touched = NoTouches;
    type Output = NewToken;

    fn perform(&self, context: &Context, write: &mut Writer<'_>) -> Result<ActionOutcome<Self>> {
        let (Actor::Person(person), Some(token)) = (context.actor, context.token) else {
            return Err(Rule::denied("only a person can log in, with a login link").into());
        };
        let found = write.row_locked::<Token>("where tenant_id = ?1 and id = ?2", params![token])?;
        let Some(mut link) = found.filter(|found| found.scope == TokenScope::Login && found.revoked_at.is_none())
        else {
            return Err(Rule::denied("the login link has already been used")
                .hint(sentence![command!("open"), " makes another"])
                .into());
        };
        link.revoked_at = Some(write.now);
        write.update(&link)?;
        let (shown, resource) =
            create_for_person(context, write, person, Some("browser".to_owned()), TokenScope::All, Some(self.until))?;
        Ok(ActionOutcome::changed(shown, &resource, NoTouches))
    }
}

/// Revoke a token
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
#[serde(deny_unknown_fields)]
pub struct RevokeToken {
    /// Id of the token
    pub token: Ref<kind::Token>,
}

impl Action for RevokeToken {
    const NAME: &'static str = "revoke_token";
    const COMMAND: (&'static str, &'static str) = ("token", "revoke");
    const IS_DESTRUCTIVE: bool = true;
    type Touched = NoTouches;
    type Output = Token;

    fn perform(&self, _: &Context, write: &mut Writer<'_>) -> Result<ActionOutcome<Self>> {
        let id = write.resolve(&self.token)?;
        let mut token = write
            .row_locked::<Token>("where tenant_id = ?1 and id = ?2", params![id])?
            .ok_or_else(|| Rule::not_found("there is no such token"))?;
        if token.revoked_at.is_some() {
            return Ok(ActionOutcome::unchanged(token));
        }
        token.revoked_at = Some(write.now);
        write.update(&token)?;
        let resource = Resource::new(id, token.name.clone().unwrap_or_else(|| "token".into()));
        Ok(ActionOutcome::changed(token, &resource, NoTouches))
    }
}
