//! Doors that the next house does not have: whoever is in their queues must not be reset, so the acceptor
//! that leaves is told to close them, and to let in who came before.

use super::Loop;
use super::heir::Heir;
use super::house::House;
use super::premises::Premises;
use crate::messages::ToAcceptor;

impl Loop<'_> {
    /// What is done about doors before an acceptor is told something.
    pub(super) fn see_to_doors(&mut self, generation: u32, message: &ToAcceptor) {
        // An heir has what it has; only it knows.
        if matches!(message, ToAcceptor::Retire { .. }) && self.master.heir == Heir::None {
            self.close_dropped(generation);
        }
    }

    fn close_dropped(&mut self, generation: u32) {
        let next = self
            .master
            .houses()
            .filter(|house| house.may_have_the_door());
        let next = next.filter_map(|house: &House| self.houses.get(&house.generation));
        let kept: Vec<_> = next
            .flat_map(Premises::doors)
            .map(|door| door.address().clone())
            .collect();
        let Some(house) = self.houses.get_mut(&generation) else {
            return;
        };
        let mut dropped = Vec::new();
        for door in house.public_doors() {
            if !kept.contains(door.address()) {
                let address = door.address().to_string();
                dropped.push(ToAcceptor::LastOnes { address });
            }
        }
        if let Some(acceptor) = &mut house.acceptor {
            for message in dropped {
                acceptor.outbox.send(message);
            }
        }
    }
}
