//! Listeners that workers ask for (`worker.listen`). The worker makes the socket, as the user that it runs as; the master holds it from then on, and
//! the acceptor accepts there.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};

use stanchion_sys::listener::{Listener, ListenerAddress};

use super::make;
use stanchion_settings::{Bind, BindAddress, Settings};

/// Whether a worker can have such a listener. The error is the operator's.
pub fn check(bind: &Bind) -> Result<(), String> {
    let reason = match &bind.address {
        // Another process removes the file in the end, and would act on a path that a worker has named.
        BindAddress::Unix(_) => "a worker listens on host:port or unix:@name, not on a path",
        BindAddress::Fd(_) => "a descriptor is taken over only when the server starts",
        _ if bind.options.reuseport == Some(true) => "what one worker serves alone is not shared",
        _ => return Ok(()),
    };
    Err(format!("cannot listen on {bind}: {reason}"))
}

/// Makes it in one attempt. Of a host with several addresses the first that can be bound is taken.
pub fn open(settings: &Settings, bind: &Bind) -> Result<(Bind, Listener), BindFailure> {
    let mut failure = None;
    for bind in addresses(bind).map_err(BindFailure::Failed)? {
        match open_one(settings, &bind) {
            Ok(listener) => return Ok((located(&bind, listener.address()), listener)),
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                failure = Some(BindFailure::InUse(Box::new(bind)));
            }
            Err(error) if failure.is_none() => failure = Some(BindFailure::Failed(error)),
            Err(_) => {}
        }
    }
    let none = || BindFailure::Failed(io::Error::other("the host has no address"));
    Err(failure.unwrap_or_else(none))
}

/// Why there is no listener.
#[derive(Debug)]
pub enum BindFailure {
    /// Another process listens at this address.
    InUse(Box<Bind>),
    /// The kernel refused it.
    Failed(io::Error),
}

/// Whether this is the listener at an address that [`open`] has located.
pub fn is_at(listener: &Listener, address: &BindAddress) -> bool {
    match listener.address() {
        ListenerAddress::Tcp(tcp) => of_tcp(*tcp) == *address,
        ListenerAddress::Abstract(name) => *address == BindAddress::Abstract(name.clone()),
        ListenerAddress::Unix(_) => false,
    }
}

/// Applies the options to a listener that is there already.
pub fn apply(settings: &Settings, bind: &Bind, listener: &Listener) -> io::Result<()> {
    let options = make::options(settings, bind).map_err(io::Error::other)?;
    listener.apply(&options)
}

fn open_one(settings: &Settings, bind: &Bind) -> io::Result<Listener> {
    let mut options = make::options(settings, bind).map_err(io::Error::other)?;
    options.tcp.reuse_port = false;
    let listener = make::make(bind, &options, false)?;
    super::tell_if_cut(&listener, options.backlog);
    Ok(listener)
}

/// Replaces the host's name by its addresses, so that no process has to look it up again.
fn addresses(bind: &Bind) -> io::Result<Vec<Bind>> {
    let BindAddress::Tcp { host, port } = &bind.address else {
        return Ok(vec![bind.clone()]);
    };
    let found = (host.as_str(), *port).to_socket_addrs()?;
    Ok(found.map(|one| bind.moved_to(of_tcp(one))).collect())
}

/// With the port in force.
fn located(bind: &Bind, address: &ListenerAddress) -> Bind {
    match address {
        ListenerAddress::Tcp(address) => bind.moved_to(of_tcp(*address)),
        ListenerAddress::Unix(_) | ListenerAddress::Abstract(_) => bind.clone(),
    }
}

fn of_tcp(address: SocketAddr) -> BindAddress {
    BindAddress::Tcp {
        host: address.ip().to_string(),
        port: address.port(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bind(text: &str) -> Bind {
        Bind::parse(text).unwrap()
    }

    #[test]
    fn what_a_worker_cannot_have_is_refused() {
        for (text, part) in [
            ("unix:/tmp/a", "not on a path"),
            ("fd://3", "when the server starts"),
            (":80?reuseport=true", "not shared"),
        ] {
            let error = check(&bind(text)).expect_err(text);
            assert!(error.contains(part), "{text}: {error}");
        }
        for text in ["127.0.0.1:80?backlog=4&tries=-1&delay=5", "unix:@a"] {
            assert_eq!(check(&bind(text)), Ok(()));
        }
    }

    #[test]
    fn the_address_in_force_is_known_also_of_one_in_use() {
        let settings = Settings::default();
        let (at, listener) = open(&settings, &bind("127.0.0.1:0?backlog=5")).unwrap();
        let ListenerAddress::Tcp(address) = listener.address() else {
            panic!("not TCP");
        };
        assert_eq!(at.to_string(), format!("{address}?backlog=5"));
        // Another name of the same host (inet_aton(3)).
        let again = bind(&format!("127.1:{}", address.port()));
        let failure = open(&settings, &again).expect_err("taken");
        assert!(
            matches!(&failure, BindFailure::InUse(at) if at.to_string() == address.to_string()),
            "{failure:?}"
        );
    }
}
