//! A connection whose request has arrived, and waits for its answer.

use stanchion_http::Head;

use super::answering::answer;
use super::upload::Arrived;
use super::{Phase, Step};
use crate::judgement::{Judgement, WantedResources};
use crate::link::ClientLink;
use crate::pace::after;
use stanchion_dispatch::Dispatch;
use stanchion_dispatch::refusal::Refusal;
use stanchion_dispatch::request::Body;
use stanchion_dispatch::ticket::Answer;
use stanchion_requests::file::FILE_TIMEOUT;
use stanchion_requests::static_files::Looking;
use stanchion_requests::{Account, Requests};

/// A request that waits for its answer.
pub(crate) struct Waiting {
    pub(crate) request: Arrived,
    /// The look for a static file that may be the answer, until its outcome is known.
    pub(super) looking: Option<Looking>,
}

/// A request has arrived whole, and joins the line.
pub(super) fn arrive(
    head: Head,
    body: Body,
    account: Account,
    started_us: u64,
    link: &ClientLink,
    requests: &mut Requests,
) -> Step {
    let (ticket, looking) = requests.join(head, body, &link.peer, started_us, link.number);
    let request = Arrived {
        ticket,
        account,
        upload: None,
    };
    Step::On(Phase::Waiting(Waiting { request, looking }))
}

/// Refuses a request of which a part was not read.
pub(super) fn refuse(
    refusal: Refusal,
    head: Head,
    account: Account,
    started_us: u64,
    link: &mut ClientLink,
    requests: &mut Requests,
) -> Step {
    link.closes_unread();
    let request = Arrived {
        ticket: requests.refused(refusal, head, &link.peer, started_us, link.number),
        account,
        upload: None,
    };
    let looking = None;
    Step::On(Phase::Waiting(Waiting { request, looking }))
}

impl Waiting {
    /// Answers the request, if its answer has come; sends hints and takes the rest of the body in until then.
    pub(super) fn go_on(mut self, link: &mut ClientLink, requests: &mut Requests) -> Step {
        let ticket = &self.request.ticket;
        self.looking
            .take_if(|looking| !requests.look_again(ticket, looking));
        if let Some(given) = ticket.take_answer() {
            self.request.is_answered(link);
            return answer(self.request, given, link, requests);
        }
        if !link.send_hints(ticket, requests.now_us) {
            self.abandon(requests);
            return Step::Close;
        }
        let taken_in = self.request.take_in(link, requests);
        if link.client_has_left(&requests.common.settings) {
            self.abandon(requests);
            return Step::Close;
        }
        match taken_in {
            Ok(()) => Step::Wait(Phase::Waiting(self)),
            Err(refusal) => self.call_off(refusal, link, requests),
        }
    }

    /// Refuses the request because of its body.
    pub(super) fn call_off(
        mut self,
        refusal: Refusal,
        link: &mut ClientLink,
        requests: &mut Requests,
    ) -> Step {
        let ticket = &self.request.ticket;
        requests.dispatch.abandon(ticket, requests.now_us);
        ticket.answer(Answer::Refused(refusal));
        self.request.give_up_rest(link);
        Step::On(Phase::Waiting(self))
    }

    /// The client is gone before there was an answer.
    pub(super) fn abandon(self, requests: &mut Requests) {
        let Arrived {
            ticket, account, ..
        } = self.request;
        requests.client_gone(&ticket, account);
    }

    /// Waits for a file no longer.
    pub(super) fn give_file_up(&mut self, requests: &mut Requests) {
        self.looking = None;
        requests.give_up_looking(&self.request.ticket);
    }

    /// Judges the client by its body, and the file system by the time that it takes to find a file.
    pub(super) fn judge(
        &self,
        wanted: WantedResources,
        dispatch: &Dispatch,
        now_us: u64,
    ) -> Judgement {
        let arrived_us = self.request.ticket.request.arrived_us;
        let looking = self.looking.as_ref();
        let file_by_us = looking.map_or(u64::MAX, |_| after(arrived_us, FILE_TIMEOUT));
        if file_by_us <= now_us {
            return Judgement::FileTimedOut;
        }
        self.request
            .judge_upload(file_by_us, wanted, dispatch, now_us)
    }
}
