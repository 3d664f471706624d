//! How much of something each client has.

use std::collections::HashMap;
use std::collections::hash_map;
use std::hash::Hash;

/// Counts what clients have of something: places in the line, connections, bytes.
///
/// A client that has nothing takes no memory, so there are never more clients here than things to have.
#[derive(Debug)]
pub struct Clients<K> {
    had: HashMap<K, u64>,
}

impl<K> Default for Clients<K> {
    fn default() -> Self {
        let had = HashMap::new();
        Self { had }
    }
}

impl<K: Eq + Hash> Clients<K> {
    /// Counts `amount` more for this client; false, and it counts nothing, if the client would then have more than
    /// `most`.
    pub fn take(&mut self, client: K, amount: u64, most: u64) -> bool {
        match self.had.entry(client) {
            hash_map::Entry::Occupied(mut had) => {
                let all = had.get().saturating_add(amount);
                let fits = all <= most;
                if fits {
                    had.insert(all);
                }
                fits
            }
            hash_map::Entry::Vacant(nothing) => {
                let fits = amount <= most;
                if fits && amount > 0 {
                    nothing.insert(amount);
                }
                fits
            }
        }
    }

    /// Counts `amount` less for this client.
    pub fn give_back(&mut self, client: K, amount: u64) {
        if let hash_map::Entry::Occupied(mut had) = self.had.entry(client) {
            let left = had.get().saturating_sub(amount);
            if left == 0 {
                had.remove();
            } else {
                had.insert(left);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn each_up_to_the_bound_and_nobody_remembered(
            most in 0..12_u64,
            steps in vec((any::<bool>(), 0..3_usize, 0..5_u64), 0..60),
        ) {
            let mut clients = Clients::default();
            let mut model = [0_u64; 3];
            for (takes, client, amount) in steps {
                if takes {
                    let taken = clients.take(client, amount, most);
                    prop_assert_eq!(taken, model[client] + amount <= most);
                    model[client] += if taken { amount } else { 0 };
                } else if model[client] >= amount {
                    clients.give_back(client, amount);
                    model[client] -= amount;
                }
                let with_some = model.iter().filter(|&&had| had > 0).count();
                prop_assert_eq!(clients.had.len(), with_some);
            }
        }
    }
}
