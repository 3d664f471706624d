use std::io::Write;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;

use rustix::event::Timespec;
use stanchion_sys::listener::SocketOptions;

use super::*;

/// How long a test waits for something that must happen.
const PATIENCE: Timespec = Timespec {
    tv_sec: 20,
    tv_nsec: 0,
};
/// Twice as many places as may wait in the queue of a small accept thread.
const PLACES: usize = 16;
const IN_QUEUE_MAX: usize = PLACES / HANDED_OVER_SHARE;

/// A listener at an address of its own, with room in its queue for all clients of a test.
fn listener(name: &str) -> Listener {
    let name = format!(
        "stanchion-accept_thread-{}-{name}",
        stanchion_sys::process::pid()
    );
    Listener::unix_abstract(&name, &SocketOptions::with_backlog(1_000)).unwrap()
}

/// Connects, and sends a byte by which the test recognises the accepted connection.
fn come(listener: &Listener, who: u8) -> UnixStream {
    use std::os::linux::net::SocketAddrExt;
    let stanchion_sys::listener::ListenerAddress::Abstract(name) = listener.address() else {
        panic!("not abstract")
    };
    let address = std::os::unix::net::SocketAddr::from_abstract_name(name).unwrap();
    let mut stream = UnixStream::connect_addr(&address).unwrap();
    stream.write_all(&[who]).unwrap();
    stream
}

fn who(accepted: &Accepted) -> u8 {
    let mut byte = [0];
    assert_eq!(rustix::io::read(&accepted.socket, &mut byte), Ok(1));
    byte[0]
}

/// Does as the loop does: waits for the bell and takes the connections, until it has this many.
fn taken(accept_thread: &AcceptThread, count: usize) -> Vec<(u32, u8)> {
    let mut taken = Vec::new();
    while taken.len() < count {
        let mut bell = [PollFd::new(accept_thread.bell(), PollFlags::IN)];
        assert_eq!(poll(&mut bell, Some(&PATIENCE)), Ok(1), "after {taken:?}");
        accept_thread.bell().silence();
        accept_thread.take(|door, accepted| taken.push((door, who(&accepted))));
    }
    taken
}

fn until(probe: impl Fn() -> bool, what: &str) {
    let begun = std::time::Instant::now();
    while !probe() {
        assert!(
            begun.elapsed() < Duration::from_secs(20),
            "not within 20 s: {what}"
        );
        thread::yield_now();
    }
}

/// The clients that are still in the kernel's queue.
fn left(listener: &Listener) -> Vec<u8> {
    let next = || door::accept_at(listener).unwrap();
    std::iter::from_fn(next)
        .map(|accepted| who(&accepted))
        .collect()
}

#[test]
fn who_comes_while_the_loop_is_away_is_accepted_in_order_and_handed_over_with_the_door() {
    let accept_thread = AcceptThread::start(4_000).unwrap();
    let doors = [listener("order-0"), listener("order-1")];
    for (number, door) in (0..).zip(&doors) {
        accept_thread.watch(number, door).unwrap();
    }
    accept_thread.permit(true);
    let _clients: Vec<_> = (0..200)
        .map(|number| come(&doors[usize::from(number) % 2], number))
        .collect();
    let taken = taken(&accept_thread, 200);
    for door in 0..2 {
        let at_door = taken.iter().filter(|(number, _)| *number == door);
        let expected: Vec<u8> = (0..200)
            .filter(|number| u32::from(number % 2) == door)
            .collect();
        assert_eq!(at_door.map(|(_, who)| *who).collect::<Vec<_>>(), expected);
    }
}

#[test]
fn who_finds_the_queue_full_stays_in_the_kernels_until_there_is_room() {
    let accept_thread = AcceptThread::start(PLACES).unwrap();
    assert_eq!(accept_thread.places_needed(), 2 * IN_QUEUE_MAX);
    let door = listener("full");
    accept_thread.watch(0, &door).unwrap();
    accept_thread.permit(true);
    let _clients: Vec<_> = (0..10).map(|number| come(&door, number)).collect();
    // The accept thread hands over no more than that at a time, and in the end all.
    let mut all = Vec::new();
    while all.len() < 10 {
        let batch = taken(&accept_thread, 1);
        assert!(batch.len() <= IN_QUEUE_MAX, "{batch:?}");
        all.extend(batch.into_iter().map(|(_, who)| who));
    }
    assert_eq!(all, (0..10).collect::<Vec<_>>());
}

#[test]
fn once_a_door_is_taken_from_it_nobody_is_accepted_there_and_nobody_is_lost() {
    let accept_thread = AcceptThread::start(4_000).unwrap();
    let (closing, open) = (listener("closing"), listener("open"));
    accept_thread.watch(0, &closing).unwrap();
    accept_thread.watch(1, &open).unwrap();
    accept_thread.permit(true);
    // The accept thread takes two goes for so many, so that it is at work when the door is withdrawn.
    let mut clients: Vec<_> = (0..100).map(|number| come(&closing, number)).collect();
    let mut served: Vec<u8> = accept_thread.withdraw(0).iter().map(who).collect();
    served.extend(left(&closing));
    assert_eq!(served, (0..100).collect::<Vec<_>>());
    clients.extend((100..150).map(|number| come(&closing, number)));
    // The accept thread has been at work since: it accepts at the other door.
    clients.push(come(&open, 200));
    assert_eq!(taken(&accept_thread, 1), [(1, 200)]);
    assert_eq!(left(&closing), (100..150).collect::<Vec<_>>());
    assert!(accept_thread.withdraw(0).is_empty());
}

#[test]
fn without_leave_it_accepts_nobody() {
    let accept_thread = AcceptThread::start(4_000).unwrap();
    let door = listener("leave");
    accept_thread.watch(0, &door).unwrap();
    let mut clients = vec![come(&door, 0)];
    accept_thread.permit(true);
    assert_eq!(taken(&accept_thread, 1), [(0, 0)]);
    accept_thread.permit(false);
    clients.extend((1..5).map(|number| come(&door, number)));
    // Once the lock was free, the accept thread has finished all that it may have begun before.
    assert!(!accept_thread.0.accept_some());
    assert_eq!(accept_thread.0.state().handed_over, 0);
    accept_thread.permit(true);
    assert_eq!(taken(&accept_thread, 4), [(0, 1), (0, 2), (0, 3), (0, 4)]);
}

#[test]
fn a_door_that_somebody_has_shut_is_the_loops_until_it_says_otherwise() {
    let accept_thread = AcceptThread::start(4_000).unwrap();
    let door = listener("refused");
    door.close_door().unwrap();
    // poll(2) reports this at once, and for ever.
    accept_thread.watch(0, &door).unwrap();
    accept_thread.permit(true);
    let is_refused = || accept_thread.0.state().doors[0].is_refused;
    until(is_refused, "it is left alone");
    let mut listeners = Vec::new();
    assert!(accept_thread.0.list(&mut listeners));
    assert!(listeners.is_empty());
    // The accept thread still watches another door.
    let open = listener("not-refused");
    accept_thread.watch(1, &open).unwrap();
    let _client = come(&open, 1);
    assert_eq!(taken(&accept_thread, 1), [(1, 1)]);
    assert!(is_refused());
}

#[test]
fn its_thread_ends_with_it() {
    let accept_thread = AcceptThread::start(4_000).unwrap();
    let door = listener("end");
    accept_thread.watch(0, &door).unwrap();
    accept_thread.permit(true);
    let shared = Arc::downgrade(&accept_thread.0);
    drop(accept_thread);
    until(|| shared.strong_count() == 0, "it has ended");
}

/// The state of an accept thread that does not run: it may accept at a TCP door with a queue of 16.
fn at_a_tcp_door() -> (AcceptThreadShared, SocketAddr) {
    let shared = AcceptThreadShared::new(4_000).unwrap();
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    rustix::net::listen(&socket, 16).unwrap();
    let address = socket.local_addr().unwrap();
    let door = WatchedDoor {
        number: 0,
        listener: Arc::new(socket.into()),
        accepted: VecDeque::new(),
        is_refused: false,
    };
    shared.state().doors.push(door);
    shared.is_permitted.store(true, Ordering::Relaxed);
    (shared, address)
}

#[test]
fn the_loop_has_time_while_a_tcp_queue_has_plenty_of_room() {
    let (shared, address) = at_a_tcp_door();
    // (how many connections wait in the queue, whether they can wait)
    let mut standing = Vec::new();
    for (count, can_wait) in [(0, false), (1, true), (3, true), (4, false), (17, false)] {
        while standing.len() < count {
            standing.push(TcpStream::connect(address).unwrap());
        }
        assert_eq!(shared.they_can_wait(), can_wait, "{count}");
    }
}

/// Else the thread would wake up a thousand times a second for as long as there is no room for the clients in the queue.
#[test]
fn nobody_is_watched_whom_it_may_not_accept() {
    let (shared, address) = at_a_tcp_door();
    let _client = TcpStream::connect(address).unwrap();
    assert!(shared.they_can_wait());
    shared.is_permitted.store(false, Ordering::Relaxed);
    assert!(!shared.they_can_wait());
    shared.is_permitted.store(true, Ordering::Relaxed);
    shared.state().handed_over = shared.handed_over_max;
    assert!(!shared.they_can_wait());
    shared.state().handed_over = 0;
    shared.state().is_over = true;
    assert!(!shared.they_can_wait());
}

#[test]
fn how_full_the_queue_of_a_unix_socket_is_nobody_tells() {
    let (shared, address) = at_a_tcp_door();
    let _client = TcpStream::connect(address).unwrap();
    assert!(shared.they_can_wait());
    let door = listener("unknown");
    let unix = WatchedDoor {
        number: 1,
        listener: Arc::new(door.as_fd().try_clone_to_owned().unwrap()),
        accepted: VecDeque::new(),
        is_refused: false,
    };
    shared.state().doors.push(unix);
    assert!(!shared.they_can_wait());
}
