//! The page at `/`: one file that shows what `GET /v1/budgets/{budget}/calendar` tells. It asks with a key that is typed into
//! it, so it is itself given to everybody.

use std::sync::LazyLock;

use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
};
use axum::response::{IntoResponse, Response};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use sha2::{Digest as _, Sha256};

const PAGE: &str = include_str!("page/index.html");

/// Nothing runs but the file's own script and style, and it talks to this server alone.
static POLICY: LazyLock<String> = LazyLock::new(|| {
    format!(
        "default-src 'none'; script-src '{}'; style-src '{}'; connect-src 'self'; img-src data:; base-uri 'none'; \
         form-action 'none'; frame-ancestors 'none'",
        hash("script"),
        hash("style")
    )
});

/// Of what stands in the page's element, as the policy names it.
fn hash(element: &str) -> String {
    let (open, close) = (format!("<{element}>"), format!("</{element}>"));
    let inside = PAGE.split_once(&open).and_then(|(_, rest)| rest.split_once(&close)).map_or("", |(inside, _)| inside);
    format!("sha256-{}", STANDARD.encode(Sha256::digest(inside)))
}

pub(crate) async fn page() -> Response {
    let headers = [
        (CONTENT_TYPE, "text/html; charset=utf-8"),
        (CONTENT_SECURITY_POLICY, POLICY.as_str()),
        (CACHE_CONTROL, "no-cache"),
        (REFERRER_POLICY, "no-referrer"),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ];
    (headers, PAGE).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_names_no_other_host_and_no_inline_handler_or_style() {
        let named: Vec<&str> = PAGE.match_indices("://").map(|(i, _)| &PAGE[i - 5..i + 15]).collect();
        // namespaces of SVG
        assert!(named.iter().all(|url| url.contains("http://www.w3.org/")), "{named:?}");
        assert_eq!((PAGE.matches("<script>").count(), PAGE.matches("<style>").count()), (1, 1));
        let html = PAGE.split("<script>").next().unwrap_or_default();
        assert!(!html.contains("style=\"") && !html.contains("onclick"), "the policy would refuse them");
        assert!(POLICY.contains("script-src 'sha256-") && !POLICY.contains("unsafe"), "{}", *POLICY);
        assert_ne!(hash("script"), hash("style"));
    }
}
