//! The table of connections by number, and a list of those that can be spared, longest first.
//!
//! Connections in that list can be closed without harm: they are idle, never used, or being closed. When there is no
//! room for another connection, the first of the list are closed.

/// The number of no entry.
const NOBODY: u32 = u32::MAX;

/// Entries that keep their number while they are in the table, and a list through some of them: so the acceptor finds the
/// entry to spare first without a look at the others, as nginx does for its reusable connections.
pub(super) struct ConnectionTable<T> {
    entries: Vec<TableEntry<T>>,
    vacant: Vec<u32>,
    /// Numbers of entries that were removed in this turn: news for them may still be on its way, and must not reach another
    /// entry.
    resting: Vec<u32>,
    /// The ends of the list.
    first: u32,
    last: u32,
    /// How many entries are in the list.
    spare: usize,
}

struct TableEntry<T> {
    here: Option<T>,
    /// When the acceptor is to look at it, in microseconds.
    look_at_us: u64,
    is_spare: bool,
    before: u32,
    after: u32,
}

impl<T> Default for ConnectionTable<T> {
    fn default() -> Self {
        Self {
            entries: Vec::new(),
            vacant: Vec::new(),
            resting: Vec::new(),
            first: NOBODY,
            last: NOBODY,
            spare: 0,
        }
    }
}

impl<T> ConnectionTable<T> {
    /// How many entries there are.
    pub(super) fn len(&self) -> usize {
        self.entries.len() - self.vacant.len() - self.resting.len()
    }

    /// The number that the next entry will have.
    pub(super) fn next_number(&self) -> u32 {
        let next = self.vacant.last().copied();
        next.unwrap_or(self.entries.len() as u32)
    }

    /// Adds an entry that cannot be spared yet, and returns its number, which is [`ConnectionTable::next_number`].
    pub(super) fn add(&mut self, one: T) -> u32 {
        let number = self.next_number();
        if self.vacant.pop().is_none() {
            self.entries.push(TableEntry {
                here: None,
                look_at_us: 0,
                is_spare: false,
                before: NOBODY,
                after: NOBODY,
            });
        }
        let entry = &mut self.entries[number as usize];
        entry.look_at_us = 0;
        entry.here = Some(one);
        number
    }

    /// The entry with this number, if there is one.
    pub(super) fn get_mut(&mut self, number: u32) -> Option<&mut T> {
        self.entries.get_mut(number as usize)?.here.as_mut()
    }

    /// Removes an entry, from the list too.
    pub(super) fn remove(&mut self, number: u32) -> Option<T> {
        self.set_spare(number, false);
        let gone = self.entries[number as usize].here.take()?;
        self.resting.push(number);
        Some(gone)
    }

    /// Ends a turn: the numbers of removed entries are free again.
    pub(super) fn end_turn(&mut self) {
        self.vacant.append(&mut self.resting);
    }

    /// The numbers of all entries, in no order.
    pub(super) fn numbers(&self) -> Vec<u32> {
        let all = (0..).zip(&self.entries);
        let here = all.filter(|(_, entry)| entry.here.is_some());
        here.map(|(number, _)| number).collect()
    }

    /// All entries, in no order.
    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        self.entries.iter().filter_map(|entry| entry.here.as_ref())
    }

    /// Appends the numbers of the entries that are due to be looked at.
    pub(super) fn due(&self, now_us: u64, into: &mut Vec<u32>) {
        let due = (0..).zip(&self.entries);
        let due = due.filter(|(_, entry)| entry.look_at_us <= now_us && entry.here.is_some());
        into.extend(due.map(|(number, _): (u32, _)| number));
    }

    /// Sets when the acceptor looks at an entry again.
    pub(super) fn look_at(&mut self, number: u32, at_us: u64) {
        self.entries[number as usize].look_at_us = at_us;
    }

    /// Has the acceptor look at an entry at that time, if not before.
    pub(super) fn look_by(&mut self, number: u32, at_us: u64) {
        let entry = &mut self.entries[number as usize];
        entry.look_at_us = entry.look_at_us.min(at_us);
    }

    /// Sets whether an entry can be spared. An entry that could not be spared before becomes the last in the list; one that
    /// could keeps its place.
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

    /// The entry that has been in the list for the longest.
    pub(super) fn longest_spare(&self) -> Option<u32> {
        (self.first != NOBODY).then_some(self.first)
    }

    /// How many entries can be spared.
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
        EndTurn,
        Spare(usize, bool),
    }

    fn acts() -> impl Strategy<Value = Vec<Act>> {
        let act = prop_oneof![
            Just(Act::Add),
            Just(Act::EndTurn),
            (0..12_usize).prop_map(Act::Remove),
            (0..12_usize, any::<bool>()).prop_map(|(who, is)| Act::Spare(who, is)),
        ];
        proptest::collection::vec(act, 0..200)
    }

    /// The entries that are due now. The acceptor looks at each again at `again_us`.
    fn seen(table: &mut ConnectionTable<u32>, now_us: u64, again_us: u64) -> Vec<u32> {
        let mut seen = Vec::new();
        table.due(now_us, &mut seen);
        for number in &seen {
            table.look_at(*number, again_us);
        }
        seen
    }

    /// Adds an entry with its number as its value.
    fn add(table: &mut ConnectionTable<u32>) -> u32 {
        let number = table.next_number();
        assert_eq!(table.add(number), number);
        assert_eq!(table.get_mut(number), Some(&mut number.clone()));
        number
    }

    #[test]
    fn each_is_looked_at_when_its_time_has_come() {
        let mut table = ConnectionTable::default();
        for _ in 0..3 {
            add(&mut table);
        }
        assert_eq!(seen(&mut table, 0, 10), [0, 1, 2]);
        table.look_by(1, 5);
        table.look_by(2, 15);
        assert!(seen(&mut table, 4, 10).is_empty());
        assert_eq!(seen(&mut table, 5, 20), [1]);
        table.remove(0);
        assert_eq!(seen(&mut table, 10, 20), [2]);
        // Another entry has the number.
        table.end_turn();
        assert_eq!(add(&mut table), 0);
        assert_eq!(seen(&mut table, 11, 20), [0]);
    }

    proptest! {
        /// The naive model: a list of all entries, and a list of those to spare.
        #[test]
        fn it_is_a_list_of_all_and_a_list_of_the_spare(acts in acts()) {
            let mut table = ConnectionTable::default();
            let (mut here, mut spare): (Vec<u32>, Vec<u32>) = Default::default();
            // The numbers that were freed in this turn.
            let mut left: Vec<u32> = Vec::new();
            for act in acts {
                match act {
                    Act::Add => {
                        let number = add(&mut table);
                        // News for an entry that has left in this turn must not reach this one.
                        prop_assert!(!here.contains(&number) && !left.contains(&number));
                        here.push(number);
                    }
                    Act::Remove(who) if who < here.len() => {
                        let number = here.remove(who);
                        spare.retain(|other| *other != number);
                        prop_assert_eq!(table.remove(number), Some(number));
                        prop_assert_eq!(table.remove(number), None);
                        prop_assert_eq!(table.get_mut(number), None);
                        left.push(number);
                    }
                    Act::Spare(who, is_spare) if who < here.len() => {
                        let number = here[who];
                        table.set_spare(number, is_spare);
                        if !is_spare {
                            spare.retain(|other| *other != number);
                        } else if !spare.contains(&number) {
                            spare.push(number);
                        }
                    }
                    Act::EndTurn => {
                        table.end_turn();
                        left.clear();
                    }
                    Act::Remove(_) | Act::Spare(..) => {}
                }
                prop_assert_eq!(table.len(), here.len());
                prop_assert_eq!(table.spare(), spare.len());
                let mut all: Vec<u32> = table.iter().copied().collect();
                all.sort_unstable();
                prop_assert_eq!(&all, &table.numbers());
                let mut sorted = here.clone();
                sorted.sort_unstable();
                prop_assert_eq!(all, sorted);
            }
            // The order of the whole list is the same, too, as taking it apart shows.
            let mut taken = Vec::new();
            while let Some(number) = table.longest_spare() {
                taken.push(number);
                table.set_spare(number, false);
            }
            prop_assert_eq!(taken, spare);
        }
    }
}
