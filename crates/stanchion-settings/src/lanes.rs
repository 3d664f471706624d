//! The lanes of the line by the settings.

use super::lane::DEFAULT;
use super::{Lane, Settings};

impl Settings {
    /// Every lane, the default lane first. A lane for which seats are kept has room of its own in any case: when the line is full no request would
    /// come to those seats. So has a lane with a maximum of seats: its requests wait while seats are idle, and leave the line's room to others. If
    /// the default lane, which has no room but the line's, has a maximum, the others have room of their own.
    pub fn lanes(&self) -> Vec<Lane> {
        let (mut lanes, others): (Vec<_>, Vec<_>) =
            self.line.lane.iter().cloned().partition(Lane::is_default);
        if lanes.is_empty() {
            lanes.push(Lane::new(DEFAULT));
        }
        let is_default_bounded = lanes[0].seats_max.is_some();
        lanes.extend(others);
        for lane in lanes.iter_mut().filter(|lane| {
            let needs_room = lane.seats > 0 || lane.seats_max.is_some() || is_default_bounded;
            needs_room && !lane.is_default()
        }) {
            lane.waiting.get_or_insert(self.line.max_waiting as usize);
        }
        lanes
    }

    /// Whether one client may have all room of a lane, whatever the limit for clients is. The lanes of streams have room of their own too, and no
    /// such right.
    pub fn is_for_all(&self, lane: &Lane) -> bool {
        let mut given = self.line.lane.iter();
        let has_waiting = given.any(|one| one.name == lane.name && one.waiting.is_some());
        lane.seats > 0 || has_waiting
    }

    /// The lanes that may have as many seats as there are, or more, although each has a maximum.
    pub(super) fn lanes_without_limit(&self) -> impl Iterator<Item = &Lane> {
        let seats = self.seats();
        let is_vain = move |lane: &&Lane| lane.seats_max.is_some_and(|max| max >= seats);
        self.line.lane.iter().filter(is_vain)
    }

    /// The seats that lanes reserve, if they leave none to the others.
    pub(super) fn reserves_too_many(&self) -> Option<usize> {
        let kept = self.line.lane.iter().map(|lane| lane.seats).sum();
        (kept > 0 && kept >= self.seats_min()).then_some(kept)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_lane_is_first_and_always_there() {
        let names = |lanes: &str| {
            let settings = Settings::from_json(&format!("{{\"workers\": 4, \"lane\": {lanes}}}"));
            let lanes = settings.unwrap().lanes().into_iter();
            lanes
                .map(|lane| (lane.name, lane.priority))
                .collect::<Vec<_>>()
        };
        assert_eq!(names("[]"), [("default".to_owned(), 10)]);
        assert_eq!(
            names(r#"["a=/a", "default priority=3", "b=/b"]"#),
            [
                ("default".to_owned(), 3),
                ("a".to_owned(), 10),
                ("b".to_owned(), 10)
            ]
        );
    }

    #[test]
    fn whoever_has_seats_has_room() {
        let lanes = r#"["a=/a", "b=/b seats=1", "c=/c seats=1 waiting=4", "default seats=1"]"#;
        let settings = format!("{{\"workers\": 4, \"max_waiting\": 9, \"lane\": {lanes}}}");
        let lanes = Settings::from_json(&settings).unwrap().lanes();
        let waiting: Vec<_> = lanes.iter().map(|lane| lane.waiting).collect();
        assert_eq!(waiting, [None, None, Some(9), Some(4)]);
    }

    #[test]
    fn requests_of_lanes_with_a_maximum_fill_no_room_of_others() {
        let waiting = |lanes: &str| {
            let settings = format!("{{\"workers\": 4, \"max_waiting\": 9, \"lane\": {lanes}}}");
            let lanes = Settings::from_json(&settings).unwrap().lanes();
            lanes.iter().map(|lane| lane.waiting).collect::<Vec<_>>()
        };
        let table = [
            (r#"["a=/a", "b=/b seats_max=1"]"#, vec![None, None, Some(9)]),
            (
                r#"["a=/a", "b=/b seats_max=1 waiting=4"]"#,
                vec![None, None, Some(4)],
            ),
            (
                r#"["a=/a", "default seats_max=1", "b=/b waiting=4"]"#,
                vec![None, Some(9), Some(4)],
            ),
        ];
        for (lanes, expected) in table {
            assert_eq!(waiting(lanes), expected, "{lanes}");
        }
    }
}
