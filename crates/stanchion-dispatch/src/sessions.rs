//! Sessions (`WebSocket`s): how many there are, and what is known of one that is over.

use std::cell::Cell;
use std::rc::Rc;

use super::request::Request;
use crate::storage::clients::{Client, Share, Shares};
use crate::storage::connection_shares::max_each;
use stanchion_settings::{Believed, Settings};

/// Counts the sessions, and the requests that may become sessions.
pub(crate) struct Sessions {
    max: usize,
    permits: Rc<Cell<usize>>,
    /// The sessions of each client, and how many it may have if there is a limit.
    shares: Rc<Shares>,
    each_max: Option<u64>,
    believed: Believed,
}

/// The right to be one of the sessions that there may be, until this is dropped.
pub struct SessionPermit {
    permits: Rc<Cell<usize>>,
    _share: Option<Share>,
}

/// The facts about a session, for the observers.
#[derive(Clone, Copy, Debug, Default)]
pub struct SessionFacts {
    /// When the session began: the head that accepts its WebSocket was there.
    pub begun_us: u64,
    /// The code of its close frame; `None` if there was no close frame.
    pub code: Option<u16>,
    /// The messages that the client sent.
    pub received: MessageTotals,
    /// The messages that the app sent.
    pub sent: MessageTotals,
}

/// Whole messages, and the bytes in them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MessageTotals {
    /// How many messages.
    pub count: u64,
    /// Their bytes, without those of frames.
    pub bytes: u64,
}

impl MessageTotals {
    /// Counts one more message of so many bytes.
    pub fn add(&mut self, bytes: usize) {
        self.count += 1;
        self.bytes += bytes as u64;
    }
}

impl Drop for SessionPermit {
    fn drop(&mut self) {
        self.permits.set(self.permits.get() - 1);
    }
}

impl Sessions {
    pub(crate) fn new(settings: &Settings) -> Self {
        let max =
            settings.workers.workers.max as usize * settings.event_loop.worker_sessions as usize;
        Self {
            max,
            permits: Rc::default(),
            shares: Rc::default(),
            each_max: max_each(settings, max),
            believed: settings.believed(),
        }
    }

    /// The client whose request asks for a session, if it is known.
    pub(crate) fn client_of(&self, request: &Request) -> Option<Client> {
        request.peer.client(&request.head, &self.believed)
    }

    /// The right to one more session for this client, if the limits allow it. Without a client only the limit of all
    /// sessions counts.
    pub(crate) fn permit(&self, client: Option<Client>) -> Option<SessionPermit> {
        let permits = self.permits.get();
        if permits >= self.max {
            return None;
        }
        let limited = client.zip(self.each_max);
        let share = limited.map(|(client, most)| self.shares.take(client, 1, most));
        let share = share.transpose().ok()?;
        self.permits.set(permits + 1);
        Some(SessionPermit {
            permits: Rc::clone(&self.permits),
            _share: share,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_no_more_sessions_than_may_be_and_each_gives_its_place_back() {
        let settings = r#"{"interface": "asgi", "workers": 2, "worker_sessions": 1}"#;
        let sessions = Sessions::new(&Settings::from_json(settings).expect("settings"));
        let first = sessions.permit(None).expect("room");
        let second = sessions.permit(None).expect("room");
        assert!(sessions.permit(None).is_none());
        drop(first);
        let third = sessions.permit(None);
        assert!(third.is_some() && sessions.permit(None).is_none());
        drop((second, third));
        assert_eq!(sessions.permits.get(), 0);
    }

    #[test]
    fn a_client_has_no_more_than_half_of_them() {
        let settings = r#"{"interface": "asgi", "workers": 1, "worker_sessions": 5}"#;
        let sessions = Sessions::new(&Settings::from_json(settings).expect("settings"));
        let [one, other] =
            ["192.0.2.1", "192.0.2.2"].map(|ip| Some(Client::at(ip.parse().unwrap())));
        let first = sessions.permit(one).expect("room");
        let second = sessions.permit(one).expect("room");
        assert!(sessions.permit(one).is_none());
        let _others = [
            sessions.permit(other),
            sessions.permit(other),
            sessions.permit(None),
        ];
        drop((first, second));
        assert!(sessions.permit(one).is_some());
    }
}
