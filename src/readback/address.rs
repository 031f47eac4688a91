//! Where an engine answers: an address as it is typed, and the address of each endpoint there.

use std::fmt;

use http::Uri;
use http::uri::{Authority, PathAndQuery, Scheme};

use super::ReadBackError;

/// Host, port, and a path before all others where a proxy has one.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Address {
    authority: Authority,
    prefix: String,
}

impl Address {
    pub(super) fn parse(given: &str) -> Result<Self, ReadBackError> {
        let wrong = |reason| Err(ReadBackError::Address { given: without_password(given), reason });
        let Ok(uri) = given.parse::<Uri>() else { return wrong("it is no address") };
        match uri.scheme() {
            Some(scheme) if *scheme == Scheme::HTTP => {}
            Some(scheme) if *scheme == Scheme::HTTPS => {
                return wrong("only plain `http` is spoken here");
            }
            Some(_) | None => return wrong("it does not begin with `http://`"),
        }
        let Some(authority) = uri.authority().cloned() else { return wrong("it names no host") };
        if authority.as_str().contains('@') {
            return wrong("it holds a password, which belongs into `with_api_key`");
        }
        if uri.query().is_some() {
            return wrong("it has a query");
        }
        Ok(Self { authority, prefix: uri.path().trim_end_matches('/').to_owned() })
    }

    /// The address of a path there, such as `/props`.
    pub(super) fn at(&self, path: &str) -> Result<Uri, http::Error> {
        let path = PathAndQuery::try_from(format!("{}{path}", self.prefix))?;
        Uri::builder()
            .scheme(Scheme::HTTP)
            .authority(self.authority.clone())
            .path_and_query(path)
            .build()
    }
}

/// What was given, fit for a log.
fn without_password(given: &str) -> String {
    match given.rsplit_once('@') {
        Some((_, host)) => format!("..@{host}"),
        None => given.to_owned(),
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http://{}{}", self.authority, self.prefix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_leads_to_its_endpoints() {
        let rows = [
            ("http://127.0.0.1:11434", "http://127.0.0.1:11434/api/ps"),
            ("http://127.0.0.1:11434/", "http://127.0.0.1:11434/api/ps"),
            ("http://[::1]:8080", "http://[::1]:8080/api/ps"),
            ("HTTP://engine.example", "http://engine.example/api/ps"),
            ("http://proxy.example/engines/0/", "http://proxy.example/engines/0/api/ps"),
        ];
        for (given, expected) in rows {
            let address = Address::parse(given).unwrap();
            assert_eq!(address.at("/api/ps").unwrap().to_string(), expected, "{given}");
        }
    }

    #[test]
    fn what_is_no_address_is_refused_with_the_reason() {
        let rows = [
            ("", "no address"),
            ("127.0.0.1:11434", "http://"),
            ("localhost", "http://"),
            ("/api/ps", "http://"),
            ("https://engine.example", "plain"),
            ("ftp://engine.example", "http://"),
            ("http://user:secret@engine.example", "with_api_key"),
            ("http://engine.example/?a=b", "query"),
            ("http://", "no address"),
            ("http://engine example", "no address"),
        ];
        for (given, reason) in rows {
            let error = Address::parse(given).unwrap_err().to_string();
            assert!(error.contains(reason), "{given}: {error}");
            assert!(!error.contains("secret"), "{error}");
        }
    }
}
