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
        let mut file = spool.create_unnamed(None).await.unwrap();
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
        let mut file = spool.create(None).await.unwrap();
        file.append(pieces(100)).await.unwrap();
        let body = file.close().unwrap();
        assert_eq!((body.len, directory.files()), (100, 1));
        assert_eq!(std::fs::read(body.path().unwrap()).unwrap().len(), 100);
    });
}

#[test]
fn all_files_share_the_limit_and_give_back_what_they_had() {
    with_spool("limit", 100, async |spool, _| {
        let mut first = spool.create_unnamed(None).await.unwrap();
        let mut second = spool.create(None).await.unwrap();
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
        let mut third = spool.create_unnamed(None).await.unwrap();
        third.append(pieces(100)).await.unwrap();
    });
}

#[test]
fn an_append_that_is_given_up_leaves_no_bytes_behind() {
    with_spool("given-up", 100, async |spool, _| {
        let mut file = spool.create_unnamed(None).await.unwrap();
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
        let mut file = spool.create_unnamed(None).await.unwrap();
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

#[test]
fn nobody_has_more_than_is_left_for_everybody_else() {
    with_spool("shares", 1_200, async |spool, _| {
        let client = |last: u8| Some(Client::at([192, 0, 2, last].into()));
        // Each takes what it can get, in two files.
        let mut files = Vec::new();
        let mut had = Vec::new();
        for last in 1..=4 {
            let mut bytes = 0;
            for _ in 0..2 {
                let mut file = spool.create_unnamed(client(last)).await.unwrap();
                while file.append(pieces(50)).await.is_ok() {
                    bytes += 50;
                }
                files.push(file);
            }
            had.push(bytes);
        }
        assert_eq!(had, [600, 300, 150, 50]);
        // So there is room for one more, and for whoever is not known.
        let mut small = spool.create_unnamed(client(5)).await.unwrap();
        assert!(small.append(pieces(40)).await.is_ok());
        let mut unknown = spool.create_unnamed(None).await.unwrap();
        assert!(unknown.append(pieces(60)).await.is_ok());
        assert!(matches!(
            unknown.append(pieces(1)).await,
            Err(SpoolError::Full)
        ));
        files.extend([small, unknown]);
        files.into_iter().for_each(SpoolFile::discard);
        assert_eq!(spool.bytes.get(), 0);
        // And what was given back is not held against anybody.
        let mut again = spool.create_unnamed(client(1)).await.unwrap();
        assert!(again.append(pieces(600)).await.is_ok());
        again.discard();
    });
}
