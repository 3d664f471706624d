//! The recording of arrivals (`record_arrivals`): its files, and the events of workers in it.

use stanchion_arrivals::{EventKind, RecordedEvent};
use stanchion_log::RecordingFiles;
use tracing::error;

use super::Acceptor;
use stanchion_generation::common::Common;

/// The files of this acceptor, if the settings ask for a recording.
///
/// # Errors
/// The operator's: why the directory cannot be written. Only the first acceptor of a generation has this error: another one takes the
/// place of an acceptor that served and was killed, and clients need it more than a planner does.
pub(super) fn open(common: &Common) -> Result<Option<RecordingFiles>, String> {
    match stanchion_observers::open_recording(&common.settings, common.cores) {
        Err(error) if common.tally.turns() > 0 => {
            error!("arrivals are not recorded until the next reload: {error}");
            Ok(None)
        }
        opened => opened.map_err(|error| error.to_string()),
    }
}

impl Acceptor {
    /// Has an event of workers recorded, if arrivals are.
    pub(super) fn record_workers(&mut self, kind: EventKind, worker: Option<u16>) {
        let dispatch = &self.requests.dispatch;
        let workers = match kind {
            EventKind::Wanted => dispatch.times.staffing.wanted(),
            EventKind::Ready | EventKind::Gone | EventKind::Leaves => {
                dispatch.view().workers().len()
            }
        };
        let short = |count: usize| u16::try_from(count).unwrap_or(u16::MAX);
        let event = RecordedEvent {
            kind,
            worker,
            workers: short(workers),
            waiting: short(dispatch.waiting()),
        };
        let now_us = self.requests.now_us;
        let observers = &mut self.requests.record.observers;
        observers.workers_changed(event, now_us);
    }
}
