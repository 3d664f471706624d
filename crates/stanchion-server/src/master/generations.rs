//! The generations that the master holds resources for.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use stanchion_master::{GenerationPlan, Master};
use stanchion_sys::listener::Listener;
use tracing::error;

use super::other_generation::OtherGeneration;
use super::resources::{CarriedOver, GenerationResources};
use crate::host::Host;
use stanchion_generation::common::Common;
use stanchion_generation::listeners;
use stanchion_generation::spool::SpoolDir;
use stanchion_generation::tally::Counts;
use stanchion_log::{self as log, LogChannels, cure};
use stanchion_settings::Settings;

/// The resources of each generation, what is left of generations that are gone, and a generation that may be needed.
pub(super) struct Generations {
    /// By number.
    generations: BTreeMap<u32, GenerationResources>,
    other: OtherGeneration,
    /// The generation that serves, or is to: what is left of it once it is gone is still asked for.
    present: Rc<Common>,
    /// The listeners of the present generation, once that is gone.
    doors: Vec<Listener>,
    /// Counts of the requests of generations that are gone.
    departed: Counts,
    /// The generation whose scribe gets the master's log lines, if one does.
    logs_through: Option<u32>,
}

impl Generations {
    pub(super) fn new(first: GenerationResources) -> Self {
        Self {
            present: Rc::clone(&first.common),
            generations: BTreeMap::from([(first.common.generation, first)]),
            other: OtherGeneration::NotMade,
            doors: Vec::new(),
            departed: Counts::default(),
            logs_through: None,
        }
    }

    pub(super) fn get(&self, generation_number: u32) -> Option<&GenerationResources> {
        self.generations.get(&generation_number)
    }

    pub(super) fn get_mut(&mut self, generation_number: u32) -> Option<&mut GenerationResources> {
        self.generations.get_mut(&generation_number)
    }

    /// Each, the oldest first.
    pub(super) fn iter(&self) -> impl DoubleEndedIterator<Item = &GenerationResources> {
        self.generations.values()
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut GenerationResources> {
        self.generations.values_mut()
    }

    /// The part that its processes share of the generation that serves, or is to.
    pub(super) fn present(&self) -> &Common {
        &self.present
    }

    /// All that there is of that generation, unless it is gone.
    pub(super) fn present_resources(&self) -> Option<&GenerationResources> {
        self.get(self.present.generation)
    }

    /// The settings of that generation.
    pub(super) fn settings(&self) -> &Settings {
        &self.present.settings
    }

    /// A template works with this if it goes over to the other generation.
    pub(super) fn other(&self) -> Option<Rc<Common>> {
        self.other.common()
    }

    /// The app is called as its generation is made for it.
    pub(super) fn needs_no_other(&mut self) {
        self.other = OtherGeneration::Over;
    }

    /// The counts of all requests of this master's time.
    pub(super) fn counts(&self) -> Counts {
        let mut counts = self.departed;
        for generation in self.iter() {
            counts += generation.common.tally.read();
        }
        counts
    }

    /// Takes one in; `is_the_server`: no other one serves.
    pub(super) fn add(
        &mut self,
        resources: GenerationResources,
        is_the_server: bool,
    ) -> GenerationPlan {
        let plan = resources.plan();
        if is_the_server {
            self.present = Rc::clone(&resources.common);
        }
        self.generations
            .insert(resources.common.generation, resources);
        plan
    }

    /// This generation has the door. Gives the one before it.
    pub(super) fn promote(&mut self, generation_number: u32) -> Option<Rc<Common>> {
        let generation = self.generations.get(&generation_number)?;
        let next = Rc::clone(&generation.common);
        Some(std::mem::replace(&mut self.present, next))
    }

    /// The master's log lines go to the scribe of the present generation, as long as that scribe does its work; otherwise to the log itself,
    /// so that the operator can read what becomes of a scribe that is lost.
    pub(super) fn choose_log(&mut self, master: &Master) {
        let generation_number = self.present.generation;
        let is_there = master.has_ready_scribe(generation_number);
        let through = is_there.then_some(generation_number);
        if self.logs_through == through {
            return;
        }
        self.logs_through = through;
        log::go_directly();
        if !is_there {
            return;
        }
        match self.present.log_channels.as_ref().map(LogChannels::writer) {
            Some(Ok(writer)) => log::go_through(writer, true),
            Some(Err(error)) => error!("the scribe cannot be written to: {error}"),
            None => {}
        }
    }

    /// Makes what a generation needs, with the settings of another one, for an app that is called by the other interface.
    pub(super) fn rebuild(
        &self,
        generation_number: u32,
        first: u32,
        has_scribe: bool,
    ) -> Result<GenerationResources, String> {
        let first = self.get(first);
        let first = first.ok_or("the generation that was made first is gone")?;
        let settings = first.common.settings.clone();
        let is_asgi = settings.is_asgi();
        let settings = settings.taken_for(!is_asgi)?;
        let listeners = listeners::clones(&first.listeners).map_err(|error| error.to_string())?;
        let spool = Rc::clone(&first.spool);
        self.furnish(
            generation_number,
            (settings, has_scribe),
            listeners,
            Some(spool),
        )
    }

    /// Before the template of this generation is forked: makes a generation for the other interface, if it may be of use. `has_served`: a
    /// generation has.
    pub(super) fn make_other(
        &mut self,
        generation_number: u32,
        has_served: bool,
        host: &mut dyn Host,
    ) {
        let is_first = self.generations.len() == 1 && !has_served;
        if !is_first || !matches!(self.other, OtherGeneration::NotMade) {
            return;
        }
        let rebuild = || self.rebuild(generation_number + 1, generation_number, host.has_scribe());
        let first = self.get(generation_number);
        if let Some(made) = first.and_then(|first| OtherGeneration::prepare(first, rebuild)) {
            self.other = made;
        }
    }

    /// Gives the generation for the other interface, if it was made, and the template of the `first` one, which has imported the app, comes
    /// along.
    pub(super) fn go_over(
        &mut self,
        generation_number: u32,
        first: u32,
        template: Option<i32>,
    ) -> Option<GenerationResources> {
        let first = self.generations.get_mut(&first);
        self.other.go_over(generation_number, first, template)
    }

    /// Makes what a generation needs, for settings that ask for a scribe or do not.
    pub(super) fn furnish(
        &self,
        generation_number: u32,
        settings: (Settings, bool),
        listeners: Vec<Listener>,
        spool: Option<Rc<SpoolDir>>,
    ) -> Result<GenerationResources, String> {
        let before = CarriedOver {
            figures: Arc::clone(&self.present.figures),
            ticket_keys: Arc::clone(&self.present.ticket_keys),
            departed: self.departed,
            others: self
                .iter()
                .map(|generation| Arc::clone(&generation.common.tally))
                .collect(),
            spool,
        };
        GenerationResources::build(generation_number, settings, listeners, &before).map_err(
            |(error, listeners)| {
                self.remove_files_of_others(listeners);
                format!(
                    "the kernel refused what the server needs: {}",
                    cure::told(&error)
                )
            },
        )
    }

    /// Removes the socket files of listeners that the present generation does not have.
    fn remove_files_of_others(&self, listeners: Vec<Listener>) {
        let kept = self.present_resources();
        let kept = kept.map_or(&self.doors[..], |generation| &generation.listeners);
        let others = listeners::not_among(listeners, kept);
        listeners::remove_files(&others);
    }

    /// No process of this generation is left.
    pub(super) fn drop_one(&mut self, generation_number: u32) {
        let Some(mut generation) = self.generations.remove(&generation_number) else {
            return;
        };
        generation.close_logs();
        generation.settle();
        self.departed += generation.common.tally.read();
        let listeners = std::mem::take(&mut generation.listeners);
        if generation_number == self.present.generation {
            self.doors = listeners;
            return;
        }
        self.remove_files_of_others(listeners);
    }

    /// The listeners of the present generation, which is gone, as all others are.
    pub(super) fn take_doors(&mut self) -> Vec<Listener> {
        std::mem::take(&mut self.doors)
    }
}
