//! The app decides by which interface it is called (`interface` auto), and a house is made for one or the other before any process has imported the
//! app. If its template, or a worker, then finds the other, that house goes without having served, and another one is made with the same settings:
//! beside it, as at a reload.
//!
//! The interface decides how the exchange is laid out. So with `--interface auto` the master builds a generation for WSGI,
//! or for the interface of the generation that serves, also of the old master's at an upgrade. It makes another generation once
//! for each start or reload. The first generation has let no client in: as long as its interface is a guess and no other
//! generation serves, its acceptor answers operators only, and clients wait in the kernel's queue.

use crate::acceptor::Audience;
use crate::event::Action;
use crate::generation_error::GenerationError;
use crate::house::House;
use crate::run_state::Second;
use crate::standing::Standing;
use crate::step::{Master, QUICK_MS};
use stanchion_generation::messages::WorkerRef;
use stanchion_log::exit_code;

impl House {
    /// A worker may have become ready: then this house is the one for the app.
    pub(crate) fn let_in_whoever_came_first(&mut self, actions: &mut Vec<Action>) {
        if self.only && self.standing == Standing::Building && self.workers.have_served() {
            self.acceptor.open(Audience::Clients, actions);
        }
    }

    /// Whether this worker, or else the template, has yet to load the app: one that is ready has.
    fn is_loading(&self, worker: Option<WorkerRef>) -> bool {
        match worker {
            Some(worker) => self.workers.is_booting(worker),
            None => !self.template.is_ready(),
        }
    }
}

impl Master {
    /// A child of this house, this worker or else the template, has imported the app, and says that it is called by the other interface than the one
    /// that the house was made for. It runs the app's code and may say anything: it can have a house
    /// made once more, and that once.
    pub(crate) fn on_other_interface(
        &mut self,
        now_ms: u64,
        (generation, worker): (u32, Option<WorkerRef>),
        actions: &mut Vec<Action>,
    ) {
        let Some(house) = self.houses.get_mut(&generation) else {
            return;
        };
        let (plan, target) = (house.plan, house.target);
        if !(plan.is_guess && house.is_loading(worker)) {
            return;
        }
        if self.building != Some(generation) || house.workers.have_served() {
            // A worker has the app as the house is made for it, and clients may be waiting for that.
            if house.may_have_the_door() && !house.was_told_of_change {
                house.was_told_of_change = true;
                actions.push(Action::error(format!(
                    "the app has become {} since it was loaded: reload the server",
                    called(!plan.is_event_loop)
                )));
            }
            return;
        }
        if self
            .second
            .is_some_and(|second| second.generation == generation)
        {
            let why = "the app is asynchronous at one import and a WSGI app at the next: say what it is by --interface";
            let (why, code) = (why.to_owned(), exit_code::APP_LOAD);
            self.on_generation_error(now_ms, generation, &GenerationError { why, code }, actions);
            return;
        }
        let template = match worker {
            Some(_) => None,
            None => house.template.goes_over(),
        };
        house.dismiss(now_ms + QUICK_MS);
        let what = match self.serving {
            Some(_) => "the reload",
            None => "the server",
        };
        actions.push(Action::info(format!(
            "the app is {}: {what} starts again for it",
            called(!plan.is_event_loop)
        )));
        self.generations += 1;
        self.building = Some(self.generations);
        self.second = Some(Second {
            generation: self.generations,
            target,
        });
        actions.push(Action::RebuildHouse {
            generation: self.generations,
            first: generation,
            template,
        });
    }
}

fn called(by_asgi: bool) -> &'static str {
    if by_asgi {
        "asynchronous (ASGI)"
    } else {
        "a WSGI app"
    }
}
