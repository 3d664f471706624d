//! The ways to a scribe. They are made before the generation has any process, and the master keeps both ends of each: so
//! what was sent waits for the next scribe if one dies.
//!
//! The master writes lines that no scribe has read by the end to the error log.

use std::io;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use stanchion_sys::channel::{Channel, Received};

use super::entry::{ErrorEntry, MESSAGE_BYTES_MAX, lines_of};

/// At most so many bytes are left in each channel: far more than fit one. Only a process that the app has left behind sends any more.
const LEFT_BYTES_MAX: usize = 4 << 20;

/// Three ways, so that lines of the access log do not take the room of others, and processes that run the app's code have no end by which to send
/// them.
#[derive(Debug)]
pub struct LogChannels {
    accesses: ChannelEnds,
    of_server: ChannelEnds,
    of_app: ChannelEnds,
}

/// Each process drops the ends that it is not to have.
#[derive(Debug)]
struct ChannelEnds {
    writer: Mutex<Option<Channel>>,
    reader: Mutex<Option<Channel>>,
}

/// The ends that a scribe reads.
#[derive(Debug)]
pub struct Readers {
    /// Lines of the access log.
    pub accesses: Channel,
    /// Lines of master and acceptor.
    pub of_server: Channel,
    /// Lines of template and workers.
    pub of_app: Channel,
}

impl ChannelEnds {
    fn make() -> io::Result<Self> {
        let (writer, reader) = Channel::pair_for(MESSAGE_BYTES_MAX)?;
        Ok(Self {
            writer: Mutex::new(Some(writer)),
            reader: Mutex::new(Some(reader)),
        })
    }
}

impl LogChannels {
    /// Makes the channels; an error is the kernel's.
    pub fn make() -> io::Result<Self> {
        Ok(Self {
            accesses: ChannelEnds::make()?,
            of_server: ChannelEnds::make()?,
            of_app: ChannelEnds::make()?,
        })
    }

    /// In the master and the acceptor: another descriptor of the end for their lines.
    pub fn writer(&self) -> io::Result<Channel> {
        another(&self.of_server.writer)
    }

    /// In the acceptor: another one of the end for the access log.
    pub fn writer_of_accesses(&self) -> io::Result<Channel> {
        another(&self.accesses.writer)
    }

    /// In a newborn acceptor: drops all ends that it is not to have.
    pub fn keep_writers_of_server(&self) {
        self.drop_readers();
        drop(take(&self.of_app.writer));
    }

    /// In a newborn template: the end that it and its workers write to, and no other stays.
    pub fn take_writer_of_app(&self) -> Option<Channel> {
        self.drop_readers();
        drop((take(&self.accesses.writer), take(&self.of_server.writer)));
        take(&self.of_app.writer)
    }

    /// In a newborn scribe: the ends that it reads, and no other stays.
    pub fn take_readers(&self) -> Option<Readers> {
        for way in [&self.accesses, &self.of_server, &self.of_app] {
            drop(take(&way.writer));
        }
        Some(Readers {
            accesses: take(&self.accesses.reader)?,
            of_server: take(&self.of_server.reader)?,
            of_app: take(&self.of_app.reader)?,
        })
    }

    fn drop_readers(&self) {
        for way in [&self.accesses, &self.of_server, &self.of_app] {
            drop(take(&way.reader));
        }
    }

    /// In the master, when no process of the generation is left: writes to the error log the lines that no scribe has read. Gives how many lines it did
    /// not write: lines of the access log, for which there is no other place, lines that make no sense, and lines that a slowly read log did not take
    /// `until` then.
    pub fn write_what_is_left(&self, until: Instant) -> u64 {
        let Some(Readers {
            accesses,
            of_server,
            of_app,
        }) = self.take_readers()
        else {
            return 0;
        };
        let mut lost = 0;
        for reader in [accesses, of_server, of_app] {
            let mut bytes = 0;
            while bytes < LEFT_BYTES_MAX {
                let message = match reader.receive() {
                    Ok(Received::Message(message)) => message,
                    Ok(Received::Nothing | Received::Closed) => break,
                    // The message of an app's process was too long: the number of its lines is unknown.
                    Err(_) => {
                        lost += 1;
                        bytes += MESSAGE_BYTES_MAX;
                        continue;
                    }
                };
                bytes += message.bytes.len();
                for line in lines_of(&message.bytes) {
                    match ErrorEntry::parse(line) {
                        Ok(ErrorEntry {
                            time_us,
                            level,
                            text,
                        }) if Instant::now() < until => {
                            super::write_for(message.sender, time_us, level.into(), &text);
                        }
                        _ => lost += 1,
                    }
                }
            }
        }
        lost
    }
}

fn another(end: &Mutex<Option<Channel>>) -> io::Result<Channel> {
    let end = end.lock().unwrap_or_else(PoisonError::into_inner);
    let end = end.as_ref();
    end.map_or_else(|| Err(io::ErrorKind::NotConnected.into()), Channel::another)
}

fn take(end: &Mutex<Option<Channel>>) -> Option<Channel> {
    end.lock().unwrap_or_else(PoisonError::into_inner).take()
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Duration;

    use rustix::net::SendFlags;

    use super::*;

    fn later() -> Instant {
        Instant::now() + Duration::from_secs(60)
    }

    #[test]
    fn what_is_left_behind_a_message_that_was_too_long_is_counted_too() {
        let channels = LogChannels::make().expect("made");
        let writer = channels.writer_of_accesses().expect("a writer");
        let too_long = vec![b'a'; MESSAGE_BYTES_MAX + 1];
        rustix::net::send(writer.as_fd(), &too_long, SendFlags::empty()).expect("sent");
        writer
            .send(b"{\"access\":{}}\n{\"access\":{}}\n", None)
            .expect("sent");
        assert_eq!(channels.write_what_is_left(later()), 3);
    }

    #[test]
    fn what_cannot_be_written_in_time_is_counted() {
        let channels = LogChannels::make().expect("made");
        let writer = channels.writer().expect("a writer");
        let entry = ErrorEntry {
            time_us: 1,
            level: 40,
            text: "a".to_owned(),
        };
        writer
            .send(&entry.into_line().repeat(2), None)
            .expect("sent");
        assert_eq!(channels.write_what_is_left(Instant::now()), 2);
    }

    #[test]
    fn the_scribe_leaves_a_process_that_goes_on_sending() {
        const LINE_BYTES: usize = 128;
        let channels = LogChannels::make().expect("made");
        let writer = channels.writer().expect("a writer");
        let is_over = AtomicBool::new(false);
        let line = format!("{}\n", "?".repeat(LINE_BYTES - 1));
        let message = line.repeat(MESSAGE_BYTES_MAX / LINE_BYTES).into_bytes();
        let lost = std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    // A full channel or a closed one is as good as another turn.
                    let _ = writer.send(&message, None);
                }
            });
            let lost = channels.write_what_is_left(later());
            is_over.store(true, Ordering::Relaxed);
            lost
        });
        let lost_bytes = usize::try_from(lost).expect("few") * LINE_BYTES;
        assert!(lost_bytes <= LEFT_BYTES_MAX + MESSAGE_BYTES_MAX);
    }
}
