use std::sync::mpsc::{Receiver, Sender, channel};

use super::super::scratch::until;
use super::*;

const BOUND: Duration = Duration::from_secs(10);

fn taken(woken: &Woken) -> Vec<u32> {
    let mut numbers = Vec::new();
    woken.take(&mut numbers);
    numbers.sort_unstable();
    numbers
}

/// The connections that are woken, once there are so many: a job has its result a moment before its connection is noted.
fn woken_once_done(disk: &Disk, woken: &Woken, count: usize) -> Vec<u32> {
    let mut numbers = Vec::new();
    disk.done(woken);
    until(disk, woken, &mut || {
        numbers.extend(taken(woken));
        (numbers.len() >= count).then_some(())
    });
    numbers.sort_unstable();
    numbers
}

/// Has a job of each connection wait, until the sender is dropped.
fn occupy(disk: &Disk, connections: std::ops::Range<u32>) -> (Sender<()>, Vec<Job<()>>) {
    occupy_with(FileSystem::Own, DISK_THREADS_MAX, disk, connections)
}

/// The same for files on that file system, for which there are so many threads.
fn occupy_with(
    file_system: FileSystem,
    threads_max: usize,
    disk: &Disk,
    connections: std::ops::Range<u32>,
) -> (Sender<()>, Vec<Job<()>>) {
    let (release, released): (_, Receiver<()>) = channel();
    let released = Arc::new(Mutex::new(released));
    let (begun, has_begun) = channel();
    let job = |number| {
        let (released, begun) = (Arc::clone(&released), begun.clone());
        disk.start(file_system, number, move || {
            // The test waits only for the jobs that have a thread at first.
            let _heard = begun.send(());
            // The first job has the lock and waits for the end, and the others wait for the lock.
            let _ended = locked(&released).recv();
            Ok(())
        })
    };
    let count = connections.len().min(threads_max);
    let jobs: Vec<_> = connections.map(job).collect();
    for _ in 0..count {
        has_begun.recv_timeout(BOUND).unwrap();
    }
    (release, jobs)
}

#[test]
fn a_connection_is_woken_when_its_job_is_done_and_gets_what_came_of_it() {
    let (disk, woken) = (Disk::new(2).unwrap(), Woken::default());
    let mut job = disk.start(FileSystem::Own, 7, || Ok(42));
    let done = until(&disk, &woken, &mut || job.take());
    assert_eq!(done.unwrap(), 42);
    assert!(job.take().is_none(), "once");
    assert_eq!(woken_once_done(&disk, &woken, 1), [7]);
}

#[test]
fn a_job_that_panics_fails() {
    let (disk, woken) = (Disk::new(2).unwrap(), Woken::default());
    for _ in 0..=DISK_THREADS_MAX {
        let mut job = disk.start(FileSystem::Own, 7, || -> io::Result<()> {
            panic!("on purpose")
        });
        let done = until(&disk, &woken, &mut || job.take());
        assert!(done.unwrap_err().to_string().contains("panicked"));
    }
    // And its thread goes on.
    let mut job = disk.start(FileSystem::Own, 7, || Ok(()));
    until(&disk, &woken, &mut || job.take()).unwrap();
}

#[test]
fn there_are_so_many_threads_and_no_more_and_so_many_jobs_wait() {
    let woken = Woken::default();
    let disk = Disk::new(2).unwrap();
    let threads = DISK_THREADS_MAX as u32;
    let (release, mut jobs) = occupy(&disk, 0..threads);
    let later = [
        disk.start(FileSystem::Own, 100, || Ok(())),
        disk.start(FileSystem::Own, 101, || Ok(())),
    ];
    jobs.extend(later);
    assert_eq!(disk.0.pool.state().threads, DISK_THREADS_MAX);
    assert_eq!(disk.0.pool.state().own.len(), 2);
    let mut refused = disk.start(FileSystem::Own, 102, || Ok(()));
    let error = refused.take().unwrap().unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::ResourceBusy);
    disk.done(&woken);
    assert_eq!(taken(&woken), [102], "who was refused is told so");
    drop(release);
    for mut job in jobs {
        until(&disk, &woken, &mut || job.take()).unwrap();
    }
    let expected: Vec<_> = (0..threads).chain([100, 101]).collect();
    assert_eq!(woken_once_done(&disk, &woken, expected.len()), expected);
}

#[test]
fn a_file_system_that_hangs_does_not_keep_the_spool_waiting() {
    let (disk, woken) = (Disk::new(40).unwrap(), Woken::default());
    let hanging = 0..DISK_THREADS_MAX as u32;
    let (release, mut hang) = occupy_with(FileSystem::Foreign, FOREIGN_THREADS_MAX, &disk, hanging);
    for number in 100..200 {
        let mut job = disk.start(FileSystem::Own, number, || Ok(()));
        until(&disk, &woken, &mut || job.take()).unwrap();
    }
    assert_eq!(disk.0.pool.state().busy_foreign, FOREIGN_THREADS_MAX);
    assert!(hang.iter_mut().all(|job| job.take().is_none()));
    // Jobs of the same kind wait behind them, and no more than there are connections.
    let more = FOREIGN_THREADS_MAX + 40 - hang.len();
    hang.extend((0..more).map(|_| disk.start(FileSystem::Foreign, 7, || Ok(()))));
    let mut refused = disk.start(FileSystem::Foreign, 7, || Ok(()));
    assert!(refused.take().unwrap().is_err());
    drop(release);
    for mut job in hang {
        until(&disk, &woken, &mut || job.take()).unwrap();
    }
}

#[test]
fn threads_are_started_when_the_others_are_busy() {
    let (disk, woken) = (Disk::new(9).unwrap(), Woken::default());
    assert_eq!(disk.0.pool.state().threads, 0);
    let (release, mut jobs) = occupy(&disk, 0..3);
    assert_eq!(disk.0.pool.state().threads, 3);
    drop(release);
    until(&disk, &woken, &mut || jobs[0].take()).unwrap();
}

#[test]
fn what_nobody_waits_for_any_more_is_not_begun() {
    let (disk, woken) = (Disk::new(9).unwrap(), Woken::default());
    let (release, jobs) = occupy(&disk, 0..DISK_THREADS_MAX as u32);
    let (begun, has_begun) = channel();
    let job = disk.start(FileSystem::Own, 100, move || {
        begun.send(()).unwrap();
        Ok(())
    });
    drop((job, release));
    disk.finish(BOUND);
    assert!(has_begun.try_recv().is_err());
    drop(jobs);
    disk.done(&woken);
    assert!(!taken(&woken).contains(&100));
}

/// Sends the name of the thread that has dropped it.
struct Dropped(Sender<Option<String>>);

impl Drop for Dropped {
    fn drop(&mut self) {
        let name = std::thread::current().name().map(ToOwned::to_owned);
        self.0.send(name).unwrap();
    }
}

#[test]
fn what_is_discarded_goes_elsewhere_while_there_is_room_and_before_the_end() {
    let disk = Disk::new(1).unwrap();
    let (dropped, was_dropped) = channel();
    let (release, _jobs) = occupy(&disk, 0..DISK_THREADS_MAX as u32);
    for _ in 0..3 {
        disk.discard(FileSystem::Own, Dropped(dropped.clone()));
    }
    // No thread has a hand free, and two things wait for one: the third has gone at once.
    let own = std::thread::current().name().map(ToOwned::to_owned);
    assert_eq!(was_dropped.try_recv().unwrap(), own);
    assert!(was_dropped.try_recv().is_err());
    drop(release);
    disk.finish(BOUND);
    for _ in 0..2 {
        assert_eq!(
            was_dropped.try_recv().unwrap().as_deref(),
            Some(DISK_CREW.name)
        );
    }
    disk.discard(FileSystem::Own, Dropped(dropped));
    assert_eq!(was_dropped.try_recv().unwrap(), own);
}

#[test]
fn the_end_does_not_wait_for_a_disk_that_hangs() {
    let disk = Disk::new(1).unwrap();
    let (release, _jobs) = occupy(&disk, 0..1);
    disk.finish(Duration::from_millis(1));
    assert_eq!(disk.0.pool.state().busy, 1);
    let mut late = disk.start(FileSystem::Own, 1, || Ok(()));
    assert!(late.take().unwrap().is_err());
    drop(release);
}
