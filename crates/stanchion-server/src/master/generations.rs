//! The generations that the master holds resources for.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use stanchion_master::{GenerationPlan, Master};
use stanchion_sys::listener::Listener;
use tracing::error;

use super::other_house::OtherHouse;
use super::resources::{CarriedOver, HouseResources};
use crate::host::Host;
use stanchion_generation::common::Common;
use stanchion_generation::listeners;
use stanchion_generation::spool::SpoolDir;
use stanchion_generation::tally::Counts;
use stanchion_log::{self as log, LogChannels, cure};
use stanchion_settings::Settings;

/// The resources of each generation, what is left of generations that are gone, and a house that may be needed.
pub(super) struct Generations {
    /// By number.
    houses: BTreeMap<u32, HouseResources>,
    other: OtherHouse,
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
    pub(super) fn new(first: HouseResources) -> Self {
        Self {
            present: Rc::clone(&first.common),
            houses: BTreeMap::from([(first.common.generation, first)]),
            other: OtherHouse::NotMade,
            doors: Vec::new(),
            departed: Counts::default(),
            logs_through: None,
        }
    }

    pub(super) fn get(&self, generation: u32) -> Option<&HouseResources> {
        self.houses.get(&generation)
    }

    pub(super) fn get_mut(&mut self, generation: u32) -> Option<&mut HouseResources> {
        self.houses.get_mut(&generation)
    }

    /// Each, with its number, the oldest first.
    pub(super) fn iter(&self) -> impl DoubleEndedIterator<Item = (u32, &HouseResources)> {
        self.houses.iter().map(|(&number, house)| (number, house))
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (u32, &mut HouseResources)> {
        let houses = self.houses.iter_mut();
        houses.map(|(&number, house)| (number, house))
    }

    /// The part that its processes share of the generation that serves, or is to.
    pub(super) fn present(&self) -> &Common {
        &self.present
    }

    /// All that there is of that generation, unless it is gone.
    pub(super) fn present_resources(&self) -> Option<&HouseResources> {
        self.get(self.present.generation)
    }

    /// The settings of that generation.
    pub(super) fn settings(&self) -> &Settings {
        &self.present.settings
    }

    /// A template works with this if it goes over to the other house.
    pub(super) fn other(&self) -> Option<Rc<Common>> {
        self.other.common()
    }

    /// The app is called as its house is made for it.
    pub(super) fn needs_no_other(&mut self) {
        self.other = OtherHouse::Over;
    }

    /// The counts of all requests of this master's time.
    pub(super) fn counts(&self) -> Counts {
        let mut counts = self.departed;
        for house in self.houses.values() {
            counts += house.common.tally.read();
        }
        counts
    }

    /// Takes one in; `is_the_server`: no other one serves.
    pub(super) fn add(&mut self, resources: HouseResources, is_the_server: bool) -> GenerationPlan {
        let plan = resources.plan();
        if is_the_server {
            self.present = Rc::clone(&resources.common);
        }
        self.houses.insert(resources.common.generation, resources);
        plan
    }

    /// This generation has the door. Gives the one before it.
    pub(super) fn promote(&mut self, generation: u32) -> Option<Rc<Common>> {
        let house = self.houses.get(&generation)?;
        let next = Rc::clone(&house.common);
        Some(std::mem::replace(&mut self.present, next))
    }

    /// The master's log lines go to the scribe of the present generation, as long as that scribe does its work; otherwise to the log itself,
    /// so that the operator can read what becomes of a scribe that is lost.
    pub(super) fn choose_log(&mut self, master: &Master) {
        let generation = self.present.generation;
        let is_there = master.has_ready_scribe(generation);
        let through = is_there.then_some(generation);
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
        generation: u32,
        first: u32,
        has_scribe: bool,
    ) -> Result<HouseResources, String> {
        let first = self.get(first);
        let first = first.ok_or("the house that was made first is gone")?;
        let settings = first.common.settings.clone();
        let is_asgi = settings.is_asgi();
        let settings = settings.taken_for(!is_asgi)?;
        let listeners = listeners::clones(&first.listeners).map_err(|error| error.to_string())?;
        let spool = Rc::clone(&first.spool);
        self.furnish(generation, (settings, has_scribe), listeners, Some(spool))
    }

    /// Before the template of this generation is forked: makes a house for the other interface, if it may be of use. `has_served`: a
    /// generation has.
    pub(super) fn make_other(&mut self, generation: u32, has_served: bool, host: &mut dyn Host) {
        let is_first = self.houses.len() == 1 && !has_served;
        if !is_first || !matches!(self.other, OtherHouse::NotMade) {
            return;
        }
        let rebuild = || self.rebuild(generation + 1, generation, host.has_scribe());
        let first = self.get(generation);
        if let Some(made) = first.and_then(|first| OtherHouse::prepare(first, rebuild)) {
            self.other = made;
        }
    }

    /// Gives the house for the other interface, if it was made, and the template of the `first` one, which has imported the app, comes
    /// along.
    pub(super) fn go_over(
        &mut self,
        generation: u32,
        first: u32,
        template: Option<i32>,
    ) -> Option<HouseResources> {
        let first = self.houses.get_mut(&first);
        self.other.go_over(generation, first, template)
    }

    /// Makes what a generation needs, for settings that ask for a scribe or do not.
    pub(super) fn furnish(
        &self,
        generation: u32,
        settings: (Settings, bool),
        listeners: Vec<Listener>,
        spool: Option<Rc<SpoolDir>>,
    ) -> Result<HouseResources, String> {
        let before = CarriedOver {
            figures: Arc::clone(&self.present.figures),
            ticket_keys: Arc::clone(&self.present.ticket_keys),
            departed: self.departed,
            others: self.houses.values().map(HouseResources::tally).collect(),
            spool,
        };
        HouseResources::build(generation, settings, listeners, &before).map_err(
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
        let kept = kept.map_or(&self.doors[..], |house| &house.listeners);
        let others = listeners::not_among(listeners, kept);
        listeners::remove_files(&others);
    }

    /// No process of this generation is left.
    pub(super) fn drop_one(&mut self, generation: u32) {
        let Some(mut house) = self.houses.remove(&generation) else {
            return;
        };
        house.close_logs();
        house.settle();
        self.departed += house.common.tally.read();
        let listeners = std::mem::take(&mut house.listeners);
        if generation == self.present.generation {
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
