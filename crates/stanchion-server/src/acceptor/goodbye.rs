//! Closing a connection so that the client gets to read what it was told (RFC 9112 section 9.6).
//!
//! Closing a socket with bytes unread resets the connection (tcp(7), and unix(7) likewise), and
//! the reset can overtake the answer. So we close our direction first, and read what still comes
//! until the client has closed its own.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};

use super::connection::{Connection, Order};

/// A client that is still sending gets this long in all, may pause for this long, and may send
/// this much. nginx has 30 s, 5 s and no bound (`lingering_time`, `lingering_timeout`).
const LINGER: Duration = Duration::from_secs(10);
const LINGER_PAUSE: Duration = Duration::from_secs(2);
const LINGER_BYTES_MAX: usize = 64 << 20;
/// How much is thrown away at a time.
const WASTE_BYTES: usize = 64 << 10;
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
    S: AsyncRead + AsyncWrite + Unpin,
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

async fn drain<S: AsyncRead + Unpin>(stream: &mut S) -> io::Result<()> {
    let mut waste = vec![0; WASTE_BYTES];
    let mut read = 0;
    while read < LINGER_BYTES_MAX {
        match tokio::time::timeout(LINGER_PAUSE, stream.read(&mut waste)).await?? {
            0 => break,
            len => read += len,
        }
    }
    Ok(())
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
