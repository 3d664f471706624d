//! Commands to the master: what each signal means, gunicorn's way or Unicorn's (where TERM and QUIT are the other way round), and what follows from
//! each command.

use std::time::Duration;

use stanchion_sys::signal::{
    SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTTIN, SIGTTOU, SIGUSR1, SIGUSR2, SIGWINCH,
};

use crate::decision::Decision;
use crate::dumps::DumpJob;
use crate::elastic::ElasticNumber;
use crate::event::{Action, ClientId, Command, News};
use crate::heir::Heir;
use crate::run_state::RunState;
use crate::step::Master;
use crate::worker::counted;
use stanchion_generation::messages::{ToAcceptor, ToTemplate};
use stanchion_log::exit_code;
use stanchion_settings::SignalStyle;

/// The command that a signal gives to the master, and the signal's name for the log. `None`: no command.
pub fn command_of(signal: i32, signals: SignalStyle) -> Option<(Command, &'static str)> {
    use SignalStyle::{Gunicorn, Unicorn};
    Some(match (signal, signals) {
        (SIGTERM, Gunicorn) => (Command::Drain, "TERM"),
        (SIGTERM, Unicorn) => (Command::Quit, "TERM"),
        (SIGQUIT, Gunicorn) => (Command::Quit, "QUIT"),
        (SIGQUIT, Unicorn) => (Command::Drain, "QUIT"),
        (SIGINT, _) => (Command::Quit, "INT"),
        (SIGHUP, _) => (Command::Reload, "HUP"),
        (SIGUSR1, _) => (Command::Reopen, "USR1"),
        (SIGUSR2, _) => (Command::Upgrade, "USR2"),
        (SIGWINCH, _) => (Command::Pause, "WINCH"),
        (SIGTTIN, _) => (Command::More, "TTIN"),
        (SIGTTOU, Gunicorn) => (Command::Fewer { least: 1 }, "TTOU"),
        (SIGTTOU, Unicorn) => (Command::Fewer { least: 0 }, "TTOU"),
        _ => return None,
    })
}

impl Master {
    pub(crate) fn on_command(
        &mut self,
        command: Command,
        by: &'static str,
        client: Option<ClientId>,
        decision: &mut Decision,
    ) {
        let outcome = match (command, self.run_state) {
            (Command::Dump, _) => return self.dump(client),
            (Command::Reopen, _) => {
                self.reopen(by, decision);
                Ok("the logs are reopened".to_owned())
            }
            (Command::Reload, RunState::Running) => return self.reload(client, decision),
            (Command::Upgrade, RunState::Running) => return self.upgrade(client, decision),
            (Command::Drain, RunState::Running) => Ok(self.leave(by, decision)),
            // An operator who asks again does not want to wait.
            (Command::Drain, RunState::LameDuck { .. }) => {
                self.drain(by, decision);
                Ok("draining".to_owned())
            }
            // The master may get this more than once: deploy scripts send it to a master that an upgrade ends anyway, and Heroku repeats it to a
            // process that is to leave. Only the command for a quick stop is one.
            (Command::Drain, RunState::Draining) => {
                decision.info(format!("{by}: draining already"));
                Ok("draining already".to_owned())
            }
            (Command::Quit, RunState::Running | RunState::LameDuck { .. } | RunState::Draining) => {
                decision.info(format!("{by}: leaving at once"));
                self.stop(exit_code::FINE, decision);
                Ok("leaving at once".to_owned())
            }
            (Command::Drain | Command::Quit, RunState::Stopping { .. } | RunState::Gone) => {
                decision.info(format!("{by}: leaving already"));
                Ok("leaving already".to_owned())
            }
            (Command::Pause, RunState::Running) => self.pause(by, decision),
            (Command::More, RunState::Running) => {
                self.pin(by, |target| target.saturating_add(1), decision)
            }
            (Command::Fewer { least }, RunState::Running) => self.one_fewer(by, least, decision),
            (Command::Scale(workers), RunState::Running) => self.pin(by, |_| workers, decision),
            (Command::ScaleAuto, RunState::Running) => self.unpin(by, decision),
            (Command::Refork { worker }, RunState::Running) => {
                return self.refork((worker, client), decision);
            }
            (
                _,
                RunState::LameDuck { .. }
                | RunState::Draining
                | RunState::Stopping { .. }
                | RunState::Gone,
            ) => {
                let refusal = format!("{by}: not while the server leaves");
                decision.warning(&*refusal);
                Err(refusal)
            }
        };
        decision.answer(client, &outcome);
    }

    /// Drains, after `drain_delay` if balancers may have sent clients here: they do not before the server was ready.
    fn leave(&mut self, by: &'static str, decision: &mut Decision) -> String {
        let serving = self
            .serving
            .and_then(|serving| self.generations.get_mut(&serving));
        let Some(generation) = serving.filter(|generation| generation.plan.drain_delay_ms > 0)
        else {
            self.drain(by, decision);
            return "draining".to_owned();
        };
        let delay_ms = generation.plan.drain_delay_ms;
        let delay_s = Duration::from_millis(delay_ms).as_secs_f64();
        decision.info(format!(
            "{by}: draining in {delay_s} s (drain_delay): not ready any more, but accepting until then"
        ));
        generation.acceptor.be_a_lame_duck(decision);
        self.run_state = RunState::LameDuck {
            until_ms: decision.now_ms + delay_ms,
        };
        self.end_heir(decision);
        self.give_up_reloads(decision);
        decision.push(Action::Announce(News::Stopping));
        format!("draining in {delay_s} s")
    }

    /// Serves the clients that are here, and leaves.
    pub(crate) fn drain(&mut self, by: &'static str, decision: &mut Decision) {
        decision.info(format!("{by}: draining, then leaving"));
        let is_announced = matches!(self.run_state, RunState::LameDuck { .. });
        self.run_state = RunState::Draining;
        self.end_heir(decision);
        self.retire_all(true, decision);
        if !is_announced {
            decision.push(Action::Announce(News::Stopping));
        }
    }

    /// Ends the new master that boots: it is to take over no more.
    fn end_heir(&self, decision: &mut Decision) {
        if let Heir::Booting { .. } = self.upgrade.heir {
            decision.push(Action::EndHeir);
        }
    }

    fn pause(&mut self, by: &'static str, decision: &mut Decision) -> Result<String, String> {
        let before = self.target().filter(|&before| before > 0);
        let before = before.or(self.paused_from);
        let told = self.scale(by, |_| 0, decision);
        self.paused_from = before;
        told
    }

    fn one_fewer(
        &mut self,
        by: &'static str,
        least: u16,
        decision: &mut Decision,
    ) -> Result<String, String> {
        if self.target().is_some_and(|target| target > least) {
            return self.pin(by, |target| target.saturating_sub(1).max(least), decision);
        }
        let refusal = match least {
            0 => format!("{by}: there are no workers"),
            least => format!("{by}: the least number of workers is {least}"),
        };
        decision.warning(&*refusal);
        Err(refusal)
    }

    /// Workers wanted.
    pub fn target(&self) -> Option<u16> {
        self.main_generation().map(|generation| generation.target)
    }

    /// Whether an operator has fixed their number, which is elastic by the settings.
    pub fn is_pinned(&self) -> bool {
        let elastic = self
            .main_generation()
            .and_then(|generation| generation.elastic);
        elastic.is_some_and(|elastic| elastic.is_pinned)
    }

    /// As [`Self::scale`]; an elastic number does not change any more by itself.
    fn pin(
        &mut self,
        by: &'static str,
        to: impl Fn(u16) -> u16,
        decision: &mut Decision,
    ) -> Result<String, String> {
        let told = self.scale(by, to, decision)?;
        for (_, elastic) in self.elastic_numbers() {
            elastic.is_pinned = true;
        }
        Ok(told)
    }

    /// Leaves an elastic number to the acceptor again.
    fn unpin(&mut self, by: &'static str, decision: &mut Decision) -> Result<String, String> {
        let Some(old) = self.target() else {
            return Err(format!("{by}: nothing serves yet"));
        };
        let elastic = self
            .main_generation()
            .and_then(|generation| generation.elastic);
        let Some(elastic) = elastic else {
            let refusal = format!(
                "{by}: `workers` is no range, so the number of workers does not change by itself"
            );
            decision.warning(&*refusal);
            return Err(refusal);
        };
        for (target, elastic) in self.elastic_numbers() {
            elastic.is_pinned = false;
            *target = elastic.within(*target);
        }
        self.paused_from = None;
        let (new, range) = (elastic.within(old), elastic.range());
        let told = format!("{by}: {range} workers, now {new}");
        decision.info(&*told);
        if new != old {
            decision.push(Action::Announce(News::Target { new, old }));
        }
        Ok(told)
    }

    /// The numbers that are elastic, each with the workers that are wanted.
    fn elastic_numbers(&mut self) -> impl Iterator<Item = (&mut u16, &mut ElasticNumber)> {
        let generations = self.generations.values_mut();
        let generations = generations.filter(|generation| generation.may_have_the_door());
        generations
            .filter_map(|generation| Some((&mut generation.target, generation.elastic.as_mut()?)))
    }

    /// `to` gives the new number of workers from the present one. Each generation has its own: a generation that is being made ready may begin with another
    /// number, by its settings.
    fn scale(
        &mut self,
        by: &'static str,
        to: impl Fn(u16) -> u16,
        decision: &mut Decision,
    ) -> Result<String, String> {
        let Some(old) = self.target() else {
            return Err(format!("{by}: nothing serves yet"));
        };
        let generations = self.generations.values_mut();
        let generations = generations.filter(|generation| generation.may_have_the_door());
        let generations: Vec<_> = generations.collect();
        let full = generations
            .iter()
            .filter(|generation| to(generation.target) > generation.plan.workers_max);
        if let Some(most) = full.map(|generation| generation.plan.workers_max).min() {
            let refusal =
                format!("{by}: there is room for {most} workers at most: raise `workers` for more");
            decision.warning(&*refusal);
            return Err(refusal);
        }
        for generation in generations {
            generation.target = to(generation.target);
        }
        self.paused_from = None;
        let workers = to(old);
        let outcome = format!("{by}: {}", counted(workers));
        decision.info(&*outcome);
        if workers != old {
            decision.push(Action::Announce(News::Target { new: workers, old }));
        }
        Ok(outcome)
    }

    /// The client gets the outcome once all workers are replaced, or none is to be.
    fn refork(
        &mut self,
        (worker, client): (Option<u16>, Option<ClientId>),
        decision: &mut Decision,
    ) {
        let serving = self
            .serving
            .and_then(|serving| self.generations.get_mut(&serving));
        let begun = match serving {
            Some(generation) => generation.begin_refork((worker, client), decision),
            None => Err("nothing serves yet".to_owned()),
        };
        if let Err(why) = begun {
            let text = format!("there is no re-fork: {why}");
            decision.warning(&*text);
            decision.answer(client, &Err(text));
        }
    }

    fn reopen(&mut self, by: &'static str, decision: &mut Decision) {
        decision.info(format!("{by}: reopening the logs"));
        decision.push(Action::Reopen);
        for generation in self.generations.values_mut() {
            let generation_number = generation.number;
            decision.push(generation.acceptor.tell(ToAcceptor::Reopen));
            if !generation.template.is_gone() {
                decision.push(Action::tell_template(generation_number, ToTemplate::Reopen));
            }
            decision.extend(generation.scribe.reopen());
            generation.workers.reopen(decision);
        }
    }

    /// The client gets its answer once all stacks are shown.
    fn dump(&mut self, client: Option<ClientId>) {
        let Some(client) = client else { return };
        for generation in self.generations.values() {
            for whose in generation.workers.present() {
                self.dumps.add(DumpJob {
                    generation_number: generation.number,
                    whose,
                    client: Some(client),
                });
            }
        }
        self.dumps.clients.push(client);
    }
}
