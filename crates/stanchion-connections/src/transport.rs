//! Bytes from a client, and bytes to it, whatever carries them. TLS may stand between the two, so no code above this looks
//! at the socket's own bytes.
//!
//! Sockets are watched edge-triggered: the kernel reports each event once, so a transport remembers the events that
//! were reported. With TLS the ways around plaintext are closed: the server does not send an answer from the worker's
//! memory or by sendfile(2), but reads and encrypts it.

mod tls;

use std::fs::File;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::buffer::spare_capacity;
use rustix::io::Errno;
use rustix::net::sockopt::set_socket_linger;
use rustix::net::{
    RecvFlags, SendAncillaryBuffer, SendFlags, Shutdown, recv, send, sendmsg, shutdown,
};
use stanchion_sys::clock::monotonic_us;
use stanchion_sys::incoming::wake_at;
use stanchion_sys::outgoing::untaken;
use tracing::debug;

use super::outcome::{Read, Written};
use super::stream::Http2Stream;
use crate::poller::{Poller, Ready, Token};
use stanchion_dispatch::storage::disk;
use stanchion_generation::tally::{Tally, Traffic};
use tls::Cover;

/// How many bytes of a head that drips wake its connection at once.
pub(super) const DRIPPED_BYTES: u16 = 1024;

/// How many bytes a connection may read and write in one go, before others have their turn.
const TURN_BYTES_MAX: usize = 256 << 10;

/// Some bytes take more time than usual: frames that are all heads, or compressed fields. So a turn is also over this long
/// after the first look at the clock. The connection first looks when it has had [`TIMED_BYTES`].
const TURN_US_MAX: u64 = 100;
pub(super) const TIMED_BYTES: usize = 4 << 10;

/// How many bytes of a file the acceptor reads at a time, where the kernel does not send the file itself.
const COPIED_BYTES_MAX: usize = 64 << 10;

/// The way for bytes between a client and the acceptor.
#[allow(
    clippy::struct_excessive_bools,
    reason = "each is a thing of its own that the kernel reports, or that it is asked for"
)]
pub(crate) struct Transport {
    way: RawTransport,
    source: Token,
    /// The counters for these bytes, if they are counted.
    tally: Option<&'static Tally>,
    /// There may be something to read, as far as the kernel has reported.
    readable: bool,
    /// The client sends no more, once all is read.
    ended: bool,
    hung_up: bool,
    /// The kernel reports when there is room to write.
    watches_room: bool,
    /// How many bytes make it readable.
    wakes_at: u16,
    /// How many bytes of the socket, so of ciphertext where there is TLS, were read and written since the turn began.
    turn_bytes: usize,
    /// When the turn had enough bytes that its time counts.
    timed_since_us: Option<u64>,
    /// The TLS layer between the socket and the plaintext, if there is one.
    cover: Cover,
}

/// The carrier of the bytes.
enum RawTransport {
    Socket(OwnedFd),
    Stream(Box<Http2Stream>),
}

impl RawTransport {
    fn socket(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Self::Socket(socket) => Some(socket.as_fd()),
            Self::Stream(_) => None,
        }
    }
}

impl Transport {
    pub(crate) fn new(
        socket: OwnedFd,
        source: Token,
        tally: Option<&'static Tally>,
        poller: &Poller,
    ) -> io::Result<Self> {
        poller.watch(source, &socket)?;
        Ok(Self::over(RawTransport::Socket(socket), source, tally))
    }

    /// A stream of HTTP/2. The socket of its connection counts the bytes.
    pub(super) fn of_stream(stream: Http2Stream, source: Token) -> Self {
        Self::over(RawTransport::Stream(Box::new(stream)), source, None)
    }

    fn over(way: RawTransport, source: Token, tally: Option<&'static Tally>) -> Self {
        Self {
            // Nothing reports that a stream has something to read.
            readable: matches!(way, RawTransport::Stream(_)),
            way,
            source,
            tally,
            ended: false,
            hung_up: false,
            watches_room: false,
            wakes_at: 1,
            turn_bytes: 0,
            timed_since_us: None,
            cover: Cover::default(),
        }
    }

    pub(super) fn is_stream(&self) -> bool {
        matches!(self.way, RawTransport::Stream(_))
    }

    /// The socket, where bytes go out as they are written: then workers' answers may go to it directly.
    pub(super) fn socket(&self) -> Option<BorrowedFd<'_>> {
        self.way.socket().filter(|_| self.is_bare())
    }

    /// Asks a stream for news. The kernel reports those of a socket.
    pub(super) fn poll_stream(&mut self) {
        if let RawTransport::Stream(stream) = &mut self.way {
            stream.collect();
            self.readable = true;
            self.hung_up |= stream.is_reset();
        }
    }

    pub(super) fn begin_turn(&mut self) {
        self.turn_bytes = 0;
        self.timed_since_us = None;
    }

    /// How many bytes were read and written since the turn began.
    pub(super) fn turn_bytes(&self) -> usize {
        self.turn_bytes
    }

    /// Counts these bytes for the turn, too.
    pub(super) fn add_to_turn(&mut self, bytes: usize) {
        self.turn_bytes += bytes;
    }

    /// Whether others are to have their turn.
    pub(super) fn has_had_its_turn(&mut self) -> bool {
        self.turn_bytes >= TURN_BYTES_MAX
            || self.turn_bytes >= TIMED_BYTES && self.has_lasted_long()
    }

    fn has_lasted_long(&mut self) -> bool {
        let now_us = monotonic_us();
        let since_us = *self.timed_since_us.get_or_insert(now_us);
        now_us.saturating_sub(since_us) >= TURN_US_MAX
    }

    /// Notes what the kernel has reported.
    pub(super) fn note_ready(&mut self, ready: Ready) {
        self.readable |= ready.readable;
        self.ended |= ready.ended;
        self.hung_up |= ready.hung_up;
    }

    pub(super) fn is_readable(&self) -> bool {
        self.readable
    }

    /// Whether the client has closed its direction, or all of it; there may be unread bytes before that.
    pub(super) fn has_ended(&self) -> bool {
        self.ended
    }

    /// Whether both directions are closed, or the connection is reset.
    pub(super) fn is_hung_up(&self) -> bool {
        self.hung_up
    }

    /// Appends the bytes that there are to `buffer`, as far as it has room without growing.
    pub(super) fn read(&mut self, buffer: &mut Vec<u8>) -> Read {
        if !self.is_bare() {
            return self.read_plaintext(buffer);
        }
        match &mut self.way {
            RawTransport::Socket(_) => self.receive(buffer),
            RawTransport::Stream(stream) => {
                let read = stream.read(buffer);
                self.readable = false;
                if let Read::Bytes(len) = read {
                    self.readable = true;
                    self.turn_bytes += len;
                }
                self.hung_up |= read == Read::Failed;
                read
            }
        }
    }

    /// The same with the socket's own bytes.
    pub(super) fn receive(&mut self, buffer: &mut Vec<u8>) -> Read {
        let Some(socket) = self.way.socket() else {
            return Read::Failed;
        };
        let room = buffer.capacity() - buffer.len();
        let read = recv(socket, spare_capacity(buffer), RecvFlags::DONTWAIT);
        match read.map(|(len, _)| len) {
            Ok(0) if room > 0 => {
                self.ended = true;
                Read::End
            }
            Ok(len) => {
                // If it gave fewer bytes than there was room for, the socket is empty, and the kernel reports what comes
                // (epoll(7)). But the end may have come with the bytes, and the kernel has reported that already.
                self.readable = len == room || self.ended;
                self.count(Traffic::Received, len);
                Read::Bytes(len)
            }
            Err(error) => self.not_received(error),
        }
    }

    /// The kernel has given no bytes: there are none yet, or the connection is broken.
    fn not_received(&mut self, error: Errno) -> Read {
        if matches!(error, Errno::AGAIN | Errno::INTR) {
            self.readable = false;
            return Read::Nothing;
        }
        debug!("a connection broke off: {error}");
        self.hung_up = true;
        Read::Failed
    }

    /// Copies the bytes that there are, as far as they fit, and leaves them there. Only for a socket.
    pub(super) fn peek(&mut self, buffer: &mut [u8]) -> Read {
        let Some(socket) = self.way.socket() else {
            return Read::Failed;
        };
        match recv(socket, buffer, RecvFlags::DONTWAIT | RecvFlags::PEEK) {
            Ok((0, _)) => Read::End,
            Ok((len, _)) => Read::Bytes(len),
            Err(error) => self.not_received(error),
        }
    }

    /// The bytes in the socket are not enough yet: the kernel reports what comes (epoll(7)).
    pub(super) fn wait_for_more(&mut self) {
        self.readable = false;
    }

    /// Reads so many bytes, which [`Self::peek`] has found.
    ///
    /// # Errors
    /// They are not there any more, which no kernel does.
    pub(super) fn read_exact(&mut self, buffer: &mut [u8]) -> io::Result<()> {
        let wanted = buffer.len();
        let socket = self.way.socket().ok_or(io::ErrorKind::Unsupported)?;
        let (len, _) = recv(socket, buffer, RecvFlags::DONTWAIT)?;
        self.count(Traffic::Received, len);
        if len < wanted {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(())
    }

    /// Writes as many bytes as there is room for.
    pub(super) fn write(&mut self, bytes: &[u8]) -> Written {
        self.send(bytes, false)
    }

    fn send(&mut self, bytes: &[u8], is_last: bool) -> Written {
        if !self.is_bare() {
            return self.write_plaintext(&[IoSlice::new(bytes)], is_last);
        }
        let socket = match &mut self.way {
            RawTransport::Socket(socket) => OwnedFd::as_fd(socket),
            RawTransport::Stream(stream) => {
                let written = stream.write(bytes, is_last);
                return self.moved(written);
            }
        };
        let mut flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        flags.set(SendFlags::MORE, is_last);
        let sent = send(socket, bytes, flags);
        self.gave(sent)
    }

    /// Writes as [`Self::write`] does; the caller calls [`Self::end`] next. TCP keeps the bytes until then (`MSG_MORE` in
    /// send(2)), and sends them in one segment with the FIN. Two segments cost a tenth more for a small answer, and wake the
    /// client twice. A stream ends with the frame that holds the bytes.
    pub(super) fn write_last(&mut self, bytes: &[u8]) -> Written {
        self.send(bytes, true)
    }

    /// Writes as many bytes as there is room for, of all slices in turn. If `more` follows at once, TCP puts it into the
    /// same segments (`MSG_MORE` in send(2)).
    pub(super) fn write_all_of(&mut self, slices: &[IoSlice<'_>], more: bool) -> Written {
        if !self.is_bare() {
            return self.write_plaintext(slices, more);
        }
        let socket = match &mut self.way {
            RawTransport::Socket(socket) => OwnedFd::as_fd(socket),
            RawTransport::Stream(stream) => {
                let written = stream.write_all_of(slices);
                return self.moved(written);
            }
        };
        let mut flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        flags.set(SendFlags::MORE, more);
        let mut nothing = SendAncillaryBuffer::default();
        let sent = sendmsg(socket, slices, &mut nothing, flags);
        self.gave(sent)
    }

    /// Notes the outcome of a write that other code has made to the socket.
    pub(super) fn wrote(&mut self, sent: io::Result<usize>) -> Written {
        self.gave(sent.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO)))
    }

    /// Sends part of a file (sendfile(2)).
    ///
    /// # Errors
    /// The file cannot be read, or has nothing there any more.
    pub(super) fn send_file(
        &mut self,
        file: &File,
        offset: u64,
        len: usize,
    ) -> io::Result<Written> {
        if !self.is_bare() {
            return self.send_file_encrypted(file, offset, len);
        }
        let socket = match &mut self.way {
            RawTransport::Socket(socket) => OwnedFd::as_fd(socket),
            RawTransport::Stream(stream) => {
                let room = stream.room(len.min(COPIED_BYTES_MAX));
                // The part with room is written as a whole. Without room only one byte is read, so that a file that cannot
                // be read shows.
                let bytes = disk::read_some_at(file, offset, room.max(1))?;
                let written = stream.write(&bytes, false);
                return Ok(self.moved(written));
            }
        };
        let mut offset = offset;
        match rustix::fs::sendfile(socket, file, Some(&mut offset), len) {
            Ok(0) => Err(disk::became_shorter()),
            Err(error) if !is_of_socket(error) => Err(error.into()),
            sent => Ok(self.gave(sent)),
        }
    }

    fn count(&mut self, traffic: Traffic, len: usize) {
        self.turn_bytes += len;
        if let Some(tally) = self.tally {
            tally.moved(traffic, len);
        }
    }

    /// Counts bytes that a stream has taken.
    fn moved(&mut self, written: Written) -> Written {
        if let Written::Bytes(len) = written {
            self.turn_bytes += len.get();
        }
        written
    }

    fn gave(&mut self, written: Result<usize, Errno>) -> Written {
        match written {
            Ok(len) => {
                self.count(Traffic::Sent, len);
                Written::of(len)
            }
            Err(Errno::AGAIN | Errno::INTR) => Written::Full,
            Err(error) => {
                debug!("a connection broke off: {error}");
                Written::Failed
            }
        }
    }

    /// How many of the written bytes the client has not taken. Where the kernel cannot tell, bytes that it has count as
    /// sent.
    pub(super) fn untaken(&self) -> u64 {
        let socket = self.way.socket();
        let kept = socket.and_then(|socket| untaken(socket).ok()).unwrap_or(0);
        kept + self.unsent()
    }

    /// Sets whether the kernel reports when there is room to write.
    pub(super) fn watch_room(&mut self, wanted: bool, poller: &Poller) {
        let wanted = self.wants_room(wanted);
        if self.watches_room == wanted {
            return;
        }
        let Some(socket) = self.way.socket() else {
            return;
        };
        match poller.watch_room(self.source, socket, wanted) {
            Ok(()) => self.watches_room = wanted,
            Err(error) => debug!("a connection cannot be watched: {error}"),
        }
    }

    /// Sets how many bytes make the socket readable (`SO_RCVLOWAT`). Its end always does.
    pub(super) fn wake_at(&mut self, bytes: u16) {
        if self.wakes_at == bytes {
            return;
        }
        let Some(socket) = self.way.socket() else {
            return;
        };
        match wake_at(socket, bytes) {
            Ok(()) => self.wakes_at = bytes,
            Err(error) => debug!("a connection is woken for each byte: {error}"),
        }
    }

    /// Has the next step look into the socket, however little may be there.
    pub(super) fn assume_readable(&mut self) {
        self.readable = true;
    }

    /// Ends our direction, once all accepted bytes are sent.
    pub(super) fn end(&mut self) {
        if self.is_bare() {
            self.shut();
        } else {
            self.end_cover();
        }
    }

    /// Takes fields that follow all that was written, with the end of it. A socket ignores them.
    pub(super) fn put_trailers(&mut self, wire: &[u8]) {
        if let RawTransport::Stream(stream) = &mut self.way {
            stream.put_trailers(wire);
        }
    }

    /// Closes our direction (shutdown(2)).
    fn shut(&mut self) {
        match &mut self.way {
            RawTransport::Socket(socket) => {
                // If this fails, the connection is broken already.
                let _ = shutdown(socket, Shutdown::Write);
            }
            RawTransport::Stream(stream) => stream.end(),
        }
    }

    /// Has close(2) reset the connection instead of ending it (tcp(7), `SO_LINGER` of zero in socket(7)).
    pub(crate) fn reset(&mut self) {
        match &mut self.way {
            RawTransport::Socket(socket) => {
                if let Err(error) = set_socket_linger(socket, Some(Duration::ZERO)) {
                    debug!("the kernel keeps what the client did not take: {error}");
                }
            }
            RawTransport::Stream(stream) => stream.give_up(),
        }
    }
}

/// Whether a call that reads a file and writes to a socket failed because of the socket.
fn is_of_socket(error: Errno) -> bool {
    matches!(
        error,
        Errno::AGAIN
            | Errno::INTR
            | Errno::PIPE
            | Errno::CONNRESET
            | Errno::CONNABORTED
            | Errno::TIMEDOUT
            | Errno::NOTCONN
            | Errno::HOSTUNREACH
            | Errno::NETUNREACH
            | Errno::NETDOWN
            | Errno::NOBUFS
    )
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::{Read as _, Write as _};
    use std::net::{TcpListener, TcpStream};
    use std::os::unix::net::UnixStream;

    use super::*;

    fn transport(socket: impl Into<OwnedFd>, poller: &Poller) -> Transport {
        Transport::new(socket.into(), Token::Client(0), None, poller).unwrap()
    }

    fn pair(poller: &Poller) -> (Transport, UnixStream) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        theirs.set_nonblocking(true).unwrap();
        (transport(ours, poller), theirs)
    }

    /// Passes the kernel's news to the transport.
    fn hear(poller: &mut Poller, transport: &mut Transport) -> usize {
        poller.wait(Duration::ZERO).unwrap();
        for index in 0..poller.news() {
            transport.note_ready(poller.get(index).1);
        }
        poller.news()
    }

    #[test]
    fn who_reads_less_than_there_was_room_for_has_read_all() {
        let mut poller = Poller::new().unwrap();
        let (mut ours, mut theirs) = pair(&poller);
        assert!(!ours.is_readable());
        let mut buffer = Vec::with_capacity(4);
        assert_eq!(ours.read(&mut buffer), Read::Nothing);
        theirs.write_all(b"123456").unwrap();
        hear(&mut poller, &mut ours);
        assert_eq!(ours.read(&mut buffer), Read::Bytes(4));
        assert!(ours.is_readable() && buffer == b"1234");
        let mut buffer = Vec::with_capacity(8);
        buffer.push(b'>');
        assert_eq!(ours.read(&mut buffer), Read::Bytes(2));
        assert!(!ours.is_readable() && buffer == b">56");
    }

    #[test]
    fn the_end_is_read_though_it_came_with_the_last_bytes() {
        let mut poller = Poller::new().unwrap();
        let (mut ours, mut theirs) = pair(&poller);
        theirs.write_all(b"123").unwrap();
        theirs.shutdown(std::net::Shutdown::Write).unwrap();
        assert_eq!(hear(&mut poller, &mut ours), 1);
        assert!(ours.has_ended() && !ours.is_hung_up());
        let mut buffer = Vec::with_capacity(8);
        assert_eq!(ours.read(&mut buffer), Read::Bytes(3));
        // The kernel reports the end only once.
        assert_eq!(hear(&mut poller, &mut ours), 0);
        assert!(ours.is_readable());
        assert_eq!(ours.read(&mut buffer), Read::End);
        // The server can still answer.
        assert_eq!(ours.write(b"ok"), Written::of(2));
        drop(theirs);
        hear(&mut poller, &mut ours);
        assert!(ours.is_hung_up());
        assert_eq!(ours.write(b"ok"), Written::Failed);
    }

    #[test]
    fn a_full_socket_is_told_of_once_it_has_room() {
        let mut poller = Poller::new().unwrap();
        let (mut ours, mut theirs) = pair(&poller);
        let block = [b'x'; 1 << 14];
        let mut written = 0;
        loop {
            match ours.write_all_of(&[IoSlice::new(&block), IoSlice::new(&block)], false) {
                Written::Bytes(len) => written += len.get(),
                Written::Full => break,
                Written::Failed => panic!("it is connected"),
            }
        }
        ours.watch_room(true, &poller);
        assert_eq!(hear(&mut poller, &mut ours), 0);
        let mut taken = 0;
        while let Ok(len) = theirs.read(&mut [0; 1 << 14]) {
            taken += len;
        }
        assert_eq!(taken, written);
        assert_eq!(hear(&mut poller, &mut ours), 1);
    }

    #[test]
    fn a_part_of_a_file_is_sent() {
        let poller = Poller::new().unwrap();
        let (mut ours, mut theirs) = pair(&poller);
        let path = std::env::temp_dir().join(format!("stanchion-sent-{}", std::process::id()));
        std::fs::write(&path, "0123456789").unwrap();
        let file = File::open(&path).unwrap();
        std::fs::remove_file(path).unwrap();
        assert_eq!(ours.send_file(&file, 3, 4).unwrap(), Written::of(4));
        assert_eq!(ours.send_file(&file, 8, 4).unwrap(), Written::of(2));
        let error = ours.send_file(&file, 10, 4).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
        let mut got = [0; 16];
        assert_eq!(theirs.read(&mut got).unwrap(), 6);
        assert_eq!(&got[..6], b"345689");
    }

    fn tcp_pair(poller: &Poller) -> (Transport, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let theirs = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (ours, _) = listener.accept().unwrap();
        (transport(ours, poller), theirs)
    }

    #[test]
    fn the_last_that_is_written_arrives_with_the_end() {
        let mut poller = Poller::new().unwrap();
        let (mut ours, theirs) = tcp_pair(&poller);
        // The test watches the client's side as the server's.
        let mut theirs = transport(theirs, &poller);
        assert_eq!(ours.write_last(b"last"), Written::of(4));
        assert_eq!(hear(&mut poller, &mut theirs), 0);
        ours.end();
        assert_eq!(hear(&mut poller, &mut theirs), 1);
        assert!(theirs.is_readable() && theirs.has_ended() && !theirs.is_hung_up());
        let mut buffer = Vec::with_capacity(8);
        assert_eq!(theirs.read(&mut buffer), Read::Bytes(4));
        assert_eq!(theirs.read(&mut buffer), Read::End);
        // The client can still send.
        assert_eq!(theirs.write(b"more"), Written::of(4));
        assert_eq!(ours.read(&mut buffer), Read::Bytes(4));
        assert_eq!(buffer, b"lastmore");
    }

    #[test]
    fn who_is_reset_reads_no_end() {
        let poller = Poller::new().unwrap();
        let (mut ours, mut theirs) = tcp_pair(&poller);
        assert_eq!(ours.write(b"half"), Written::of(4));
        ours.reset();
        drop(ours);
        let mut got = Vec::new();
        let error = theirs.read_to_end(&mut got).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
    }
}
