//! How many of those who wait are of one client.

use std::collections::HashMap;
use std::collections::hash_map;
use std::hash::Hash;

/// Counts those who wait, by client, each up to a bound.
///
/// A client who does not wait is not remembered, so there are never more of them than waiting
/// requests.
#[derive(Debug)]
pub struct Clients<K> {
    each_max: usize,
    waiting: HashMap<K, usize>,
}

impl<K: Eq + Hash> Clients<K> {
    /// Up to `each_max` of each client.
    pub fn new(each_max: usize) -> Self {
        Self {
            each_max,
            waiting: HashMap::new(),
        }
    }

    /// Counts one more of this client; false, and nothing is counted, if there are as many as may be.
    pub fn enter(&mut self, client: K) -> bool {
        if self.each_max == 0 {
            return false;
        }
        let count = self.waiting.entry(client).or_default();
        if *count >= self.each_max {
            return false;
        }
        *count += 1;
        true
    }

    /// One of this client does not wait any more.
    pub fn leave(&mut self, client: K) {
        if let hash_map::Entry::Occupied(mut waiting) = self.waiting.entry(client) {
            *waiting.get_mut() -= 1;
            if *waiting.get() == 0 {
                waiting.remove();
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
            each_max in 0..4_usize,
            steps in vec((any::<bool>(), 0..3_usize), 0..60),
        ) {
            let mut clients = Clients::new(each_max);
            let mut model = [0_usize; 3];
            for (enters, client) in steps {
                if enters {
                    let entered = clients.enter(client);
                    prop_assert_eq!(entered, model[client] < each_max);
                    model[client] += usize::from(entered);
                } else if model[client] > 0 {
                    clients.leave(client);
                    model[client] -= 1;
                }
                let waiting = model.iter().filter(|&&count| count > 0).count();
                prop_assert_eq!(clients.waiting.len(), waiting);
            }
        }
    }
}
