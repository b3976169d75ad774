//! The OpenAPI document: what the handlers say, and what holds for all of them.

use std::collections::BTreeMap;

use utoipa::openapi::path::{Operation, PathItem};
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityRequirement, SecurityScheme};
use utoipa::openapi::{
    Components, Content, InfoBuilder, LicenseBuilder, OpenApi, Ref, RefOr, Required, ResponseBuilder,
};
use utoipa::{PartialSchema as _, ToSchema as _};

use crate::problem::{Kind, Problem};

const ABOUT: &str = "Schedules sends through rate-limited provider accounts: each gets the next free slot under the limit that \
all senders share, and waits on a queue until then.

Every call can be repeated: a send is known by an ID of the caller's own. Errors are problem details (RFC 9457) of these types; \
further members are `retry_after_s`, `would_be_at`, `max_cost` and `state` where they apply.";

/// The server's keys, as the document calls them.
const KEY: &str = "api_key";
const PROVIDER: &str = "provider_secret";

/// What may go wrong with any request that has a key.
const ALWAYS: &[Kind] = &[
    Kind::Unauthenticated,
    Kind::Forbidden,
    Kind::RateLimited,
    Kind::Internal,
    Kind::Overloaded,
    Kind::Timeout,
    Kind::RedisUnavailable,
];
const PATH: &[Kind] = &[Kind::MalformedPath, Kind::Invalid, Kind::NotFound];
const BODY: &[Kind] =
    &[Kind::MalformedJson, Kind::RequestTimeout, Kind::TooLarge, Kind::UnsupportedMediaType, Kind::Invalid];
const SCHEDULE: &[Kind] = &[
    Kind::UnknownBudget,
    Kind::Conflict,
    Kind::Cancelled,
    Kind::Failed,
    Kind::Expired,
    Kind::UnknownOutcome,
    Kind::CostTooLarge,
    Kind::Full,
    Kind::DeadlineCannotBeMet,
    Kind::TooFar,
    Kind::QueueUnavailable,
];

fn own(operation: &str) -> &'static [Kind] {
    match operation {
        "schedule" => SCHEDULE,
        "send_status" => &[Kind::UnknownSend, Kind::UnknownBudget],
        "cancel" => &[Kind::TooLate],
        "quote" => &[Kind::UnknownBudget, Kind::CostTooLarge],
        "set_budget" => &[Kind::InvalidPolicy],
        "metrics" => &[Kind::NotFound],
        "receipt" => &[Kind::QueueUnavailable],
        "budget" | "calendar" | "pause" | "resume" => &[Kind::UnknownBudget],
        _ => &[],
    }
}

/// Puts in what holds for all.
pub(crate) fn complete(mut document: OpenApi) -> OpenApi {
    let rows = Kind::ALL.iter().map(|kind| format!("| {} | `{}` | {} |\n", kind.status(), kind.uri(), kind.title()));
    let types = format!("{ABOUT}\n\n| status | type | title |\n|---|---|---|\n{}", rows.collect::<String>());
    let license = LicenseBuilder::new().name("Apache-2.0").identifier(Some("Apache-2.0")).build();
    let info = InfoBuilder::new().title("Sendslot").version(env!("CARGO_PKG_VERSION")).description(Some(types));
    document.info = info.license(Some(license)).build();
    for (path, item) in &mut document.paths.paths {
        for operation in operations(item) {
            if path == "/healthz" || path == "/readyz" {
                continue;
            }
            if let (Some("pause" | "receipt"), Some(RefOr::T(body))) =
                (operation.operation_id.as_deref(), &mut operation.request_body)
            {
                body.required = Some(Required::False);
            }
            let key = if path.starts_with("/receipts/") { PROVIDER } else { KEY };
            operation.security = Some(vec![SecurityRequirement::new(key, Vec::<String>::new())]);
            add_problems(operation, path);
        }
    }
    let components = document.components.get_or_insert_with(Components::new);
    let scheme =
        HttpBuilder::new().scheme(HttpAuthScheme::Bearer).description(Some("An API key of `sendslot key new`"));
    components.add_security_scheme(KEY, SecurityScheme::Http(scheme.build()));
    let secret =
        HttpBuilder::new().scheme(HttpAuthScheme::Bearer).description(Some("A provider's secret, of [receipts.NAME]"));
    components.add_security_scheme(PROVIDER, SecurityScheme::Http(secret.build()));
    components.schemas.insert(Problem::name().into_owned(), Problem::schema());
    document
}

fn operations(item: &mut PathItem) -> impl Iterator<Item = &mut Operation> {
    [&mut item.get, &mut item.put, &mut item.post, &mut item.delete].into_iter().filter_map(Option::as_mut)
}

fn add_problems(operation: &mut Operation, path: &str) {
    let mut kinds: Vec<Kind> = ALWAYS.to_vec();
    kinds.extend(if path.contains('{') { PATH } else { &[] });
    kinds.extend(if operation.request_body.is_some() { BODY } else { &[] });
    kinds.extend(own(operation.operation_id.as_deref().unwrap_or_default()));
    let mut by_status: BTreeMap<u16, Vec<Kind>> = BTreeMap::new();
    for kind in kinds {
        let same = by_status.entry(kind.status()).or_default();
        if !same.contains(&kind) {
            same.push(kind);
        }
    }
    for (status, kinds) in by_status {
        let names: Vec<_> = kinds.iter().map(|kind| format!("`{}`", kind.uri())).collect();
        let content = Content::new(Some(Ref::from_schema_name(Problem::name())));
        let response =
            ResponseBuilder::new().description(names.join(", ")).content("application/problem+json", content);
        operation.responses.responses.insert(status.to_string(), response.build().into());
    }
}
