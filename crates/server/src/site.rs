//! Maps one request to one response. Sockets and in-process agents use it alike.

use std::{fmt, sync::Arc, time::Instant};

use axum::{
    body::Body,
    http::{HeaderMap, HeaderValue, Method, StatusCode, header},
    response::{IntoResponse, Response},
};
use serde_json::json;
use trackway_actions::{Core, context::Context};

use crate::{
    actions,
    address::{Address, Target},
    api, caller,
    format::Format,
    html,
    input::{self, EmptyText},
    markdown, offers,
    page::Page,
    page_cache::{CacheKey, PageCache, RenderedPage, VersionCache},
    pages,
    problem::Problem,
    sentence,
};

/// A request with a complete body.
#[derive(Debug, Clone, Default)]
pub struct SiteRequest {
    pub method: Method,
    /// The path as it was sent, without the query.
    pub path: String,
    pub query: String,
    pub headers: HeaderMap,
    pub body: Vec<u8>,
}

/// The response to an agent in this process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SiteResponse {
    pub status: u16,
    pub body: String,
}

/// All pages and actions, on one database.
#[derive(Clone)]
pub struct Site {
    pub(crate) core: Arc<Core>,
    page_cache: Arc<PageCache>,
    version_cache: Arc<VersionCache>,
}

impl fmt::Debug for Site {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Site").finish_non_exhaustive()
    }
}

/// The result of a request, before it is rendered.
#[derive(Debug)]
pub enum Reply {
    Page(Box<Page>),
    /// An action was executed. A browser is redirected, unless the result must be shown (a new token).
    Done {
        page: Box<Page>,
        redirect_to: Option<String>,
    },
}

impl Site {
    pub fn new(core: Arc<Core>) -> Self {
        Self { core, page_cache: Arc::default(), version_cache: Arc::default() }
    }

    /// Reads a page as Markdown, with the token of a run.
    pub fn get(&self, token: &str, path: &str) -> SiteResponse {
        self.handle_in_process(Method::GET, token, path, Vec::new())
    }

    /// Executes an action, with the token of a run.
    pub fn post(&self, token: &str, path: &str, input: &serde_json::Value) -> SiteResponse {
        self.handle_in_process(Method::POST, token, path, input.to_string().into_bytes())
    }

    fn handle_in_process(&self, method: Method, token: &str, path: &str, body: Vec<u8>) -> SiteResponse {
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        let mut request =
            SiteRequest { method, path: path.to_owned(), query: query.to_owned(), body, ..SiteRequest::default() };
        if let Ok(bearer) = HeaderValue::from_str(&format!("Bearer {token}")) {
            request.headers.insert(header::AUTHORIZATION, bearer);
        }
        request.headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let format = Format::Markdown;
        let (status, body) = match self.reply(&request, format) {
            Ok((Reply::Page(page) | Reply::Done { page, .. }, _)) => (200, markdown::page(&page)),
            Err(problem) => (
                problem.status.as_u16(),
                markdown::problem(
                    problem.status.as_u16(),
                    &sentence::render(&problem.message),
                    problem.hint.as_ref().map(sentence::render).as_deref(),
                ),
            ),
        };
        SiteResponse { status, body }
    }

    /// Answers a request. Errors become responses too.
    pub fn answer(&self, request: &SiteRequest) -> Response {
        let accepted = Format::of_accept(&request.headers);
        if let Some(rest) = request.path.strip_prefix("/api/v1/") {
            return self.api(request, rest).unwrap_or_else(|problem| problem.respond(Format::Json));
        }
        if request.path == "/api/openapi.json" {
            return self.openapi_document(request).unwrap_or_else(|problem| problem.respond(Format::Json));
        }
        let extension = Format::of_extension(&request.path);
        let format = extension.map_or(accepted, |(_, format)| format);
        let key = Self::cache_key(request, accepted);
        // The version is read before the page is rendered, so that a concurrent write invalidates the cached page.
        let (rendered_at, version) = (Instant::now(), key.as_ref().and_then(|_| self.core.store().data_version().ok()));
        if let (Some(key), Some(version)) = (&key, &version)
            && let Some(cached) = self.page_cache.get(key, version)
        {
            return respond(request, cached);
        }
        match self.reply(request, accepted) {
            Ok((Reply::Page(page), format)) => {
                let rendered = render(&page, format);
                if let (Some(key), Some(version)) = (key, version) {
                    self.page_cache.insert(key, version, rendered_at, &rendered);
                }
                respond(request, rendered)
            }
            Ok((Reply::Done { redirect_to: Some(path), .. }, Format::Html)) => {
                (StatusCode::SEE_OTHER, [(header::LOCATION, path)]).into_response()
            }
            Ok((Reply::Done { page, .. }, format)) => respond(request, render(&page, format)),
            Err(problem) => problem.respond(format),
        }
    }

    /// Returns the cached response if it is still valid. Concurrent requests need at most one blocking thread together.
    pub async fn cached_response(&self, request: &SiteRequest) -> Option<Response> {
        let key = Self::cache_key(request, Format::of_accept(&request.headers))
            .filter(|key| self.page_cache.contains(key))?;
        let version = match self.core.store().local_data_version() {
            Some(version) => version.ok()?,
            None => self.version_cache.current(&self.core).await?,
        };
        Some(respond(request, self.page_cache.get(&key, &version)?))
    }

    /// The cache key of a request that reads a page.
    fn cache_key(request: &SiteRequest, format: Format) -> Option<CacheKey> {
        let is_read = request.method == Method::GET || request.method == Method::HEAD;
        let (token, _) = caller::token(&request.headers).ok().filter(|_| is_read)?;
        Some(CacheKey { token, path: request.path.clone(), query: request.query.clone(), format })
    }

    /// Answers with the page at the path. If there is none, tries the path without its extension, which then names the
    /// format. A variant such as `unit/go.md` therefore keeps its own page.
    fn reply(&self, request: &SiteRequest, accepted: Format) -> Result<(Reply, Format), Problem> {
        let context = self.context(request)?;
        let not_found = || {
            Problem::new(StatusCode::NOT_FOUND, "not_found", format!("page {} not found", request.path))
                .hint("`/` links to all pages")
        };
        let address = Address::parse(&request.path);
        let first = match address {
            Some(address) => self.handle_address(request, &context, &address, accepted),
            None => Err(not_found()),
        };
        match (first, Format::of_extension(&request.path)) {
            (Err(problem), Some((path, format))) if problem.status == StatusCode::NOT_FOUND => {
                let path = if path == "/index" { "/" } else { path };
                let address = Address::parse(path).ok_or(problem)?;
                Ok((self.handle_address(request, &context, &address, format)?, format))
            }
            (first, _) => Ok((first?, accepted)),
        }
    }

    fn handle_address(
        &self,
        request: &SiteRequest,
        context: &Context,
        address: &Address,
        format: Format,
    ) -> Result<Reply, Problem> {
        match (request.method.clone(), &address.target) {
            (Method::GET | Method::HEAD, Target::Page) => {
                Ok(Reply::Page(Box::new(pages::page(self, context, &address.page, &request.query, format)?)))
            }
            (Method::GET | Method::HEAD, Target::Actions) => {
                input::reject_unknown(&request.query, &[])?;
                Ok(Reply::Page(Box::new(actions::list_page(self, context, &address.page)?)))
            }
            (Method::GET | Method::HEAD, Target::Action(name)) => {
                input::reject_unknown(&request.query, &["dry_run", "then"])?;
                Ok(Reply::Page(Box::new(actions::action_page(self, context, &address.page, name)?)))
            }
            (Method::POST, Target::Action(name)) => actions::perform(self, context, &address.page, name, request),
            (method, target) => {
                let allow = if matches!(target, Target::Action(_)) { "GET, HEAD, POST" } else { "GET, HEAD" };
                Err(Problem::method_not_allowed(&method, &request.path, allow)
                    .hint("read pages with GET; execute actions with POST <page>/actions/<name>"))
            }
        }
    }

    /// Checks that the database answers.
    pub fn check_ready(&self) -> Result<(), Problem> {
        self.require_database_file()?;
        self.core.store().ping()?;
        Ok(())
    }

    /// Fails if the SQLite file was removed or replaced while the server had it open. Nobody would find data that the
    /// server writes to the old file.
    fn require_database_file(&self) -> Result<(), Problem> {
        if self.core.store().is_file_in_place() {
            return Ok(());
        }
        let message = "the database file that this server opened was removed or replaced; start the server again";
        Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, "gone", message))
    }

    pub(crate) fn context(&self, request: &SiteRequest) -> Result<Context, Problem> {
        self.require_database_file()?;
        let (token, source) = caller::token(&request.headers)?;
        caller::reject_cross_origin(request, source)?;
        caller::authenticate(&self.core, token)
    }

    /// Answers with the `OpenAPI` document.
    fn openapi_document(&self, request: &SiteRequest) -> Result<Response, Problem> {
        self.context(request)?;
        input::reject_unknown(&request.query, &[])?;
        match request.method {
            Method::GET | Method::HEAD => {
                Ok(([(header::CONTENT_TYPE, Format::Json.content_type())], api::OPENAPI.as_str()).into_response())
            }
            _ => Err(Problem::method_not_allowed(&request.method, &request.path, "GET, HEAD")),
        }
    }

    fn api(&self, request: &SiteRequest, rest: &str) -> Result<Response, Problem> {
        let context = self.context(request)?;
        let data = match (request.method.clone(), rest.strip_prefix("actions/")) {
            (Method::POST, Some(name)) => {
                let action = offers::http_actions()
                    .find(|action| action.name == name)
                    .ok_or_else(|| actions::unknown_action(name, offers::http_actions()))?;
                actions::execute(
                    self,
                    &context,
                    action,
                    actions::parse_input(request, action, EmptyText::Omitted)?,
                    &request.query,
                )?
            }
            (Method::GET | Method::HEAD, None) => return api::answer_view(self, &context, rest, &request.query),
            (method, action) => {
                let allow = if action.is_some() { "POST" } else { "GET, HEAD" };
                return Err(Problem::method_not_allowed(&method, &request.path, allow)
                    .hint("/api/openapi.json lists all paths"));
            }
        };
        Ok(json_response(&json!({ "schema_version": 1, "data": data })))
    }
}

pub(crate) fn json_response(value: &serde_json::Value) -> Response {
    ([(header::CONTENT_TYPE, Format::Json.content_type())], value.to_string()).into_response()
}

/// Renders a page in a format.
fn render(page: &Page, format: Format) -> RenderedPage {
    let body = match format {
        Format::Json => {
            let mut document = json!({ "schema_version": 1, "data": page.data });
            if let Some(next) = &page.next {
                document["next"] = json!(next);
            }
            document.to_string()
        }
        Format::Markdown => markdown::page(page),
        Format::Html => html::page(page),
    };
    let mut response = RenderedPage::new(body.into());
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(format.content_type()));
    headers.insert(header::VARY, HeaderValue::from_static("accept"));
    if let Some(next) =
        page.next.as_ref().and_then(|next| HeaderValue::from_str(&format!("<{next}>; rel=\"next\"")).ok())
    {
        headers.insert(header::LINK, next);
    }
    response
}

/// Responds with a rendered page. The response to a HEAD request has no body.
fn respond(request: &SiteRequest, rendered: RenderedPage) -> Response {
    rendered.map(|body| if request.method == Method::HEAD { Body::empty() } else { body.into() })
}
