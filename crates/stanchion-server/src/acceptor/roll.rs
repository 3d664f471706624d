//! Who is here: connections by number, and those of them that can be spared, longest first.

/// The number of nobody.
const NOBODY: u32 = u32::MAX;

/// Entries that keep their number while they are here, and a list through some of them: what is
/// spared first is found without a look at the others, as nginx does for its reusable
/// connections.
pub(super) struct Roll<T> {
    entries: Vec<Entry<T>>,
    vacant: Vec<u32>,
    /// The ends of the list.
    first: u32,
    last: u32,
    /// How many are in the list.
    spare: usize,
}

struct Entry<T> {
    here: Option<T>,
    /// When it is to be looked at, in microseconds.
    look_at_us: u64,
    is_spare: bool,
    before: u32,
    after: u32,
}

impl<T> Default for Roll<T> {
    fn default() -> Self {
        Self {
            entries: Vec::new(),
            vacant: Vec::new(),
            first: NOBODY,
            last: NOBODY,
            spare: 0,
        }
    }
}

impl<T> Roll<T> {
    /// How many are here.
    pub(super) fn len(&self) -> usize {
        self.entries.len() - self.vacant.len()
    }

    /// Adds what `make` makes of its number; not spare.
    pub(super) fn add(&mut self, make: impl FnOnce(u32) -> T) -> &T {
        let number = self.vacant.pop().unwrap_or_else(|| {
            self.entries.push(Entry {
                here: None,
                look_at_us: 0,
                is_spare: false,
                before: NOBODY,
                after: NOBODY,
            });
            (self.entries.len() - 1) as u32
        });
        let entry = &mut self.entries[number as usize];
        entry.look_at_us = 0;
        entry.here.insert(make(number))
    }

    /// Takes an entry off, from the list too.
    pub(super) fn remove(&mut self, number: u32) -> Option<T> {
        self.set_spare(number, false);
        let gone = self.entries[number as usize].here.take()?;
        self.vacant.push(number);
        Some(gone)
    }

    /// All who are here, in no order.
    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        self.entries.iter().filter_map(|entry| entry.here.as_ref())
    }

    /// Looks at all whose time has come. `look` says when each is to be looked at again.
    pub(super) fn look(&mut self, now_us: u64, mut look: impl FnMut(&T) -> u64) {
        let due = self
            .entries
            .iter_mut()
            .filter(|entry| entry.look_at_us <= now_us);
        for entry in due {
            if let Some(here) = &entry.here {
                entry.look_at_us = look(here);
            }
        }
    }

    /// Has an entry looked at then, if not before.
    pub(super) fn look_by(&mut self, number: u32, at_us: u64) {
        let entry = &mut self.entries[number as usize];
        entry.look_at_us = entry.look_at_us.min(at_us);
    }

    /// Whether an entry can be spared from now on. One that could not be before is the last in the
    /// list; one that could keeps its place.
    pub(super) fn set_spare(&mut self, number: u32, is_spare: bool) {
        let entry = &mut self.entries[number as usize];
        if entry.is_spare == is_spare || entry.here.is_none() {
            return;
        }
        entry.is_spare = is_spare;
        if is_spare {
            (entry.before, entry.after) = (self.last, NOBODY);
            let last = std::mem::replace(&mut self.last, number);
            *self.after(last) = number;
            self.spare += 1;
        } else {
            let (before, after) = (entry.before, entry.after);
            *self.after(before) = after;
            *self.before(after) = before;
            self.spare -= 1;
        }
    }

    /// Who has been spare for the longest.
    pub(super) fn longest_spare(&self) -> Option<(u32, &T)> {
        let entry = self.entries.get(self.first as usize)?;
        Some((self.first, entry.here.as_ref()?))
    }

    /// How many can be spared.
    pub(super) fn spare(&self) -> usize {
        self.spare
    }

    fn after(&mut self, number: u32) -> &mut u32 {
        match self.entries.get_mut(number as usize) {
            Some(entry) => &mut entry.after,
            None => &mut self.first,
        }
    }

    fn before(&mut self, number: u32) -> &mut u32 {
        match self.entries.get_mut(number as usize) {
            Some(entry) => &mut entry.before,
            None => &mut self.last,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Debug)]
    enum Act {
        Add,
        Remove(usize),
        Spare(usize, bool),
    }

    fn acts() -> impl Strategy<Value = Vec<Act>> {
        let act = prop_oneof![
            Just(Act::Add),
            (0..12_usize).prop_map(Act::Remove),
            (0..12_usize, any::<bool>()).prop_map(|(who, is)| Act::Spare(who, is)),
        ];
        proptest::collection::vec(act, 0..200)
    }

    /// Who is looked at now, each of whom is to be looked at again at `again_us`.
    fn seen(roll: &mut Roll<u32>, now_us: u64, again_us: u64) -> Vec<u32> {
        let mut seen = Vec::new();
        roll.look(now_us, |number| {
            seen.push(*number);
            again_us
        });
        seen
    }

    #[test]
    fn each_is_looked_at_when_its_time_has_come() {
        let mut roll = Roll::default();
        for _ in 0..3 {
            roll.add(|number| number);
        }
        assert_eq!(seen(&mut roll, 0, 10), [0, 1, 2]);
        roll.look_by(1, 5);
        roll.look_by(2, 15);
        assert!(seen(&mut roll, 4, 10).is_empty());
        assert_eq!(seen(&mut roll, 5, 20), [1]);
        roll.remove(0);
        assert_eq!(seen(&mut roll, 10, 20), [2]);
        // Somebody else has the number.
        roll.add(|number| number);
        assert_eq!(seen(&mut roll, 11, 20), [0]);
    }

    proptest! {
        /// The naive model: a list of who is here, and a list of who is spare.
        #[test]
        fn it_is_a_list_of_all_and_a_list_of_the_spare(acts in acts()) {
            let mut roll = Roll::default();
            let (mut here, mut spare): (Vec<u32>, Vec<u32>) = Default::default();
            for act in acts {
                match act {
                    Act::Add => {
                        let number = *roll.add(|number| number);
                        prop_assert!(!here.contains(&number));
                        here.push(number);
                    }
                    Act::Remove(who) if who < here.len() => {
                        let number = here.remove(who);
                        spare.retain(|other| *other != number);
                        prop_assert_eq!(roll.remove(number), Some(number));
                        prop_assert_eq!(roll.remove(number), None);
                    }
                    Act::Spare(who, is_spare) if who < here.len() => {
                        let number = here[who];
                        roll.set_spare(number, is_spare);
                        if !is_spare {
                            spare.retain(|other| *other != number);
                        } else if !spare.contains(&number) {
                            spare.push(number);
                        }
                    }
                    Act::Remove(_) | Act::Spare(..) => {}
                }
                prop_assert_eq!(roll.len(), here.len());
                prop_assert_eq!(roll.spare(), spare.len());
                let mut all: Vec<u32> = roll.iter().copied().collect();
                all.sort_unstable();
                let mut sorted = here.clone();
                sorted.sort_unstable();
                prop_assert_eq!(all, sorted);
            }
            // And the order of the whole list, by taking it apart.
            let mut taken = Vec::new();
            while let Some((number, _)) = roll.longest_spare() {
                taken.push(number);
                roll.set_spare(number, false);
            }
            prop_assert_eq!(taken, spare);
        }
    }
}
