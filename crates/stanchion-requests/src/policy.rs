//! The policy for heads: which fields the server takes, which proxies it believes about their clients, by which scheme a
//! client came, and which clients it redirects to https.

use std::io;

use stanchion_http::{
    ClientField, Fault, FieldRules, Head, HeadRules, REQUEST_START, SchemeFields, UNDERSCORE,
    WrongClock, forwarded,
};

use super::redirect::redirect;
use stanchion_dispatch::refusal::Refusal;
use stanchion_dispatch::reply::Reply;
use stanchion_dispatch::request::{Peer, Request};
use stanchion_dispatch::request_id::{RequestId, RequestIds};
use stanchion_dispatch::ticket::{Answer, Ticket};
use stanchion_generation::tally::Outcome;
use stanchion_record::REQUEST_HEAD_BYTES_MAX;
use stanchion_settings::{Believed, Settings};

/// The most fields of a head when `limit_request_fields` is 0, as gunicorn has it.
const FIELDS_MAX: usize = 32_768;
/// The log shows so many characters of the name of a field.
const NAME_CHARS_MAX: usize = 64;

/// The rules by which heads are read and judged.
pub struct HeadPolicy {
    /// The rules for heads.
    pub rules: HeadRules,
    /// The proxies that the server believes about their clients.
    pub believed: Believed,
    /// The port of https, if the server redirects clients that come in clear text (`redirect_to_https`).
    pub https_port: Option<u16>,
    field_rules: FieldRules,
    scheme_fields: SchemeFields,
    request_ids: Option<RequestIds>,
}

impl HeadPolicy {
    /// Errors are the kernel's, which has no random bytes for the ids of requests.
    pub(crate) fn new(settings: &Settings) -> io::Result<Self> {
        let header = settings.http.request_id_header.as_deref();
        Ok(Self {
            rules: head_rules(settings),
            believed: settings.believed(),
            https_port: None,
            field_rules: settings.field_rules(),
            scheme_fields: settings.scheme_fields(),
            request_ids: header.map(RequestIds::new).transpose()?,
        })
    }

    /// The fault of a head with a field whose name the server does not take.
    pub(crate) fn fault_of_names(&self, head: &Head, peer: &Peer) -> Option<Fault> {
        let refused = self.field_rules.refused(head, peer.trusted);
        refused.map(|_| Fault::BadRequest(UNDERSCORE))
    }

    /// The scheme by which the client came, if a proxy that the server believes says so.
    ///
    /// # Errors
    /// The proxies in front contradict each other.
    pub(crate) fn said_scheme(
        &self,
        head: &Head,
        peer: &Peer,
    ) -> Result<Option<&'static str>, Fault> {
        let Some(head) = peer.said(head) else {
            return Ok(None);
        };
        match self.believed.field {
            ClientField::XForwardedFor => self.scheme_fields.scheme(head),
            field @ ClientField::Forwarded => {
                let is_proxy = |ip| self.believed.peers.lists(ip);
                Ok(forwarded(head.all(field.name()), is_proxy)?.scheme)
            }
        }
    }

    /// The id of a request, if requests have ids.
    pub(crate) fn id_of(&self, head: &Head, peer: &Peer) -> Option<RequestId> {
        let ids = self.request_ids.as_ref();
        ids.map(|ids| ids.name(head, peer.trusted))
    }

    /// Adds the id of the request to a reply of the server, so that a client can name the request when it asks about it. In the app's answers that is
    /// up to the app.
    pub fn named(&self, reply: Reply, ticket: &Ticket) -> Reply {
        match (&self.request_ids, ticket.request.id()) {
            (Some(ids), Some(id)) => reply.with(ids.header().to_owned(), id),
            _ => reply,
        }
    }

    /// Whether the server redirects a request of which only the head has come. The body is for the server at https, so
    /// it is neither asked for here nor read.
    pub fn sends_on(&self, head: &Head, peer: &Peer) -> bool {
        if self.https_port.is_none() {
            return false;
        }
        let said = self.said_scheme(head, peer).unwrap_or_default();
        self.port_instead(said.unwrap_or(peer.scheme), peer)
            .is_some()
    }

    /// The answer to a request that the server redirects; `None` if it does not.
    pub(crate) fn redirected(&self, request: &Request) -> Option<Answer> {
        let port = self.port_instead(request.scheme, &request.peer)?;
        Some(match redirect(&request.head, port) {
            Ok(reply) => Answer::Ours(reply, Outcome::Redirected),
            Err(refusal) => Answer::Refused(refusal),
        })
    }

    /// The port of https to which a client that came by this scheme is redirected, if it is. A client whose proxy has
    /// spoken TLS came by https; and ports of single workers are for clients nearby.
    fn port_instead(&self, scheme: &str, peer: &Peer) -> Option<u16> {
        let is_meant = scheme == "http" && peer.only_worker.is_none();
        self.https_port.filter(|_| is_meant)
    }

    /// The part of a refusal that only the log gets: the field, and the setting that would let it in.
    pub(crate) fn detail(&self, request: &Request, refusal: Refusal) -> String {
        if refusal != Refusal::BadRequest(UNDERSCORE) {
            return String::new();
        }
        let name = self
            .field_rules
            .refused(&request.head, request.peer.trusted);
        let name = String::from_utf8_lossy(name.unwrap_or_default());
        let shown: String = name.chars().take(NAME_CHARS_MAX).collect();
        format!(": {shown:?} (header_map)")
    }
}

/// How long a proxy had a request before the server had read it, if the proxy is believed and says when the request came to it.
pub(crate) fn proxy_us(head: &Head, peer: &Peer, wall_us: u64) -> Result<Option<u64>, WrongClock> {
    match peer.said(head) {
        Some(head) => stanchion_http::proxy_us(head, wall_us),
        None => Ok(None),
    }
}

/// The moment that the host gives the app as `X-Request-Start`: now, when the request joins the line, so that the app's
/// middleware sees how long it waited there. `None` if a proxy that the server believes has set the field; then the app
/// reads what the proxy says. The field of any other peer is taken out. This is the rule for `X-Request-Id`, and not the one for
/// `X-Forwarded-For`, which always reaches the app: frameworks have their own lists of proxies for that one, but the
/// code that reads this one believes it, and has autoscalers add machines for it.
pub(crate) fn request_start_us(head: &mut Head, is_trusted: bool, wall_us: u64) -> Option<u64> {
    if head.first(REQUEST_START).is_some() {
        if is_trusted {
            return None;
        }
        head.remove(REQUEST_START);
    }
    Some(wall_us)
}

/// The rules by which heads are read, from the settings.
fn head_rules(settings: &Settings) -> HeadRules {
    let or_none = |limit: usize| if limit == 0 { usize::MAX } else { limit };
    HeadRules {
        line_bytes: or_none(settings.limits.limit_request_line),
        field_bytes: or_none(settings.limits.limit_request_field_size),
        fields: match settings.limits.limit_request_fields {
            0 => FIELDS_MAX,
            limit => limit,
        },
        head_bytes: REQUEST_HEAD_BYTES_MAX,
        permits: settings.permits(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_limits_of_heads_are_those_of_the_settings() {
        let settings = Settings::from_json("{}").expect("settings");
        assert_eq!(head_rules(&settings), HeadRules::DEFAULT);
    }

    #[test]
    fn a_start_that_a_believed_proxy_says_stays_and_any_other_is_replaced() {
        let said: [&[_]; 3] = [
            &[],
            &[("X-Request-Start", "t=1")],
            &[("X-Request-Start", "t=1"), ("x-request-start", "t=2")],
        ];
        for (trusted, fields, request_start_us, left) in [
            (false, said[0], Some(7), 0),
            (false, said[1], Some(7), 0),
            (false, said[2], Some(7), 0),
            (true, said[0], Some(7), 0),
            (true, said[1], None, 1),
            (true, said[2], None, 2),
        ] {
            let mut head = Head::of("GET", "/", fields);
            assert_eq!(
                super::request_start_us(&mut head, trusted, 7),
                request_start_us
            );
            assert_eq!(
                head.all(REQUEST_START).count(),
                left,
                "{trusted} {fields:?}"
            );
        }
    }
}
