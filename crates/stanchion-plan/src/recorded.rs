//! Recordings of a server as traffic that was seen.

use serde_json::{Map, Value, json};
use stanchion_arrivals::{
    ArrivalFile, ArrivalRecord, Recorded, RecordedLane, RecordedRequest, RecordedSettings,
    RequestEnd, lost,
};

use crate::seen::{SeenEnd, SeenRequest, SeenTraffic};

impl SeenTraffic {
    /// The traffic of all files of a directory. The settings are those of the newest file; none are there without a file.
    pub fn recorded(files: &[ArrivalFile]) -> Self {
        let newest = files.iter().max_by_key(|file| file.header.begun_us);
        let is_other = |file: &ArrivalFile| {
            newest.is_some_and(|newest| newest.header.settings != file.header.settings)
        };
        let mut notes = Vec::new();
        if files.iter().any(is_other) {
            let note = "The server ran by other settings for a part of the recording: a window of time, --from and --until, leaves that part out.";
            notes.push(note.to_owned());
        }
        let records = files.iter().flat_map(|file| &file.records);
        let mut requests: Vec<_> = records.filter_map(seen).collect();
        requests.sort_by_key(|one| one.at_us);
        let unreadable: u64 = files.iter().map(|file| file.unreadable).sum();
        Self {
            requests,
            settings: newest
                .map(|newest| knobs(&newest.header.settings))
                .unwrap_or_default(),
            lost: lost(files).max(unreadable),
            notes,
        }
    }
}

/// The request of a record, if it is about one.
fn seen(record: &ArrivalRecord) -> Option<SeenRequest> {
    let Recorded::Request(request) = record.what else {
        return None;
    };
    let RecordedRequest {
        wait_us,
        service_us,
        cpu_us,
        core_us,
        gil_us,
        client,
        lane,
        worker,
        end,
        ..
    } = request;
    Some(SeenRequest {
        at_us: record.at_us,
        wait_us: Some(wait_us),
        // A client may leave its answer, or a seat fail, before any seat took the request.
        service_us: worker.is_some().then_some(service_us),
        cpu_us,
        core_us,
        gil_us,
        client,
        lane: lane.into(),
        end: match end {
            RequestEnd::Served => SeenEnd::Served,
            RequestEnd::LineFull | RequestEnd::ClientFull => SeenEnd::Refused,
            RequestEnd::TimedOut | RequestEnd::Shed => SeenEnd::TimedOut,
            RequestEnd::LeftWaiting => SeenEnd::LeftWaiting,
            RequestEnd::LeftSeated => SeenEnd::LeftSeated,
            RequestEnd::Failed => SeenEnd::Failed,
            RequestEnd::Refused => SeenEnd::Other,
        },
    })
}

/// The settings by the names of a scenario.
fn knobs(settings: &RecordedSettings) -> Map<String, Value> {
    let lane = |lane: &RecordedLane| {
        json!({
            "name": lane.name,
            "priority": lane.priority,
            "seats": lane.seats,
            "seats_max": lane.seats_max,
            "waiting": lane.waiting_max,
            "is_for_all": lane.is_for_all,
        })
    };
    let workers = if settings.workers_min == settings.workers_max {
        json!(settings.workers_min)
    } else {
        json!([settings.workers_min, settings.workers_max])
    };
    let seats = if settings.event_loop {
        "worker_concurrency"
    } else {
        "threads"
    };
    // A single default lane is no order of its own.
    let lanes: Vec<_> = settings
        .lanes
        .iter()
        .filter(|_| settings.lanes.len() > 1)
        .map(lane)
        .collect();
    let knobs = json!({
        "workers": workers,
        seats: settings.seats_per_worker,
        "workers_keep_us": settings.workers_keep_us,
        "event_loop": settings.event_loop,
        "cores": settings.cores,
        "max_waiting": settings.waiting_max,
        "max_waiting_per_client": settings.waiting_max_per_client,
        "queue_timeout_us": settings.queue_timeout_us,
        "queue_order": if settings.queue_target_us.is_some() { "adaptive" } else { "fifo" },
        "queue_target_us": settings.queue_target_us,
        "lanes": lanes,
    });
    match knobs {
        Value::Object(knobs) => knobs,
        _ => Map::new(),
    }
}

#[cfg(test)]
mod tests {
    use stanchion_arrivals::{ArrivalHeader, EventKind, RecordedEvent};

    use super::*;
    use crate::scenario::{LineOrder, Scenario, WorkerRange};

    fn settings() -> RecordedSettings {
        RecordedSettings {
            server: "0.1".to_owned(),
            workers_min: 4,
            workers_max: 4,
            workers_keep_us: 9_000_000,
            seats_per_worker: 2,
            event_loop: false,
            cores: 2,
            waiting_max: 100,
            waiting_max_per_client: 3,
            queue_timeout_us: 5_000_000,
            queue_target_us: None,
            timeout_us: 30_000_000,
            lanes: vec![lane("default", None)],
        }
    }

    fn lane(name: &str, seats_max: Option<u32>) -> RecordedLane {
        RecordedLane {
            name: name.to_owned(),
            priority: 10,
            seats: 0,
            seats_max,
            waiting_max: seats_max.map(|_| 100),
            is_for_all: false,
        }
    }

    fn file(begun_us: u64, settings: RecordedSettings, records: Vec<ArrivalRecord>) -> ArrivalFile {
        ArrivalFile {
            header: ArrivalHeader {
                writer: 7,
                begun_us,
                settings,
            },
            records,
            unreadable: 0,
        }
    }

    fn record(number: u64, end: RequestEnd, worker: Option<u16>) -> ArrivalRecord {
        let request = RecordedRequest {
            front_us: 0,
            wait_us: 5,
            service_us: worker.map_or(0, |_| 70),
            cpu_us: worker.map(|_| 30),
            core_us: None,
            gil_us: Some(2),
            client: 9,
            busy: 1,
            waiting: 0,
            worker,
            status: 200,
            lane: 1,
            end,
            left_seat: false,
        };
        ArrivalRecord {
            number,
            at_us: 1_000 - number,
            what: Recorded::Request(request),
        }
    }

    fn scenario(settings: &RecordedSettings) -> Scenario {
        Scenario::of(&knobs(settings), &Map::new()).unwrap()
    }

    #[test]
    fn settings_are_those_of_the_server() {
        let threads = Scenario {
            workers: WorkerRange::Fixed(4),
            threads: 2,
            workers_keep_us: 9_000_000,
            cores: Some(2.0),
            max_waiting: 100,
            max_waiting_per_client: 3,
            queue_timeout_us: 5_000_000,
            ..Scenario::default()
        };
        assert_eq!(scenario(&settings()), threads);
        let loops = RecordedSettings {
            workers_max: 8,
            event_loop: true,
            queue_target_us: Some(70),
            lanes: vec![lane("default", None), lane("slow", Some(1))],
            ..settings()
        };
        let found = scenario(&loops);
        assert_eq!(
            (found.workers, found.threads, found.worker_concurrency),
            (WorkerRange::Elastic([4, 8]), 1, 2)
        );
        assert_eq!(
            (found.queue_order, found.queue_target_us),
            (LineOrder::Adaptive, 70)
        );
        assert_eq!(
            (
                found.lanes[1].seats_max,
                found.lanes[1].waiting,
                found.are_for_all()[1]
            ),
            (Some(1), Some(100), false)
        );
    }

    #[test]
    fn requests_come_in_order_with_all_that_is_known() {
        let event = RecordedEvent {
            kind: EventKind::Ready,
            worker: Some(0),
            workers: 1,
            waiting: 0,
        };
        let event = ArrivalRecord {
            number: 3,
            at_us: 1,
            what: Recorded::Event(event),
        };
        let records = vec![
            record(1, RequestEnd::Served, Some(2)),
            event,
            record(5, RequestEnd::Shed, None),
        ];
        let traffic = SeenTraffic::recorded(&[file(1, settings(), records)]);
        let shed = SeenRequest {
            at_us: 995,
            wait_us: Some(5),
            gil_us: Some(2),
            client: 9,
            lane: 1,
            end: SeenEnd::TimedOut,
            ..SeenRequest::default()
        };
        let served = SeenRequest {
            at_us: 999,
            service_us: Some(70),
            cpu_us: Some(30),
            end: SeenEnd::Served,
            ..shed
        };
        assert_eq!(traffic.requests, [shed, served]);
        // Two numbers are missing.
        assert_eq!((traffic.lost, traffic.notes.len()), (2, 0));
    }

    #[test]
    fn the_newest_settings_count_and_a_change_is_noted() {
        let other = RecordedSettings {
            workers_min: 6,
            workers_max: 6,
            ..settings()
        };
        let traffic =
            SeenTraffic::recorded(&[file(2, other, Vec::new()), file(1, settings(), Vec::new())]);
        assert_eq!(
            (&traffic.settings["workers"], traffic.notes.len()),
            (&json!(6), 1)
        );
        assert_eq!(SeenTraffic::recorded(&[]), SeenTraffic::default());
    }
}
