//! Checks that concern more than one setting, or what one means for the whole server.

use std::time::Duration;

use super::Settings;
use super::lane::LANES_MAX;
use super::row::Setting;
use super::table::rows;
use super::values::Values;
use super::words::{Http2Cleartext, Interface};

/// Most requests that can run at once in threads: workers times threads. Each seat costs shared memory and
/// a place in the scoreboard from the start.
pub(super) const SEATS_MAX: u64 = 4096;

/// The least `workers_keep`.
const WORKERS_KEEP_MIN: Duration = Duration::from_secs(1);

/// A setting whose value does not go with others, and the reason.
pub(super) type Objection = (&'static Setting, String);

/// The objections, in a fixed order.
pub(super) fn check_together(settings: &Settings, values: &Values) -> Vec<Objection> {
    let checks = [
        event_loop(settings, values),
        elastic(settings),
        workers_keep(settings),
        seats(settings, values),
        memory(settings),
        warm_up(settings, values),
        refork_after(settings),
        worker_ports(settings),
        binds(settings),
        lanes(settings),
        http2(settings),
        keys(settings),
        cipher_suites(settings),
        authorities(settings),
    ];
    checks.into_iter().flatten().collect()
}

/// gevent runs WSGI apps.
fn event_loop(settings: &Settings, values: &Values) -> Option<Objection> {
    let is_both = settings.is_gevent() && settings.event_loop.interface == Interface::Asgi;
    let reason = || {
        let origin = &values[rows::interface.setting.name].origin;
        format!(
            "gevent runs WSGI apps, and `interface` from {origin} says asgi: leave one of them out, or say `loop` auto"
        )
    };
    is_both.then(|| (&rows::event_loop.setting, reason()))
}

/// The app may turn out to be asynchronous later: then [`Settings::taken_for`] refuses it.
fn elastic(settings: &Settings) -> Option<Objection> {
    let reason = settings.cannot_be_elastic()?;
    Some((&rows::workers.setting, reason.to_owned()))
}

/// Without a pause workers would come and go with each request.
fn workers_keep(settings: &Settings) -> Option<Objection> {
    let keep = settings.workers.workers_keep;
    let reason = || format!("expected at least 1, got {keep}");
    (keep.duration() < WORKERS_KEEP_MIN).then(|| (&rows::workers_keep.setting, reason()))
}

fn seats(settings: &Settings, values: &Values) -> Option<Objection> {
    let (workers, threads) = (&rows::workers.setting, &rows::threads.setting);
    let given = |setting: &Setting| values[setting.name].value.to_string();
    // A worker takes one at least, whatever it is.
    let (each, each_given) = if settings.is_event_loop() {
        (1, "1".to_owned())
    } else {
        (settings.workers.threads, given(threads))
    };
    let most = settings.workers.workers.max;
    let is_too_many = u64::from(most) * u64::from(each) > SEATS_MAX;
    // The higher of the two is the likelier slip.
    let culprit = if most >= each { workers } else { threads };
    let reason = || {
        let workers = given(workers).replace('"', "");
        format!("expected workers times threads <= {SEATS_MAX}, got {workers} times {each_given}")
    };
    is_too_many.then(|| (culprit, reason()))
}

/// The hard bound must leave the soft one something to do.
fn memory(settings: &Settings) -> Option<Objection> {
    let (soft, hard) = (
        settings.workers.max_memory,
        settings.workers.max_memory_hard,
    );
    let reason = || format!("expected 0 or at least max_memory, which is {soft}, got {hard}");
    (hard != 0 && hard < soft).then(|| (&rows::max_memory_hard.setting, reason()))
}

/// The template answers these requests, so it must have imported the app, and the app must need no event loop.
fn warm_up(settings: &Settings, values: &Values) -> Option<Objection> {
    let origin = |setting: &Setting| &values[setting.name].origin;
    let reason = if settings.workers.warm_up.is_empty() {
        return None;
    } else if settings.is_gevent() {
        let origin = origin(&rows::event_loop.setting);
        format!(
            "the template answers these requests, and with gevent (`loop` from {origin}) each worker imports the app: leave \
             one of them out"
        )
    } else if !settings.workers.preload_app {
        let origin = origin(&rows::preload_app.setting);
        format!(
            "the template answers these requests, and `preload_app` from {origin} says that it has no app: leave one of them \
             out"
        )
    } else if settings.event_loop.interface == Interface::Asgi {
        let origin = origin(&rows::interface.setting);
        format!(
            "the template answers these requests, and the event loop of an asynchronous app (`interface` from {origin}) \
             begins in the worker: leave it out, and warm the app up at lifespan.startup"
        )
    } else {
        return None;
    };
    Some((&rows::warm_up.setting, reason))
}

/// A worker has to come to this number, and others have to share its memory.
fn refork_after(settings: &Settings) -> Option<Objection> {
    let workers = &settings.workers;
    if workers.refork_after == 0 {
        return None;
    }
    let reason = if let Some(why) = settings.without_refork() {
        format!("{why}: leave it out")
    } else if (1..=workers.refork_after).contains(&workers.max_requests) {
        format!(
            "expected fewer than max_requests, after which a worker is replaced, {}, got {}",
            workers.max_requests, workers.refork_after
        )
    } else {
        return None;
    };
    Some((&rows::refork_after.setting, reason))
}

fn worker_ports(settings: &Settings) -> Option<Objection> {
    let (base, workers) = (
        u64::from(settings.listen.worker_port_base),
        settings.workers.workers.max,
    );
    let most = u64::from(u16::MAX);
    let is_beyond = base != 0 && base + u64::from(workers) - 1 > most;
    let reason =
        || format!("expected a port for each of {workers} workers up to {most}, got {base}");
    is_beyond.then(|| (&rows::worker_port_base.setting, reason()))
}

/// Each listener is one of its own.
fn binds(settings: &Settings) -> Option<Objection> {
    let binds = &settings.listen.bind;
    let mut pairs = (binds.iter().enumerate())
        .flat_map(|(index, bind)| binds[..index].iter().map(move |other| (other, bind)));
    let clash = pairs.find_map(|(other, bind)| other.clash(bind));
    clash.map(|reason| (&rows::bind.setting, reason))
}

fn lanes(settings: &Settings) -> Option<Objection> {
    let lanes = &settings.line.lane;
    let seats = settings.seats_min();
    let product = if settings.is_event_loop() {
        "workers times worker_concurrency"
    } else {
        "workers times threads"
    };
    let again = (lanes.iter().enumerate())
        .find(|(index, lane)| lanes[..*index].iter().any(|one| one.name == lane.name));
    let reason = if lanes.len() > LANES_MAX {
        format!("expected at most {LANES_MAX}, got {}", lanes.len())
    } else if let Some((_, lane)) = again {
        format!("there are two lanes '{}'", lane.name)
    } else if let Some(kept) = settings.reserves_too_many() {
        format!("expected fewer reserved seats than the {seats} there are ({product}), got {kept}")
    } else {
        return None;
    };
    Some((&rows::lane.setting, reason))
}

/// RFC 9113 section 3.1 has removed the upgrade.
fn http2(settings: &Settings) -> Option<Objection> {
    let reason = "RFC 9113 has removed the upgrade from HTTP/1.1 to HTTP/2: have the proxy in front begin with HTTP/2, and \
                  say prior-knowledge";
    let is_refused = matches!(
        settings.http.http2_cleartext,
        Http2Cleartext::Upgrade | Http2Cleartext::Both
    );
    is_refused.then(|| (&rows::http2_cleartext.setting, reason.into()))
}

/// Each certificate has a key. Without certificates no other setting of TLS matters, as in gunicorn; the server reports a key without one when it
/// starts.
fn keys(settings: &Settings) -> Option<Objection> {
    let (chains, keys) = settings.certificate_files();
    let reason = || {
        format!(
            "expected one for each of {chains} `certfile`, or none if the keys are in the same files, got {keys}"
        )
    };
    (chains > 0 && keys > 0 && keys != chains).then(|| (&rows::keyfile.setting, reason()))
}

fn cipher_suites(settings: &Settings) -> Option<Objection> {
    let names = settings
        .tls
        .ciphers
        .as_deref()
        .filter(|_| settings.serves_tls())?;
    let reason = stanchion_tls::check_suites(names).err()?;
    Some((&rows::ciphers.setting, reason))
}

/// A server that verifies clients has the certificates of their authorities.
fn authorities(settings: &Settings) -> Option<Objection> {
    let has_none =
        settings.serves_tls() && settings.verifies_clients() && settings.tls.ca_certs.is_none();
    let reason = "it needs `ca_certs`, whose certificates clients are to show";
    has_none.then(|| (&rows::cert_reqs.setting, reason.into()))
}
