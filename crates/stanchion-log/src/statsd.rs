//! Metrics in statsd's text protocol, as gunicorn writes them: `PREFIXNAME:VALUE|TYPE|#TAGS`.

use std::fmt::{Display, Write as _};
use std::io;

use crate::datagrams::Datagrams;
use stanchion_settings::{DatagramAddress, Settings};

/// The longest datagram in bytes, unless one metric alone is longer. Over UDP what fits an Ethernet frame, so
/// that no part of it can get lost alone; over a unix socket what the dogstatsd agent reads at once.
const UDP_BYTES_MAX: usize = 1_432;
const UNIX_BYTES_MAX: usize = 8 << 10;

/// gunicorn sends the sampling rate also where it is 1.
const COUNTER: &str = "c|@1.0";

/// A way to a statsd server, and how metrics are written for it.
#[derive(Debug)]
pub struct StatsdClient {
    socket: Datagrams,
    bytes_max: usize,
    /// The prefix with its dot.
    prefix: String,
    /// The tags with the characters before them.
    tags: String,
}

impl StatsdClient {
    /// Opens what the settings ask for, if anything. A server that is not there yet is no error.
    pub fn open(settings: &Settings) -> io::Result<Option<Self>> {
        let Some(address) = &settings.monitoring.statsd_host else {
            return Ok(None);
        };
        let socket = Datagrams::open(&address.0).map_err(|error| {
            let what = format!("statsd_host {}: {error}", address.0);
            io::Error::new(error.kind(), what)
        })?;
        Ok(Some(Self {
            socket,
            bytes_max: match address.0 {
                DatagramAddress::Udp { .. } => UDP_BYTES_MAX,
                DatagramAddress::Unix(_) => UNIX_BYTES_MAX,
            },
            prefix: prefix(&settings.monitoring.statsd_prefix),
            tags: match &*settings.monitoring.dogstatsd_tags {
                "" => String::new(),
                tags => format!("|#{tags}"),
            },
        }))
    }

    /// Sends at once that something has happened; fails if the socket has no room.
    pub fn happened(&self, name: &str) -> io::Result<()> {
        let mut line = String::new();
        self.write(&mut line, name, 1, COUNTER);
        self.socket.send(line.as_bytes())
    }

    fn write(&self, out: &mut String, name: impl Display, value: impl Display, kind: &str) {
        let Self { prefix, tags, .. } = self;
        // Writing to a String cannot fail.
        let _ = write!(out, "{prefix}{name}:{value}|{kind}{tags}");
    }
}

/// Metrics on their way: never more than a datagram of them waits.
#[derive(Debug)]
pub struct Batch {
    statsd: StatsdClient,
    /// Each with a line feed.
    lines: String,
    dropped: Option<Dropped>,
}

/// Metrics that the server did not take.
#[derive(Debug)]
pub struct Dropped {
    /// Their number.
    pub metrics: u64,
    /// Why the last of them were not.
    pub why: io::Error,
}

impl Batch {
    /// An empty batch for this server.
    pub fn new(statsd: StatsdClient) -> Self {
        Self {
            statsd,
            lines: String::new(),
            dropped: None,
        }
    }

    /// Something has happened so often since the last call; 0 is not sent.
    pub fn count(&mut self, name: impl Display, times: u64) {
        if times > 0 {
            self.add(name, times, COUNTER);
        }
    }

    /// Something is at this now.
    pub fn gauge(&mut self, name: &str, value: impl Display) {
        self.add(name, value, "g");
    }

    /// Something has taken so long once.
    pub fn timer(&mut self, name: &str, us: u64) {
        // As Python writes a float: 12.0, 0.043.
        self.add(name, format_args!("{:?}", us as f64 / 1e3), "ms");
    }

    /// Something was at this once.
    pub fn histogram(&mut self, name: &str, value: u64) {
        self.add(name, value, "h");
    }

    fn add(&mut self, name: impl Display, value: impl Display, kind: &str) {
        let before = self.lines.len();
        self.statsd.write(&mut self.lines, name, value, kind);
        let is_full = self.lines.len() > self.statsd.bytes_max;
        self.lines.push('\n');
        if is_full {
            self.send(before);
        }
    }

    /// Sends what there is.
    pub fn flush(&mut self) {
        self.send(self.lines.len());
    }

    fn send(&mut self, end: usize) {
        let Some(datagram) = self.lines[..end].strip_suffix('\n') else {
            return;
        };
        if let Err(why) = self.statsd.socket.send(datagram.as_bytes()) {
            let before = self.dropped.as_ref().map_or(0, |dropped| dropped.metrics);
            let metrics = before + datagram.split('\n').count() as u64;
            self.dropped = Some(Dropped { metrics, why });
        }
        self.lines.drain(..end);
    }

    /// The metrics that were dropped since the last call.
    pub fn take_dropped(&mut self) -> Option<Dropped> {
        self.dropped.take()
    }
}

/// One dot comes between a prefix and a name.
fn prefix(text: &str) -> String {
    match text.trim_end_matches('.') {
        "" => String::new(),
        text => format!("{text}."),
    }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::os::unix::net::UnixDatagram;

    use super::*;

    fn batch(address: &str, prefix: &str, tags: &str) -> Batch {
        let values = serde_json::json!({
            "statsd_host": address, "statsd_prefix": prefix, "dogstatsd_tags": tags
        });
        let settings = Settings::from_json(&values.to_string()).expect("settings");
        let statsd = StatsdClient::open(&settings).expect("it need not be there");
        Batch::new(statsd.expect("asked for"))
    }

    fn udp() -> (UdpSocket, String) {
        let server = UdpSocket::bind("127.0.0.1:0").expect("bound");
        server.set_nonblocking(true).expect("set");
        let address = server.local_addr().expect("bound").to_string();
        (server, address)
    }

    /// All that has come; over the loopback that is all that was sent.
    fn datagrams(server: &UdpSocket) -> Vec<String> {
        let mut bytes = vec![0; 2 * UDP_BYTES_MAX];
        std::iter::from_fn(|| {
            server
                .recv(&mut bytes)
                .ok()
                .map(|len| bytes[..len].to_vec())
        })
        .map(|datagram| String::from_utf8(datagram).expect("text"))
        .collect()
    }

    #[test]
    fn metrics_are_written_as_gunicorn_writes_them() {
        let (server, address) = udp();
        let mut batch = batch(&address, "", "");
        batch.count("gunicorn.requests", 17);
        batch.count("gunicorn.log.error", 0);
        batch.gauge("gunicorn.workers", 2);
        batch.timer("gunicorn.request.duration", 43);
        batch.timer("gunicorn.request.duration", 12_000);
        batch.timer("gunicorn.request.duration", 98_765_432);
        batch.histogram("gunicorn.backlog", 0);
        batch.flush();
        let expected = "gunicorn.requests:17|c|@1.0\ngunicorn.workers:2|g\n\
             gunicorn.request.duration:0.043|ms\ngunicorn.request.duration:12.0|ms\n\
             gunicorn.request.duration:98765.432|ms\ngunicorn.backlog:0|h";
        assert_eq!(datagrams(&server), [expected]);
        batch.flush();
        assert!(datagrams(&server).is_empty());
        batch.statsd.happened("gunicorn.log.error").expect("sent");
        assert_eq!(datagrams(&server), ["gunicorn.log.error:1|c|@1.0"]);
    }

    #[test]
    fn prefix_and_tags() {
        for (prefix, tags, expected) in [
            ("", "", "workers:1|g"),
            ("shop", "", "shop.workers:1|g"),
            ("shop.", "", "shop.workers:1|g"),
            ("shop...", "", "shop.workers:1|g"),
            ("eu.shop", "", "eu.shop.workers:1|g"),
            // gunicorn writes "sworkers", though it says that a dot is added.
            ("s", "", "s.workers:1|g"),
            ("..", "", "workers:1|g"),
            ("", "env:prod,a:b", "workers:1|g|#env:prod,a:b"),
            ("shop", "canary", "shop.workers:1|g|#canary"),
        ] {
            let (server, address) = udp();
            let mut batch = batch(&address, prefix, tags);
            batch.gauge("workers", 1);
            batch.flush();
            assert_eq!(datagrams(&server), [expected], "{prefix:?} {tags:?}");
        }
    }

    #[test]
    fn a_datagram_is_never_too_long_and_no_metric_is_cut() {
        let (server, address) = udp();
        let mut batch = batch(&address, "", "");
        for number in 0..1_000 {
            batch.timer("some.thing", number);
        }
        batch.flush();
        let datagrams = datagrams(&server);
        assert!(datagrams.iter().all(|one| one.len() <= UDP_BYTES_MAX));
        let least = 1_000 * "some.thing:0.000|ms".len() / UDP_BYTES_MAX;
        assert!(
            datagrams.len() <= least + 2,
            "{} datagrams",
            datagrams.len()
        );
        let lines = datagrams.iter().flat_map(|one| one.split('\n'));
        let expected = (0..1_000).map(|us| format!("some.thing:{:?}|ms", f64::from(us) / 1e3));
        assert!(lines.eq(expected));
    }

    #[test]
    fn what_a_server_does_not_take_is_dropped_and_counted_and_the_next_one_gets_the_rest() {
        let name = format!("stanchion-statsd-{}", stanchion_sys::process::pid());
        let path = std::env::temp_dir().join(name);
        let mut batch = batch(&format!("unix://{}", path.display()), "", "");
        batch.gauge("one", 1);
        batch.gauge("two", 2);
        batch.flush();
        let dropped = batch.take_dropped().expect("nobody is there");
        assert_eq!(dropped.metrics, 2);
        assert_eq!(dropped.why.kind(), io::ErrorKind::NotFound);
        let server = UnixDatagram::bind(&path).expect("bound");
        // No process reads, so its queue fills up (unix(7), max_dgram_qlen).
        let dropped = loop {
            batch.gauge("three", 3);
            batch.flush();
            if let Some(dropped) = batch.take_dropped() {
                break dropped;
            }
        };
        assert_eq!(dropped.metrics, 1);
        assert_eq!(dropped.why.kind(), io::ErrorKind::WouldBlock);
        let mut bytes = [0; 100];
        let len = server.recv(&mut bytes).expect("received");
        assert_eq!(&bytes[..len], b"three:3|g");
        batch.gauge("four", 4);
        batch.flush();
        assert!(batch.take_dropped().is_none());
        std::fs::remove_file(&path).expect("removed");
    }
}
