//! The master makes what a house for the other interface needs before it forks the first template. If the app is called by that
//! interface, the template, which has imported it, goes over to that house, and the first house goes without having served. So an app
//! that the operator has not named the interface of is imported once.

use std::rc::Rc;

use tracing::debug;

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

    /// Makes it, unless it was made before, or is of no use: before the template of the `first` house is forked. `rebuild` makes it.
    pub(super) fn prepare(
        first: &HouseResources,
        rebuild: impl FnOnce() -> Result<HouseResources, String>,
    ) -> Option<Self> {
        let settings = &first.common.settings;
        // A scribe is a child of its house, to which a template logs from its birth.
        let is_of_use =
            settings.is_guess() && settings.may_preload() && first.common.log_channels.is_none();
        is_of_use.then(|| match rebuild() {
            Ok(resources) => Self::Made(Box::new(resources)),
            Err(problem) => {
                // If it is needed it is tried again, and the failure is logged then.
                debug!("no house for the other interface is made beforehand: {problem}");
                Self::Over
            }
        })
    }

    /// Gives the house of this generation, if it was made, with the template of the `first` one, which has imported the app. The template
    /// gets the message to go over; it stays where it is if there is no such house.
    pub(super) fn go_over(
        &mut self,
        generation: u32,
        first: Option<&mut HouseResources>,
        template: Option<i32>,
    ) -> Option<HouseResources> {
        let Self::Made(mut made) = std::mem::replace(self, Self::Over) else {
            return None;
        };
        if made.common.generation != generation {
            return None;
        }
        let links = &mut first?.links;
        let is_it = |pid: i32| template == Some(pid);
        let mut link = links.template.take_if(|link| is_it(link.pid()))?;
        link.outbox.send(ToTemplate::GoOver);
        made.links.template = Some(link);
        Some(*made)
    }
}
