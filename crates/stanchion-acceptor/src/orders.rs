//! The master's orders to the acceptor.

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use stanchion_arrivals::EventKind;
use stanchion_sys::listener::Listener;
use tracing::{error, info, warn};

use super::doors::{DoorContext, DoorKind};
use super::{Acceptor, FAREWELL, ShutdownState};
use stanchion_connections::{ConnectionState, after};
use stanchion_dispatch::PortNumber;
use stanchion_dispatch::refusal::Refusal;
use stanchion_generation::listeners::of_worker;
use stanchion_generation::messages::{
    self, Envelope, FromAcceptor, Incoming, ToAcceptor, WorkerRef,
};
use stanchion_log as log;
use stanchion_requests::lifecycle::Lifecycle;
use stanchion_settings::Bind;

/// How many turns the acceptor accepts connections that wait before it turns clients away: enough for the longest queue that
/// kernels have by default (`net.core.somaxconn`).
const QUEUE_TURNS_MAX: usize = 64;

/// How the acceptor leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Farewell {
    /// Close the listeners, and serve the connected clients for at most this long.
    Drain(Duration),
    /// Leave the listeners to another acceptor, and serve the connected clients for at most this long.
    Retire(Duration),
    /// Leave now.
    Quit,
    /// The master is dead: finish the requests that workers have, since no process replaces workers any more.
    Orphaned,
}

impl Acceptor {
    /// Carries out all orders that the master has sent.
    pub(super) fn obey(&mut self) -> io::Result<()> {
        loop {
            let farewell = match messages::receive_from(&self.master) {
                Ok(Incoming::Message(Envelope { message, fd, .. })) => self.done(message, fd),
                Ok(Incoming::Nothing) => return Ok(()),
                // The master is dead.
                Ok(Incoming::Closed) => {
                    self.leave(Farewell::Orphaned);
                    return Ok(());
                }
                Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                    error!(
                        "our fault: the acceptor drops an order of the master that it cannot read: {error}"
                    );
                    None
                }
                Err(error) if self.ending.is_some() => {
                    error!(
                        "the master's orders cannot be read, so requests that wait get 503 now: {error}"
                    );
                    self.refuse_all_requests();
                    return Ok(());
                }
                Err(error) => return Err(error),
            };
            if let Some(farewell) = farewell {
                self.leave(farewell);
            }
        }
    }

    /// Carries out an order; if it is to leave, returns how instead.
    fn done(&mut self, message: ToAcceptor, fd: Option<OwnedFd>) -> Option<Farewell> {
        let now_us = self.requests.now_us;
        let dispatch = &mut self.requests.dispatch;
        match message {
            ToAcceptor::WorkerReady {
                worker,
                number,
                nth,
                pid,
            } => {
                dispatch.worker_ready(worker, (number, nth, pid), now_us);
                self.record_workers(EventKind::Ready, Some(number));
            }
            ToAcceptor::WorkerGone(worker) => {
                let number = dispatch.view().workers().number_of(worker);
                dispatch.worker_gone(worker, now_us);
                self.record_workers(EventKind::Gone, number);
            }
            ToAcceptor::Workers { wanted, is_pinned } => {
                dispatch.times.staffing.set(wanted, is_pinned, now_us);
                self.record_workers(EventKind::Wanted, None);
            }
            ToAcceptor::Headroom(read) => dispatch.times.staffing.set_headroom(&read, now_us),
            ToAcceptor::Overdue {
                seat,
                epoch,
                ran_ms,
            } => dispatch.overdue(seat, epoch, ran_ms, now_us),
            ToAcceptor::LoopStuck(worker) => dispatch.loop_is_stuck(worker, now_us),
            ToAcceptor::Listen {
                door,
                worker,
                number,
                bind,
            } => self.lend(door, (worker, number), &bind, fd),
            ToAcceptor::LastOnes { address } => self.doors.let_in_last_ones(&address),
            ToAcceptor::Shared(is_shared) => self.is_shared = is_shared,
            ToAcceptor::CloseDoor { door, is_shared } => {
                self.sought.forget(door);
                dispatch.give_up_port(door, now_us);
                self.doors.take_back(door, is_shared);
            }
            ToAcceptor::AcceptOperators => self.advance_to(Lifecycle::Announced),
            ToAcceptor::Accept => self.advance_to(Lifecycle::Open),
            ToAcceptor::TurnAway => self.let_in_the_queue(),
            ToAcceptor::Reopen => {
                log::reopen();
                self.requests.record.observers.reopen();
            }
            ToAcceptor::LameDuck => self.be_a_lame_duck(),
            ToAcceptor::Drain { timeout_ms } => {
                return Some(Farewell::Drain(Duration::from_millis(timeout_ms)));
            }
            ToAcceptor::Retire { timeout_ms } => {
                return Some(Farewell::Retire(Duration::from_millis(timeout_ms)));
            }
            ToAcceptor::Quit => return Some(Farewell::Quit),
        }
        None
    }

    /// Moves on to a stage in which the acceptor accepts more than before.
    fn advance_to(&mut self, lifecycle: Lifecycle) {
        if self.requests.serving.lifecycle <= Lifecycle::Open {
            self.requests.serving.lifecycle = lifecycle.max(self.requests.serving.lifecycle);
        }
    }

    /// Serves and accepts on, until the master orders it to leave. Each answer says that its connection ends; connections of
    /// HTTP/2 get that now.
    fn be_a_lame_duck(&mut self) {
        if !self.requests.serving.lifecycle.is_open() {
            return;
        }
        self.requests.serving.lifecycle = Lifecycle::LameDuck;
        self.requests.serving.arrived_in_time = Some(self.common.tally.read().arrived());
        self.clients.drive_all(&mut self.requests, &self.poller);
    }

    /// Logs how many clients came although the server was about to leave.
    fn report_late_requests(&mut self) {
        if let Some(in_time) = self.requests.serving.arrived_in_time.take() {
            let late = self.common.tally.read().arrived() - in_time;
            info!("drain_delay is over: requests that came meanwhile: {late}");
        }
    }

    /// Accepts the clients that wait at the doors now, so that the acceptor can refuse their requests.
    fn let_in_the_queue(&mut self) {
        self.advance_to(Lifecycle::Open);
        for _ in 0..QUEUE_TURNS_MAX {
            let mut inside = DoorContext {
                clients: &mut self.clients,
                operators: &mut self.operators,
                requests: &mut self.requests,
                poller: &self.poller,
            };
            if !self.doors.accept(&mut inside) {
                break;
            }
        }
        self.requests.serving.lifecycle =
            self.requests.serving.lifecycle.max(Lifecycle::TurningAway);
    }

    /// Leaves as the master orders. An acceptor that is leaving already obeys only an order to quit, and notices the death
    /// of the master.
    fn leave(&mut self, farewell: Farewell) {
        match (self.ending.map(|ending| ending.farewell), farewell) {
            (Some(_), Farewell::Drain(_) | Farewell::Retire(_))
            | (Some(Farewell::Orphaned), Farewell::Orphaned) => {}
            (_, Farewell::Quit) => {
                self.ending.get_or_insert(ShutdownState {
                    farewell,
                    until_us: 0,
                    is_last: false,
                });
                self.refuse_all_requests();
            }
            (Some(_), Farewell::Orphaned) => {
                self.orphaned();
                if let Some(ending) = &mut self.ending {
                    ending.farewell = farewell;
                }
            }
            (None, _) => self.drain(farewell),
        }
    }

    /// Accepts no new clients, and ends every connection with its present request, or, where the acceptor retires, with the
    /// next one: a client may just have sent a request on an idle connection, and if the acceptor closed that, the client
    /// would have to guess whether the request was run.
    fn drain(&mut self, farewell: Farewell) {
        self.record_workers(EventKind::Leaves, None);
        // The workers are another acceptor's, or leave too.
        let now_us = self.requests.now_us;
        self.requests.dispatch.times.staffing.stop(now_us);
        let timeout = match farewell {
            Farewell::Drain(timeout) => {
                // The acceptor that the master orders to close the listeners has them, even if the master has not ordered it
                // to accept before.
                self.let_doors_follow(Lifecycle::Open);
                self.report_late_requests();
                self.requests.serving.lifecycle = Lifecycle::Draining;
                timeout
            }
            Farewell::Retire(timeout) => {
                self.requests.serving.lifecycle = Lifecycle::Retiring;
                timeout
            }
            Farewell::Quit | Farewell::Orphaned => {
                // Without the master the acceptor cannot know what became of the other master that had the listeners too.
                let is_ours = !self.is_shared && self.requests.serving.lifecycle.is_open();
                self.let_doors_follow(if is_ours {
                    Lifecycle::Open
                } else {
                    Lifecycle::Retiring
                });
                self.orphaned();
                self.common.settings.workers.graceful_timeout.duration()
            }
        };
        self.let_doors_follow(self.requests.serving.lifecycle);
        if let Farewell::Retire(_) = farewell {
            self.tell_that_it_retires();
        }
        self.requests.dispatch.begin_drain();
        self.ending = Some(ShutdownState {
            farewell,
            until_us: after(self.requests.now_us, timeout),
            is_last: false,
        });
        if self.requests.serving.lifecycle != Lifecycle::Retiring {
            // A request that has begun to arrive, or may be about to, is still served; its answer
            // says that the connection closes.
            let is_meant = |doing| matches!(doing, ConnectionState::Idle | ConnectionState::Busy);
            let (requests, poller) = (&mut self.requests, &self.poller);
            self.clients.close_soon(is_meant, requests, poller);
        }
    }

    /// Reports to the master that this acceptor accepts no more clients: a command that waits for the reload gets its reply
    /// then. The master does not wait for ever, and clients shall not wait for the master.
    fn tell_that_it_retires(&self) {
        if let Err(error) = messages::send(&self.master, &FromAcceptor::Retired) {
            warn!(
                "generation {} accepts no more clients, but cannot report that to the master, which will warn of it: {error}",
                self.common.generation
            );
        }
    }

    fn let_doors_follow(&mut self, lifecycle: Lifecycle) {
        self.doors.follow(lifecycle, self.requests.now_us);
    }

    /// Refuses the requests that no worker has: the master is gone, so no process replaces the workers that these requests
    /// wait for.
    fn orphaned(&mut self) {
        error!("the master is gone: finishing the requests that workers have, then leaving");
        self.refuse(false);
        self.clients.drive_all(&mut self.requests, &self.poller);
    }

    /// Refuses the requests that no worker has, and with `running` also those whose answers have not begun.
    fn refuse(&mut self, running: bool) {
        let requests = &mut self.requests;
        let (lifecycle, why) = match requests.serving.lifecycle.refusal() {
            Some(why) => (requests.serving.lifecycle, why),
            None => (Lifecycle::Refusing, Refusal::ShuttingDown),
        };
        requests.serving.lifecycle = lifecycle;
        requests.dispatch.refuse_all(why, running, requests.now_us);
    }

    /// Refuses every request whose answer has not begun, because the server leaves.
    pub(super) fn refuse_all_requests(&mut self) {
        self.refuse(true);
        self.let_doors_follow(self.requests.serving.lifecycle);
        let (requests, poller) = (&mut self.requests, &self.poller);
        self.clients.close_soon(|_| true, requests, poller);
        // A client that does not read the refusal in time goes without.
        let until_us = after(self.requests.now_us, FAREWELL);
        if let Some(ending) = &mut self.ending {
            ending.until_us = until_us;
            ending.is_last = true;
        }
        self.requests.tell_observers();
    }

    /// Has a worker alone serve the clients of this listener, once no other worker that has asked for it does. Without `fd`
    /// another process still has the address, and the acceptor tries it again and again.
    fn lend(
        &mut self,
        port: PortNumber,
        (worker, number): (WorkerRef, u16),
        bind: &str,
        fd: Option<OwnedFd>,
    ) {
        let done = Bind::parse(bind)
            .map_err(io::Error::other)
            .and_then(|bind| {
                let (name, now_us) = (bind.address.to_string(), self.requests.now_us);
                self.requests
                    .dispatch
                    .claim_port(port, worker, &name, now_us);
                match fd {
                    Some(fd) => self.open_lent(port, number, &bind, fd),
                    None => {
                        self.sought.seek(port, bind, now_us);
                        Ok(())
                    }
                }
            });
        if let Err(error) = done {
            error!("{bind} is for worker {number} alone and is not served: {error}");
        }
    }

    fn open_lent(
        &mut self,
        port: PortNumber,
        number: u16,
        bind: &Bind,
        fd: OwnedFd,
    ) -> io::Result<()> {
        let settings = &self.common.settings;
        let listener = Listener::received(fd)?;
        of_worker::apply(settings, bind, &listener)?;
        if self.doors.has_port(port) || self.ending.is_some() {
            return Ok(());
        }
        self.doors.add(
            &listener,
            DoorKind::Clients,
            Some(port),
            settings,
            &self.poller,
        )?;
        info!("worker {number} alone listens at {}", listener.address());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;
    use std::rc::Rc;

    use stanchion_exchange::{SeatSide, Tenant};
    use stanchion_sys::channel::Channel;

    use super::*;
    use crate::doors::AcceptThread;
    use stanchion_connections::Newcomer;
    use stanchion_dispatch::rig::peer;
    use stanchion_dispatch::storage::payers::Payers;
    use stanchion_generation::messages::HeadroomRead;
    use stanchion_generation::tally::Outcome;
    use stanchion_record::AnswerHead;
    use stanchion_requests::rig::{S, common};

    fn serving() -> (Acceptor, Channel) {
        serving_with(r#"{"graceful_timeout": 30}"#)
    }

    fn serving_with(settings: &str) -> (Acceptor, Channel) {
        let (ours, masters) = Channel::pair().expect("a channel");
        let common = common(settings);
        let accept_thread = AcceptThread::start(16).expect("a thread");
        let mut acceptor =
            Acceptor::new(common, &[], ours, (16, accept_thread)).expect("an acceptor");
        acceptor.requests.now_us = S;
        acceptor.advance_to(Lifecycle::Open);
        (acceptor, masters)
    }

    #[test]
    fn of_farewells_the_first_one_counts_unless_another_is_more_urgent() {
        use Farewell::{Drain, Orphaned, Quit, Retire};
        const FIVE: Duration = Duration::from_secs(5);
        const SEVEN: Duration = Duration::from_secs(7);
        let last_us = after(S, FAREWELL);
        // (the orders, then the lifecycle, the way it leaves, until when, and whether it has refused all requests)
        let table: [(&[Farewell], Lifecycle, Farewell, u64, bool); 12] = [
            (
                &[Drain(FIVE)],
                Lifecycle::Draining,
                Drain(FIVE),
                6 * S,
                false,
            ),
            (
                &[Retire(FIVE)],
                Lifecycle::Retiring,
                Retire(FIVE),
                6 * S,
                false,
            ),
            (&[Quit], Lifecycle::Refusing, Quit, last_us, true),
            (&[Orphaned], Lifecycle::Refusing, Orphaned, 31 * S, false),
            (
                &[Drain(FIVE), Drain(SEVEN)],
                Lifecycle::Draining,
                Drain(FIVE),
                6 * S,
                false,
            ),
            (
                &[Retire(FIVE), Drain(SEVEN)],
                Lifecycle::Retiring,
                Retire(FIVE),
                6 * S,
                false,
            ),
            (
                &[Drain(FIVE), Quit],
                Lifecycle::Refusing,
                Drain(FIVE),
                last_us,
                true,
            ),
            (
                &[Retire(FIVE), Quit],
                Lifecycle::Refusing,
                Retire(FIVE),
                last_us,
                true,
            ),
            (
                &[Drain(FIVE), Orphaned],
                Lifecycle::Refusing,
                Orphaned,
                6 * S,
                false,
            ),
            (
                &[Orphaned, Orphaned],
                Lifecycle::Refusing,
                Orphaned,
                31 * S,
                false,
            ),
            (
                &[Orphaned, Quit],
                Lifecycle::Refusing,
                Orphaned,
                last_us,
                true,
            ),
            (
                &[Quit, Retire(FIVE)],
                Lifecycle::Refusing,
                Quit,
                last_us,
                true,
            ),
        ];
        for (said, lifecycle, farewell, until_us, is_last) in table {
            let (mut acceptor, _master) = serving();
            for farewell in said {
                acceptor.leave(*farewell);
            }
            let ending = acceptor.ending.expect("it leaves");
            assert_eq!(acceptor.requests.serving.lifecycle, lifecycle, "{said:?}");
            assert_eq!(
                (ending.farewell, ending.until_us),
                (farewell, until_us),
                "{said:?}"
            );
            assert_eq!(ending.is_last, is_last, "{said:?}");
        }
    }

    #[test]
    fn the_master_hears_that_nobody_else_is_let_in_once_and_only_of_one_that_retires() {
        use Farewell::{Drain, Orphaned, Quit, Retire};
        const FIVE: Duration = Duration::from_secs(5);
        let table: [(&[Farewell], usize); 5] = [
            (&[Retire(FIVE)], 1),
            (&[Retire(FIVE), Retire(FIVE), Quit], 1),
            (&[Drain(FIVE), Retire(FIVE)], 0),
            (&[Quit], 0),
            (&[Orphaned], 0),
        ];
        for (said, times) in table {
            let (mut acceptor, master) = serving();
            for farewell in said {
                acceptor.leave(*farewell);
            }
            let mut heard = 0;
            while let Incoming::Message(report) =
                messages::receive::<FromAcceptor>(&master).expect("a report")
            {
                assert_eq!(report, FromAcceptor::Retired, "{said:?}");
                heard += 1;
            }
            assert_eq!(heard, times, "{said:?}");
        }
    }

    #[test]
    fn a_master_that_is_gone_has_said_its_last() {
        let (mut acceptor, master) = serving();
        assert!(acceptor.obey().is_ok() && acceptor.ending.is_none());
        messages::send(&master, &ToAcceptor::Drain { timeout_ms: 5_000 }).expect("sent");
        acceptor.obey().expect("heard");
        assert_eq!(acceptor.requests.serving.lifecycle, Lifecycle::Draining);
        drop(master);
        acceptor.obey().expect("heard");
        // No client is connected, so the acceptor does not wait.
        assert_eq!(acceptor.is_over(), Some(Farewell::Orphaned));
    }

    /// A client's end of a connection, and the newcomer with the other end.
    fn newcomer() -> (UnixStream, Newcomer) {
        let (theirs, ours) = UnixStream::pair().expect("a pair");
        ours.set_nonblocking(true).expect("set");
        let newcomer = Newcomer {
            socket: ours.into(),
            peer: peer(),
            claim: None,
            is_turned_away: false,
            paying: Rc::new(Payers::default()).take(),
        };
        (theirs, newcomer)
    }

    /// Clients of a server with one seat: the acceptor has read the request of each.
    fn asking<const CLIENTS: usize>(acceptor: &mut Acceptor) -> [UnixStream; CLIENTS] {
        std::array::from_fn(|_| {
            let (mut client, newcomer) = newcomer();
            let (requests, poller) = (&mut acceptor.requests, &acceptor.poller);
            let added = acceptor.clients.add(newcomer, requests, poller);
            added.expect("it is watched");
            let asked = client.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n");
            asked.expect("room");
            acceptor.poller.wait(Duration::ZERO).expect("news");
            acceptor.hear_the_others();
            client
        })
    }

    /// The master says how many workers there should be.
    fn say_number(acceptor: &mut Acceptor, master: &Channel, wanted: u16, is_pinned: bool) {
        messages::send(master, &ToAcceptor::Workers { wanted, is_pinned }).expect("sent");
        acceptor.obey().expect("heard");
    }

    #[test]
    fn an_acceptor_wants_a_worker_while_requests_wait_unless_the_number_stays() {
        let (mut acceptor, master) = serving_with(r#"{"workers": "1..4"}"#);
        let (epoch, index) = (1, 0);
        let worker = WorkerRef { index, epoch };
        let dispatch = &mut acceptor.requests.dispatch;
        dispatch.worker_ready(worker, (0, 1, 1), S);
        let due_us = |acceptor: &Acceptor| acceptor.requests.dispatch.times.staffing.due_us();
        let _clients: [_; 2] = asking(&mut acceptor);
        acceptor.turn(false).expect("a turn");
        assert_eq!(due_us(&acceptor), None, "the master has not said a number");
        say_number(&mut acceptor, &master, 1, false);
        acceptor.turn(false).expect("a turn");
        assert_eq!(due_us(&acceptor), Some(S + 10_000));
        let heard = || messages::receive::<FromAcceptor>(&master).expect("a report");
        assert_eq!(heard(), Incoming::Message(FromAcceptor::Weigh));
        acceptor.requests.now_us = S + 15_000;
        acceptor.turn(false).expect("a turn");
        assert_eq!(
            heard(),
            Incoming::Nothing,
            "the master has not said what there is room for"
        );
        messages::send(&master, &ToAcceptor::Headroom(HeadroomRead::default())).expect("sent");
        acceptor.obey().expect("heard");
        acceptor.requests.now_us = S + 25_000;
        acceptor.turn(false).expect("a turn");
        let why = "a request waits (25 ms by now)".to_owned();
        let want = FromAcceptor::Want { workers: 2, why };
        assert_eq!(heard(), Incoming::Message(want));
        say_number(&mut acceptor, &master, 1, true);
        assert_eq!(due_us(&acceptor), None);
        acceptor.requests.now_us = 3 * S;
        acceptor.watch();
        assert_eq!(heard(), Incoming::Nothing);
        assert_eq!(acceptor.requests.dispatch.times.staffing.wanted(), 1);
    }

    #[test]
    fn an_acceptor_wants_no_worker_for_a_lane_that_has_as_many_seats_as_it_may() {
        for (lane, waits) in [("a=/ seats_max=9", true), ("a=/ seats_max=1", false)] {
            let settings = format!(r#"{{"workers": "1..4", "lane": ["{lane}"]}}"#);
            let (mut acceptor, master) = serving_with(&settings);
            say_number(&mut acceptor, &master, 1, false);
            let (epoch, index) = (1, 0);
            let dispatch = &mut acceptor.requests.dispatch;
            dispatch.worker_ready(WorkerRef { index, epoch }, (0, 1, 1), S);
            let _clients: [_; 4] = asking(&mut acceptor);
            acceptor.turn(false).expect("a turn");
            let due_us = acceptor.requests.dispatch.times.staffing.due_us();
            assert_eq!(due_us.is_some(), waits, "{lane}");
        }
    }

    #[test]
    fn an_acceptor_wants_a_worker_for_requests_that_lanes_keep_from_seats() {
        let settings = r#"{"workers": "2..4", "lane": ["a=/a seats=1"]}"#;
        let (mut acceptor, master) = serving_with(settings);
        say_number(&mut acceptor, &master, 2, false);
        for index in [0, 1] {
            let worker = WorkerRef { index, epoch: 1 };
            let dispatch = &mut acceptor.requests.dispatch;
            dispatch.worker_ready(worker, (index, 1, 1), S);
        }
        let _clients: [_; 2] = asking(&mut acceptor);
        acceptor.turn(false).expect("a turn");
        let due_us = acceptor.requests.dispatch.times.staffing.due_us();
        assert!(due_us.is_some(), "the second seat is not for them");
    }

    #[test]
    fn a_retired_acceptor_answers_an_operator_that_has_just_come_and_leaves() {
        let (mut acceptor, master) = serving();
        let (mut operator, newcomer) = newcomer();
        let patience = Some(Duration::from_secs(20));
        operator.set_read_timeout(patience).expect("set");
        let (requests, poller) = (&mut acceptor.requests, &acceptor.poller);
        let added = acceptor.operators.add(newcomer, requests, poller);
        added.expect("it is watched");
        messages::send(&master, &ToAcceptor::Retire { timeout_ms: 5_000 }).expect("sent");
        acceptor.obey().expect("heard");
        assert_eq!(acceptor.is_over(), None);
        let asked = operator.write_all(b"GET /live HTTP/1.1\r\nHost: a\r\n\r\n");
        asked.expect("room");
        acceptor.poller.wait(Duration::ZERO).expect("news");
        acceptor.hear_the_others();
        let mut answer = [0; 12];
        operator.read_exact(&mut answer).expect("answered");
        assert_eq!(&answer, b"HTTP/1.1 200");
        assert!(matches!(acceptor.is_over(), Some(Farewell::Retire(_))));
    }

    #[test]
    fn a_retired_acceptor_waits_a_second_for_an_operator_that_asks_nothing() {
        let (mut acceptor, master) = serving();
        let (_operator, newcomer) = newcomer();
        let (requests, poller) = (&mut acceptor.requests, &acceptor.poller);
        let added = acceptor.operators.add(newcomer, requests, poller);
        added.expect("it is watched");
        messages::send(&master, &ToAcceptor::Retire { timeout_ms: 5_000 }).expect("sent");
        acceptor.obey().expect("heard");
        acceptor.requests.now_us += 999_999;
        acceptor.watch();
        assert_eq!(acceptor.is_over(), None);
        acceptor.requests.now_us += 5_000_000;
        acceptor.watch();
        assert_eq!(acceptor.operators.len(), 0);
    }

    /// If an answer has begun, only the acceptor can report to its app that the client is gone.
    #[test]
    fn whoever_is_abandoned_at_the_end_is_counted_once_and_the_loop_that_serves_it_is_woken() {
        let (mut acceptor, _master) = serving_with(r#"{"interface": "asgi"}"#);
        let (epoch, index) = (1, 0);
        let worker = WorkerRef { index, epoch };
        acceptor
            .requests
            .dispatch
            .worker_ready(worker, (0, 1, 1), S);
        let _clients: [_; 4] = asking(&mut acceptor);
        let exchange = &acceptor.common.exchange;
        let seat = SeatSide::new(exchange, Tenant { seat: 0, epoch }, 1, None);
        let mut taken = seat.take().expect("the oldest request");
        let mut head = AnswerHead::default();
        head.begin(200, b"OK");
        taken.write(head.whole(None)).expect("room");
        taken.publish();
        acceptor.turn(false).expect("a turn");
        let inbox = exchange.inbox(0).expect("its loop's");
        inbox.sweep(|_| {});
        inbox.silence();
        assert!(inbox.try_sleep());
        acceptor.close_books();
        assert!(taken.client_gone() && inbox.silence(), "it is woken");
        let counts = acceptor.common.tally.read();
        assert_eq!((counts.arrived(), counts.in_flight()), (4, 0));
        assert_eq!(counts.ended(Outcome::AbandonedAnswering), 1);
        let unserved = [Outcome::AbandonedWaiting, Outcome::AbandonedHandedOut];
        let unserved = unserved.map(|outcome| counts.ended(outcome));
        assert_eq!(unserved.iter().sum::<u64>(), 3, "{unserved:?}");
        assert!(seat.take().is_none(), "nobody runs what nobody waits for");
    }
}
