//! Gathers what has happened: signals, reports, deaths, and what the scoreboard and the kernel show.

use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::Ordering;

use stanchion_exchange::SeatState;
use stanchion_master::{Command, Event, called, command_of};
use stanchion_sys::channel::poll_readable;
use stanchion_sys::clock::{kernel_us, monotonic_us};
use stanchion_sys::process::Exit;
use stanchion_sys::signal::spin;
use stanchion_sys::{memory, process, signal};
use tracing::{debug, error, info, warn};

use super::reports::{Children, Heard};
use super::resources::HouseResources;
use super::{Loop, loops, now_ms};
use crate::control::Control;
use stanchion_generation::heartbeat::TURN_CPU;
use stanchion_log::exit_code;
use stanchion_settings::Settings;

/// How often the master looks at the scoreboard for requests past their timeout. Their deadlines
/// are exact; this is how late it may notice.
const OVERDUE_CHECK_MS: u64 = 100;
/// How often it looks how much memory workers take.
const MEMORY_CHECK_MS: u64 = 1_000;
/// How many children it collects at once, as every orphan of the app becomes one.
const REAPED_PER_TURN_MAX: usize = 256;
/// How soon it tries again to send what did not fit into a channel.
const SEND_AGAIN_MS: u64 = 10;
/// The answer of a daemon that starts: until it serves, its standard streams are those of the process that waits for its start, and reopening the
/// logs would leave them.
pub(super) const REOPENED_LATER: &str = "the logs are reopened once the server serves";
/// How long it sleeps at most.
const SLEEP_MS_MAX: u64 = 60_000;

impl Loop<'_> {
    pub(super) fn wait(&self) -> io::Result<()> {
        let settings = || self.houses.values().map(|house| &house.common.settings);
        let longest_ms = if self.has_more_dead {
            0
        } else if self.houses.values().any(HouseResources::has_unsent) {
            SEND_AGAIN_MS
        } else if settings().any(has_deadlines) {
            OVERDUE_CHECK_MS
        } else if let Some(check_ms) = self.loops_check_ms() {
            check_ms
        } else if settings().any(weighs) {
            MEMORY_CHECK_MS
        } else {
            SLEEP_MS_MAX
        };
        let now_ms = now_ms();
        let houses = self.houses.values();
        let listens_again = houses.filter_map(|house| house.listens_again_ms(now_ms));
        let due_ms = [
            self.master.next_tick_ms(),
            self.control.as_ref().and_then(Control::next_deadline_ms),
            self.alive_due_ms(),
            Some(self.looks.due_ms()),
            listens_again.min(),
        ];
        let due_ms = due_ms.into_iter().flatten().min();
        let due_ms = due_ms.map_or(longest_ms, |due| due.saturating_sub(now_ms));
        // Rounded up, so that what is due then is due.
        let timeout_ms = i32::try_from(due_ms.min(longest_ms) + 1).unwrap_or(i32::MAX);
        let mut fds = vec![self.signals.as_fd()];
        let houses = self.houses.values();
        fds.extend(houses.flat_map(|house| house.listened_to(now_ms)));
        fds.extend(self.succession.fds());
        fds.extend(self.control.iter().flat_map(Control::fds));
        poll_readable(&fds, timeout_ms)?;
        Ok(())
    }

    /// How often event loops are looked at, if there are any.
    fn loops_check_ms(&self) -> Option<u64> {
        let houses = self.houses.values();
        let watched = houses.filter(|house| loops::are_watched(&house.common.settings));
        watched.map(loops::check_ms).min()
    }

    /// Collects events. Reports come before deaths, since a child that reported was alive; so the dead are collected first, as a child may report and
    /// die between the two. The end of a worker's channel comes after the deaths: most often it ends because the worker died.
    pub(super) fn gather(&mut self) -> io::Result<()> {
        let signals = self.signals.take();
        let heard_ms = now_ms();
        let look = self.looks.next(heard_ms);
        let mut dead = Vec::new();
        while dead.len() < REAPED_PER_TURN_MAX
            && let Some(one) = process::reap()?
        {
            dead.push(one);
        }
        self.has_more_dead = dead.len() == REAPED_PER_TURN_MAX;
        self.tell_out_of_memory(heard_ms, look.is_some(), &mut dead);
        let pids: Vec<i32> = dead.iter().map(|&(pid, _)| pid).collect();
        let later = self.gather_reports(&pids);
        self.events.extend(self.succession.gather(&pids));
        let mode = self.settings().signals;
        for signal in signals {
            match command_of(signal, mode) {
                // A terminal sends SIGWINCH to the processes that run in it when its size changes.
                Some(_) if signal == signal::SIGWINCH && process::is_in_terminal() => {}
                Some((Command::Reopen, by)) if self.launcher.is_waiting() => {
                    info!("{by}: {REOPENED_LATER}");
                }
                Some((command, by)) => self.events.push_back(Event::Commanded {
                    command,
                    by,
                    client: None,
                }),
                None => debug!("signal {signal} means nothing here"),
            }
        }
        for &(pid, exit) in &dead {
            if exit == Exit::Code(exit_code::SPUN) {
                self.note_where_it_spun(pid);
            }
        }
        // After the commands: Ctrl-C reaches workers too, and those that leave by it need no successors.
        let dead = dead.into_iter();
        self.events
            .extend(dead.map(|(pid, exit)| Event::Reaped(pid, exit)));
        self.events.extend(later);
        if let Some(look) = look {
            self.watch_acceptor(look);
            self.watch_stopped();
            self.gather_idlers(look);
        }
        self.show_life();
        self.gather_requests();
        self.gather_overdue();
        self.gather_loops();
        self.gather_memory();
        self.events.push_back(Event::Tick { heard_ms });
        Ok(())
    }

    /// An acceptor has ended since a turn of its loop did not.
    fn note_where_it_spun(&mut self, pid: i32) {
        let mut tables = self.master.houses();
        let table = tables.find(|table| table.has_acceptor(pid));
        let house = table.and_then(|table| self.houses.get(&table.generation));
        if let Some(house) = house {
            self.spun = Some((pid, house.common.tally.stack()));
        }
    }

    /// Logs where it was, once another one is on its way: to find the names takes a moment.
    pub(super) fn tell_where_it_spun(&mut self) {
        let Some((pid, stack)) = self.spun.take() else {
            return;
        };
        let functions = spin::names(&stack).join(" < ");
        let least_s = TURN_CPU.as_secs();
        error!(
            "our fault: a turn in the acceptor's loop ({pid}) has taken more than {least_s} s of CPU time, so that it has \
             ended. Please report where it was: {functions}"
        );
    }

    /// The settings of the house that serves, or is to.
    pub(super) fn settings(&self) -> &Settings {
        &self.present.settings
    }

    /// Takes the reports of children; gives the events that count only after signals: TERM may have been sent to all at once.
    fn gather_reports(&mut self, dead: &[i32]) -> Vec<Event> {
        let now_ms = now_ms();
        let mut heard = Heard::nothing(Children::new(&self.master, dead));
        for house in self.houses.values_mut() {
            house.hear(now_ms, &mut heard);
        }
        let Heard {
            events,
            listens,
            later,
            ..
        } = heard;
        self.events.extend(events);
        // Before the acceptor hears, from the events, that the worker is ready.
        for one in listens {
            self.lend(one);
        }
        later
    }

    fn gather_overdue(&mut self) {
        let now_us = monotonic_us();
        self.pause.look(kernel_us(), now_us);
        for (&generation, house) in &self.houses {
            if !has_deadlines(&house.common.settings) {
                continue;
            }
            let exchange = &house.common.exchange;
            for seat in 0..exchange.geometry().seats as u16 {
                let started_us = exchange.seat(seat).started_us.load(Ordering::Relaxed);
                let now_us = self.pause.without(started_us, now_us);
                if let Some(ran_us) = exchange.overdue_us(seat, now_us) {
                    let worker = exchange.geometry().worker_of(seat);
                    self.events.push_back(Event::Overdue {
                        generation,
                        worker,
                        seat,
                        ran_ms: ran_us / 1_000,
                        others: house.is_busy(worker, Some(seat)),
                    });
                }
            }
        }
    }

    fn gather_memory(&mut self) {
        if now_ms() - self.weighed_ms < MEMORY_CHECK_MS {
            return;
        }
        self.weighed_ms = now_ms();
        for (&generation, house) in &self.houses {
            let settings = &house.common.settings;
            if !weighs(settings) {
                continue;
            }
            let limits = [settings.max_memory, settings.max_memory_hard];
            let least = limits.into_iter().filter(|&limit| limit > 0).min();
            let table = self.master.house(generation);
            for one in table.into_iter().flat_map(|one| one.workers.present()) {
                let (worker, pid) = (one.worker.index, one.pid);
                // Its share is never more than what it has in all, which is cheaper to ask for.
                if memory::resident_bytes(pid) <= least {
                    continue;
                }
                let bytes = memory::proportional_bytes(pid);
                if bytes.is_none() && !std::mem::replace(&mut self.is_blind, true) {
                    warn!(
                        "the memory that {} takes cannot be read, so max_memory \
                         has no effect: a master that is root and has a --user needs CAP_SYS_PTRACE",
                        called(one.number, Some(pid))
                    );
                }
                if let Some(bytes) = bytes.filter(|&bytes| Some(bytes) > least) {
                    self.events.push_back(Event::Memory {
                        generation,
                        worker,
                        bytes,
                        is_unused: house.is_unused(worker),
                        others: house.is_busy(worker, None),
                    });
                }
            }
        }
    }
}

/// Whether the master sees to the deadlines of requests. The acceptor sees to those of event loops by itself: their workers go on.
fn has_deadlines(settings: &Settings) -> bool {
    settings.timeout.as_duration().is_some() && !settings.is_event_loop()
}

fn weighs(settings: &Settings) -> bool {
    settings.max_memory > 0 || settings.max_memory_hard > 0
}

impl HouseResources {
    /// Whether no seat of a worker has taken a request.
    fn is_unused(&self, worker: u16) -> bool {
        let exchange = &self.common.exchange;
        let mut seats = exchange.geometry().seats_of(worker);
        !self.is_busy(worker, None)
            && seats.all(|seat| exchange.seat(seat).served.load(Ordering::Relaxed) == 0)
    }

    /// Whether any seat of a worker is busy, but for one.
    fn is_busy(&self, worker: u16, but: Option<u16>) -> bool {
        let exchange = &self.common.exchange;
        let mut seats = exchange.geometry().seats_of(worker);
        seats.any(|seat| Some(seat) != but && exchange.seat_state(seat) == SeatState::Busy)
    }
}
