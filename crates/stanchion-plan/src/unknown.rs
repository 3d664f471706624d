//! Sentences for an operator on facts that the figures of an answer do not know.

use crate::answer::ScenarioResult;

/// Requests without a time of their own are worth a sentence if they are more than this share.
const DRAWN_SHARE: f64 = 0.01;

/// The facts that the figures of an answer do not know.
#[derive(Clone, Debug, Default)]
pub(crate) struct UnknownFacts {
    pub(crate) knows_cpu: bool,
    /// The most busy seats that the traffic ever had.
    pub(crate) busy_seen: Option<usize>,
    pub(crate) lost: u64,
    /// Requests that got the time of another one, and all.
    pub(crate) drawn: (u64, usize),
    pub(crate) turned_away: u64,
    /// Requests were seen, and none of them had a seat.
    pub(crate) wants_requests: bool,
}

impl UnknownFacts {
    /// A sentence on each.
    pub(crate) fn sentences(&self, results: &[ScenarioResult]) -> Vec<String> {
        let any = |is: &dyn Fn(&ScenarioResult) -> bool| results.iter().any(is);
        let mut all = Vec::new();
        if self.wants_requests {
            all.push(
                "No request here had a seat, so there are no service times to simulate with."
                    .to_owned(),
            );
        }
        let has_threads = |it: &ScenarioResult| !it.knobs.event_loop && !it.knobs.as_recorded;
        if !self.knows_cpu && any(&has_threads) {
            all.push(
                "CPU times are not known, so threads never wait for each other here, and workers not for cores: give --cpu 30% if you know the \
                 share."
                    .to_owned(),
            );
        }
        if !self.knows_cpu && any(&|it| it.knobs.event_loop) {
            all.push(
                "Event loops do not say how much CPU each request takes, so a loop that is full does not show here."
                    .to_owned(),
            );
        }
        if self.knows_cpu && any(&|it| it.knobs.cores.is_none() && !it.knobs.as_recorded) {
            all.push("The number of cores is not known, so each worker has one for itself here: give --cores.".to_owned());
        }
        if let Some(seen) = self.busy_seen
            && let most = results.iter().map(|it| it.busy_max).max().unwrap_or(0)
            && most > seen
        {
            all.push(format!(
                "A setting above has up to {most} requests at seats at once, and this server never had more than {seen}: what a database or another service does \
                 beyond that is not known."
            ));
        }
        if self.turned_away > 0
            || any(&|it| it.counts.refused + it.counts.timed_out + it.counts.shed > 0.0)
        {
            all.push("Clients that are refused may come again, and clients that wait may leave: here they do neither, unless they were seen to.".to_owned());
        }
        let (drawn, requests) = self.drawn;
        if drawn as f64 > DRAWN_SHARE * requests as f64 {
            all.push(format!("{drawn} of {requests} requests had no seat, so they get the time of others of their lane here."));
        }
        if self.lost > 0 {
            all.push(format!("The recording lacks {} requests.", self.lost));
        }
        all
    }
}
