//! A certificate authority reads these files to see that a name is this server's (`acme_challenge_dir`; HTTP-01 in RFC
//! 8555 section 8.3).

use std::ffi::CString;
use std::sync::Arc;

use super::{Mount, NoFile, RequestedFile, StaticFiles};
use stanchion_dispatch::request::Request;

/// The folder of challenges, below the webroot as in the paths of requests (RFC 8555 section 8.3).
const FOLDER: &str = ".well-known/acme-challenge/";
/// A token has so many characters at most: a file's name has no more. Authorities use 43 characters, and RFC 8555 names no limit.
const TOKEN_BYTES_MAX: usize = 255;
/// A file has so many bytes at most. It holds a token, a dot and 43 characters (RFC 8555 section 8.1).
pub(super) const FILE_BYTES_MAX: u64 = 4 << 10;
/// RFC 8555 section 8.3 recommends it.
const CONTENT_TYPE: &str = "application/octet-stream";

impl StaticFiles {
    /// Whether a request is for a challenge, whether or not there is its file. Then the server neither redirects it to
    /// https nor gives it to the app. An authority begins in clear text (RFC 8555 section 8.3), and ports of single
    /// workers are for clients nearby.
    pub(crate) fn is_challenge(&self, request: &Request) -> bool {
        let is_public = || request.peer.scheme == "http" && request.peer.only_worker.is_none();
        let is_read = || matches!(request.head.method(), "GET" | "HEAD");
        let has_challenges = self.challenges.is_some();
        has_challenges && is_public() && is_read() && token(request.head.path()).is_some()
    }

    pub(super) fn challenge(&self, path: &[u8]) -> Result<RequestedFile, NoFile> {
        let challenges: &Mount = self.challenges.as_ref().ok_or(NoFile)?;
        let name = token(path).filter(|token| is_token(token)).ok_or(NoFile)?;
        Ok(RequestedFile {
            mount: None,
            directory: Arc::clone(&challenges.directory),
            file_system: challenges.file_system,
            path: CString::new([FOLDER.as_bytes(), name].concat()).map_err(|_| NoFile)?,
            content_type: CONTENT_TYPE.into(),
            codings: Vec::new(),
            may_be_coded: false,
        })
    }
}

/// The rest of a path behind the folder.
fn token(path: &[u8]) -> Option<&[u8]> {
    path.strip_prefix(b"/")?.strip_prefix(FOLDER.as_bytes())
}

/// Whether a name has only characters of base64url, without padding (RFC 8555 section 8.1). So it is one name, which
/// leads nowhere.
fn is_token(name: &[u8]) -> bool {
    let is_of_it = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    (1..=TOKEN_BYTES_MAX).contains(&name.len()) && name.iter().all(is_of_it)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_one_name_that_leads_nowhere() {
        for name in [
            &b"a"[..],
            b"-_",
            b"evaGxfADs6pSRb2LAv9IZf17Dt3juxGJ-PCt92wr-oA",
        ] {
            assert!(is_token(name));
        }
        assert!(is_token(&[b'a'; TOKEN_BYTES_MAX]));
        assert!(!is_token(&[b'a'; TOKEN_BYTES_MAX + 1]));
        for name in [
            &b""[..],
            b".",
            b"..",
            b"a.b",
            b"a/b",
            b"../a",
            b"a%2fb",
            b"%2e%2e",
            b"a=",
            b"a+b",
            b"a\0",
            b"\xc3\xa4",
            b"a b",
        ] {
            assert!(!is_token(name), "{name:?}");
        }
    }

    #[test]
    fn only_what_is_in_the_folder_is_a_challenge() {
        assert_eq!(token(b"/.well-known/acme-challenge/a"), Some(&b"a"[..]));
        assert_eq!(token(b"/.well-known/acme-challenge/"), Some(&b""[..]));
        for path in [
            &b"/"[..],
            b"/.well-known/acme-challenge",
            b"/.well-known/security.txt",
            b"//.well-known/acme-challenge/a",
            b"/%2ewell-known/acme-challenge/a",
        ] {
            assert_eq!(token(path), None);
        }
    }
}
