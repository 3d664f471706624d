//! TLS between a socket and the code that reads and writes plaintext. Bytes that this has accepted and the kernel has no
//! room for yet wait here, within a limit, until the kernel reports room.
//!
//! These bytes count as not yet taken by the client.

use std::fs::File;
use std::io::{self, IoSlice};
use std::os::fd::BorrowedFd;

use rustix::net::{SendAncillaryBuffer, SendFlags, send, sendmsg};
use stanchion_tls::Tls;
use tracing::debug;

use super::Transport;
use crate::outcome::{Broken, Read, Written};
use crate::poller::Poller;
use stanchion_dispatch::storage::disk;
use stanchion_generation::tally::Traffic;

/// How many bytes of a socket are read at a time,
const RECEIVED_BYTES_MAX: usize = 64 << 10;
/// and how many at least, also where there is less room for the plaintext: a record holds up to 16 KiB.
const RECEIVED_BYTES_MIN: usize = 4 << 10;
/// How many bytes of a file are read and encrypted at a time.
const FILE_BYTES_MAX: usize = stanchion_tls::CIPHERTEXT_BYTES_MAX;

/// The layer between a socket and its plaintext.
#[derive(Default)]
pub(super) struct Cover {
    tls: Option<Box<Tls>>,
    /// The socket is to be ended once all is sent.
    ends: bool,
    /// Whether the writer above wants to know when there is room.
    wants_room: bool,
    /// Input is discarded without decryption.
    discards: bool,
}

/// A socket that takes ciphertext.
struct SocketWriter<'s> {
    socket: BorrowedFd<'s>,
    flags: SendFlags,
}

impl io::Write for SocketWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(send(self.socket, bytes, self.flags)?)
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        let mut nothing = SendAncillaryBuffer::default();
        Ok(sendmsg(self.socket, slices, &mut nothing, self.flags)?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Transport {
    /// Puts `tls` over the socket, from now on; plaintext may wait in it already.
    pub(crate) fn cover(&mut self, tls: Box<Tls>) {
        self.readable |= tls.unread() > 0 || tls.is_over();
        self.cover.tls = Some(tls);
    }

    /// Takes the TLS layer off, for a while.
    pub(crate) fn uncover(&mut self) -> Option<Box<Tls>> {
        self.cover.tls.take()
    }

    pub(crate) fn tls(&self) -> Option<&Tls> {
        self.cover.tls.as_deref()
    }

    /// Whether the connection is to end with the present request, because TLS has encrypted too much with its keys.
    pub(crate) fn is_worn(&self) -> bool {
        self.tls().is_some_and(Tls::is_worn)
    }

    /// Whether no TLS layer is over the socket.
    pub(crate) fn is_bare(&self) -> bool {
        self.cover.tls.is_none()
    }

    /// Whether TLS has accepted bytes that the kernel has not taken.
    pub(crate) fn has_unsent(&self) -> bool {
        self.tls().is_some_and(Tls::waits)
    }

    /// How many bytes these are.
    pub(super) fn unsent(&self) -> u64 {
        self.tls().map_or(0, |tls| tls.waiting() as u64)
    }

    /// Gives the kernel the accepted bytes, as far as it has room.
    pub(crate) fn flush(&mut self) -> Result<(), Broken> {
        self.flush_with(SendFlags::empty())
    }

    fn flush_with(&mut self, more: SendFlags) -> Result<(), Broken> {
        let (Some(socket), Some(tls)) = (self.way.socket(), &mut self.cover.tls) else {
            return Ok(());
        };
        let mut outlet = SocketWriter {
            socket,
            flags: SendFlags::DONTWAIT | SendFlags::NOSIGNAL | more,
        };
        let mut sent = 0;
        let mut error = None;
        while error.is_none() && tls.waits() {
            match tls.send(&mut outlet) {
                Ok(0) => break,
                Ok(len) => sent += len,
                Err(failure) => error = Some(failure),
            }
        }
        self.count(Traffic::Sent, sent);
        if let Some(error) = error
            && self.wrote(Err(error)) == Written::Failed
        {
            self.hung_up = true;
            return Err(Broken);
        }
        if self.cover.ends && !self.has_unsent() {
            self.cover.ends = false;
            self.shut();
        }
        Ok(())
    }

    /// Has the kernel report room, if the writer above or the bytes that wait here need it.
    pub(crate) fn watch_for_unsent(&mut self, poller: &Poller) {
        if self.cover.tls.is_some() {
            self.watch_room(self.cover.wants_room, poller);
        }
    }

    /// Whether the kernel is to report room, given what the writer above wants.
    pub(super) fn wants_room(&mut self, wanted: bool) -> bool {
        self.cover.wants_room = wanted;
        wanted || self.has_unsent()
    }

    /// Reads plaintext, as [`Transport::read`] reads bytes.
    pub(super) fn read_plaintext(&mut self, buffer: &mut Vec<u8>) -> Read {
        let before = buffer.len();
        let end = self.decrypt(buffer);
        let len = buffer.len() - before;
        match end {
            _ if len > 0 => {
                // The next read reports what came after that.
                self.readable |= end.is_some();
                Read::Bytes(len)
            }
            Some(end) => end,
            None => Read::Nothing,
        }
    }

    /// Appends plaintext to `buffer`, as far as that has room and there is any. Returns what came behind it, if that is no
    /// plaintext.
    fn decrypt(&mut self, buffer: &mut Vec<u8>) -> Option<Read> {
        let (before, mut has_received) = (buffer.len(), false);
        if self.cover.discards {
            return Some(self.discard(buffer));
        }
        loop {
            let has_had_its_turn = self.has_had_its_turn();
            let tls = self.cover.tls.as_mut()?;
            if tls.has_failed() {
                return Some(Read::Failed);
            }
            tls.read(buffer);
            let room = buffer.capacity() - buffer.len();
            if room == 0 || has_had_its_turn {
                self.readable = true;
                return None;
            }
            if tls.is_over() {
                self.ended = true;
                return Some(Read::End);
            }
            if !self.readable && (has_received || buffer.len() > before) {
                return None;
            }
            let asked = room.clamp(RECEIVED_BYTES_MIN, RECEIVED_BYTES_MAX);
            let mut bytes = Vec::with_capacity(asked);
            match self.receive(&mut bytes) {
                Read::Bytes(_) => has_received = true,
                Read::Nothing => return None,
                other => return Some(other),
            }
            if let Err(end) = self.take_in(&bytes, buffer) {
                return Some(end);
            }
        }
    }

    /// Decrypts bytes of the socket. `buffer` has room for all plaintext in them, but for one record.
    fn take_in(&mut self, bytes: &[u8], buffer: &mut Vec<u8>) -> Result<(), Read> {
        let mut rest = bytes;
        while let Some(tls) = self.cover.tls.as_mut().filter(|_| !rest.is_empty()) {
            match tls.take(rest) {
                Ok(0) => break,
                Ok(len) => rest = &rest[len..],
                Err(fault) => {
                    debug!("a connection broke off: {fault}");
                    // This sends the alert, as far as the client takes it.
                    let _ = self.flush();
                    return Err(Read::Failed);
                }
            }
            tls.read(buffer);
        }
        // The client may have asked for new keys.
        self.flush().map_err(|Broken| Read::Failed)
    }

    /// After an alert, input is read and discarded: if the socket were closed with unread bytes, the kernel would send a
    /// reset, which can overtake the alert.
    pub(crate) fn discard_input(&mut self) {
        self.cover.discards = true;
    }

    fn discard(&mut self, buffer: &mut Vec<u8>) -> Read {
        let len = buffer.len();
        let read = self.receive(buffer);
        buffer.truncate(len);
        match read {
            Read::Bytes(_) | Read::Nothing => Read::Nothing,
            end => end,
        }
    }

    /// Encrypts as much as there is room for, of all slices in turn, and sends it.
    pub(super) fn write_plaintext(&mut self, slices: &[IoSlice<'_>], more: bool) -> Written {
        if self.flush() == Err(Broken) {
            return Written::Failed;
        }
        let Some(tls) = self.cover.tls.as_mut().filter(|tls| !tls.waits()) else {
            return Written::Full;
        };
        let len = match tls.write(slices) {
            Ok(len) => len,
            Err(fault) => {
                debug!("a connection broke off: {fault}");
                return Written::Failed;
            }
        };
        let mut flags = SendFlags::empty();
        flags.set(SendFlags::MORE, more);
        match self.flush_with(flags) {
            Ok(()) => Written::of(len),
            Err(Broken) => Written::Failed,
        }
    }

    /// Encrypts and sends part of a file, as [`Transport::send_file`] sends it. If the page cache has lost the part
    /// meanwhile, this waits for the disk, as sendfile(2) does.
    pub(super) fn send_file_encrypted(
        &mut self,
        file: &File,
        offset: u64,
        len: usize,
    ) -> io::Result<Written> {
        if self.flush() == Err(Broken) {
            return Ok(Written::Failed);
        }
        if self.has_unsent() {
            return Ok(Written::Full);
        }
        let part = disk::read_some_at(file, offset, len.min(FILE_BYTES_MAX))?;
        Ok(self.write_plaintext(&[IoSlice::new(&part)], part.len() < len))
    }

    /// Ends our direction with TLS's own end, once all is sent; see [`Transport::end`].
    pub(super) fn end_cover(&mut self) {
        if let Some(tls) = &mut self.cover.tls {
            tls.close();
            self.cover.ends = true;
            // If this fails, the kernel reports it.
            let _ = self.flush();
        }
    }
}
