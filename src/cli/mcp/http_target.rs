//! The address of a server with streamable HTTP, and the headers that it gets.

use std::{collections::BTreeSet, fs::File, io::Read as _, path::Path};

use http::{HeaderMap, HeaderName, HeaderValue, Uri, header, uri::Scheme};

use super::relay::RunHash;
use crate::{
    config::process_environment,
    digest::{digest_of, keyed_digest_of},
    provider,
};

/// Use of the key that hides header values in the identity of a server.
const VALUE_KEY: &str = "antiphon mcp: header values, version 1";
/// Most headers.
const HEADERS_MAX: usize = 64;
/// Longest value in bytes.
const VALUE_BYTES_MAX: usize = 16 * 1024;
/// Headers that the transport itself sets.
const OWN_HEADERS: [HeaderName; 7] = [
    header::ACCEPT,
    header::CONNECTION,
    header::CONTENT_LENGTH,
    header::CONTENT_TYPE,
    header::HOST,
    header::TE,
    header::TRANSFER_ENCODING,
];
const OWN_PREFIXES: [&str; 2] = ["mcp-", "last-event-id"];

/// The address of a server, and the headers that it gets.
#[derive(Clone)]
pub(super) struct HttpTarget {
    url: Uri,
    headers: Vec<HeaderRule>,
}

/// A header, and the place of its value.
#[derive(Clone)]
struct HeaderRule {
    name: HeaderName,
    /// `@FILE`, or a text with any number of `${NAME}`.
    value: String,
}

impl HttpTarget {
    /// Reads the flags. The error repeats no value, since it may be a secret.
    pub(super) fn read(url: &str, headers: &[String]) -> Result<Self, String> {
        let parsed = url.parse::<Uri>().ok().filter(is_usable);
        let url = parsed
            .ok_or("--url: expected an http:// or https:// URL without user and password: give those with --header")?;
        if headers.len() > HEADERS_MAX {
            return Err(format!("--header: at most {HEADERS_MAX} are possible"));
        }
        let headers: Vec<HeaderRule> = headers
            .iter()
            .map(|text| HeaderRule::read(text))
            .collect::<Result<_, _>>()?;
        let mut names = BTreeSet::new();
        if let Some(twice) = headers.iter().find(|rule| !names.insert(rule.name.as_str())) {
            return Err(format!("--header: {} is given twice", twice.name));
        }
        let target = Self { url, headers };
        target.read_headers()?;
        Ok(target)
    }

    /// Returns the address.
    pub(super) const fn url(&self) -> &Uri {
        &self.url
    }

    /// Returns `true` if others on the way can read what is sent.
    pub(super) fn is_exposed(&self) -> bool {
        self.url.scheme() == Some(&Scheme::HTTP) && !self.url.host().is_some_and(provider::is_loopback)
    }

    /// Reads the values of the headers, which may have changed since the last request.
    pub(super) fn read_headers(&self) -> Result<HeaderMap, String> {
        let mut headers = HeaderMap::new();
        for rule in &self.headers {
            let text = rule
                .read_value()
                .map_err(|fault| format!("--header {}: {fault}", rule.name))?;
            let mut value = HeaderValue::from_str(text.trim()).map_err(|_| {
                format!(
                    "--header {}: the value has characters that no header can have",
                    rule.name
                )
            })?;
            // HTTP/2 does not keep it in its table then, and no log shows it.
            value.set_sensitive(true);
            headers.insert(rule.name.clone(), value);
        }
        Ok(headers)
    }

    /// Returns the hash that tells the runs of this server from those of others: address, headers, account.
    pub(super) fn identity(&self) -> RunHash {
        let key = blake3::derive_key(VALUE_KEY, self.url.to_string().as_bytes());
        let values = self.read_headers().unwrap_or_default();
        let values = keyed_digest_of(&key, values.values().map(HeaderValue::as_bytes));
        let url = self.url.to_string();
        let names = self.headers.iter().map(|rule| rule.name.as_str().as_bytes());
        digest_of([&b"http"[..], url.as_bytes(), &values].into_iter().chain(names))
    }
}

fn is_usable(url: &Uri) -> bool {
    let is_web = [Some(&Scheme::HTTP), Some(&Scheme::HTTPS)].contains(&url.scheme());
    let has_host = url.host().is_some_and(|host| !host.is_empty());
    is_web
        && has_host
        && url
            .authority()
            .is_some_and(|authority| !authority.as_str().contains('@'))
}

impl HeaderRule {
    fn read(text: &str) -> Result<Self, String> {
        let (name, value) = text
            .split_once('=')
            .ok_or("--header: expected NAME=VALUE, such as 'Authorization=Bearer ${TOKEN}'")?;
        let name: HeaderName = name
            .trim()
            .parse()
            .map_err(|_| "--header: expected the name of a header before the first =".to_owned())?;
        let is_own = OWN_HEADERS.contains(&name) || OWN_PREFIXES.iter().any(|own| name.as_str().starts_with(own));
        if is_own {
            return Err(format!("--header {name}: this header is set by antiphon itself"));
        }
        let value = value.to_owned();
        Ok(Self { name, value })
    }

    /// Returns the text that the value stands for.
    fn read_value(&self) -> Result<String, String> {
        match self.value.strip_prefix('@') {
            Some(path) => read_short_file(Path::new(path)),
            None => expand_variables(&self.value),
        }
    }
}

/// Reads a regular file of limited size. A pipe would give its text only once.
fn read_short_file(path: &Path) -> Result<String, String> {
    let read = || {
        if !path.metadata()?.is_file() {
            return Err(std::io::Error::other("it is no regular file"));
        }
        let mut text = String::new();
        let limit = u64::try_from(VALUE_BYTES_MAX).unwrap_or(u64::MAX);
        File::open(path)?
            .take(limit.saturating_add(1))
            .read_to_string(&mut text)?;
        Ok(text)
    };
    // The path is not repeated: it may be a secret that was given by mistake.
    let text = read().map_err(|error| format!("cannot read the file of the value: {error}"))?;
    checked_value(text)
}

/// Puts the values of variables in the place of their names.
fn expand_variables(text: &str) -> Result<String, String> {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("${") {
        let (name, after) = after.split_once('}').ok_or("a ${ has no }")?;
        let value = process_environment(name).ok_or_else(|| format!("the variable {name} is not set, or empty"))?;
        out.push_str(before);
        out.push_str(&value);
        rest = after;
    }
    out.push_str(rest);
    checked_value(out)
}

fn checked_value(text: String) -> Result<String, String> {
    match text.trim().len() {
        0 => Err("the value is empty".to_owned()),
        length if length > VALUE_BYTES_MAX => Err("the value is longer than 16 KiB".to_owned()),
        _ => Ok(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(url: &str, headers: &[&str]) -> Result<HttpTarget, String> {
        let headers: Vec<String> = headers.iter().map(|text| (*text).to_owned()).collect();
        HttpTarget::read(url, &headers)
    }

    #[test]
    fn flags_are_read_and_faults_are_named_without_values() {
        for (url, headers, fault) in [
            ("mcp.example", &[][..], "--url: expected"),
            ("ftp://mcp.example/", &[], "--url: expected"),
            ("https://u:sk-secret@mcp.example/", &[], "--url: expected"),
            ("https://mcp.example/", &["sk-secret"], "expected NAME=VALUE"),
            (
                "https://mcp.example/",
                &["a b=sk-secret"],
                "expected the name of a header",
            ),
            (
                "https://mcp.example/",
                &["Host=sk-secret"],
                "host: this header is set by antiphon",
            ),
            (
                "https://mcp.example/",
                &["Mcp-Session-Id=sk-secret"],
                "is set by antiphon",
            ),
            (
                "https://mcp.example/",
                &["A=sk-secret", "a=sk-secret"],
                "a is given twice",
            ),
            ("https://mcp.example/", &["A=sk-secret\u{1}"], "no header can have"),
            ("https://mcp.example/", &["A= "], "a: the value is empty"),
            (
                "https://mcp.example/",
                &["A=${no_such_variable_here}"],
                "no_such_variable_here is not set",
            ),
            ("https://mcp.example/", &["A=${sk-secret"], "has no }"),
            (
                "https://mcp.example/",
                &["A=@/no/such/sk-secret"],
                "a: cannot read the file of the value",
            ),
            ("https://mcp.example/", &["A=@/dev/null"], "it is no regular file"),
        ] {
            let error = read(url, headers).err().expect(url);
            assert!(
                error.contains(fault) && !error.contains("sk-secret"),
                "{headers:?}: {error}"
            );
        }
        let target = read("https://mcp.example/mcp?team=a", &["Authorization=Bearer x=y"]).unwrap();
        assert_eq!(target.read_headers().unwrap()["authorization"], "Bearer x=y");
        for (url, is_exposed) in [
            ("https://mcp.example/", false),
            ("http://127.0.0.1:1/", false),
            ("http://[::1]/", false),
            ("http://mcp:8000/mcp", true),
        ] {
            assert_eq!(read(url, &[]).unwrap().is_exposed(), is_exposed, "{url}");
        }
    }

    #[test]
    fn servers_differ_by_address_header_and_value() {
        let identities: BTreeSet<RunHash> = [
            read("https://mcp.example/a", &[]),
            read("https://mcp.example/b", &[]),
            read("https://mcp.example/a", &["A=1"]),
            read("https://mcp.example/a", &["B=1"]),
            read("https://mcp.example/a", &["A=2"]),
        ]
        .map(|target| target.unwrap().identity())
        .into();
        assert_eq!(identities.len(), 5);
    }
}
