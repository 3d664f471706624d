//! Which reports of a house's children the master reads, and when.
//!
//! The master reads at most 64 messages of one child in a turn of its loop, and then none of them for 100 ms. So a
//! child that sends without end fills its own channel, and does not keep the master from other work. When no process
//! has the worker's end of a channel any more, the worker has ended, or has closed its descriptors, and is replaced.

use std::os::fd::{AsFd, BorrowedFd};

use stanchion_sys::channel::Channel;

use super::reports::{Heard, Intake, Listens};
use super::resources::HouseResources;
use stanchion_generation::messages::{FromAcceptor, FromTemplate};
use stanchion_master::{Event, called};

impl HouseResources {
    /// The channels to read now.
    pub(super) fn listened_to(&self, now_ms: u64) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.intakes()
            .filter(move |(intake, _)| intake.is_read_at(now_ms))
            .map(|(_, channel)| channel.as_fd())
    }

    /// When the next channel is read again that is not read now.
    pub(super) fn listens_again_ms(&self, now_ms: u64) -> Option<u64> {
        let intakes = self.intakes().filter(|(intake, _)| !intake.has_ended);
        let times = intakes.map(|(intake, _)| intake.quiet_until_ms);
        times.filter(|&at_ms| at_ms > now_ms).min()
    }

    fn intakes(&self) -> impl Iterator<Item = (&Intake, &Channel)> {
        let acceptor = self.acceptor.iter();
        let template = self.template.iter();
        let scribe = self.scribe.iter();
        let posts = self.posts.values();
        acceptor
            .map(|link| (&link.intake, link.outbox.channel()))
            .chain(template.map(|link| (&link.intake, link.outbox.channel())))
            .chain(scribe.map(|link| (&link.intake, link.outbox.channel())))
            .chain(posts.map(|post| (&post.intake, &post.channel)))
    }

    /// Logs that the master does not do something that a worker has asked for.
    pub(super) fn refuse(&mut self, now_ms: u64, worker: u16, why: &str) {
        if let Some(post) = self.posts.get_mut(&worker) {
            let why = format!("the worker gets no listener of its own: {why}");
            let who = called(post.number, post.pid);
            post.intake.refuse(now_ms, &who, &why);
        }
    }

    /// Takes the messages of its children.
    pub(super) fn hear(&mut self, now_ms: u64, heard: &mut Heard<'_>) {
        let generation = self.common.generation;
        let watches = self.common.settings.reload;
        if let Some(acceptor) = &mut self.acceptor {
            acceptor.hear(now_ms, "the acceptor", |said, fd| {
                match said {
                    FromAcceptor::Listen { worker, bind } => heard.listens.push(Listens {
                        generation,
                        worker,
                        bind,
                        fd,
                    }),
                    said => heard.events.push(Event::AcceptorSaid { generation, said }),
                }
                Ok(())
            });
        }
        if let Some(template) = &mut self.template {
            template.hear(now_ms, "the template", |said, _| {
                if matches!(said, FromTemplate::Changed { .. }) && !watches {
                    return Err("it was not asked to watch files".to_owned());
                }
                heard.events.push(Event::TemplateSaid { generation, said });
                Ok(())
            });
        }
        if let Some(scribe) = &mut self.scribe {
            scribe.hear(now_ms, "the scribe", |said, _| {
                heard.events.push(Event::ScribeSaid { generation, said });
                Ok(())
            });
        }
        for (&worker, post) in &mut self.posts {
            post.hear((generation, worker), now_ms, heard);
        }
    }
}
