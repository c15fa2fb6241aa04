//! Renders Markdown that users and models wrote as safe HTML. Raw HTML becomes text, images become their address, and
//! links keep only harmless schemes.

use pulldown_cmark::{CowStr, Event, Options, Parser, Tag, TagEnd, html};

/// Schemes that a link may have.
const SCHEMES: &[&str] = &["http://", "https://", "mailto:"];

pub fn from_markdown(text: &str) -> String {
    let options = Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH | Options::ENABLE_TASKLISTS;
    let events = Parser::new_ext(text, options).flat_map(|event| match event {
        Event::Html(html) | Event::InlineHtml(html) => vec![Event::Text(html)],
        Event::Start(Tag::Image { dest_url, .. }) => vec![Event::Text(CowStr::from(format!("[picture: {dest_url}] ")))],
        Event::End(TagEnd::Image) => Vec::new(),
        Event::Start(Tag::Link { link_type, dest_url, title, id }) => {
            let url = if is_safe_link(&dest_url) { dest_url } else { CowStr::from("#") };
            vec![Event::Start(Tag::Link { link_type, dest_url: url, title, id })]
        }
        // A heading in the text must not become a heading of the page, so it is rendered as a bold paragraph.
        Event::Start(Tag::Heading { .. }) => vec![Event::Start(Tag::Paragraph), Event::Start(Tag::Strong)],
        Event::End(TagEnd::Heading(_)) => vec![Event::End(TagEnd::Strong), Event::End(TagEnd::Paragraph)],
        Event::Start(Tag::HtmlBlock) => vec![Event::Start(Tag::Paragraph)],
        Event::End(TagEnd::HtmlBlock) => vec![Event::End(TagEnd::Paragraph)],
        event => vec![event],
    });
    let mut out = String::new();
    html::push_html(&mut out, events);
    out
}

fn is_safe_link(url: &str) -> bool {
    let lower = url.trim().to_ascii_lowercase();
    let is_local =
        (lower.starts_with('/') && !lower.starts_with("//") && !lower.starts_with("/\\")) || lower.starts_with('#');
    is_local || SCHEMES.iter().any(|scheme| lower.starts_with(scheme))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_markdown_executes_nothing() {
        for hostile in [
            "<script>alert(1)</script>",
            "a <img src=x onerror=alert(1)> b",
            "[x](javascript:alert(1))",
            "[x](JaVaScript:alert(1))",
            "[x]( data:text/html,<script>)",
            "[x](//evil.example)",
            "[x](/\\evil.example)",
            "![x](http://evil.example/pixel.png)",
            "<a href='javascript:1'>x</a>",
            "```\n</pre><script>\n```",
            "[x]: javascript:alert(1)\n\n[x]",
            "<javascript:alert(1)>",
        ] {
            let html = from_markdown(hostile);
            for bad in [
                "<script",
                "<img",
                "href=\"javascript",
                "href=\"JaVa",
                "href=\"data",
                "href=\"//",
                "href=\"/\\",
                "<a href='",
            ] {
                assert!(!html.contains(bad), "{hostile:?} gave {html:?}");
            }
        }
    }

    #[test]
    fn renders_ordinary_markdown() {
        assert_eq!(
            from_markdown("**a** [b](https://c.example)"),
            "<p><strong>a</strong> <a href=\"https://c.example\">b</a></p>\n"
        );
        assert_eq!(from_markdown("# Title"), "<p><strong>Title</strong></p>\n");
    }
}
