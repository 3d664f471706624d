use super::super::scratch::{Scratch, bytes};
use super::*;

/// The number of the connection that most of these files are for.
const CONNECTION: u32 = 3;

fn pieces(len: usize) -> Vec<Bytes> {
    let all = bytes(len);
    vec![all.slice(..len / 3), all.slice(len / 3..)]
}

impl Scratch {
    /// Appends, and waits until that is done.
    fn append(&self, file: &mut SpoolFile, len: usize) -> Result<(), SpoolError> {
        file.append(CONNECTION, pieces(len))?;
        self.until(|| file.appended()).map_err(SpoolError::Disk)
    }

    fn read(&self, file: &SpoolFile, offset: u64, len: usize) -> Vec<u8> {
        match file.read(CONNECTION, offset, len) {
            Reading::Done(bytes) => bytes,
            Reading::Asked(mut job) => self.until(|| job.take()).unwrap(),
        }
    }
}

#[test]
fn what_was_appended_is_read_back() {
    let scratch = Scratch::new("append", 0);
    let mut file = scratch.spool.unnamed_file(&scratch.disk, None);
    assert_eq!((file.is_made(), scratch.files()), (false, 0));
    assert_eq!(scratch.read(&file, 0, 10), b"");
    scratch.append(&mut file, 100).unwrap();
    assert_eq!((file.is_made(), scratch.files()), (true, 0));
    scratch.append(&mut file, 50).unwrap();
    let expected = [pieces(100), pieces(50)].concat().concat();
    assert_eq!(scratch.read(&file, 0, 1000), expected);
    assert_eq!(scratch.read(&file, 90, 20), expected[90..110]);
}

#[test]
fn a_body_has_a_name_as_long_as_it_is_there() {
    let scratch = Scratch::new("name", 0);
    let mut file = scratch.spool.file(&scratch.disk, None);
    scratch.append(&mut file, 100).unwrap();
    let body = file.close().unwrap();
    assert_eq!((body.len, scratch.files()), (100, 1));
    assert_eq!(std::fs::read(body.path().unwrap()).unwrap(), bytes(100));
}

#[test]
fn all_files_share_the_limit_and_give_back_what_they_had() {
    let scratch = Scratch::new("limit", 100);
    let (spool, disk) = (&scratch.spool, &scratch.disk);
    let mut first = spool.unnamed_file(disk, None);
    let mut second = spool.file(disk, None);
    scratch.append(&mut first, 60).unwrap();
    let refused = scratch.append(&mut second, 41);
    assert!(matches!(refused, Err(SpoolError::Full)), "{refused:?}");
    scratch.append(&mut second, 40).unwrap();
    let mut woken = Vec::new();
    scratch.woken.take(&mut woken);
    woken.clear();
    spool.wait_for_room(8);
    spool.wait_for_room(9);
    spool.wait_for_room(8);
    assert!(scratch.woken.is_empty());
    drop(first);
    scratch.woken.take(&mut woken);
    assert_eq!(woken, [8, 9], "once each");
    drop(second.close());
    assert!(
        scratch.woken.is_empty(),
        "who has not asked again is not told"
    );
    let mut third = spool.unnamed_file(disk, None);
    scratch.append(&mut third, 100).unwrap();
}

#[test]
fn an_append_that_is_given_up_leaves_neither_bytes_nor_files_behind() {
    let scratch = Scratch::new("given-up", 100);
    // The append is given up before its turn, after it, and perhaps in the middle.
    for waits in [false, true] {
        let mut file = scratch.spool.file(&scratch.disk, None);
        file.append(CONNECTION, pieces(100)).unwrap();
        assert_eq!(scratch.spool.bytes.get(), 100);
        if waits {
            scratch.until(|| (scratch.files() == 1).then_some(()));
        }
        drop(file);
        assert_eq!(scratch.spool.bytes.get(), 0);
    }
}

#[test]
fn a_disk_that_refuses_takes_no_room() {
    let scratch = Scratch::new("refuses", 100);
    let mut file = scratch.spool.unnamed_file(&scratch.disk, None);
    scratch.append(&mut file, 10).unwrap();
    let full = File::options().write(true).open("/dev/full").unwrap();
    let fine = file.kept.file.replace(Arc::new(full));
    for _ in 0..3 {
        let refused = scratch.append(&mut file, 90);
        assert!(matches!(refused, Err(SpoolError::Disk(_))), "{refused:?}");
        assert_eq!(scratch.spool.bytes.get(), 10);
    }
    file.kept.file = fine;
    scratch.append(&mut file, 90).unwrap();
    let expected = [pieces(10), pieces(90)].concat().concat();
    assert_eq!(scratch.read(&file, 0, 1000), expected);
}

#[test]
fn a_directory_that_is_gone_takes_no_room() {
    let scratch = Scratch::new("gone", 100);
    std::fs::remove_dir(&scratch.directory).unwrap();
    let mut file = scratch.spool.file(&scratch.disk, None);
    let refused = scratch.append(&mut file, 100);
    assert!(matches!(refused, Err(SpoolError::Disk(_))), "{refused:?}");
    assert_eq!((scratch.spool.bytes.get(), file.is_made()), (0, false));
    std::fs::create_dir(&scratch.directory).unwrap();
    scratch.append(&mut file, 100).unwrap();
}

#[test]
fn nobody_has_more_than_is_left_for_everybody_else() {
    let scratch = Scratch::new("shares", 1_200);
    let (spool, disk) = (&scratch.spool, &scratch.disk);
    let client = |last: u8| Some(Client::at([192, 0, 2, last].into()));
    // Each client takes what it can get, in two files.
    let mut files = Vec::new();
    let mut had = Vec::new();
    for last in 1..=4 {
        let mut bytes = 0;
        for _ in 0..2 {
            let mut file = spool.unnamed_file(disk, client(last));
            while scratch.append(&mut file, 50).is_ok() {
                bytes += 50;
            }
            files.push(file);
        }
        had.push(bytes);
    }
    assert_eq!(had, [600, 300, 150, 50]);
    // So there is room for one more client, and for a body of an unknown client.
    let mut small = spool.unnamed_file(disk, client(5));
    assert!(scratch.append(&mut small, 40).is_ok());
    let mut unknown = spool.unnamed_file(disk, None);
    assert!(scratch.append(&mut unknown, 60).is_ok());
    let refused = scratch.append(&mut unknown, 1);
    assert!(matches!(refused, Err(SpoolError::Full)), "{refused:?}");
    let refused = scratch.append(&mut small, 0);
    assert!(matches!(refused, Err(SpoolError::ShareFull)), "{refused:?}");
    files.extend([small, unknown]);
    drop(files);
    assert_eq!(spool.bytes.get(), 0);
    // And bytes that were given back do not count against the client.
    let mut again = spool.unnamed_file(disk, client(1));
    assert!(scratch.append(&mut again, 600).is_ok());
}
