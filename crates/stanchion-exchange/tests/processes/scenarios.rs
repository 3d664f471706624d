//! The scenarios: each kills workers or the acceptor at certain moments.

use std::time::Duration;

use stanchion_exchange::{Exchange, Geometry};
use stanchion_sys::channel::poll_readable;
use stanchion_sys::clock::monotonic_us;
use stanchion_sys::process::{self, Exit};
use stanchion_sys::signal::SIGKILL;

use crate::crew::{Crew, fork};
use crate::desk::{Desk, STALL_US};
use crate::request::{Fatal, Random};

/// The exchange is leaked, as the server does it: workers keep it until they end.
fn exchange() -> &'static Exchange {
    let geometry = Geometry {
        seats: 4,
        seats_per_worker: 1,
        ahead_per_seat: 1,
        spare_per_worker: 0,
        sessions_per_worker: 0,
        event_loops: false,
        inflow_bytes: 0,
        request_bytes: 64,
        response_bytes: 251,
    };
    Box::leak(Box::new(Exchange::create(geometry).unwrap()))
}

/// Clears up after the workers that have died and hires others; returns how many.
fn replace_the_dead(crew: &mut Crew, desk: &mut Desk) -> u64 {
    let mut dead = 0;
    while let Some((_, exit, tenant)) = crew.bury() {
        assert_eq!(exit, Exit::Signal(SIGKILL));
        let tenant = tenant.unwrap();
        desk.clear_up_after(tenant);
        crew.replace(tenant);
        dead += 1;
    }
    dead
}

pub(crate) fn workers_die_at_each_stage(random: &mut Random) {
    let exchange = exchange();
    let mut crew = Crew::hire(exchange);
    let mut desk = Desk::open(exchange);
    for fatal in Fatal::ALL {
        let (answered, lost) = (desk.accounts.answered, desk.accounts.lost);
        desk.submit(None, 1000, fatal);
        desk.submit_up_to(1, random);
        let mut dead = 0;
        while desk.in_flight() > 0 || (fatal != Fatal::No && dead == 0) {
            desk.turn(&[crew.deaths()], 1000);
            dead += replace_the_dead(&mut crew, &mut desk);
        }
        let whole = matches!(fatal, Fatal::No | Fatal::Finished);
        assert_eq!(
            desk.accounts.answered - answered,
            u64::from(whole),
            "{fatal:?}"
        );
        assert_eq!(desk.accounts.lost - lost, u64::from(!whole), "{fatal:?}");
    }
    crew.dismiss();
    println!("each stage: {:?}", desk.close(exchange));
}

pub(crate) fn workers_are_killed_at_random(random: &mut Random, time_us: u64) {
    let exchange = exchange();
    let slots = exchange.geometry().slots();
    let mut crew = Crew::hire(exchange);
    let mut desk = Desk::open(exchange);
    let end_us = monotonic_us() + time_us;
    let (mut kill_us, mut kills, mut most) = (0, 0, slots);
    while monotonic_us() < end_us || desk.in_flight() > 0 {
        let now_us = monotonic_us();
        if now_us < end_us {
            desk.submit_up_to(most, random);
            if now_us >= kill_us {
                // Sometimes kill two at once, and sometimes in a quiet moment, when most workers sleep.
                for _ in 0..=random.below(8) / 7 {
                    crew.kill(random.below(4) as usize);
                }
                kill_us = now_us + random.below(2500);
                most = 1 + random.below(slots as u64) as usize;
            }
        }
        desk.turn(&[crew.deaths()], 1);
        kills += replace_the_dead(&mut crew, &mut desk);
    }
    // A late kill may have hit a worker that held no request; the living workers must still serve.
    for _ in 0..100 {
        desk.submit_up_to(slots, random);
        while desk.in_flight() > 0 {
            desk.turn(&[crew.deaths()], 1);
            kills += replace_the_dead(&mut crew, &mut desk);
        }
    }
    crew.dismiss();
    println!("{kills} workers killed: {:?}", desk.close(exchange));
    assert!(kills > time_us / 20_000, "too few kills to prove anything");
}

pub(crate) fn acceptors_are_killed_at_random(random: &mut Random, time_us: u64) {
    let exchange = exchange();
    let crew = Crew::hire(exchange);
    let end_us = monotonic_us() + time_us;
    let (mut kills, mut lived) = (0, 0);
    while monotonic_us() < end_us {
        let seed = random.next();
        let most = 1 + random.below(exchange.geometry().slots() as u64) as usize;
        // One acceptor in eight lives until it has been served well, and then ends in the middle of its work.
        let lives = random.below(8) == 0;
        let begun_us = monotonic_us();
        let acceptor = fork(|| {
            let mut random = Random(seed);
            let mut desk = Desk::open(exchange);
            while !lives || desk.accounts.answered < 50 {
                desk.submit_up_to(most, &mut random);
                desk.turn(&[], 1000);
            }
            0
        });
        if !lives {
            let wait_us = random.below(3000);
            while monotonic_us() < begun_us + wait_us {
                std::hint::spin_loop();
            }
            process::kill(acceptor, SIGKILL).unwrap();
        }
        let exit = loop {
            poll_readable(&[crew.deaths()], Duration::from_micros(STALL_US)).unwrap();
            match crew.bury() {
                Some((pid, exit, _)) if pid == acceptor => break exit,
                Some((_, exit, _)) => panic!("a worker {exit}"),
                None => {
                    assert!(
                        monotonic_us() < begun_us + STALL_US,
                        "an acceptor is not served"
                    );
                }
            }
        };
        assert_eq!(
            exit,
            if lives {
                Exit::Code(0)
            } else {
                Exit::Signal(SIGKILL)
            }
        );
        kills += u64::from(!lives);
        lived += u64::from(lives);
    }
    // Slots that seats still hold for dead acceptors come back as the seats finish.
    let mut desk = Desk::open(exchange);
    let begun_us = monotonic_us();
    while desk.free_slots() < exchange.geometry().slots() {
        desk.turn(&[crew.deaths()], 100);
        assert!(monotonic_us() < begun_us + STALL_US, "a slot is stranded");
    }
    crew.dismiss();
    desk.close(exchange);
    println!("{kills} acceptors killed, {lived} lived");
    assert!(kills > time_us / 50_000, "too few kills to prove anything");
}
