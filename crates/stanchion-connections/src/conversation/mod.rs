//! Whole connections, for the fuzzer: clients and an app do what a script says, the acceptor is real, and in the end all
//! counts have to add up. A script that was found to break something is a test below.
//!
//! The script alone decides what happens, but for the keys of TLS, the date in answers, the order in hash tables, and the
//! turns that end because they have lasted long.

mod app;
mod client;
mod heard;
mod script;
mod settings;

use std::os::unix::net::UnixStream;

use stanchion_sys::charge::{self, Payer};

use super::stage::{Stage, TURNS_MAX};
use app::ScriptedApp;
use client::ScriptedClient;
use script::{CLIENTS, Happening, Opening, Script};
use settings::PAYERS_MAX;
use stanchion_dispatch::storage::disk::Disk;
use stanchion_generation::tally::{Counts, Outcome};
use stanchion_requests::lifecycle::Lifecycle;

/// How many connections the clients of a script open at most, one after the other.
const OPENED_MAX: usize = 8;
/// Seconds between the looks at deadlines in the end: after all of them no client has any time left. A look takes a
/// connection one step further towards its end, so there are more looks than any connection has steps.
const LAST_LOOKS_S: [u64; 24] = [
    0, 1, 1, 1, 2, 5, 5, 10, 10, 20, 30, 60, 60, 120, 300, 300, 300, 300, 300, 300, 300, 300, 300,
    3_600,
];

/// Plays a script, which any bytes are.
///
/// # Panics
/// If something does not add up.
pub(crate) fn play(bytes: &[u8]) {
    let (opening, script) = Script::read(bytes);
    let mut conversation = Conversation::new(opening);
    for happening in script {
        conversation.goes(happening);
        conversation.rest();
    }
    conversation.end();
    conversation.check();
}

/// Clients, a server and an app.
struct Conversation {
    opening: Opening,
    stage: Stage<()>,
    threads: Disk,
    app: ScriptedApp,
    clients: [Option<ScriptedClient>; CLIENTS],
    connections: usize,
    before: Counts,
    /// Final answers to clients that are gone.
    answers: usize,
}

impl Conversation {
    fn new(opening: Opening) -> Self {
        let (requests, threads, payers) = settings::requests(opening);
        let before = requests.common.tally.read();
        let mut stage = Stage::of(requests, payers, ());
        let app = ScriptedApp::new(&mut stage.requests);
        Self {
            opening,
            stage,
            threads,
            app,
            clients: [const { None }; CLIENTS],
            connections: 0,
            before,
            answers: 0,
        }
    }

    fn goes(&mut self, happening: Happening<'_>) {
        let requests = &mut self.stage.requests;
        match happening {
            Happening::Client(who, act) => {
                self.connect(who);
                if let Some(client) = &mut self.clients[who] {
                    client.act(act);
                }
            }
            Happening::App(which, act) => self.app.act(which, act, requests),
            Happening::Passes(us) => self.pass(us),
            Happening::Retires => {
                requests.serving.lifecycle = match requests.serving.lifecycle {
                    Lifecycle::Open => Lifecycle::Retiring,
                    Lifecycle::Retiring => Lifecycle::Draining,
                    _ => Lifecycle::Refusing,
                };
            }
            Happening::Presses(is_pressed) => requests.serving.is_pressed = is_pressed,
            Happening::Sheds => {
                let stage = &mut self.stage;
                stage.clients.shed(&mut stage.requests, &stage.poller);
                stage.clients.end_turn();
            }
        }
    }

    /// Connects the client, unless it is connected or has come and left too often.
    fn connect(&mut self, who: usize) {
        let is_there = self.clients[who]
            .as_ref()
            .is_some_and(|client| !client.has_left());
        if is_there || self.connections == OPENED_MAX {
            return;
        }
        self.hear(who);
        self.connections += 1;
        let (theirs, ours) = UnixStream::pair().expect("a pair");
        ours.set_nonblocking(true).expect("a socket");
        let way = self.opening.way;
        self.stage.let_in(ours, settings::peer_of(way), false);
        self.clients[who] = Some(ScriptedClient::new(theirs, way));
    }

    /// Lets time pass, and does what the loop does every now and then.
    fn pass(&mut self, us: u64) {
        let stage = &mut self.stage;
        stage.requests.now_us += us;
        let now_us = stage.requests.now_us;
        stage.requests.dispatch.mend(now_us);
        stage.requests.dispatch.expire(now_us);
        let others_wait = stage.requests.serving.is_pressed;
        let (requests, poller) = (&mut stage.requests, &stage.poller);
        stage.clients.look(others_wait, requests, poller);
        stage.clients.end_turn();
    }

    /// Has clients, app and server go on until none of them can do anything.
    fn rest(&mut self) {
        for _ in 0..TURNS_MAX {
            let mut has_moved = self.threads.work_off();
            for client in self.clients.iter_mut().flatten() {
                has_moved |= client.go_on();
            }
            has_moved |= self.app.go_on();
            has_moved |= self.turn();
            if !has_moved {
                return;
            }
        }
        panic!("it comes to no rest");
    }

    /// Makes a turn as the acceptor's loop does.
    fn turn(&mut self) -> bool {
        let stage = &mut self.stage;
        let requests = &mut stage.requests;
        let now_us = requests.now_us;
        requests.hear_threads();
        requests.wakes.wake_due(now_us);
        requests.dispatch.sweep(now_us);
        let has_moved = stage.turn_once();
        let requests = &mut stage.requests;
        let held_us = requests.dispatch.held_due_us();
        if held_us.is_some_and(|due_us| due_us <= now_us) {
            requests.spool_for_slow_clients();
        }
        requests.dispatch.end_turn(now_us);
        requests.tell_observers();
        has_moved
    }

    /// Ends the script: the clients leave, or they fall silent while the app answers all that is left.
    fn end(&mut self) {
        if self.opening.clients_leave {
            self.clients
                .iter_mut()
                .flatten()
                .for_each(ScriptedClient::leave);
            self.rest();
        }
        for look_s in LAST_LOOKS_S {
            if !self.opening.clients_leave {
                self.app.answer_all();
                self.rest();
            }
            self.pass(look_s * 1_000_000);
            self.rest();
        }
        let left: Vec<_> = self.stage.clients.doing().collect();
        assert!(left.is_empty(), "connections stay: {left:?}");
        self.app.die(&mut self.stage.requests);
        self.rest();
        for who in 0..CLIENTS {
            self.hear(who);
        }
    }

    /// Checks all bytes that a client has got, and forgets them.
    fn hear(&mut self, who: usize) {
        let Some(client) = self.clients[who].take() else {
            return;
        };
        self.answers += if heard::is_answer(&client.heard) {
            heard::answers(&client.heard, client.asks_head)
        } else {
            heard::streams(&client.heard)
        };
    }

    fn check(self) {
        let requests = &self.stage.requests;
        let counts = requests.common.tally.read();
        check_counts(&counts);
        let arrived = counts.arrived() - self.before.arrived();
        assert!(
            self.answers as u64 <= arrived,
            "{} answers to {arrived} requests",
            self.answers
        );
        assert_eq!(
            requests.storage.counted_bytes(),
            [0; 3],
            "bytes of bodies, answers, messages"
        );
        assert_eq!(requests.dispatch.used_slots(), 0, "slots in use");
        check_payers("while the server goes on");
        drop(self);
        check_payers("once all is gone");
    }
}

/// Checks that each request has one outcome, and each connection and session one end.
fn check_counts(counts: &Counts) {
    use stanchion_generation::tally::Event::{
        Accepted, Closed, SessionBegun, SessionClosedByApp, SessionClosedByClient,
        SessionClosedByServer, SessionCut,
    };
    let outcomes: u64 = Outcome::ALL
        .iter()
        .map(|outcome| counts.ended(*outcome))
        .sum();
    assert_eq!(counts.arrived(), outcomes, "requests: {counts}");
    let happened = |event| counts.happened(event);
    assert_eq!(happened(Accepted), happened(Closed), "connections");
    let ends = [
        SessionClosedByApp,
        SessionClosedByClient,
        SessionClosedByServer,
        SessionCut,
    ];
    let ended: u64 = ends.map(happened).iter().sum();
    assert_eq!(happened(SessionBegun), ended, "sessions");
}

/// Checks that no payer has memory left. Only the allocator of the fuzzer charges payers.
fn check_payers(when: &str) {
    if !charge::is_open() {
        return;
    }
    let bytes = (1..=PAYERS_MAX).map(|number| (number, Payer::new(number).bytes()));
    let owed: Vec<_> = bytes.filter(|(_, bytes)| *bytes > 0).collect();
    assert!(owed.is_empty(), "payers have bytes {when}: {owed:?}");
    assert_eq!(charge::all(), 0, "payers have bytes {when}");
}

#[cfg(test)]
mod tests;
