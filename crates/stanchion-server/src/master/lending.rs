//! The loop lends listeners to single workers, and takes them back ([`Lent`](super::lent::Lent)).

use stanchion_sys::listener::Listener;

use super::lent::LentDoor;
use super::reports::Listens;
use super::resources::HouseResources;
use super::{Loop, now_ms};
use stanchion_generation::listeners::of_worker;
use stanchion_generation::messages::{ToAcceptor, WorkerRef};
use stanchion_master::House;
use stanchion_settings::Bind;

impl HouseResources {
    /// Sends the acceptor the doors that are lent.
    pub(super) fn tell_of_lent(&mut self, only: Option<(u32, WorkerRef)>) {
        // The claim of a worker that is gone is about to be dropped.
        let number_of = |WorkerRef { index, epoch }| {
            let post = self.posts.get(&index);
            post.and_then(|post| post.number_of(epoch)).unwrap_or(index)
        };
        if let Some(acceptor) = &mut self.acceptor {
            for (message, fd) in self.lent.messages(only, number_of) {
                acceptor.outbox.send_with(message, fd);
            }
        }
    }
}

impl Loop<'_> {
    /// A worker, or the acceptor for it, says that it listens, or wants to.
    pub(super) fn lend(&mut self, asked: Listens) {
        let (generation, worker) = (asked.generation, asked.worker.index);
        if let Err(problem) = self.try_to_lend(asked)
            && let Some(house) = self.houses.get_mut(&generation)
        {
            house.refuse(now_ms(), worker, &problem);
        }
    }

    fn try_to_lend(&mut self, asked: Listens) -> Result<(), String> {
        let Listens {
            generation,
            worker,
            bind,
            fd,
        } = asked;
        // Workers run the app's code, so nothing here is taken on trust.
        let opened = fd.map(Listener::received).transpose();
        let bind = Bind::parse(&bind)?;
        of_worker::check(&bind)?;
        let opened = opened.map_err(|error| error.to_string())?;
        let elsewhere = || {
            // The listener of an earlier generation, or of the master before this one.
            let others = self.houses.values().map(|house| &house.lent);
            let others = others.filter_map(|lent| lent.at(&bind.address)).next_back();
            others.or_else(|| self.succession.lent(&bind.address))
        };
        let is_open = |house: &HouseResources| house.lent.is_open(&bind.address);
        let opened = match (opened, self.houses.get(&generation)) {
            (None, Some(house)) if !is_open(house) => elsewhere()
                .map(Listener::try_clone)
                .transpose()
                .map_err(|error| error.to_string())?,
            (opened, _) => opened,
        };
        if let Some(house) = self.houses.get_mut(&generation)
            && let Some(number) = house.lent.claim(worker, &bind, opened)?
        {
            house.tell_of_lent(Some((number, worker)));
        }
        Ok(())
    }

    /// Lets go of doors whose workers are gone for good.
    pub(super) fn let_go_of_lent(&mut self) {
        let mut gone = Vec::new();
        for (&generation, resources) in &mut self.houses {
            let house = self.master.house(generation);
            let is_there = |worker| house.is_some_and(|house| house.workers.is_seated(worker));
            let is_whole = house.is_none_or(House::has_its_workers);
            let doors = resources.lent.let_go(is_there, is_whole);
            gone.extend(doors.into_iter().map(|door| (generation, door)));
        }
        for (generation, door) in gone {
            self.close_lent(generation, &door);
        }
    }

    fn close_lent(&mut self, generation: u32, door: &LentDoor<Listener>) {
        let address = &door.bind.address;
        let mut others = self
            .master
            .houses()
            .filter(|house| house.may_have_the_door());
        let is_shared = others.any(|house| {
            let house = self.houses.get(&house.generation);
            house.is_some_and(|house| house.lent.is_open(address))
        }) || self.succession.lent(address).is_some()
            || self.master.has_heir();
        let house = self.houses.get_mut(&generation);
        if let Some(acceptor) = house.and_then(|house| house.acceptor.as_mut()) {
            let door = door.number;
            acceptor
                .outbox
                .send(ToAcceptor::CloseDoor { door, is_shared });
        }
    }
}
