//! The handshake of a WebSocket: the values of its answer, as far as the request and the settings give them.

use stanchion_http::{Framing, Head};
use stanchion_websocket::{Deflate, Handshake, accept_value, handshake};

use stanchion_dispatch::refusal::Refusal;
use stanchion_dispatch::request::Handshaken;
use stanchion_settings::Settings;

/// The values for the answer to a request that asks for a WebSocket; `None` if it asks for none, or the app can have
/// none.
pub(super) fn handshaken(head: &Head, settings: &Settings) -> Result<Option<Handshaken>, Refusal> {
    if !settings.is_asgi() {
        return Ok(None);
    }
    match handshake(head.method(), head.minor_version(), head.fields()) {
        Handshake::Absent => Ok(None),
        Handshake::Asked(_) if head.framing() != Framing::Empty => Err(Refusal::BadRequest(
            "the request for a WebSocket has a body",
        )),
        Handshake::Asked(key) => Ok(Some(Handshaken {
            accept: accept_value(key).into(),
            deflate: agreed(head, settings)?,
        })),
        Handshake::Bad(reason) => Err(Refusal::BadRequest(reason)),
        Handshake::OtherVersion => Err(Refusal::UnknownWebSocket),
    }
}

/// How messages are compressed, if they are to be and the client offers a way.
fn agreed(head: &Head, settings: &Settings) -> Result<Option<Deflate>, Refusal> {
    if !settings.event_loop.ws_per_message_deflate {
        return Ok(None);
    }
    Deflate::of_offers(head.fields()).map_err(Refusal::BadRequest)
}
