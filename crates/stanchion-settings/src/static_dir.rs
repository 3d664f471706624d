//! A directory whose files are answered without a worker (`static_files`).

use std::path::PathBuf;

/// Where a directory is in the paths of requests, and in the file system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StaticDir {
    /// Begins with a slash and does not end with one; empty: everything.
    pub prefix: String,
    /// The path as it was given: relative to the working directory.
    pub directory: PathBuf,
}

impl StaticDir {
    /// Reads `PREFIX=DIRECTORY`.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let (prefix, directory) = text
            .split_once('=')
            .ok_or("expected PREFIX=DIRECTORY, as in /static=/srv/shop/static")?;
        if !prefix.starts_with('/') {
            return Err(format!("'{prefix}' is not a path that begins with /"));
        }
        if prefix.contains(['?', '#', '%']) || prefix.contains("//") {
            return Err(format!(
                "'{prefix}' is not a plain path: without ?, #, % and //"
            ));
        }
        if directory.is_empty() || directory.contains('\0') {
            return Err(format!("'{directory}' is not a directory"));
        }
        Ok(Self {
            prefix: prefix.trim_end_matches('/').to_owned(),
            directory: directory.into(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_and_a_directory() {
        for (text, prefix, directory) in [
            ("/static=/srv/static", "/static", "/srv/static"),
            ("/static/=public", "/static", "public"),
            ("/=a=b", "", "a=b"),
        ] {
            let dir = StaticDir::parse(text).unwrap();
            assert_eq!(
                (dir.prefix.as_str(), dir.directory),
                (prefix, PathBuf::from(directory))
            );
        }
        for text in [
            "static=/srv",
            "/static",
            "/static=",
            "=/srv",
            "/a%20b=/srv",
            "/a//b=/srv",
            "/a?=/srv",
            "/a=b\0",
        ] {
            assert!(StaticDir::parse(text).is_err(), "{text}");
        }
    }
}
