//! Reads files of web servers, which cannot be listed.
//!
//! If the server supports ranges, ranges are read. Otherwise the whole file is downloaded first.

use std::io::{self, Read};
use std::sync::Arc;

use bytes::{Buf, Bytes};
use forebay_objects::Patience;
use futures::StreamExt;
use futures::stream::BoxStream;
use object_store::path::Path;
use object_store::{Error, GetOptions, ObjectMeta, ObjectStore, ObjectStoreExt};
use tokio::runtime::Runtime;

use super::strong;
use crate::sources::blob::{Blob, Storage};
use crate::sources::error::SourceError;
use crate::sources::spool::Spool;
use crate::sources::store::{Object, Store};

/// The parts of a URL.
#[derive(Debug, PartialEq, Eq)]
struct Url<'u> {
    /// Scheme and host, with the query, which requests need.
    server: String,
    path: Path,
    /// The URL without its query, which may be secret.
    name: &'u str,
    query: Option<&'u str>,
}

impl Url<'_> {
    fn parse(text: &str) -> Result<Url<'_>, SourceError> {
        let bad = |reason: &str| SourceError::Address {
            source_text: shown(text).to_owned(),
            reason: reason.to_owned(),
        };
        let whole = text.split('#').next().unwrap_or_default();
        let (name, query) = match whole.split_once('?') {
            Some((name, query)) => (name, Some(query)),
            None => (whole, None),
        };
        let (scheme, rest) = name.split_once("://").unwrap_or_default();
        let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
        if host.is_empty() || host.contains('@') {
            return Err(bad("write http://HOST/PATH, without a user's name"));
        }
        if path.is_empty() || path.ends_with('/') || path.contains('*') {
            return Err(bad(
                "a web server's files cannot be listed: give the URL of each file",
            ));
        }
        let path = Path::from_url_path(path).map_err(|error| bad(&error.to_string()))?;
        let asked = query.map(|query| format!("?{query}")).unwrap_or_default();
        Ok(Url {
            server: format!("{scheme}://{host}/{asked}"),
            path,
            name,
            query,
        })
    }
}

/// Returns a source in the form for messages and manifests, without a URL's query, which may hold a
/// signature.
pub fn shown(source: &str) -> &str {
    let web = source.starts_with("http://") || source.starts_with("https://");
    match source.split_once(['?', '#']) {
        Some((name, _)) if web => name,
        _ => source,
    }
}

pub fn open(source: &str, runtime: Arc<Runtime>, spool: &Spool) -> Result<Blob, SourceError> {
    let url = Url::parse(source)?;
    let failed = |error| SourceError::Remote {
        source_text: url.name.to_owned(),
        hint: "",
        error,
    };
    let connect = |patience| {
        let objects = forebay_objects::website(&url.server, patience).map_err(failed)?;
        let (runtime, far) = (runtime.clone(), true);
        let secret = url.query.filter(|query| !query.is_empty());
        let secret = secret.map(str::to_owned);
        Ok::<_, SourceError>(Store {
            objects,
            runtime,
            far,
            secret,
        })
    };
    let first = connect(Patience::Short)?;
    let name: Arc<str> = url.name.into();
    match look(&first, &url.path) {
        Ok(Some(meta)) => Ok(Blob {
            storage: Storage::Stored(Object {
                store: Arc::new(connect(Patience::Long)?),
                path: url.path,
                tag: meta.e_tag.filter(|tag| strong(tag)),
                modified: meta.last_modified,
            }),
            name,
            size_bytes: meta.size,
        }),
        Ok(None) => {
            let spooled = spool.keep(source, &name, || {
                let body = WebBody::open(&first, &url.path);
                body.map_err(|error| failed(first.said(error)))
            })?;
            Ok(Blob {
                size_bytes: spooled.size_bytes,
                storage: Storage::Spooled(spooled),
                name,
            })
        }
        Err(Error::NotFound { .. }) => Err(SourceError::Missing {
            source_text: url.name.to_owned(),
            hint: String::new(),
        }),
        Err(error) => Err(failed(first.said(error))),
    }
}

/// Returns the server's metadata of a file; `None` if it does not support ranges. It requests one
/// byte, because servers refuse a HEAD of a URL that was signed for GET.
fn look(store: &Store, path: &Path) -> Result<Option<ObjectMeta>, Error> {
    let options = GetOptions::new().with_range(Some(0..1));
    match store
        .runtime
        .block_on(store.objects.get_opts(path, options))
    {
        Ok(found) => Ok(Some(found.meta)),
        Err(Error::NotSupported { .. }) => Ok(None),
        Err(error @ Error::NotFound { .. }) => Err(error),
        // An empty file has no first byte.
        Err(error) => match store.runtime.block_on(store.objects.head(path)) {
            Ok(meta) => Ok(Some(meta)),
            Err(_) => Err(error),
        },
    }
}

/// A reader of a file as its server sends it.
struct WebBody<'s> {
    store: &'s Store,
    stream: BoxStream<'static, Result<Bytes, Error>>,
    chunk: Bytes,
    /// The bytes left to receive.
    rest: u64,
}

impl WebBody<'_> {
    fn open<'s>(store: &'s Store, path: &Path) -> Result<WebBody<'s>, Error> {
        let found = store.runtime.block_on(store.objects.get(path))?;
        Ok(WebBody {
            store,
            rest: found.meta.size,
            stream: found.into_stream(),
            chunk: Bytes::new(),
        })
    }
}

impl Read for WebBody<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        while self.chunk.is_empty() {
            let next = self.store.runtime.block_on(self.stream.next());
            match next.transpose().map_err(|error| self.store.said(error))? {
                Some(chunk) => self.chunk = chunk,
                None if self.rest == 0 => return Ok(0),
                None => return Err(io::ErrorKind::UnexpectedEof.into()),
            }
        }
        let length = out.len().min(self.chunk.len());
        self.chunk.copy_to_slice(&mut out[..length]);
        self.rest = self.rest.saturating_sub(length as u64);
        Ok(length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_taken_apart() {
        let url = Url::parse("https://h:8/a/b%20c.csv?sig=x&n=1#top").unwrap();
        assert_eq!(url.server, "https://h:8/?sig=x&n=1");
        assert_eq!(url.path, Path::parse("a/b c.csv").unwrap());
        assert_eq!(url.name, "https://h:8/a/b%20c.csv");
        for bad in [
            "http://",
            "http:///x",
            "http://h",
            "http://h/",
            "http://h/a/",
            "http://u:p@h/x",
            "http://h/*.csv",
        ] {
            assert!(Url::parse(bad).is_err(), "{bad}");
        }
        assert_eq!(shown("https://h/x?sig=1"), "https://h/x");
        assert_eq!(shown("what?.csv"), "what?.csv");
    }
}
