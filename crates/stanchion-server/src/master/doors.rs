//! Doors that the next house, or the next master, does not have. Clients in their queues must not be reset, so the acceptor that leaves gets the
//! order to close them, and to accept the clients that came before.

use stanchion_sys::listener::Listener;

use super::Loop;
use super::resources::HouseResources;
use stanchion_generation::messages::ToAcceptor;
use stanchion_master::House;

impl Loop<'_> {
    /// Sees to the doors before an acceptor gets a message.
    pub(super) fn see_to_doors(&mut self, generation: u32, message: &ToAcceptor) {
        if matches!(message, ToAcceptor::Retire { .. }) {
            self.close_dropped(generation);
        }
    }

    fn close_dropped(&mut self, generation: u32) {
        // Only the next master knows which listeners it has.
        let has_heir = self.master.has_heir();
        let next = self
            .master
            .houses()
            .filter(|house| house.may_have_the_door());
        let next = next.filter_map(|house: &House| self.houses.get(&house.generation));
        let kept: Vec<_> = next
            .flat_map(HouseResources::doors)
            .map(|door| door.address().clone())
            .collect();
        let Some(house) = self.houses.get_mut(&generation) else {
            return;
        };
        let addresses = house.public_doors().map(Listener::address);
        let dropped = addresses.filter(|&address| {
            if has_heir {
                self.succession.heir_has_dropped(address)
            } else {
                !kept.contains(address)
            }
        });
        let dropped: Vec<_> = dropped
            .map(|address| ToAcceptor::LastOnes {
                address: address.to_string(),
            })
            .collect();
        if let Some(acceptor) = &mut house.acceptor {
            for message in dropped {
                acceptor.outbox.send(message);
            }
        }
    }
}
