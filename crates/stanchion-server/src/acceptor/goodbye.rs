//! Closing a connection so that the client gets to read what it was told (RFC 9112 section 9.6).
//!
//! Closing a socket with bytes unread resets the connection (tcp(7), and unix(7) likewise), and
//! the reset can overtake the answer. So we close our direction first, and read what still comes
//! until the client has closed its own.

use std::future::poll_fn;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use stanchion_sys::incoming::wake_at;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};

use super::connection::{Connection, Order};

/// A client that is still sending gets this long in all, must send something in each such while, and
/// may send this much. nginx has 30 s, 5 s and no bound (`lingering_time`, `lingering_timeout`).
const LINGER: Duration = Duration::from_secs(10);
const LINGER_PAUSE: Duration = Duration::from_secs(2);
const LINGER_BYTES_MAX: usize = 64 << 20;
/// How much is thrown away at a time. Less than this wakes nobody: one that drips would be as much
/// work as one that asks.
const WASTE_BYTES: u16 = 16 << 10;
/// How long writing a last word may take.
const LAST_WORD: Duration = Duration::from_secs(1);

/// Sends a last word, then reads what the client still sends; ends early if somebody else needs
/// the place.
pub(super) async fn say_goodbye<S>(
    stream: &mut S,
    connection: &Connection,
    last_word: &[u8],
) -> io::Result<()>
where
    S: AsyncRead + AsyncWrite + AsFd + Unpin,
{
    let saying = async {
        stream.write_all(last_word).await?;
        stream.shutdown().await
    };
    tokio::time::timeout(LAST_WORD, saying).await??;
    let mut draining = std::pin::pin!(tokio::time::timeout(LINGER, drain(stream)));
    poll_fn(|context| {
        if connection.listen(context) == Some(Order::Drop) {
            return Poll::Ready(Ok(()));
        }
        draining.as_mut().poll(context).map(|drained| drained?)
    })
    .await
}

async fn drain<S: AsyncRead + AsFd + Unpin>(stream: &mut S) -> io::Result<()> {
    wake_at(stream.as_fd(), WASTE_BYTES)?;
    let mut read = 0;
    while read < LINGER_BYTES_MAX {
        let waste = poll_fn(|context| poll_waste(stream, context));
        let wasted = match tokio::time::timeout(LINGER_PAUSE, waste).await {
            Ok(wasted) => wasted?,
            Err(_) => waste_now(stream)?,
        };
        match wasted {
            0 => break,
            len => read += len,
        }
    }
    Ok(())
}

/// Throws away what is there, once it is worth it. Its memory is on the stack: that of all who are seen
/// out at a time would be much.
fn poll_waste<S: AsyncRead + Unpin>(
    stream: &mut S,
    context: &mut Context<'_>,
) -> Poll<io::Result<usize>> {
    let mut waste = [const { MaybeUninit::uninit() }; WASTE_BYTES as usize];
    let mut waste = ReadBuf::uninit(&mut waste);
    let read = Pin::new(stream).poll_read(context, &mut waste);
    read.map_ok(|()| waste.filled().len())
}

/// Throws away what is there, also a little.
fn waste_now(stream: &impl AsFd) -> io::Result<usize> {
    let mut waste = [const { MaybeUninit::<u8>::uninit() }; WASTE_BYTES as usize];
    match recv(stream, &mut waste, RecvFlags::DONTWAIT) {
        Ok((_, len)) => Ok(len),
        Err(Errno::AGAIN) => Ok(0),
        Err(error) => Err(error.into()),
    }
}

/// Whether there is something to read; the first byte of it is lost.
pub(super) async fn has_more<S: AsyncRead + Unpin>(stream: &mut S) -> bool {
    let mut byte = [0];
    poll_fn(|context| {
        let mut buffer = ReadBuf::new(&mut byte);
        let read = Pin::new(&mut *stream).poll_read(context, &mut buffer);
        Poll::Ready(matches!(read, Poll::Ready(Ok(()))) && !buffer.filled().is_empty())
    })
    .await
}
