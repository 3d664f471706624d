//! The listeners of single workers that those have asked for (`worker.listen`). The master holds them, so that they outlive the worker and the
//! acceptor that has them: a successor asks for the same address and gets the same socket, with the connections that wait in its queue.
//!
//! A successor asks for the same address *before* its predecessor is gone. So the answer to "in use" is the existing
//! socket, for the next worker, generation or master. The worker binds the socket with its own rights.

use std::os::fd::OwnedFd;

use stanchion_sys::listener::Listener;
use tracing::error;

use stanchion_generation::messages::{ToAcceptor, WorkerRef};
use stanchion_settings::{Bind, BindAddress};

/// Doors that one worker may ask for: it needs one or two, and a loop that asks for ever more must
/// not use up the master's descriptors.
const DOORS_EACH_MAX: usize = 16;
/// Doors of a generation, also of workers that are gone: each costs the master a descriptor.
const DOORS_MAX: usize = 1_024;
/// Numbers below are those of `worker_port_base`.
const FIRST: u32 = 1 << 16;

/// The doors of one generation.
#[derive(Debug)]
pub(super) struct Lent<L> {
    doors: Vec<LentDoor<L>>,
    /// The number of the next one.
    next: u32,
}

#[derive(Debug)]
pub(super) struct LentDoor<L> {
    pub(super) number: u32,
    pub(super) bind: Bind,
    /// `None`: another process has the address, and the acceptor tries it again.
    listener: Option<L>,
    /// The workers that have asked for it, in this order: the first one has its turn.
    claims: Vec<WorkerRef>,
}

impl<L> Default for Lent<L> {
    fn default() -> Self {
        Self {
            doors: Vec::new(),
            next: FIRST,
        }
    }
}

impl<L> Lent<L> {
    /// A worker asks for a door, and has perhaps opened it. Gives the door's number if that is news,
    /// or why it gets none.
    pub(super) fn claim(
        &mut self,
        worker: WorkerRef,
        bind: &Bind,
        opened: Option<L>,
    ) -> Result<Option<u32>, String> {
        let theirs = self
            .doors
            .iter()
            .filter(|door| door.claims.contains(&worker));
        let count = theirs.count();
        let found = self
            .doors
            .iter()
            .position(|door| door.bind.address == bind.address);
        let is_new = found.is_none_or(|found| !self.doors[found].claims.contains(&worker));
        if is_new && count == DOORS_EACH_MAX {
            return Err(format!(
                "it has {DOORS_EACH_MAX} listeners of its own already"
            ));
        }
        let door = match found {
            Some(found) => &mut self.doors[found],
            None if self.doors.len() >= DOORS_MAX => {
                return Err(format!(
                    "there are {DOORS_MAX} listeners of single workers already"
                ));
            }
            None => {
                self.next += 1;
                self.doors.push(LentDoor {
                    number: self.next - 1,
                    bind: bind.clone(),
                    listener: None,
                    claims: Vec::new(),
                });
                self.doors.last_mut().expect("it was just added")
            }
        };
        if is_new {
            door.claims.push(worker);
            door.bind = bind.clone();
        }
        let is_opened = door.listener.is_none() && opened.is_some();
        if is_opened {
            door.listener = opened;
        }
        Ok((is_new || is_opened).then_some(door.number))
    }

    pub(super) fn is_open(&self, address: &BindAddress) -> bool {
        self.at(address).is_some()
    }

    /// The listener at an address.
    pub(super) fn at(&self, address: &BindAddress) -> Option<&L> {
        let mut doors = self.doors.iter();
        doors
            .find(|door| door.bind.address == *address)
            .and_then(|door| door.listener.as_ref())
    }

    /// All listeners.
    pub(super) fn listeners(&self) -> impl Iterator<Item = &L> {
        self.doors.iter().filter_map(|door| door.listener.as_ref())
    }

    /// Removes doors that no worker has any more, and gives them. A door whose workers are all gone waits for their successors until the generation is
    /// whole again without it.
    pub(super) fn let_go(
        &mut self,
        is_there: impl Fn(WorkerRef) -> bool,
        is_whole: bool,
    ) -> Vec<LentDoor<L>> {
        let gone = self.doors.extract_if(.., |door| {
            let is_claimed = door.claims.iter().any(|&worker| is_there(worker));
            if is_claimed {
                door.claims.retain(|&worker| is_there(worker));
            }
            !is_claimed && is_whole
        });
        gone.collect()
    }
}

impl Lent<Listener> {
    /// The messages to the acceptor on one claim (`only`), or on all doors if the acceptor is new. `number_of` gives the number of a worker.
    pub(super) fn messages(
        &self,
        only: Option<(u32, WorkerRef)>,
        number_of: impl Fn(WorkerRef) -> u16,
    ) -> Vec<(ToAcceptor, Option<OwnedFd>)> {
        let mut messages = Vec::new();
        for door in &self.doors {
            for &worker in &door.claims {
                if only.is_some_and(|only| only != (door.number, worker)) {
                    continue;
                }
                let fd = match door
                    .listener
                    .as_ref()
                    .map(Listener::try_clone_fd)
                    .transpose()
                {
                    Ok(fd) => fd,
                    Err(error) => {
                        error!(
                            "{} is not served by the worker that asked for it: {error}",
                            door.bind
                        );
                        continue;
                    }
                };
                let message = ToAcceptor::Listen {
                    door: door.number,
                    worker,
                    number: number_of(worker),
                    bind: door.bind.to_string(),
                };
                messages.push((message, fd));
            }
        }
        messages
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn bind(text: &str) -> Bind {
        Bind::parse(text).unwrap()
    }

    fn worker(index: u16, epoch: u16) -> WorkerRef {
        WorkerRef { index, epoch }
    }

    fn claims<L>(lent: &Lent<L>) -> Vec<(u32, Vec<WorkerRef>)> {
        let doors = lent.doors.iter();
        doors
            .map(|door| (door.number - FIRST, door.claims.clone()))
            .collect()
    }

    fn let_go<L>(
        lent: &mut Lent<L>,
        is_there: impl Fn(WorkerRef) -> bool,
        is_whole: bool,
    ) -> Vec<u32> {
        let gone = lent.let_go(is_there, is_whole);
        gone.into_iter().map(|door| door.number).collect()
    }

    #[test]
    fn a_generation_has_a_bounded_number_of_doors_whoever_asks() {
        let mut lent = Lent::default();
        let address = |number: usize| bind(&format!("unix:/run/{number}"));
        for number in 0..DOORS_MAX {
            let who = worker(0, (number / DOORS_EACH_MAX) as u16);
            assert!(matches!(
                lent.claim(who, &address(number), Some('a')),
                Ok(Some(_))
            ));
        }
        assert!(
            lent.claim(worker(1, 1), &address(DOORS_MAX), Some('b'))
                .is_err()
        );
        assert!(
            lent.claim(worker(1, 1), &address(0), None).is_ok(),
            "one that is there"
        );
    }

    #[test]
    fn a_door_waits_for_the_successor_and_no_longer() {
        let mut lent = Lent::default();
        assert_eq!(
            lent.claim(worker(0, 1), &bind(":90"), Some('a')),
            Ok(Some(FIRST))
        );
        assert_eq!(
            lent.claim(worker(1, 1), &bind(":91"), None),
            Ok(Some(FIRST + 1))
        );
        assert_eq!(
            lent.claim(worker(1, 1), &bind(":91"), None),
            Ok(None),
            "no news"
        );
        // 0 is recycled: its successor 2 sits elsewhere, and asks before 0 is gone.
        let tried = lent.claim(worker(2, 1), &bind(":90?backlog=7"), None);
        assert_eq!(tried, Ok(Some(FIRST)));
        assert_eq!(lent.at(&bind(":90").address), Some(&'a'));
        assert_eq!(let_go(&mut lent, |_| true, true), [0; 0]);
        assert_eq!(let_go(&mut lent, |who| who != worker(0, 1), false), [0; 0]);
        assert_eq!(
            claims(&lent),
            [(0, vec![worker(2, 1)]), (1, vec![worker(1, 1)])]
        );
        // 1 dies, and its successor asks for nothing.
        assert_eq!(let_go(&mut lent, |who| who == worker(2, 1), false), [0; 0]);
        assert_eq!(
            let_go(&mut lent, |who| who == worker(2, 1), true),
            [FIRST + 1]
        );
        assert_eq!(claims(&lent), [(0, vec![worker(2, 1)])]);
        assert_eq!(
            lent.claim(worker(1, 2), &bind(":91"), None),
            Ok(Some(FIRST + 2))
        );
        // The other process has left the address, and the acceptor has bound it.
        let opened = lent.claim(worker(1, 2), &bind(":91"), Some('b'));
        assert_eq!(opened, Ok(Some(FIRST + 2)));
        assert_eq!(lent.claim(worker(1, 2), &bind(":91"), Some('c')), Ok(None));
        assert_eq!(lent.listeners().collect::<Vec<_>>(), [&'a', &'b']);
    }

    #[test]
    fn a_worker_has_so_many_and_no_more() {
        let mut lent: Lent<char> = Lent::default();
        let at = |port: usize| bind(&format!(":{port}"));
        for port in 1..=DOORS_EACH_MAX {
            assert!(lent.claim(worker(0, 1), &at(port), None).is_ok());
        }
        assert!(
            lent.claim(worker(0, 1), &at(DOORS_EACH_MAX + 1), None)
                .is_err()
        );
        assert_eq!(lent.claim(worker(0, 1), &at(1), None), Ok(None));
        assert!(
            lent.claim(worker(1, 1), &at(DOORS_EACH_MAX + 1), None)
                .is_ok()
        );
    }

    #[derive(Clone, Debug)]
    enum Event {
        Claim(WorkerRef, u16, bool),
        Settle(Vec<WorkerRef>, bool),
    }

    fn event() -> impl Strategy<Value = Event> {
        let who = || (0..3u16, 0..3u16).prop_map(|(index, epoch)| worker(index, epoch));
        prop_oneof![
            (who(), 1..5u16, any::<bool>())
                .prop_map(|(who, at, opens)| Event::Claim(who, at, opens)),
            (prop::collection::vec(who(), 0..6), any::<bool>())
                .prop_map(|(there, whole)| Event::Settle(there, whole)),
        ]
    }

    proptest! {
        #[test]
        fn no_door_is_lost_that_is_somebodys_and_none_is_kept_that_is_nobodys(
            events in prop::collection::vec(event(), 0..60)
        ) {
            let mut lent = Lent::default();
            for (step, event) in events.into_iter().enumerate() {
                match event {
                    Event::Claim(who, port, opens) => {
                        let at = bind(&format!(":{port}"));
                        let before = lent.at(&at.address).copied();
                        let told = lent.claim(who, &at, opens.then_some(step)).unwrap();
                        let after = lent.at(&at.address).copied();
                        prop_assert_eq!(after, before.or(opens.then_some(step)));
                        prop_assert!(told.is_some() || after == before);
                        let claimed = lent.doors.iter().find(|door| door.bind.address == at.address);
                        prop_assert!(claimed.unwrap().claims.contains(&who));
                    }
                    Event::Settle(there, whole) => {
                        let before = claims(&lent);
                        let gone = let_go(&mut lent, |who| there.contains(&who), whole);
                        for (number, claims) in before {
                            let is_claimed = claims.iter().any(|who| there.contains(who));
                            let was_let_go = gone.contains(&(number + FIRST));
                            prop_assert_eq!(was_let_go, !is_claimed && whole);
                        }
                    }
                }
                let mut numbers: Vec<_> = lent.doors.iter().map(|door| door.number).collect();
                let mut addresses: Vec<_> = lent.doors.iter().map(|door| door.bind.to_string()).collect();
                let count = lent.doors.len();
                numbers.dedup();
                addresses.sort();
                addresses.dedup();
                prop_assert_eq!((numbers.len(), addresses.len()), (count, count));
                prop_assert!(lent.doors.iter().all(|door| !door.claims.is_empty()));
            }
        }
    }
}
