//! Processes of the server that a signal or a debugger has stopped: the master names them, since nothing else would. A stopped
//! acceptor is named by its turns ([`super::acceptor`]), and a stopped event loop as one that does not turn ([`super::loops`]).

use std::collections::BTreeMap;

use stanchion_master::{Master, PresentWorker, called, is_stopped, way_on, why_it_stands};
use stanchion_sys::process;
use tracing::{Level, error, info};

use stanchion_log as log;

/// The master has found these processes stopped, by pid. The log names a process that two looks have found so: a debugger that only
/// looks at it is gone then.
#[derive(Debug, Default)]
pub(in crate::master) struct StoppedWatch {
    seen: BTreeMap<i32, StoppedProcess>,
}

/// A process that the last look has found stopped.
#[derive(Debug)]
struct StoppedProcess {
    /// Its role, with its pid.
    name: String,
    is_named: bool,
    /// The server cannot do without it for long.
    is_vital: bool,
}

impl StoppedWatch {
    /// The log has named these.
    pub(in crate::master) fn named(&self) -> impl Iterator<Item = &str> {
        let named = self.seen.values().filter(|one| one.is_named);
        named.map(|one| one.name.as_str())
    }

    /// A stopped process that the server cannot do without.
    pub(in crate::master) fn vital(&self) -> Option<&str> {
        let mut vital = self
            .seen
            .values()
            .filter(|one| one.is_named && one.is_vital);
        vital.next().map(|one| one.name.as_str())
    }

    /// Looks for stopped processes.
    pub(in crate::master) fn look(&mut self, master: &Master) {
        let mut before = std::mem::take(&mut self.seen);
        // The log says how a process ended that is not watched any more.
        for one in watched(master) {
            let pid = one.pid;
            let known = before.remove(&pid);
            let state = process::state(pid);
            if !is_stopped(state) {
                let is_gone = matches!(state, None | Some('Z' | 'X'));
                if !is_gone && known.is_some_and(|known| known.is_named) {
                    one.say(Level::INFO, &format!("the {} goes on", one.name));
                }
                continue;
            }
            let is_named = known.as_ref().is_some_and(|known| known.is_named);
            if known.is_some() && !is_named {
                let why = why_it_stands(state).unwrap_or_default();
                let WatchedProcess { name, lacks, .. } = &one;
                let how = way_on(state, pid);
                let text = format!("the {name}: {why}{how}, and until it goes on {lacks}");
                one.say(Level::ERROR, &text);
            }
            let stopped = StoppedProcess {
                name: one.name,
                is_named: known.is_some(),
                is_vital: one.is_vital,
            };
            self.seen.insert(pid, stopped);
        }
    }
}

/// A process, and what the server lacks while it stands.
struct WatchedProcess {
    pid: i32,
    name: String,
    lacks: &'static str,
    is_vital: bool,
    /// The log goes through it.
    is_scribe: bool,
}

impl WatchedProcess {
    /// Writes it to the log. A stopped scribe reads the log's lines only once it goes on, and the operator who could let it go on needs
    /// them before. So lines on a scribe go to the error log itself (standard error, unless the settings name a file), and only
    /// there: a second line by the scribe would stand beside the first where both lead to one place.
    fn say(&self, level: Level, text: &str) {
        match level {
            _ if self.is_scribe => log::tell_beside_scribe(level, text),
            Level::ERROR => error!("{text}"),
            _ => info!("{text}"),
        }
    }
}

/// The processes to look at.
fn watched(master: &Master) -> Vec<WatchedProcess> {
    let mut watched = Vec::new();
    for generation in master.generations() {
        let processes = [
            (
                generation.template_pid(),
                "template",
                "no worker can be replaced",
            ),
            (generation.scribe_pid(), "scribe", "the log waits"),
        ];
        for (pid, name, lacks) in processes {
            watched.extend(pid.map(|pid| WatchedProcess {
                pid,
                name: format!("{name} ({pid})"),
                lacks,
                is_vital: true,
                is_scribe: name == "scribe",
            }));
        }
        if generation.plan.is_event_loop {
            continue;
        }
        for PresentWorker { number, pid, .. } in generation.workers.present() {
            watched.push(WatchedProcess {
                pid,
                name: called(number, Some(pid)),
                lacks: "the other workers have its share",
                is_vital: false,
                is_scribe: false,
            });
        }
    }
    watched
}
