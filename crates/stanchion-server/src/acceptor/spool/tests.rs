use std::fs::DirBuilder;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use super::*;

/// A directory of the test's own, which must be empty in the end.
struct Directory(PathBuf);

impl Directory {
    fn new(test: &str) -> Self {
        let name = format!("stanchion-test-{test}-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        DirBuilder::new().create(&path).unwrap();
        Self(path)
    }

    fn files(&self) -> usize {
        std::fs::read_dir(&self.0).unwrap().count()
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        // Fails if it is not empty.
        let removed = std::fs::remove_dir(&self.0);
        assert!(std::thread::panicking() || removed.is_ok());
    }
}

/// Runs the test, and then whatever it has left to the threads that wait for the disk.
fn with_spool<T>(test: &str, bytes_max: u64, act: impl AsyncFnOnce(Rc<Spool>, &Directory) -> T) {
    let directory = Directory::new(test);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    let spool = Spool::new(&directory.0, bytes_max);
    runtime.block_on(act(spool, &directory));
    runtime.shutdown_timeout(std::time::Duration::from_secs(10));
}

fn pieces(len: usize) -> Vec<Bytes> {
    let all: Bytes = (0..len).map(|n| n as u8).collect();
    vec![all.slice(..len / 3), all.slice(len / 3..)]
}

#[test]
fn what_was_appended_is_read_back() {
    with_spool("append", 0, async |spool, directory| {
        let mut file = spool.create_unnamed().await.unwrap();
        assert_eq!(directory.files(), 0);
        file.append(pieces(100)).await.unwrap();
        file.append(pieces(50)).await.unwrap();
        let expected = [pieces(100), pieces(50)].concat().concat();
        assert_eq!(file.read(0, 1000).await.unwrap(), expected);
        assert_eq!(file.read(90, 20).await.unwrap(), expected[90..110]);
        file.discard();
    });
}

#[test]
fn a_body_has_a_name_as_long_as_it_is_there() {
    with_spool("name", 0, async |spool, directory| {
        let mut file = spool.create().await.unwrap();
        file.append(pieces(100)).await.unwrap();
        let body = file.close().unwrap();
        assert_eq!((body.len, directory.files()), (100, 1));
        assert_eq!(std::fs::read(body.path().unwrap()).unwrap().len(), 100);
    });
}

#[test]
fn all_files_share_the_limit_and_give_back_what_they_had() {
    with_spool("limit", 100, async |spool, _| {
        let mut first = spool.create_unnamed().await.unwrap();
        let mut second = spool.create().await.unwrap();
        first.append(pieces(60)).await.unwrap();
        let refused = second.append(pieces(41)).await;
        assert!(matches!(refused, Err(SpoolError::Full)), "{refused:?}");
        second.append(pieces(40)).await.unwrap();
        let mut freed = pin!(spool.freed());
        let mut context = Context::from_waker(Waker::noop());
        assert_eq!(freed.as_mut().poll(&mut context), Poll::Pending);
        first.discard();
        assert_eq!(freed.as_mut().poll(&mut context), Poll::Ready(()));
        drop(second.close());
        let mut third = spool.create_unnamed().await.unwrap();
        third.append(pieces(100)).await.unwrap();
    });
}

#[test]
fn an_append_that_is_given_up_leaves_no_bytes_behind() {
    with_spool("given-up", 100, async |spool, _| {
        let mut file = spool.create_unnamed().await.unwrap();
        {
            let mut append = pin!(file.append(pieces(100)));
            let mut context = Context::from_waker(Waker::noop());
            // Ready already only if the disk is very quick.
            let _ = append.as_mut().poll(&mut context);
        }
        assert_eq!(spool.bytes.get(), 100);
        drop(file);
        assert_eq!(spool.bytes.get(), 0);
    });
}

#[test]
fn a_disk_that_refuses_takes_no_room() {
    with_spool("refuses", 100, async |spool, _| {
        let mut file = spool.create_unnamed().await.unwrap();
        let full = File::options().write(true).open("/dev/full").unwrap();
        let fine = std::mem::replace(&mut file.file, Arc::new(full));
        for _ in 0..3 {
            let refused = file.append(pieces(100)).await;
            assert!(matches!(refused, Err(SpoolError::Disk(_))), "{refused:?}");
            assert_eq!(spool.bytes.get(), 0);
        }
        file.file = fine;
        file.append(pieces(100)).await.unwrap();
        assert_eq!(file.read(0, 1000).await.unwrap(), pieces(100).concat());
    });
}
