//! Requests over the control socket: a closed list, checked where it comes in.

use serde::Deserialize;

/// The longest request, in bytes, with its end of line.
pub(super) const REQUEST_BYTES_MAX: usize = 4096;

/// Something a client asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "RequestLine")]
pub(crate) enum CtlRequest {
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
    /// Keep as many workers as the line needs.
    Auto,
    /// Serve the clients that are here, then leave.
    Drain,
    /// Reopen the logs.
    Reopen,
    /// Leave now.
    Quit,
    /// The stacks of all workers.
    Dump,
    /// Have a worker that has served become the template.
    Refork,
}

/// How it is written: one JSON object, `{"command": "scale", "workers": 4}`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RequestLine {
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
    Auto,
    Drain,
    Reopen,
    Quit,
    Dump,
    Refork,
}

impl TryFrom<RequestLine> for CtlRequest {
    type Error = &'static str;

    fn try_from(wire: RequestLine) -> Result<Self, Self::Error> {
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
            Verb::Auto => Self::Auto,
            Verb::Drain => Self::Drain,
            Verb::Reopen => Self::Reopen,
            Verb::Quit => Self::Quit,
            Verb::Dump => Self::Dump,
            Verb::Refork => Self::Refork,
        })
    }
}

impl CtlRequest {
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
            ("status", CtlRequest::Status),
            ("workers", CtlRequest::Workers),
            ("reload", CtlRequest::Reload),
            ("upgrade", CtlRequest::Upgrade),
            ("auto", CtlRequest::Auto),
            ("drain", CtlRequest::Drain),
            ("reopen", CtlRequest::Reopen),
            ("quit", CtlRequest::Quit),
            ("dump", CtlRequest::Dump),
            ("refork", CtlRequest::Refork),
        ] {
            let line = format!(r#"{{"command": "{word}"}}"#);
            assert_eq!(CtlRequest::parse(line.as_bytes()), Ok(request));
        }
        let line = br#"{"workers":3,"command":"scale"}"#;
        assert_eq!(
            CtlRequest::parse(line),
            Ok(CtlRequest::Scale { workers: 3 })
        );
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
            let problem = CtlRequest::parse(line.as_bytes()).expect_err(line);
            assert!(problem.contains(reason), "{line}: {problem}");
        }
        assert!(CtlRequest::parse(b"{\"command\":\"quit\xff\"}").is_err());
    }
}
