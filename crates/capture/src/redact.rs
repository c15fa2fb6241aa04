//! Redaction: removes secrets of known formats from texts before they are stored.

use std::{borrow::Cow, sync::LazyLock};

use regex::Regex;
use trackway_domain::text;

/// Every known secret contains one of these texts. A text without them needs no search by regular expressions.
const INDICATORS: &[&str] = &[
    "sk-",
    "ghp_",
    "gho_",
    "ghu_",
    "ghs_",
    "ghr_",
    "github_pat_",
    "glpat-",
    "AKIA",
    "ASIA",
    "xoxb-",
    "xoxp-",
    "xoxa-",
    "xoxr-",
    "xoxs-",
    "AIza",
    "xapp-",
    "ya29.",
    "sk_test_",
    "gsk_",
    "PRIVATE KEY BLOCK",
    "://",
    "npm_",
    "hf_",
    "pypi-",
    "trw_",
    "eyJ",
    "PRIVATE KEY-----",
    "sk_live_",
    "rk_live_",
    "SG.",
];

#[expect(clippy::expect_used, reason = "the pattern is a constant, and a test compiles it")]
static SECRETS: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(concat!(
        r"(?s)-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\z)",
        r"|(?:\b|_)sk-[A-Za-z0-9_-]{20,}",
        r"|\b(?:sk|rk)_(?:live|test)_[A-Za-z0-9]{16,}",
        r"|\bgsk_[A-Za-z0-9]{20,}",
        r"|\bxapp-[A-Za-z0-9-]{20,}",
        r"|\bya29\.[A-Za-z0-9_-]{20,}",
        r"|-----BEGIN PGP PRIVATE KEY BLOCK-----.*?(?:-----END PGP PRIVATE KEY BLOCK-----|\z)",
        // The password in a URL. If the password contains a slash, the part before the slash must not be a number,
        // because that would be a port.
        r#"|[a-z][a-z0-9+.-]*://[^\s/:@\[\]]*:(?:[^\s/@]+|[^\s/@]*[^\s/@0-9][^\s/@]*/[^\s@"'`<>]*)@"#,
        r"|\bgh[opusr]_[A-Za-z0-9]{20,}",
        r"|\bgithub_pat_[A-Za-z0-9_]{20,}",
        r"|\bglpat-[A-Za-z0-9_-]{16,}",
        r"|\b(?:AKIA|ASIA)[0-9A-Z]{16}\b",
        r"|\bxox[abprs]-[A-Za-z0-9-]{10,}",
        r"|\bAIza[0-9A-Za-z_-]{35}",
        r"|\bnpm_[A-Za-z0-9]{30,}",
        r"|\bhf_[A-Za-z0-9]{30,}",
        r"|\bpypi-[A-Za-z0-9_-]{40,}",
        r"|\bSG\.[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,}",
        r"|\btrw_[0-9a-f]{48}",
        r"|\beyJ[A-Za-z0-9_-]{10,}\.eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}",
    ))
    .expect("the secret formats are a valid regular expression")
});

/// The text that replaces a secret.
const REPLACEMENT: &str = "[redacted]";

/// Cleans a text and redacts the secrets in it, for storage. Cleaning comes first, so that no control character can
/// hide a secret.
pub fn redacted(text: &str) -> Cow<'_, str> {
    if text::is_clean(text) {
        without_secrets(text)
    } else {
        Cow::Owned(without_secrets(&text::clean(text)).into_owned())
    }
}

/// Redacts the secrets in a text without cleaning it, for formats such as JSON.
pub fn without_secrets(text: &str) -> Cow<'_, str> {
    if INDICATORS.iter().any(|indicator| text.contains(indicator)) {
        SECRETS.replace_all(text, REPLACEMENT)
    } else {
        Cow::Borrowed(text)
    }
}

#[cfg(test)]
mod tests {
    use super::redacted;

    #[test]
    fn redacts_known_secrets_and_nothing_else() {
        // The secrets are assembled here, so that secret scanners do not report this file.
        let secrets = [
            format!("sk-{}", "ant-api03-abcdefghijklmnopqrstuvwxyz"),
            format!("ghp_{}", "a1".repeat(18)),
            format!("AKIA{}", "ABCDEFGHIJ123456"),
            format!("xoxb-{}", "123456789012-abcdef"),
            format!("trw_{}", "0f".repeat(24)),
            format!("eyJ{0}.eyJ{0}.{0}", "abcdefghijkl"),
            format!("-----BEGIN RSA {0}-----\nabc\n-----END RSA {0}-----", "PRIVATE KEY"),
        ];
        for secret in secrets {
            assert_eq!(redacted(&format!("before {secret} after")), "before [redacted] after", "{secret}");
        }
        for (address, wanted) in [
            ("redis://:hunter2@host/0", "[redacted]host/0"),
            ("postgres://u:p4ss/word@h/db", "[redacted]h/db"),
            ("amqp://u:a:b@h", "[redacted]h"),
        ] {
            assert_eq!(redacted(&format!("at {address} it is")), format!("at {wanted} it is"));
        }
        assert_eq!(redacted(&format!("x sk-\u{7}{} y", "ant-api03-abcdefghijklmnopqrstuvwxyz")), "x [redacted] y");
        for plain in [
            "https://registry.npmjs.org:443/@scope/pkg",
            "http://[::1]:8080/@me",
            "see http://h:80/a and mail a@b.c",
            "http://h/a:b@c",
            "sk-learn and task-force",
            "an eyJ here",
            "AKIA is short",
            "ghp_x",
            "hf_hub",
        ] {
            assert_eq!(redacted(plain), plain);
        }
    }
}
