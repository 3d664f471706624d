//! The master makes what a generation for the other interface needs before it forks the first template. If the app is called by that
//! interface, the template, which has imported it, goes over to that generation, and the first generation goes without having served. So an app
//! that the operator has not named the interface of is imported once.

use std::rc::Rc;

use tracing::debug;

use super::resources::GenerationResources;
use stanchion_generation::common::Common;
use stanchion_generation::messages::ToTemplate;

/// The generation for the other interface. It is made once: at a reload the app most likely is what it was.
pub(super) enum OtherGeneration {
    /// It may be needed later.
    NotMade,
    Made(Box<GenerationResources>),
    /// It was not needed, or it is a generation like others.
    Over,
}

impl OtherGeneration {
    /// A template works with this if it goes over.
    pub(super) fn common(&self) -> Option<Rc<Common>> {
        match self {
            Self::Made(resources) => Some(Rc::clone(&resources.common)),
            Self::NotMade | Self::Over => None,
        }
    }

    /// Makes it by `rebuild`; `None` if the template of the `first` generation, which is forked next, has no use for it.
    pub(super) fn prepare(
        first: &GenerationResources,
        rebuild: impl FnOnce() -> Result<GenerationResources, String>,
    ) -> Option<Self> {
        let settings = &first.common.settings;
        // A scribe is a child of its generation, to which a template logs from its birth.
        let is_of_use =
            settings.is_guess() && settings.may_preload() && first.common.log_channels.is_none();
        is_of_use.then(|| match rebuild() {
            Ok(resources) => Self::Made(Box::new(resources)),
            Err(problem) => {
                // If it is needed it is tried again, and the failure is logged then.
                debug!("no generation for the other interface is made beforehand: {problem}");
                Self::Over
            }
        })
    }

    /// Gives the generation of this number, if it was made, with the template of the `first` one, which has imported the app. The template
    /// gets the message to go over; it stays where it is if there is no such generation.
    pub(super) fn go_over(
        &mut self,
        generation_number: u32,
        first: Option<&mut GenerationResources>,
        template: Option<i32>,
    ) -> Option<GenerationResources> {
        let Self::Made(mut made) = std::mem::replace(self, Self::Over) else {
            return None;
        };
        if made.common.generation != generation_number {
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
