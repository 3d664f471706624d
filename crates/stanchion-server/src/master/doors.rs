//! Doors that some have and others have not: listeners that are lent to single workers ([`Lent`](super::lent::Lent)), and those that the
//! next generation, or the next master, does not have. Clients in the queues of these must not be reset, so the acceptor that leaves gets the
//! order to close them, and to accept the clients that came before.

use stanchion_master::{Generation, Master};
use stanchion_sys::listener::Listener;

use super::generations::Generations;
use super::lent::LentDoor;
use super::reports::Listens;
use super::resources::GenerationResources;
use super::succession::Succession;
use stanchion_generation::listeners::of_worker;
use stanchion_generation::messages::ToAcceptor;
use stanchion_settings::Bind;

impl Generations {
    /// Before the acceptor of this generation gets the order to retire: has it close the doors that the next acceptor does not have.
    pub(super) fn close_dropped(
        &mut self,
        generation_number: u32,
        master: &Master,
        succession: &Succession,
    ) {
        // Only the next master knows which listeners it has.
        let has_heir = master.has_heir();
        let next = master
            .generations()
            .filter(|generation| generation.may_have_the_door());
        let next = next.filter_map(|generation: &Generation| self.get(generation.number));
        let kept: Vec<_> = next
            .flat_map(GenerationResources::doors)
            .map(|door| door.address().clone())
            .collect();
        let Some(generation) = self.get_mut(generation_number) else {
            return;
        };
        let addresses = generation.public_doors().map(Listener::address);
        let dropped = addresses.filter(|&address| {
            if has_heir {
                succession.heir_has_dropped(address)
            } else {
                !kept.contains(address)
            }
        });
        let dropped: Vec<_> = dropped
            .map(|address| ToAcceptor::LastOnes {
                address: address.to_string(),
            })
            .collect();
        for message in dropped {
            generation.links.tell_acceptor(message);
        }
    }

    /// A worker, or the acceptor for it, says that it listens, or wants to.
    pub(super) fn lend(&mut self, now_ms: u64, asked: Listens, succession: &Succession) {
        let (generation_number, worker) = (asked.generation_number, asked.worker.index);
        if let Err(problem) = self.try_to_lend(asked, succession)
            && let Some(generation) = self.get_mut(generation_number)
        {
            generation.links.refuse(now_ms, worker, &problem);
        }
    }

    fn try_to_lend(&mut self, asked: Listens, succession: &Succession) -> Result<(), String> {
        let Listens {
            generation_number,
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
            let others = self.iter().rev();
            let mut others = others.filter_map(|generation| generation.lent.at(&bind.address));
            others.next().or_else(|| succession.lent(&bind.address))
        };
        let is_open = |generation: &GenerationResources| generation.lent.is_open(&bind.address);
        let opened = match (opened, self.get(generation_number)) {
            (None, Some(generation)) if !is_open(generation) => elsewhere()
                .map(Listener::try_clone)
                .transpose()
                .map_err(|error| error.to_string())?,
            (opened, _) => opened,
        };
        if let Some(generation) = self.get_mut(generation_number)
            && let Some(number) = generation.lent.claim(worker, &bind, opened)?
        {
            generation.tell_of_lent(Some((number, worker)));
        }
        Ok(())
    }

    /// Lets go of doors whose workers are gone for good.
    pub(super) fn let_go_of_lent(&mut self, master: &Master, succession: &Succession) {
        let mut gone = Vec::new();
        for resources in self.iter_mut() {
            let generation_number = resources.number();
            let generation = master.generation(generation_number);
            let is_there =
                |worker| generation.is_some_and(|generation| generation.workers.is_seated(worker));
            let is_whole = generation.is_none_or(Generation::has_its_workers);
            let doors = resources.lent.let_go(is_there, is_whole);
            gone.extend(doors.into_iter().map(|door| (generation_number, door)));
        }
        for (generation_number, door) in gone {
            self.close_lent(generation_number, &door, master, succession);
        }
    }

    fn close_lent(
        &mut self,
        generation_number: u32,
        door: &LentDoor<Listener>,
        master: &Master,
        succession: &Succession,
    ) {
        let address = &door.bind.address;
        let mut others = master
            .generations()
            .filter(|generation| generation.may_have_the_door());
        let is_shared = others.any(|generation| {
            let generation = self.get(generation.number);
            generation.is_some_and(|generation| generation.lent.is_open(address))
        }) || succession.lent(address).is_some()
            || master.has_heir();
        if let Some(generation) = self.get_mut(generation_number) {
            let door = door.number;
            let message = ToAcceptor::CloseDoor { door, is_shared };
            generation.links.tell_acceptor(message);
        }
    }
}
