//! Scripts of clients and an app, read from bytes: any bytes are a script, and another byte changes little of it.

/// The beginning of a script.
#[derive(Clone, Copy, Debug)]
pub(super) struct Opening {
    pub(super) way: ProtocolStack,
    /// The app runs in an event loop, and may have `WebSockets`.
    pub(super) is_asgi: bool,
    /// All limits are small, so that scripts reach them.
    pub(super) is_tight: bool,
    /// In the end the clients close their connections. Else they fall silent, and the app answers all that is left.
    pub(super) clients_leave: bool,
}

/// How clients connect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ProtocolStack {
    pub(super) is_proxied: bool,
    pub(super) is_tls: bool,
    pub(super) is_http2: bool,
}

/// Whether an app's head tells the length of the body, and the right one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Promise {
    /// The head tells no length.
    Nothing,
    /// The head tells the length.
    Length,
    /// The head tells a wrong length, as no worker of stanchion does.
    Lie,
}

/// An act of a client.
#[derive(Clone, Copy, Debug)]
pub(super) enum ClientAct<'s> {
    Says(&'s [u8]),
    /// One byte, so many times.
    Repeats(u8, usize),
    /// Sends bytes past the client's TLS, if it has any.
    SendsRaw(&'s [u8]),
    /// Sends a frame of HTTP/2: its type, flags and stream, and its payload.
    SendsFrame([u8; 3], &'s [u8]),
    /// Sends a frame of a WebSocket that begins with this byte.
    SendsMessage(u8, &'s [u8]),
    /// Sends a request of [`super::client::REQUESTS`], by its index.
    Asks(u8),
    /// The client sends no more.
    Ends,
    Leaves,
    /// The client reads no more, until it [`Self::Reads`].
    Rests,
    Reads,
    /// Reads this many bytes.
    ReadsSome(usize),
}

/// An act of the app, in one of its calls.
#[derive(Clone, Copy, Debug)]
pub(super) enum AppAct<'s> {
    Takes,
    /// Answers with this status and a body of so many bytes, all at once.
    Answers(u16, usize, Promise),
    /// Writes the head and the start of the body.
    Begins(u16, usize, Promise),
    /// The same, with trailers behind the body.
    BeginsTrailed(usize),
    Goes(usize),
    Ends,
    Breaks,
    Hints,
    Accepts,
    /// Sends a message of a WebSocket, of this kind and length.
    Sends(u8, usize),
    Closes(u16),
    Receives,
    /// The worker dies, and another one takes its place.
    Dies,
    /// Writes bytes that no worker of stanchion writes.
    Writes(&'s [u8]),
}

/// A step of a script.
#[derive(Clone, Copy, Debug)]
pub(super) enum Happening<'s> {
    Client(usize, ClientAct<'s>),
    App(usize, AppAct<'s>),
    /// So many microseconds pass.
    Passes(u64),
    /// The server goes one stage further towards its end.
    Retires,
    /// Other clients wait for places, or none do any more.
    Presses(bool),
    /// The server closes connections that it can spare.
    Sheds,
}

/// The clients of one script.
pub(super) const CLIENTS: usize = 3;
/// How many steps a script has at most; further bytes are left out.
const STEPS_MAX: usize = 256;

const STATUSES: [u16; 8] = [200, 204, 304, 404, 500, 205, 206, 101];
const SIZES: [usize; 8] = [0, 1, 100, 5_000, 17_000, 70_000, 300_000, 1_200_000];
const CODES: [u16; 4] = [1000, 1011, 3000, 1005];
/// In microseconds.
const TIMES: [u64; 12] = [
    1_000,
    50_000,
    250_000,
    1_000_000,
    2_000_000,
    5_000_000,
    10_000_000,
    20_000_000,
    30_000_000,
    60_000_000,
    120_000_000,
    600_000_000,
];

/// The rest of a script.
pub(super) struct Script<'s> {
    rest: &'s [u8],
    steps: usize,
}

impl<'s> Script<'s> {
    /// Reads the opening, and returns the rest of the script with it.
    pub(super) fn read(bytes: &'s [u8]) -> (Opening, Self) {
        let mut script = Self {
            rest: bytes,
            steps: 0,
        };
        let first = script.byte();
        let opening = Opening {
            way: ProtocolStack {
                is_proxied: first & 4 != 0,
                is_tls: first & 2 != 0,
                is_http2: first & 1 != 0,
            },
            is_asgi: first & 0x10 != 0,
            is_tight: first & 0x20 != 0,
            clients_leave: first & 0x40 != 0,
        };
        (opening, script)
    }

    fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.rest.split_first() else {
            return 0;
        };
        self.rest = rest;
        *first
    }

    fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[usize::from(self.byte()) % all.len()]
    }

    fn word(&mut self) -> usize {
        usize::from(u16::from_le_bytes([self.byte(), self.byte()]))
    }

    fn bytes(&mut self, len: usize) -> &'s [u8] {
        let (bytes, rest) = self.rest.split_at(len.min(self.rest.len()));
        self.rest = rest;
        bytes
    }

    /// Takes as many bytes as the next byte says.
    fn short(&mut self) -> &'s [u8] {
        let len = usize::from(self.byte());
        self.bytes(len)
    }

    fn promise(&mut self) -> Promise {
        match self.byte() % 16 {
            15 => Promise::Lie,
            one if one % 2 == 0 => Promise::Nothing,
            _ => Promise::Length,
        }
    }

    fn client_act(&mut self, kind: u8) -> ClientAct<'s> {
        match kind {
            0 => ClientAct::Says(self.short()),
            1 => {
                let len = self.word();
                ClientAct::Says(self.bytes(len))
            }
            2 => ClientAct::Repeats(self.byte(), self.word() * 8),
            3 => ClientAct::SendsRaw(self.short()),
            4 => ClientAct::SendsFrame([self.byte(), self.byte(), self.byte()], self.short()),
            5 => ClientAct::SendsMessage(self.byte(), self.short()),
            6 | 7 => ClientAct::Asks(self.byte()),
            8 => ClientAct::Ends,
            9 => ClientAct::Leaves,
            10 => ClientAct::Rests,
            11 => ClientAct::Reads,
            _ => ClientAct::ReadsSome(self.word()),
        }
    }

    fn app_act(&mut self, kind: u8) -> AppAct<'s> {
        match kind {
            13 => AppAct::Takes,
            14 => AppAct::Answers(self.one_of(&STATUSES), self.one_of(&SIZES), self.promise()),
            15 => AppAct::Begins(self.one_of(&STATUSES), self.one_of(&SIZES), self.promise()),
            16 => AppAct::BeginsTrailed(self.one_of(&SIZES)),
            17 => AppAct::Goes(self.one_of(&SIZES)),
            18 => AppAct::Ends,
            19 => AppAct::Breaks,
            20 => AppAct::Hints,
            21 => AppAct::Accepts,
            22 => AppAct::Sends(self.byte(), self.one_of(&SIZES)),
            23 => AppAct::Closes(self.one_of(&CODES)),
            24 => AppAct::Receives,
            25 => AppAct::Dies,
            _ => AppAct::Writes(self.short()),
        }
    }
}

impl<'s> Iterator for Script<'s> {
    type Item = Happening<'s>;

    fn next(&mut self) -> Option<Happening<'s>> {
        if self.rest.is_empty() || self.steps == STEPS_MAX {
            return None;
        }
        self.steps += 1;
        let first = self.byte();
        let (kind, who) = (first & 0x1f, usize::from(first >> 5));
        Some(match kind {
            0..=12 => Happening::Client(who % CLIENTS, self.client_act(kind)),
            13..=26 => Happening::App(who, self.app_act(kind)),
            27 | 28 => Happening::Passes(self.one_of(&TIMES)),
            29 => Happening::Retires,
            30 => Happening::Presses(who % 2 == 1),
            _ => Happening::Sheds,
        })
    }
}
