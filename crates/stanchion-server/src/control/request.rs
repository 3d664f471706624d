//! Requests over the control socket: a closed list, checked where it comes in.

use serde::Deserialize;

/// The longest request, in bytes, with its end of line.
pub(super) const REQUEST_BYTES_MAX: usize = 4096;

/// Something a client asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Wire")]
pub(crate) enum Request {
    /// The state of the server.
    Status,
    /// The seats of each worker.
    Workers,
    /// Read configuration and code again.
    Reload,
    /// Hand over to the stanchion that is installed now.
    Upgrade,
    /// Keep so many workers.
    Scale {
        /// How many.
        workers: u16,
    },
    /// Serve the clients that are here, then leave.
    Drain,
    /// Reopen the logs.
    Reopen,
    /// Leave now.
    Quit,
    /// The stacks of all workers.
    Dump,
}

/// How it is written: one JSON object, `{"command": "scale", "workers": 4}`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Wire {
    command: Verb,
    workers: Option<u16>,
}

#[derive(Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Verb {
    Status,
    Workers,
    Reload,
    Upgrade,
    Scale,
    Drain,
    Reopen,
    Quit,
    Dump,
}

impl TryFrom<Wire> for Request {
    type Error = &'static str;

    fn try_from(wire: Wire) -> Result<Self, Self::Error> {
        if wire.workers.is_some() && wire.command != Verb::Scale {
            return Err("`workers` belongs to `scale` alone");
        }
        Ok(match wire.command {
            Verb::Status => Self::Status,
            Verb::Workers => Self::Workers,
            Verb::Reload => Self::Reload,
            Verb::Upgrade => Self::Upgrade,
            Verb::Scale => Self::Scale {
                workers: wire.workers.ok_or("`scale` needs `workers`")?,
            },
            Verb::Drain => Self::Drain,
            Verb::Reopen => Self::Reopen,
            Verb::Quit => Self::Quit,
            Verb::Dump => Self::Dump,
        })
    }
}

impl Request {
    /// Reads one line. The error says what is wrong, for the client that wrote it.
    pub(super) fn parse(line: &[u8]) -> Result<Self, String> {
        serde_json::from_slice(line).map_err(|error| format!("that is no request: {error}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_has_its_word() {
        for (word, request) in [
            ("status", Request::Status),
            ("workers", Request::Workers),
            ("reload", Request::Reload),
            ("upgrade", Request::Upgrade),
            ("drain", Request::Drain),
            ("reopen", Request::Reopen),
            ("quit", Request::Quit),
            ("dump", Request::Dump),
        ] {
            let line = format!(r#"{{"command": "{word}"}}"#);
            assert_eq!(Request::parse(line.as_bytes()), Ok(request));
        }
        let line = br#"{"workers":3,"command":"scale"}"#;
        assert_eq!(Request::parse(line), Ok(Request::Scale { workers: 3 }));
    }

    #[test]
    fn nothing_else_is_taken() {
        for (line, reason) in [
            ("", "EOF"),
            ("status", "expected value"),
            ("[]", "invalid length 0"),
            ("{}", "missing field `command`"),
            (r#"{"command":"Status"}"#, "unknown variant `Status`"),
            (r#"{"command":"scale"}"#, "`scale` needs `workers`"),
            (
                r#"{"command":"quit","workers":1}"#,
                "belongs to `scale` alone",
            ),
            (r#"{"command":"scale","workers":-1}"#, "invalid value"),
            (r#"{"command":"scale","workers":65536}"#, "invalid value"),
            (r#"{"command":"scale","workers":"4"}"#, "invalid type"),
            (r#"{"command":"quit","command":"quit"}"#, "duplicate field"),
            (r#"{"command":"quit","now":true}"#, "unknown field `now`"),
            (r#"{"command":"quit"} {}"#, "trailing characters"),
        ] {
            let problem = Request::parse(line.as_bytes()).expect_err(line);
            assert!(problem.contains(reason), "{line}: {problem}");
        }
        assert!(Request::parse(b"{\"command\":\"quit\xff\"}").is_err());
    }
}
