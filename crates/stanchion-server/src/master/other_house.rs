//! The master makes what a house for the other interface needs before it forks the first template. If the app is called by that
//! interface, the template, which has imported it, goes over to that house, and the first house goes without having served. So an app
//! that the operator has not named the interface of is imported once.

use std::rc::Rc;

use stanchion_sys::signal::SIGKILL;
use tracing::{debug, info};

use super::Loop;
use super::resources::HouseResources;
use stanchion_generation::common::Common;
use stanchion_generation::messages::ToTemplate;

/// The house for the other interface. It is made once: at a reload the app most likely is what it was.
pub(super) enum OtherHouse {
    /// It may be needed later.
    NotMade,
    Made(Box<HouseResources>),
    /// It was not needed, or it is a house like others.
    Over,
}

impl OtherHouse {
    /// A template works with this if it goes over.
    pub(super) fn common(&self) -> Option<Rc<Common>> {
        match self {
            Self::Made(resources) => Some(Rc::clone(&resources.common)),
            Self::NotMade | Self::Over => None,
        }
    }
}

impl Loop<'_> {
    /// Before the template of this house is forked.
    pub(super) fn make_other(&mut self, generation: u32) {
        let Some(house) = self.houses.get(&generation) else {
            return;
        };
        let settings = &house.common.settings;
        // A scribe is a child of its house, to which a template logs from its birth.
        let is_of_use =
            settings.is_guess() && settings.may_preload() && house.common.log_channels.is_none();
        let is_first = self.houses.len() == 1 && !self.master.has_served();
        if !matches!(self.other, OtherHouse::NotMade) || !is_first || !is_of_use {
            return;
        }
        self.other = match self.rebuild(generation + 1, generation) {
            Ok(resources) => OtherHouse::Made(Box::new(resources)),
            Err(problem) => {
                // If it is needed it is tried again, and the failure is logged then.
                debug!("no house for the other interface is made beforehand: {problem}");
                OtherHouse::Over
            }
        };
    }

    /// Makes the house for the other interface, and has the template that has imported the app come along. A template that cannot is killed.
    pub(super) fn go_over(&mut self, generation: u32, first: u32, template: Option<i32>) {
        let made = match std::mem::replace(&mut self.other, OtherHouse::Over) {
            OtherHouse::Made(made) if made.common.generation == generation => Some(made),
            _ => None,
        };
        let house = self.houses.get_mut(&first);
        let link = house.and_then(|house| {
            house
                .template
                .take_if(|link| template == Some(link.pid()) && made.is_some())
        });
        if let (Some(mut made), Some(mut link)) = (made, link) {
            link.outbox.send(ToTemplate::GoOver);
            made.template = Some(link);
            self.built(generation, Ok(*made), template);
            return;
        }
        if let Some(pid) = template {
            self.kill(pid, SIGKILL);
        }
        let built = self.rebuild(generation, first);
        if let Ok(house) = &built {
            let settings = &house.common.settings;
            let name = if settings.is_asgi() { "asgi" } else { "wsgi" };
            info!("the app is imported once more: --interface {name} saves that");
        }
        self.built(generation, built, None);
    }
}
