//! One question, one answer: the same for a socket, and for an agent that works inside this process.

use std::{fmt, sync::Arc, time::Instant};

use axum::{
    body::Body,
    http::{HeaderMap, HeaderValue, Method, StatusCode, header},
    response::{IntoResponse, Response},
};
use serde_json::json;
use trackway_actions::{Core, context::Context};

use crate::{
    act,
    address::{Address, Wanted},
    api, caller,
    format::Format,
    html,
    input::{self, Empty},
    kept::{Kept, Name, Sent, Told},
    markdown, offers,
    page::Page,
    pages,
    problem::Problem,
    sentence::rendered,
};

/// A request whose body has been read.
#[derive(Debug, Clone, Default)]
pub struct Question {
    pub method: Method,
    /// As it came, without the query.
    pub path: String,
    pub query: String,
    pub headers: HeaderMap,
    pub body: Vec<u8>,
}

/// What an agent inside this process gets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    pub status: u16,
    pub body: String,
}

/// Everything there is to see and do, over one database.
#[derive(Clone)]
pub struct Site {
    pub(crate) core: Arc<Core>,
    kept: Arc<Kept>,
    told: Arc<Told>,
}

impl fmt::Debug for Site {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Site").finish_non_exhaustive()
    }
}

/// A page, or where to go instead.
#[derive(Debug)]
pub enum Reply {
    Page(Box<Page>),
    /// Something was done: what came out, and where a browser goes from here, unless it has to see that.
    Done {
        page: Box<Page>,
        then: Option<String>,
    },
}

impl Site {
    pub fn new(core: Arc<Core>) -> Self {
        Self { core, kept: Arc::default(), told: Arc::default() }
    }

    /// Reads a page as Markdown with a run's token, as over HTTP.
    pub fn get(&self, token: &str, path: &str) -> Answer {
        self.ask(Method::GET, token, path, Vec::new())
    }

    /// Does an action with a run's token, as over HTTP.
    pub fn post(&self, token: &str, path: &str, input: &serde_json::Value) -> Answer {
        self.ask(Method::POST, token, path, input.to_string().into_bytes())
    }

    fn ask(&self, method: Method, token: &str, path: &str, body: Vec<u8>) -> Answer {
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        let mut question =
            Question { method, path: path.to_owned(), query: query.to_owned(), body, ..Question::default() };
        if let Ok(bearer) = HeaderValue::from_str(&format!("Bearer {token}")) {
            question.headers.insert(header::AUTHORIZATION, bearer);
        }
        question.headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let format = Format::Markdown;
        let (status, body) = match self.reply(&question, format) {
            Ok((Reply::Page(page) | Reply::Done { page, .. }, _)) => (200, markdown::page(&page)),
            Err(problem) => (
                problem.status.as_u16(),
                markdown::problem(
                    problem.status.as_u16(),
                    &rendered(&problem.message),
                    problem.hint.as_ref().map(rendered).as_deref(),
                ),
            ),
        };
        Answer { status, body }
    }

    /// Answers a request.
    pub fn answer(&self, question: &Question) -> Response {
        let wished = Format::of_accept(&question.headers);
        if let Some(rest) = question.path.strip_prefix("/api/v1/") {
            return self.api(question, rest).unwrap_or_else(|problem| problem.respond(Format::Json));
        }
        if question.path == "/api/openapi.json" {
            return self.described(question).unwrap_or_else(|problem| problem.respond(Format::Json));
        }
        let ending = Format::of_ending(&question.path);
        let format = ending.map_or(wished, |(_, format)| format);
        let name = Self::name(question, wished);
        // Asked before the page is made: what is written meanwhile makes it untrue.
        let (made, moment) = (Instant::now(), name.as_ref().and_then(|_| self.core.store().moment().ok()));
        if let (Some(name), Some(moment)) = (&name, &moment)
            && let Some(sent) = self.kept.get(name, moment)
        {
            return respond(question, sent);
        }
        match self.reply(question, wished) {
            Ok((Reply::Page(page), format)) => {
                let sent = sent(&page, format);
                if let (Some(name), Some(moment)) = (name, moment) {
                    self.kept.keep(name, moment, made, &sent);
                }
                respond(question, sent)
            }
            Ok((Reply::Done { then: Some(then), .. }, Format::Html)) => {
                (StatusCode::SEE_OTHER, [(header::LOCATION, then)]).into_response()
            }
            Ok((Reply::Done { page, .. }, format)) => respond(question, sent(&page, format)),
            Err(problem) => problem.respond(format),
        }
    }

    /// A page that was made and is still true: no thread has to wait for it.
    pub async fn shown_again(&self, question: &Question) -> Option<Response> {
        let name = Self::name(question, Format::of_accept(&question.headers)).filter(|name| self.kept.has(name))?;
        let moment = match self.core.store().local_moment() {
            Some(moment) => moment.ok()?,
            None => self.told.moment(&self.core).await?,
        };
        Some(respond(question, self.kept.get(&name, &moment)?))
    }

    /// Whose page is asked for, and which, if it is a page.
    fn name(question: &Question, format: Format) -> Option<Name> {
        let reads = question.method == Method::GET || question.method == Method::HEAD;
        let (token, _) = caller::token(&question.headers).ok().filter(|_| reads)?;
        Some(Name { token, path: question.path.clone(), query: question.query.clone(), format })
    }

    /// The page at the path; where there is none, the one at the path without its ending.
    fn reply(&self, question: &Question, wished: Format) -> Result<(Reply, Format), Problem> {
        let context = self.context(question)?;
        let missing = || {
            Problem::new(StatusCode::NOT_FOUND, "not_found", format!("there is no page {}", question.path))
                .hint("`/` leads to all of them")
        };
        let whole = Address::parse(&question.path);
        let first = match whole {
            Some(address) => self.at(question, &context, &address, wished),
            None => Err(missing()),
        };
        match (first, Format::of_ending(&question.path)) {
            (Err(problem), Some((path, format))) if problem.status == StatusCode::NOT_FOUND => {
                let path = if path == "/index" { "/" } else { path };
                let address = Address::parse(path).ok_or(problem)?;
                Ok((self.at(question, &context, &address, format)?, format))
            }
            (first, _) => Ok((first?, wished)),
        }
    }

    fn at(&self, question: &Question, context: &Context, address: &Address, format: Format) -> Result<Reply, Problem> {
        match (question.method.clone(), &address.wanted) {
            (Method::GET | Method::HEAD, Wanted::Page) => {
                Ok(Reply::Page(Box::new(pages::page(self, context, &address.place, &question.query, format)?)))
            }
            (Method::GET | Method::HEAD, Wanted::Actions) => {
                input::none_but(&question.query, &[])?;
                Ok(Reply::Page(Box::new(act::list(self, context, &address.place)?)))
            }
            (Method::GET | Method::HEAD, Wanted::Action(name)) => {
                input::none_but(&question.query, &["dry_run", "then"])?;
                Ok(Reply::Page(Box::new(act::describe(self, context, &address.place, name)?)))
            }
            (Method::POST, Wanted::Action(name)) => act::perform(self, context, &address.place, name, question),
            (method, wanted) => {
                let allow = if matches!(wanted, Wanted::Action(_)) { "GET, HEAD, POST" } else { "GET, HEAD" };
                Err(Problem::method(&method, &question.path, allow)
                    .hint("pages are read with GET, actions are done with POST <page>/actions/<name>"))
            }
        }
    }

    /// Whether the database answers.
    pub fn is_ready(&self) -> Result<(), Problem> {
        self.require_in_place()?;
        self.core.store().ping()?;
        Ok(())
    }

    /// Refuses to go on with a file that was removed or replaced: what is written into it nobody would find again.
    fn require_in_place(&self) -> Result<(), Problem> {
        if self.core.store().is_in_place() {
            return Ok(());
        }
        let why = "the database file that this server opened was removed or replaced; start the server again";
        Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, "gone", why))
    }

    pub(crate) fn context(&self, question: &Question) -> Result<Context, Problem> {
        self.require_in_place()?;
        let (token, by) = caller::token(&question.headers)?;
        caller::refuse_foreign_pages(question, by)?;
        caller::enter(&self.core, token)
    }

    /// The document that describes the interface.
    fn described(&self, question: &Question) -> Result<Response, Problem> {
        self.context(question)?;
        input::none_but(&question.query, &[])?;
        match question.method {
            Method::GET | Method::HEAD => {
                Ok(([(header::CONTENT_TYPE, Format::Json.content_type())], api::OPENAPI.as_str()).into_response())
            }
            _ => Err(Problem::method(&question.method, &question.path, "GET, HEAD")),
        }
    }

    fn api(&self, question: &Question, rest: &str) -> Result<Response, Problem> {
        let context = self.context(question)?;
        let data = match (question.method.clone(), rest.strip_prefix("actions/")) {
            (Method::POST, Some(name)) => {
                let action = offers::all()
                    .find(|action| action.name == name)
                    .ok_or_else(|| act::unknown(name, offers::all()))?;
                act::execute(self, &context, action, act::body(question, action, Empty::LeftOut)?, &question.query)?
            }
            (Method::GET | Method::HEAD, None) => return api::ask(self, &context, rest, &question.query),
            (method, action) => {
                let allow = if action.is_some() { "POST" } else { "GET, HEAD" };
                return Err(
                    Problem::method(&method, &question.path, allow).hint("/api/openapi.json lists what there is")
                );
            }
        };
        Ok(json_response(&json!({ "schema_version": 1, "data": data })))
    }
}

/// An answer in JSON.
pub(crate) fn json_response(value: &serde_json::Value) -> Response {
    ([(header::CONTENT_TYPE, Format::Json.content_type())], value.to_string()).into_response()
}

/// A page in one of its forms.
fn sent(page: &Page, format: Format) -> Sent {
    let body = match format {
        Format::Json => {
            let mut whole = json!({ "schema_version": 1, "data": page.data });
            if let Some(next) = &page.next {
                whole["next"] = json!(next);
            }
            whole.to_string()
        }
        Format::Markdown => markdown::page(page),
        Format::Html => html::page(page),
    };
    let mut sent = Sent::new(body.into());
    let headers = sent.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(format.content_type()));
    headers.insert(header::VARY, HeaderValue::from_static("accept"));
    if let Some(next) =
        page.next.as_ref().and_then(|next| HeaderValue::from_str(&format!("<{next}>; rel=\"next\"")).ok())
    {
        headers.insert(header::LINK, next);
    }
    sent
}

/// What is sent of a page to who asked like this.
fn respond(question: &Question, sent: Sent) -> Response {
    sent.map(|body| if question.method == Method::HEAD { Body::empty() } else { body.into() })
}
