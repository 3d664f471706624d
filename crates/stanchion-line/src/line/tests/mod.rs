use super::*;

const SECOND_US: u64 = 1_000_000;

fn line(waiting_max: usize, queue_timeout_us: u64) -> Line<char> {
    Line::new(LineLimits {
        waiting_max,
        queue_timeout_us,
        discipline: Discipline::Fifo,
    })
}

fn retry_after_s(refused: Result<Place, (char, Full)>) -> u64 {
    let (_, Full { retry_after_s }) = refused.unwrap_err();
    retry_after_s
}

fn items(line: &mut Line<char>, now_us: u64) -> String {
    std::iter::from_fn(|| line.pull(now_us))
        .map(|pulled| pulled.item)
        .collect()
}

#[test]
fn drain_empties_even_if_dropped() {
    let mut line = line(3, 100);
    let place = line.join(0, LaneId::DEFAULT, 'a').unwrap();
    line.join(0, LaneId::DEFAULT, 'b').unwrap();
    line.join(0, LaneId::DEFAULT, 'c').unwrap();
    line.leave(place);
    assert_eq!(line.drain(500).next().unwrap().item, 'b');
    assert_eq!((line.len(), line.expire(500)), (0, None));
    assert!(line.join(500, LaneId::DEFAULT, 'd').is_ok());
}

#[test]
fn retry_after_follows_the_drain_rate() {
    // 100 wait. Gaps between departures -> seconds until they are out.
    for (gap_us, expected_s) in [(1_000, 1), (25_000, 3), (100_000, 10), (SECOND_US, 60)] {
        let mut line = line(100, 0);
        while line.join(0, LaneId::DEFAULT, 'x').is_ok() {}
        let mut now_us = 0;
        while now_us < 30 * SECOND_US {
            now_us += gap_us;
            line.drained(now_us, LaneId::DEFAULT);
            line.pull(now_us).unwrap();
            line.join(now_us, LaneId::DEFAULT, 'x').unwrap();
        }
        let actual_s = retry_after_s(line.join(now_us, LaneId::DEFAULT, 'y'));
        assert!(
            actual_s.abs_diff(expected_s) <= 1,
            "gap {gap_us}: {actual_s} s, not {expected_s}"
        );
    }
}

#[test]
fn retry_after_survives_idle_hours_and_grows_in_a_stall() {
    let mut line = line(100, 0);
    line.join(0, LaneId::DEFAULT, 'x').unwrap();
    for now_us in (0..30 * SECOND_US).step_by(25_000) {
        line.join(now_us, LaneId::DEFAULT, 'x').unwrap();
        line.drained(now_us, LaneId::DEFAULT);
        line.pull(now_us).unwrap();
    }
    items(&mut line, 30 * SECOND_US);

    let now_us = 9_000 * SECOND_US;
    while line.join(now_us, LaneId::DEFAULT, 'x').is_ok() {}
    assert!((2..=4).contains(&line.retry_after_s(now_us, LaneId::DEFAULT)));
    assert!((5..=30).contains(&line.retry_after_s(now_us + 12 * SECOND_US, LaneId::DEFAULT)));
    assert_eq!(
        line.retry_after_s(now_us + 60 * SECOND_US, LaneId::DEFAULT),
        60
    );
}

#[test]
fn clock_that_steps_back_counts_as_no_wait() {
    let mut line = line(2, 100);
    line.join(1_000, LaneId::DEFAULT, 'a').unwrap();
    assert_eq!(line.oldest_wait_us(10), 0);
    assert_eq!(line.expire(10), None);
    assert_eq!(line.pull(10).unwrap().wait_us, 0);
}

/// The items that come out by time now, shed ones in capitals.
fn expired(line: &mut Line<char>, now_us: u64) -> String {
    std::iter::from_fn(|| line.expire(now_us))
        .map(|(expiry, pulled)| match expiry {
            Expiry::TimedOut => pulled.item,
            Expiry::Shed => pulled.item.to_ascii_uppercase(),
        })
        .collect()
}

/// Joins `a` at 0, `b` at 10, and so on.
fn adaptive(target_us: u64, joined: usize) -> Line<char> {
    let mut line = Line::new(LineLimits {
        waiting_max: 26,
        queue_timeout_us: 0,
        discipline: Discipline::Adaptive { target_us },
    });
    for (now_us, item) in (0..).step_by(10).zip(('a'..='z').take(joined)) {
        line.join(now_us, LaneId::DEFAULT, item).unwrap();
    }
    line
}

#[test]
fn a_line_over_its_target_is_served_newest_first() {
    // (now, the items pulled): joins at 0, 10, 20, 30, the target is 100.
    for (now_us, expected) in [(30, "abcd"), (99, "abcd"), (100, "dcba"), (199, "dcba")] {
        let mut line = adaptive(100, 4);
        assert_eq!(items(&mut line, now_us), expected, "at {now_us}");
    }
    // The newest go first, one after the other, until no entry has waited that long.
    let mut line = adaptive(100, 4);
    let places: Vec<_> = ('e'..='f')
        .map(|item| line.join(90, LaneId::DEFAULT, item).unwrap())
        .collect();
    assert_eq!(line.pull(100).unwrap().item, 'f');
    assert_eq!(line.leave(places[0]), Some('e'));
    assert_eq!(line.pull(110).unwrap().item, 'd');
    line.join(110, LaneId::DEFAULT, 'g').unwrap();
    assert_eq!(
        expired(&mut line, 299),
        "A",
        "the first after a target over it"
    );
    assert_eq!(expired(&mut line, 300), "B", "the next after another one");
    assert_eq!(expired(&mut line, 400), "C", "and after 1/√2 of it");
    assert_eq!(line.pull(400).unwrap().item, 'g');
}

#[test]
fn one_put_back_does_not_make_it_stand_and_is_not_shed() {
    let mut line = adaptive(100, 1);
    let pulled = line.pull(10).unwrap();
    line.join(240, LaneId::DEFAULT, 'x').unwrap();
    line.join(250, LaneId::DEFAULT, 'y').unwrap();
    line.put_back(260, LaneId::DEFAULT, 0, pulled.item);
    assert_eq!(expired(&mut line, 300), "");
    assert_eq!(items(&mut line, 300), "axy");
    // If the lane is over its target without the returned entry, that entry still goes first.
    let mut line = adaptive(100, 3);
    let pulled = line.pull(10).unwrap();
    line.put_back(150, LaneId::DEFAULT, 0, pulled.item);
    assert_eq!(expired(&mut line, 210), "B");
    assert_eq!(items(&mut line, 210), "ac");
}

#[test]
fn queue_timeout_holds_in_a_line_over_its_target() {
    let mut line = Line::new(LineLimits {
        waiting_max: 9,
        queue_timeout_us: 150,
        discipline: Discipline::Adaptive { target_us: 100 },
    });
    for (now_us, item) in [(0, 'a'), (10, 'b'), (20, 'c')] {
        line.join(now_us, LaneId::DEFAULT, item).unwrap();
    }
    assert_eq!(expired(&mut line, 149), "");
    assert_eq!(line.pull(160).unwrap().item, 'c');
    assert_eq!(line.pull(160), None);
    assert_eq!(expired(&mut line, 160), "ab");
}

/// Lanes with these priorities and bounds; each word of `joined` is an item's letter and its lane.
fn lanes<const N: usize>(lanes: [(u32, Option<usize>); N], joined: &str) -> Line<char> {
    let lanes = lanes.map(|(priority, waiting_max)| LaneLimits {
        priority,
        waiting_max,
    });
    let limits = LineLimits {
        waiting_max: 100,
        queue_timeout_us: 1_000,
        discipline: Discipline::Fifo,
    };
    let mut line = Line::with_lanes(limits, &lanes);
    for (now_us, joins) in (0..).zip(joined.split_whitespace()) {
        let item = joins.chars().next().unwrap();
        let lane = LaneId::new(joins[1..].parse().unwrap());
        line.join(now_us, lane, item).unwrap();
    }
    line
}

#[test]
fn a_lane_with_a_bound_has_room_of_its_own() {
    let mut line = lanes([(10, None), (0, Some(2)), (0, None)], "");
    let (default, own, sharing) = (LaneId::DEFAULT, LaneId::new(1), LaneId::new(2));
    for _ in 0..99 {
        line.join(0, default, 'a').unwrap();
    }
    line.join(0, sharing, 'b').unwrap();
    assert!(line.join(0, default, 'c').is_err());
    assert!(line.join(0, sharing, 'c').is_err());
    line.join(0, own, 'x').unwrap();
    line.join(0, own, 'y').unwrap();
    assert!(line.join(0, own, 'z').is_err());
    assert_eq!((line.len(), line.view(0, own).waiting), (102, 2));
    // An entry that waits elsewhere counts for the common bound only.
    line.pull(0).unwrap();
    assert!(line.has_room(own, 50));
    line.pull(0).unwrap();
    line.pull(0).unwrap();
    assert!(line.has_room(default, 0) && !line.has_room(default, 1));
}

#[test]
fn each_lane_has_its_own_pace() {
    let mut line = lanes([(10, None), (0, None)], "");
    let (slow, fast) = (LaneId::DEFAULT, LaneId::new(1));
    for _ in 0..30 {
        line.join(0, slow, 'a').unwrap();
        line.join(0, fast, 'x').unwrap();
    }
    for now_us in (0..30 * SECOND_US).step_by(100_000) {
        line.drained(now_us, fast);
        if now_us % SECOND_US == 0 {
            line.drained(now_us, slow);
        }
    }
    let now_us = 30 * SECOND_US;
    assert!((3..=4).contains(&line.retry_after_s(now_us, fast)));
    assert!((28..=32).contains(&line.retry_after_s(now_us, slow)));
}
