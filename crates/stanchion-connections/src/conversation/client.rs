//! A client that does what a script says.

use std::io;
use std::os::unix::net::UnixStream;

use rustix::net::{RecvFlags, SendFlags, Shutdown, recv, send, shutdown};

use super::script::{ClientAct, ProtocolStack};

/// Usual requests of HTTP/1.1.
const REQUESTS: [&[u8]; 8] = [
    b"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
    b"POST /p HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello",
    b"POST /c HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTE: trailers\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
    b"PUT /e HTTP/1.1\r\nHost: a\r\nContent-Length: 300000\r\nExpect: 100-continue\r\n\r\n",
    b"GET /ws HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n\
      Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Extensions: permessage-deflate\r\n\r\n",
    b"HEAD /h HTTP/1.1\r\nHost: a\r\nAccept-Encoding: gzip\r\n\r\n",
    b"GET /o HTTP/1.0\r\n\r\n",
    b"GET /l HTTP/1.1\r\nHost: a\r\nConnection: close\r\nTE: trailers\r\n\r\n",
];
/// Usual requests of HTTP/2: the type and flags of a frame, and a list of fields in HPACK (RFC 7541).
const STREAMS: [(u8, &[u8]); 6] = [
    // GET http: / with an authority.
    (0x05, b"\x82\x86\x84\x41\x01a"),
    // POST; its body follows.
    (0x04, b"\x83\x86\x84\x41\x01a"),
    // POST of five bytes.
    (0x04, b"\x83\x86\x84\x41\x01a\x0f\x0d\x015"),
    // HEAD.
    (0x05, b"\x42\x04HEAD\x86\x84\x41\x01a"),
    // CONNECT of a WebSocket (RFC 8441).
    (0x04, b"\x42\x07CONNECT\x00\x09:protocol\x09websocket\x86\x84\x41\x01a\x00\x15sec-websocket-version\x0213"),
    // GET with `te: trailers`.
    (0x05, b"\x82\x86\x84\x41\x01a\x00\x02te\x08trailers"),
];
const HEADERS: u8 = 1;
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
const PROXY_HEADER: &[u8] = b"PROXY TCP4 192.0.2.1 198.51.100.2 4097 443\r\n";
/// How many bytes a client sends at most.
const SAID_BYTES_MAX: usize = 1 << 20;

/// A scripted client.
#[allow(
    clippy::struct_excessive_bools,
    reason = "each is a thing of its own that the script or the server has it do"
)]
pub(super) struct ScriptedClient {
    /// `None` once the client has left.
    socket: Option<UnixStream>,
    #[cfg(fuzzing)]
    tls: Option<stanchion_tls::client::TlsClient>,
    /// Plaintext that waits for the handshake.
    unsaid: Vec<u8>,
    /// Bytes that the socket has not taken.
    unsent: Vec<u8>,
    said: usize,
    /// The number of the stream that the client opens next.
    next_stream: u32,
    is_http2: bool,
    reads: bool,
    ends: bool,
    has_ended: bool,
    /// The bytes from the server, without TLS.
    pub(super) heard: Vec<u8>,
    /// Nothing more comes from the server.
    pub(super) is_over: bool,
    /// The client has asked for answers without bodies.
    pub(super) asks_head: bool,
}

impl ScriptedClient {
    /// A client that has just connected.
    pub(super) fn new(socket: UnixStream, way: ProtocolStack) -> Self {
        socket.set_nonblocking(true).expect("a socket");
        let mut client = Self {
            socket: Some(socket),
            #[cfg(fuzzing)]
            tls: way.is_tls.then(|| {
                super::settings::with_client_options(way, stanchion_tls::client::TlsClient::new)
            }),
            unsaid: Vec::new(),
            unsent: Vec::new(),
            said: 0,
            next_stream: 1,
            is_http2: way.is_http2,
            reads: true,
            ends: false,
            has_ended: false,
            heard: Vec::new(),
            is_over: false,
            asks_head: false,
        };
        if way.is_proxied {
            client.send_raw(PROXY_HEADER);
        }
        if way.is_http2 {
            client.say(PREFACE);
        }
        client
    }

    pub(super) fn has_left(&self) -> bool {
        self.socket.is_none()
    }

    /// Does this act; the socket takes its bytes by [`Self::go_on`].
    pub(super) fn act(&mut self, act: ClientAct<'_>) {
        match act {
            ClientAct::Says(bytes) => self.say(bytes),
            ClientAct::Repeats(byte, count) => self.say(&vec![byte; count]),
            ClientAct::SendsRaw(bytes) => self.send_raw(bytes),
            ClientAct::SendsFrame([kind, flags, stream], payload) => {
                self.send_frame(kind, flags, stream.into(), payload);
            }
            ClientAct::SendsMessage(first, payload) => self.send_message(first, payload),
            ClientAct::Asks(which) => self.ask(usize::from(which)),
            ClientAct::Ends => self.ends = true,
            ClientAct::Leaves => self.leave(),
            ClientAct::Rests => self.reads = false,
            ClientAct::Reads => self.reads = true,
            ClientAct::ReadsSome(len) => {
                self.reads = false;
                self.read(len);
            }
        }
    }

    pub(super) fn leave(&mut self) {
        self.socket = None;
    }

    fn ask(&mut self, which: usize) {
        if !self.is_http2 {
            return self.say(REQUESTS[which % REQUESTS.len()]);
        }
        let (flags, fields) = STREAMS[which % STREAMS.len()];
        let stream = self.next_stream;
        self.next_stream += 2;
        self.send_frame(HEADERS, flags, stream, fields);
    }

    fn send_frame(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        let [_, len @ ..] = (payload.len() as u32).to_be_bytes();
        let head = [&len[..], &[kind, flags], &stream.to_be_bytes()].concat();
        self.say(&[&head, payload].concat());
    }

    /// Sends a frame with a mask of zero.
    fn send_message(&mut self, first: u8, payload: &[u8]) {
        let len = payload.len() as u8;
        let head: &[u8] = if len < 126 {
            &[first, 0x80 | len, 0, 0, 0, 0]
        } else {
            &[first, 0xfe, 0, len, 0, 0, 0, 0]
        };
        self.say(&[head, payload].concat());
    }

    fn may_say(&mut self, len: usize) -> bool {
        self.said += len;
        self.said <= SAID_BYTES_MAX && !self.ends
    }

    fn say(&mut self, bytes: &[u8]) {
        if self.may_say(bytes.len()) {
            self.asks_head |= bytes.windows(4).any(|four| four == b"HEAD");
            self.unsaid.extend_from_slice(bytes);
        }
    }

    fn send_raw(&mut self, bytes: &[u8]) {
        if self.may_say(bytes.len()) {
            self.encrypt();
            self.unsent.extend_from_slice(bytes);
        }
    }

    /// Encrypts what the client says, for the socket. False if it waits for a handshake.
    #[cfg(fuzzing)]
    fn encrypt(&mut self) -> bool {
        let Some(tls) = &mut self.tls else {
            self.unsent.append(&mut self.unsaid);
            return true;
        };
        let can_say = !tls.is_handshaking();
        if can_say {
            tls.say(&self.unsaid);
            self.unsaid.clear();
            if self.ends {
                tls.close();
            }
        }
        tls.send(&mut self.unsent);
        can_say
    }

    #[cfg(not(fuzzing))]
    fn encrypt(&mut self) -> bool {
        self.unsent.append(&mut self.unsaid);
        true
    }

    /// Decrypts bytes from the server; false if they make no sense.
    #[cfg(fuzzing)]
    fn decrypt(&mut self, bytes: &[u8]) -> bool {
        match &mut self.tls {
            Some(tls) => tls.hear(bytes, &mut self.heard),
            None => {
                self.heard.extend_from_slice(bytes);
                true
            }
        }
    }

    #[cfg(not(fuzzing))]
    fn decrypt(&mut self, bytes: &[u8]) -> bool {
        self.heard.extend_from_slice(bytes);
        true
    }

    /// Sends and reads as much as it can; true if any bytes moved.
    pub(super) fn go_on(&mut self) -> bool {
        let has_said = self.encrypt();
        let Some(socket) = &self.socket else {
            return false;
        };
        let mut has_moved = false;
        if !self.unsent.is_empty() {
            match send(
                socket,
                &self.unsent,
                SendFlags::DONTWAIT | SendFlags::NOSIGNAL,
            ) {
                Ok(len) => {
                    self.unsent.drain(..len);
                    has_moved = len > 0;
                }
                Err(rustix::io::Errno::AGAIN) => {}
                Err(_) => self.unsent.clear(),
            }
        }
        if self.ends && has_said && self.unsent.is_empty() && !self.has_ended {
            self.has_ended = true;
            // The server may have closed the socket already.
            let _ = shutdown(socket, Shutdown::Write);
        }
        if self.reads {
            has_moved |= self.read(usize::MAX);
        }
        has_moved
    }

    fn read(&mut self, len: usize) -> bool {
        let mut has_moved = false;
        let mut left = len;
        let mut buffer = [0; 16 << 10];
        while left > 0
            && !self.is_over
            && let Some(socket) = &self.socket
        {
            let room = left.min(buffer.len());
            match recv(socket, &mut buffer[..room], RecvFlags::DONTWAIT) {
                Ok((0, _)) => self.is_over = true,
                Ok((len, _)) => {
                    has_moved = true;
                    left -= len;
                    if !self.decrypt(&buffer[..len]) {
                        self.is_over = true;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(_) => self.is_over = true,
            }
        }
        has_moved
    }
}
