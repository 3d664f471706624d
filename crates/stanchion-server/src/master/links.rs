//! The channels to the children of a generation: what they are sent, and which of their reports the master reads, and when.
//!
//! The master reads at most 64 messages of one child in a turn of its loop, and then none of them for 100 ms. So a
//! child that sends without end fills its own channel, and does not keep the master from other work. When no process
//! has the worker's end of a channel any more, the worker has ended, or has closed its descriptors, and is replaced.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use stanchion_sys::channel::Channel;

use super::reports::{Link, Listens, Post, ReportIntake, ReportsHeard};
use stanchion_generation::messages::{
    self, FromAcceptor, FromTemplate, ToAcceptor, ToScribe, ToTemplate, WorkerOrder, WorkerRef,
};
use stanchion_master::{GenerationEvent, MasterEvent, called};

/// The channels to the children of one generation.
#[derive(Debug, Default)]
pub(super) struct Links {
    pub(super) acceptor: Option<Link<ToAcceptor>>,
    pub(super) template: Option<Link<ToTemplate>>,
    /// During a re-fork: to the worker that is to be the template, and then to the template before it.
    pub(super) other_template: Option<Link<ToTemplate>>,
    pub(super) scribe: Option<Link<ToScribe>>,
    /// By index: where workers that were asked for report.
    pub(super) posts: BTreeMap<u16, Post>,
}

impl Links {
    /// Sends it to the acceptor, if there is one.
    pub(super) fn tell_acceptor(&mut self, message: ToAcceptor) {
        if let Some(link) = &mut self.acceptor {
            link.outbox.send(message);
        }
    }

    /// Sends it to the template, if there is one, with a descriptor beside it or none.
    pub(super) fn tell_template(&mut self, message: ToTemplate, fd: Option<OwnedFd>) {
        if let Some(link) = &mut self.template {
            link.outbox.send_with(message, fd);
        }
    }

    /// Has each template reopen the error log, also one that is to be it and one that was.
    pub(super) fn reopen_templates(&mut self) {
        for link in self.template.iter_mut().chain(&mut self.other_template) {
            link.outbox.send(ToTemplate::Reopen);
        }
    }

    /// Orders a worker to be the template once it has left its seats, and makes the channel for that.
    pub(super) fn offer_template(&mut self, worker: WorkerRef, pid: i32) -> io::Result<()> {
        let post = self.posts.get(&worker.index);
        let post = post.filter(|post| post.number_of(worker.epoch).is_some());
        let post = post.ok_or(io::ErrorKind::NotConnected)?;
        let (ours, theirs) = Channel::pair()?;
        let theirs = Some(theirs.as_fd());
        messages::send_with(&post.channel, &WorkerOrder::BecomeTemplate, theirs)?;
        self.other_template = Some(Link::new(pid, ours));
        Ok(())
    }

    /// The other template is the one that forks workers from now on.
    pub(super) fn swap_templates(&mut self) {
        std::mem::swap(&mut self.template, &mut self.other_template);
    }

    /// Sends it to the scribe, if there is one.
    pub(super) fn tell_scribe(&mut self, message: ToScribe) {
        if let Some(link) = &mut self.scribe {
            link.outbox.send(message);
        }
    }

    pub(super) fn has_unsent(&self) -> bool {
        let has_unsent = [
            self.acceptor.as_ref().map(|link| link.outbox.has_unsent()),
            self.template.as_ref().map(|link| link.outbox.has_unsent()),
            self.other_template
                .as_ref()
                .map(|link| link.outbox.has_unsent()),
            self.scribe.as_ref().map(|link| link.outbox.has_unsent()),
        ];
        has_unsent.contains(&Some(true))
    }

    pub(super) fn send_again(&mut self) {
        let acceptor = self.acceptor.iter_mut();
        acceptor.for_each(|link| link.outbox.send_again());
        let templates = self.template.iter_mut().chain(&mut self.other_template);
        templates.for_each(|link| link.outbox.send_again());
        let scribe = self.scribe.iter_mut();
        scribe.for_each(|link| link.outbox.send_again());
    }

    /// The number of a worker, unless the worker is gone.
    pub(super) fn number_of(&self, WorkerRef { index, epoch }: WorkerRef) -> Option<u16> {
        self.posts.get(&index)?.number_of(epoch)
    }

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

    fn intakes(&self) -> impl Iterator<Item = (&ReportIntake, &Channel)> {
        let acceptor = self.acceptor.iter();
        let templates = self.template.iter().chain(&self.other_template);
        let scribe = self.scribe.iter();
        let posts = self.posts.values();
        acceptor
            .map(|link| (&link.intake, link.outbox.channel()))
            .chain(templates.map(|link| (&link.intake, link.outbox.channel())))
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

    /// Takes the messages of the children; `watches`: the template was asked to watch files.
    pub(super) fn hear(
        &mut self,
        (generation_number, watches): (u32, bool),
        now_ms: u64,
        heard: &mut ReportsHeard<'_>,
    ) {
        let own = |event| MasterEvent::OfGeneration(generation_number, event);
        if let Some(acceptor) = &mut self.acceptor {
            acceptor.hear(now_ms, "the acceptor", |said, fd| {
                match said {
                    FromAcceptor::Listen { worker, bind } => heard.listens.push(Listens {
                        generation_number,
                        worker,
                        bind,
                        fd,
                    }),
                    FromAcceptor::Weigh => heard.weighs.push(generation_number),
                    said => heard.events.push(own(GenerationEvent::AcceptorSaid(said))),
                }
                Ok(())
            });
        }
        if let Some(template) = &mut self.template {
            template.hear(now_ms, "the template", |said, _| {
                if matches!(said, FromTemplate::Changed { .. }) && !watches {
                    return Err("it was not asked to watch files".to_owned());
                }
                heard.events.push(own(GenerationEvent::TemplateSaid(said)));
                Ok(())
            });
        }
        if let Some(other) = &mut self.other_template {
            let pid = other.pid();
            other.hear(now_ms, "the other template", |said, _| {
                let event = GenerationEvent::OtherTemplateSaid { pid, said };
                heard.events.push(own(event));
                Ok(())
            });
        }
        if let Some(scribe) = &mut self.scribe {
            scribe.hear(now_ms, "the scribe", |said, _| {
                heard.events.push(own(GenerationEvent::ScribeSaid(said)));
                Ok(())
            });
        }
        for (&worker, post) in &mut self.posts {
            post.hear((generation_number, worker), now_ms, heard);
        }
    }
}
