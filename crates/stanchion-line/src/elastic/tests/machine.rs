//! The bounds that the machine sets: cores, memory and processes.

use super::*;

#[test]
fn by_itself_a_server_keeps_as_many_workers_as_keep_its_cores_busy() {
    // (cores, threads, the share that requests compute, the most workers of 2 to 32)
    let table = [
        (2, 1, None, 8),
        (2, 1, Some(1.0), 3),
        (2, 1, Some(0.5), 5),
        (2, 1, Some(0.1), 25),
        (2, 1, Some(0.0), 32),
        // Ten threads have a core in all; more of them have no more.
        (2, 10, Some(0.1), 3),
        (2, 10, Some(0.9), 3),
        (2, 4, Some(0.05), 13),
        (1, 1, Some(1.0), 2),
    ];
    for (cores, seats_each, cpu_share, most) in table {
        let mut elastic = serving(ElasticLimits {
            seats_each,
            auto_cores: Some(cores),
            ..LIMITS
        });
        elastic.ready_at_departure = 32;
        elastic.note(100 * MS, 999, 2);
        let seen = Seen { cpu_share, ..ROOMY };
        elastic.step(100 * MS, &seen, &mut Curve::default());
        assert_eq!(elastic.wanted(), most, "{cores} {seats_each} {cpu_share:?}");
        let why = if most == 32 {
            HeldBack::Max
        } else {
            HeldBack::Cores
        };
        assert_eq!(elastic.held_back(), Some(why));
    }
}

#[test]
fn no_more_workers_come_than_the_machine_has_room_for() {
    let table = [
        (Some(roomy(2, (9, 0, 9))), 8, None),
        (Some(roomy(2, (3, 0, 9))), 5, Some(HeldBack::Memory)),
        (Some(roomy(2, (9, 0, 4))), 6, Some(HeldBack::Pids)),
        (Some(roomy(2, (9, 11, 9))), 2, Some(HeldBack::Memory)),
        (None, 2, Some(HeldBack::Memory)),
        (
            Some(Headroom {
                workers: 2,
                is_boot_failing: true,
                ..HEADROOM
            }),
            2,
            Some(HeldBack::Boot),
        ),
    ];
    for (headroom, workers, held_back) in table {
        let mut elastic = serving(LIMITS);
        elastic.ready_at_departure = 32;
        // Ten in the house, of which eight find a worker in time.
        elastic.note(100 * MS, 10, 2);
        assert!(elastic.wants_headroom());
        let seen = Seen { headroom, ..ROOMY };
        elastic.step(100 * MS, &seen, &mut Curve::default());
        assert_eq!(
            (elastic.wanted(), elastic.held_back()),
            (workers, held_back),
            "{headroom:?}"
        );
        // While none waits, the machine is not asked.
        elastic.note(200 * MS, 2, 2);
        assert!(!elastic.wants_headroom());
    }
}

#[test]
fn a_worker_leaves_where_all_wait_for_memory() {
    let mut elastic = serving(LIMITS);
    elastic.set(0, 8, false);
    elastic.ready_at_departure = 32;
    elastic.note(0, 40, 8);
    let mut step = |now_us, workers, full_percent, in_flight| {
        elastic.note(now_us, in_flight, workers);
        let headroom = Some(roomy(workers, (9, full_percent, 9)));
        let seen = Seen { headroom, ..ROOMY };
        let wanted = elastic.step(now_us, &seen, &mut Curve::default());
        wanted.map(|wanted| (wanted.workers, wanted.because.to_string()))
    };
    let why = "all threads waited for memory for 12 % of the last 10 s";
    assert_eq!(step(S, 8, 12, 40), Some((7, why.to_owned())));
    // The reading is the same as long as no other one has come.
    assert_eq!(step(S + 10 * MS, 8, 12, 40), None);
    // The first one has its requests yet, and its memory.
    assert_eq!(step(2 * S, 7, 12, 40), None);
    assert_eq!(step(12 * S, 7, 12, 40), Some((6, why.to_owned())));
    assert_eq!(step(23 * S, 6, 12, 0), None, "no request waits");
    assert_eq!(step(24 * S, 2, 12, 40).map(|(workers, _)| workers), Some(2));
    assert_eq!(step(35 * S, 1, 12, 40), None, "there are the fewest");
    let headroom = Headroom {
        workers: 8,
        memory: Some(Left {
            left: 20 << 20,
            max: 512 << 20,
        }),
        ..HEADROOM
    };
    let mut elastic = serving(LIMITS);
    elastic.set(0, 8, false);
    elastic.note(S, 40, 8);
    let seen = Seen {
        headroom: Some(headroom),
        ..ROOMY
    };
    let wanted = elastic.step(S, &seen, &mut Curve::default());
    let wanted = wanted.map(|wanted| (wanted.workers, wanted.because.to_string()));
    assert_eq!(wanted, Some((7, "20 MiB of memory are left".to_owned())));
}
