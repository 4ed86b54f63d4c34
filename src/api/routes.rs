//! The table of an API's operations: it answers which handler a request has, and it is the API's `OpenAPI` document.

use std::collections::BTreeMap;

use http::{Method, StatusCode};
use utoipa::{
    __dev::{SchemaReferences, Tags},
    Path, ToSchema,
    openapi::{Content, HttpMethod, OpenApi, Ref, RefOr, ResponseBuilder},
};

use super::problem::{PROBLEM_JSON, Problem, ProblemCode, ProblemView};
use crate::provider::decode_segment;

/// A status that the guard in front of an API returns, and its meaning.
pub type GuardRefusal = (StatusCode, String);

/// The operations of an API, with a handler of each.
pub struct RouteTable<H> {
    routes: Vec<ApiRoute<H>>,
    document: OpenApi,
    /// Returns the refusals that every operation at a path has.
    guard: fn(&str) -> Vec<GuardRefusal>,
}

/// An operation of an API.
pub struct ApiRoute<H> {
    method: Method,
    /// The path. A segment in braces is an id.
    path: String,
    /// The codes of its problems in the document. `None` for an operation that the document leaves out.
    refusals: Option<&'static [ProblemCode]>,
    /// The handler.
    pub handler: H,
}

impl<H> ApiRoute<H> {
    /// Checks in a debug build, and so in every test, that the document lists the code of a problem of the operation.
    pub fn check_code(&self, code: ProblemCode) {
        debug_assert!(
            self.refusals.is_none_or(|codes| codes.contains(&code)),
            "the row of {} {} lacks {code:?}",
            self.method,
            self.path
        );
    }
}

impl<H> RouteTable<H> {
    /// Creates a table without operations. `document` has all else that the document says.
    pub const fn new(document: OpenApi, guard: fn(&str) -> Vec<GuardRefusal>) -> Self {
        Self {
            routes: Vec::new(),
            document,
            guard,
        }
    }

    /// Adds an operation, described by `D`: the type that `#[utoipa::path]` makes of its function.
    #[must_use]
    pub fn with<D: Path + SchemaReferences + Tags<'static>>(
        mut self,
        refusals: &'static [ProblemCode],
        handler: H,
    ) -> Self
    where
        H: Clone,
    {
        let mut operation = D::operation();
        let tags = operation.tags.get_or_insert_default();
        tags.extend(D::tags().into_iter().map(str::to_owned));
        let of_codes = refusals.iter().map(|code| code.described());
        let of_guard = (self.guard)(&D::path());
        let mut texts: BTreeMap<StatusCode, String> = BTreeMap::new();
        for (status, text) in of_codes.chain(of_guard) {
            let texts = texts.entry(status).or_default();
            texts.push_str(if texts.is_empty() { "" } else { "; " });
            texts.push_str(&text);
        }
        for (status, text) in texts {
            let content = Content::new(Some(Ref::from_schema_name(ProblemView::name())));
            let response = ResponseBuilder::new().description(text).content(PROBLEM_JSON, content);
            let responses = &mut operation.responses.responses;
            // A status that the operation describes itself is no problem document.
            responses
                .entry(status.as_str().to_owned())
                .or_insert_with(|| RefOr::T(response.build()));
        }
        let mut schemas = Vec::new();
        D::schemas(&mut schemas);
        self.document.components.get_or_insert_default().schemas.extend(schemas);
        self.document
            .paths
            .add_path_operation(D::path(), D::methods(), operation);
        for method in D::methods() {
            self.routes.push(ApiRoute {
                method: to_method(&method),
                path: D::path(),
                refusals: Some(refusals),
                handler: handler.clone(),
            });
        }
        self
    }

    /// Adds an operation that the document leaves out.
    #[must_use]
    pub fn with_hidden(mut self, method: Method, path: impl Into<String>, handler: H) -> Self {
        self.routes.push(ApiRoute {
            method,
            path: path.into(),
            refusals: None,
            handler,
        });
        self
    }

    /// Returns the document.
    pub const fn document(&self) -> &OpenApi {
        &self.document
    }

    /// Returns the operation of a request, and the decoded ids in its path: bytes, since they may contain anything.
    pub fn find(&self, method: &Method, path: &str) -> Result<(&ApiRoute<H>, Vec<Vec<u8>>), Problem> {
        let mut others = Vec::new();
        for route in &self.routes {
            let Some(ids) = match_path(&route.path, path) else {
                continue;
            };
            if route.method == *method {
                return Ok((route, ids));
            }
            others.push(route.method.as_str());
        }
        if others.is_empty() {
            return Err(ProblemCode::NotFound.into());
        }
        Err(Problem::wrong_method(&others.join(", ")))
    }
}

/// Returns the decoded ids in a path. `None` if it does not fit the template.
fn match_path(template: &str, path: &str) -> Option<Vec<Vec<u8>>> {
    let (mut names, mut segments) = (template.split('/'), path.split('/'));
    let mut ids = Vec::new();
    loop {
        match (names.next(), segments.next()) {
            (None, None) => return Some(ids),
            (Some(name), Some(segment)) if name.starts_with('{') && !segment.is_empty() => {
                ids.push(decode_segment(segment).into_owned());
            }
            (Some(name), Some(segment)) if name == segment => {}
            _ => return None,
        }
    }
}

const fn to_method(method: &HttpMethod) -> Method {
    match method {
        HttpMethod::Get => Method::GET,
        HttpMethod::Post => Method::POST,
        HttpMethod::Put => Method::PUT,
        HttpMethod::Delete => Method::DELETE,
        HttpMethod::Options => Method::OPTIONS,
        HttpMethod::Head => Method::HEAD,
        HttpMethod::Patch => Method::PATCH,
        HttpMethod::Trace => Method::TRACE,
    }
}
