//! The acceptor compresses answers of the app on their way, if the rules say so, in helper threads.
//!
//! `stanchion_http::compression` decides which answers are compressed, and writes their heads: pure, from the request,
//! the head of the answer and the settings. An encoder goes to a helper thread with a part of the body, up to 128 KiB,
//! and comes back with the compressed bytes, through the woken list like all work of helper threads. The threads also
//! allocate it and free it. Each encoder holds a place while it exists, also if its client has left before a thread
//! came to it; without a place an answer goes out as it is.

use std::cell::RefCell;
use std::collections::HashMap;
use std::io;
use std::rc::Rc;
use std::sync::{Arc, Weak};
use std::thread::available_parallelism;

use bytes::Bytes;
use stanchion_compression::{After, Encoder};
use stanchion_http::{BodyLength, Coding, CompressRules, Compression, put_compressed, put_varied};
use stanchion_sys::charge::Foreign;
use stanchion_sys::eventfd::EventFd;

use stanchion_dispatch::storage::clients::Client;
use stanchion_dispatch::storage::disk::{Crew, Disk, FileSystem, Job};
use stanchion_dispatch::storage::woken::Woken;
use stanchion_dispatch::ticket::{AppAnswer, Start, Ticket};
use stanchion_generation::common::Common;
use stanchion_generation::tally::{Event, Tally};
use stanchion_settings::Believed;

/// At most so many threads compress, and never more than there are cores, which they share with the app.
const THREADS_MAX: usize = 8;
/// At most so many bodies are compressed at once. An encoder may take 3 MB, and that of a stream is kept until the
/// stream ends.
const BODIES_MAX: usize = 64;
/// And so many bodies of one client, so that a client that opens many streams and does not read them leaves places for
/// others.
const BODIES_MAX_EACH: usize = BODIES_MAX / 4;
/// So much of a body is compressed at a time, or somewhat more.
pub const PIECE_BYTES: usize = 128 << 10;

/// Compresses bodies.
pub struct Compressor {
    rules: CompressRules,
    tally: &'static Tally,
    threads: Disk,
    /// Each encoder has a clone of this,
    places: Arc<()>,
    /// and a clone of its client's. The table has no more clients than places, and those that have given back their
    /// last place since it was last cleared.
    shares: RefCell<HashMap<Client, Weak<()>>>,
}

/// The encoder of one body, with its place among those that there may be.
pub struct BodyEncoder {
    coding: Coding,
    /// `None` until the first bytes have come. Helper threads allocate and free its memory.
    encoder: Option<Encoder>,
    /// The part of its memory that C code has allocated.
    foreign: Foreign,
    _place: Arc<()>,
    /// Its place among those of its client, if that is known.
    _share: Option<Arc<()>>,
}

/// A part of a body, compressed.
pub struct Compressed {
    /// The compressed bytes.
    pub bytes: Vec<u8>,
    /// The encoder for the next part, if this was not the last one. It has its place in any case until the connection
    /// has taken this, so that there are never more jobs than places.
    pub encoder: BodyEncoder,
    /// This was the last part.
    pub is_over: bool,
}

/// How an answer goes to the client.
#[derive(Default)]
pub struct Plan {
    /// Its head, in wire form, if it is not the app's.
    pub wire: Option<Vec<u8>>,
    /// The encoder of its body, if the body is compressed.
    pub encoder: Option<(Rc<Compressor>, BodyEncoder)>,
}

impl Compressor {
    /// Makes the compressor that the settings ask for; `None` if nothing is to be compressed.
    pub(super) fn new(common: &'static Common) -> io::Result<Option<Rc<Self>>> {
        let settings = &common.settings;
        let Some(rules) = settings.compress_rules() else {
            return Ok(None);
        };
        let cores = available_parallelism().map_or(1, usize::from);
        let crew = Crew {
            name: "stanchion-press",
            threads_max: cores.min(THREADS_MAX),
            overload: "there are more bodies to compress than there may be",
        };
        Ok(Some(Rc::new(Self {
            rules,
            tally: &common.tally,
            threads: Disk::with_crew(crew, BODIES_MAX)?,
            places: Arc::default(),
            shares: RefCell::default(),
        })))
    }

    /// Rings when something is compressed; to be watched edge-triggered.
    pub fn bell(&self) -> &EventFd {
        self.threads.bell()
    }

    /// Wakes the connections for which something is compressed. To be called once per turn of the loop.
    pub(super) fn done(&self, woken: &Woken) {
        self.threads.done(woken);
    }

    /// Makes the encoder for a new body, if there is a place, and if its client has not used up its share of places.
    fn begin(&self, coding: Coding, client: Option<Client>) -> Option<BodyEncoder> {
        // The compressor itself has a clone too.
        let taken = Arc::strong_count(&self.places) - 1;
        if taken >= BODIES_MAX {
            return None;
        }
        let share = match client {
            Some(client) => Some(self.share(client)?),
            None => None,
        };
        Some(BodyEncoder {
            coding,
            encoder: None,
            foreign: Foreign::default(),
            _place: Arc::clone(&self.places),
            _share: share,
        })
    }

    /// Takes one more place of a client's; `None` if the client has as many as it may. Helper threads give encoders
    /// back too, so the places are not counted as other shares are.
    fn share(&self, client: Client) -> Option<Arc<()>> {
        let mut shares = self.shares.borrow_mut();
        shares.retain(|_, share| share.strong_count() > 0);
        let share = shares.entry(client).or_default();
        if share.strong_count() >= BODIES_MAX_EACH {
            return None;
        }
        if let Some(share) = share.upgrade() {
            return Some(share);
        }
        let first = Arc::new(());
        *share = Arc::downgrade(&first);
        Some(first)
    }

    /// Decides how an answer of the app goes to the client.
    pub fn plan(self: &Rc<Self>, ticket: &Ticket, answer: &AppAnswer, believed: &Believed) -> Plan {
        let (facts, body) = (answer.facts, &answer.body);
        let wire = &answer.bytes[answer.head.clone()];
        let whole = answer.bytes.len() - answer.head.end;
        let known = match body {
            Start::Whole if facts.length != BodyLength::Nothing => Some(whole as u64),
            Start::Whole => None,
            Start::Streamed(known) => *known,
            // The kernel sends the file, or would send it.
            Start::File(..) | Start::FileUnasked => return Plan::default(),
        };
        let request = &ticket.request.head;
        let mut plan = Plan::default();
        // Without its length, and without chunks, a body that is cut off would look whole (RFC 9112 section 6.3).
        let shows_end = request.minor_version() > 0 || matches!(body, Start::Whole);
        let coding = match self.rules.judge(request, facts.status, wire, known) {
            Compression::Never => return plan,
            Compression::With(_) if !shows_end => None,
            Compression::NotForThisClient => None,
            Compression::With(coding) => Some(coding),
        };
        let mut head = Vec::with_capacity(wire.len() + 64);
        if let Some(coding) = coding {
            let has_body = facts.length != BodyLength::Nothing;
            let peer = &ticket.request.peer;
            let client = peer.client(request, believed);
            let begin = || Some((Rc::clone(self), self.begin(coding, client)?));
            plan.encoder = has_body.then(begin).flatten();
            if plan.encoder.is_some() || !has_body {
                if has_body {
                    self.tally.happened(Event::Compressed);
                }
                put_compressed(&mut head, wire, coding);
                plan.wire = Some(head);
                return plan;
            }
            self.tally.happened(Event::Uncompressed);
        }
        put_varied(&mut head, wire);
        plan.wire = Some(head);
        plan
    }

    /// Has a thread compress the next part of a connection's answer.
    pub fn compress(
        &self,
        connection: u32,
        mut encoder: BodyEncoder,
        pieces: Vec<Bytes>,
        after: After,
    ) -> Job<Compressed> {
        let work = move || {
            let bytes = encoder.encode(&pieces, after).map_err(io::Error::other)?;
            let is_over = after == After::End;
            if is_over {
                encoder.encoder = None;
            }
            let foreign = encoder.encoder.as_ref().map_or(0, Encoder::foreign_bytes);
            encoder.foreign.set(foreign);
            Ok(Compressed {
                bytes,
                encoder,
                is_over,
            })
        };
        self.threads.start(FileSystem::Own, connection, work)
    }

    /// Frees an encoder, as no client wants the rest of its body. A thread does it: it takes a while, and some encoders
    /// do their last work then.
    pub fn discard(&self, encoder: BodyEncoder) {
        self.threads.discard(FileSystem::Own, encoder);
    }
}

impl BodyEncoder {
    fn encode(
        &mut self,
        pieces: &[Bytes],
        after: After,
    ) -> Result<Vec<u8>, stanchion_compression::Failed> {
        let encoder = self
            .encoder
            .get_or_insert_with(|| Encoder::new(self.coding));
        let mut out = Vec::new();
        let (last, before) = pieces
            .split_last()
            .map_or((&[][..], pieces), |(last, before)| (last.as_ref(), before));
        for piece in before {
            encoder.encode(piece, After::More, &mut out)?;
        }
        encoder.encode(last, after, &mut out)?;
        Ok(out)
    }
}
