//! For tests of hosts: a worker without a master, and the exchange in which a test takes the place of its acceptor. Builds without debug
//! assertions, as of the wheel that people install, have none of it.

use stanchion_exchange::Exchange;
use stanchion_generation::messages::WorkerRef;
use stanchion_settings::Settings;
use stanchion_sys::channel::Channel;

use crate::master::geometry;
use crate::worker::Worker;

/// The only worker of a server with these settings. It stays until the tests end.
pub fn worker(settings: &str) -> (&'static Worker, &'static Exchange) {
    let settings = Settings::from_json(settings).expect("settings");
    let geometry = geometry(&settings, 1);
    let common = stanchion_generation::rig::common(settings, geometry);
    // A worker keeps nothing that only the acceptor is to have. Its other descriptors stay open, because the host's objects refer to it until
    // the process ends.
    common.leave_to_acceptor();
    // No master reads the reports.
    let (_, reports) = Channel::pair().expect("a channel");
    let id = WorkerRef { index: 0, epoch: 1 };
    let worker = Box::leak(Box::new(Worker::new(common, id, reports)));
    (worker, &common.exchange)
}
