//! Closing doors to newcomers. It is the master that does it: some kernels let only root filter what
//! comes to a socket, and the acceptor is not root if there is a `user`.

use stanchion_sys::listener::Listener;
use tracing::warn;

use super::Loop;
use super::heir::Heir;
use super::house::House;
use super::premises::Premises;
use crate::messages::ToAcceptor;

impl Loop<'_> {
    /// What is done about doors before an acceptor is told something.
    pub(super) fn see_to_doors(&mut self, generation: u32, message: &ToAcceptor) {
        match message {
            ToAcceptor::Drain { .. } => {
                let house = self.houses.get(&generation);
                // Whoever asks how the server is may ask until the end.
                for door in house.into_iter().flat_map(Premises::public_doors) {
                    close(door);
                }
            }
            // An heir has what it has; only it knows.
            ToAcceptor::Retire { .. } if self.master.heir == Heir::None => {
                self.close_dropped(generation);
            }
            _ => {}
        }
    }

    /// Whoever is in the queue of a listener that the next house does not have must not be reset.
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
                close(door);
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

/// Whoever waits at one that was passed is the next server's.
///
/// Whoever is in the queue already must not suffer if that cannot be done; who comes from now on is let
/// in, or reset when the socket closes.
pub(super) fn close(door: &Listener) {
    if door.is_passed() {
        return;
    }
    if let Err(error) = door.close_door() {
        warn!(
            "{} cannot be closed to newcomers only, and some may be reset: {error}",
            door.address()
        );
    }
}
