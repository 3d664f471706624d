use std::cell::Cell;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::id;
use std::time::{Duration, UNIX_EPOCH};

use stanchion_http::Head;

use super::*;
use stanchion_dispatch::storage::scratch::Scratch;
use stanchion_dispatch::ticket::{AppAnswer, BodySection, Start};

/// A directory with files, which goes with the test.
struct Site {
    home: PathBuf,
    scratch: Scratch,
    now_us: Cell<u64>,
}

impl Site {
    fn new(name: &str) -> Self {
        let scratch = Scratch::new(&format!("static-{name}"), 0);
        let home = std::env::temp_dir().join(format!("stanchion-static-{name}-{}", id()));
        fs::create_dir_all(home.join("files/css")).unwrap();
        let now_us = Cell::new(0);
        let site = Self {
            home,
            scratch,
            now_us,
        };
        site.put("files/a.css", "0123456789");
        site.put("secret.css", "secret");
        site
    }

    fn put(&self, path: &str, text: &str) {
        let path = self.home.join(path);
        fs::write(&path, text).unwrap();
        let then = UNIX_EPOCH + Duration::from_secs(1_000_000_000);
        fs::File::options()
            .write(true)
            .open(path)
            .unwrap()
            .set_modified(then)
            .unwrap();
    }

    fn open(&self, more: &str) -> StaticFiles {
        let text = format!(
            "{{\"static_files\": [\"/s={}/files\"]{more}}}",
            self.home.display()
        );
        StaticFiles::open(&Settings::from_json(&text).unwrap()).unwrap()
    }

    /// The answer that a request gets, if it is for a file that is there.
    fn get(&self, files: &mut StaticFiles, head: &Head) -> Option<StaticAnswer> {
        let now_us = self.now_us.get();
        let wanted = files.wanted(head, now_us)?.ok()?;
        let found = match wanted.look(&self.scratch.disk, 0) {
            Ok(found) => found.unwrap(),
            Err(mut job) => self.scratch.until(|| job.take()).unwrap(),
        };
        Some(
            files
                .answer(head, found?, &self.scratch.disk, now_us)
                .unwrap(),
        )
    }

    fn text(
        &self,
        files: &mut StaticFiles,
        target: &str,
        fields: &[(&str, &str)],
    ) -> Option<String> {
        match self.get(files, &Head::of("GET", target, fields))? {
            StaticAnswer::Reply(reply) => Some(format!("{} {:?}", reply.status, reply.fields)),
            StaticAnswer::File(answer) => Some(told(&answer)),
        }
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        let _gone = fs::remove_dir_all(&self.home);
    }
}

/// An answer as it goes out, without the fields that the server adds.
fn told(answer: &AppAnswer) -> String {
    let mut text = String::from_utf8(answer.bytes.clone()).unwrap();
    text.push_str("\r\n");
    if let Start::File(file, sections) = &answer.body {
        for section in sections {
            match section {
                BodySection::Text(bytes) => text.push_str(std::str::from_utf8(bytes).unwrap()),
                BodySection::Part(part) => {
                    let mut bytes = vec![0; part.len as usize];
                    std::os::unix::fs::FileExt::read_exact_at(&***file, &mut bytes, part.offset)
                        .unwrap();
                    text.push_str(std::str::from_utf8(&bytes).unwrap());
                }
            }
        }
    }
    text.replace("\r\n", "\n")
}

const MODIFIED: &str = "Sun, 09 Sep 2001 01:46:40 GMT";
const ETAG: &str = "\"3b9aca00-a\"";

fn css(first: &str, body: &str) -> String {
    format!("{first}Accept-Ranges: bytes\nLast-Modified: {MODIFIED}\nETag: {ETAG}\n\n{body}")
}

#[test]
fn a_file_is_answered_whole_or_in_parts() {
    let site = Site::new("parts");
    let mut files = site.open("");
    let mut get = |target: &str, fields: &[(&str, &str)]| site.text(&mut files, target, fields);
    let target = "/s/a.css?x=1";
    let whole = Some(css(
        "HTTP/1.1 200 OK\nContent-Type: text/css\n",
        "0123456789",
    ));
    assert_eq!(get(target, &[]), whole);
    assert_eq!(get("/s/%61.css", &[]), whole);
    assert_eq!(get(target, &[("Range", "lines=1-9")]), whole);
    let part = Some(css(
        "HTTP/1.1 206 Partial Content\nContent-Range: bytes 2-4/10\nContent-Type: text/css\n",
        "234",
    ));
    assert_eq!(get(target, &[("Range", "bytes=2-4")]), part);
    assert_eq!(
        get(target, &[("Range", "bytes=2-4"), ("If-Range", ETAG)]),
        part
    );
    assert_eq!(
        get(target, &[("Range", "bytes=2-4"), ("If-Range", MODIFIED)]),
        part
    );
    assert_eq!(
        get(target, &[("Range", "bytes=2-4"), ("If-Range", "\"x\"")]),
        whole
    );
    let none = get(target, &[("Range", "bytes=10-")]).unwrap();
    assert_eq!(none, "416 [(\"Content-Range\", \"bytes */10\")]");
    let same = Some(format!(
        "HTTP/1.1 304 Not Modified\nLast-Modified: {MODIFIED}\nETag: {ETAG}\n\n"
    ));
    assert_eq!(get(target, &[("If-None-Match", ETAG)]), same);
    assert_eq!(get(target, &[("If-Modified-Since", MODIFIED)]), same);
    assert_eq!(get(target, &[("If-Match", "\"x\"")]).unwrap(), "412 []");
}

#[test]
fn several_parts_are_one_answer() {
    let site = Site::new("several");
    let text = site
        .text(&mut site.open(""), "/s/a.css", &[("Range", "bytes=0-1,-1")])
        .unwrap();
    let (head, body) = text.split_once("\n\n").unwrap();
    let (_, boundary) = head.split_once("multipart/byteranges; boundary=").unwrap();
    let boundary = boundary.lines().next().unwrap();
    let expected = format!(
        "\n--{boundary}\nContent-Type: text/css\nContent-Range: bytes 0-1/10\n\n01\
        \n--{boundary}\nContent-Type: text/css\nContent-Range: bytes 9-9/10\n\n9\n--{boundary}--\n"
    );
    assert_eq!(body, expected);
}

#[test]
fn a_head_has_the_fields_and_no_body() {
    let site = Site::new("head");
    let head = Head::of("HEAD", "/s/a.css", &[("Range", "bytes=0-0")]);
    let Some(StaticAnswer::File(answer)) = site.get(&mut site.open(""), &head) else {
        panic!("it is there");
    };
    let expected = format!(
        "HTTP/1.1 200 OK\nContent-Type: text/css\nAccept-Ranges: bytes\nLast-Modified: {MODIFIED}\nETag: {ETAG}\n\
        Content-Length: 10\n\n"
    );
    assert_eq!(told(&answer), expected);
    assert!(matches!(answer.body, Start::Whole));
}

#[test]
fn nothing_is_found_outside_nor_hidden_nor_of_another_kind() {
    let site = Site::new("outside");
    let files = &site.home.join("files");
    site.put("files/.hidden", "secret");
    fs::create_dir(files.join(".git")).unwrap();
    site.put("files/.git/config", "secret");
    symlink("../secret.css", files.join("out.css")).unwrap();
    symlink(site.home.join("secret.css"), files.join("absolute.css")).unwrap();
    symlink("a.css", files.join("in.css")).unwrap();
    symlink("circle.css", files.join("circle.css")).unwrap();
    symlink("/proc/self/root", files.join("root")).unwrap();
    rustix::fs::mkfifoat(CWD, files.join("pipe"), Mode::RUSR).unwrap();
    let mut mounted = site.open("");
    for target in [
        "/s/.hidden",
        "/s/.git/config",
        "/s/out.css",
        "/s/absolute.css",
        "/s/circle.css",
        "/s/root/etc/passwd",
        "/s/pipe",
        "/s/css",
        "/s/css/",
        "/s/",
        "/s",
        "/s//a.css",
        "/s/a.css/",
        "/s/css/../a.css",
        "/s/../secret.css",
        "/s/%2e%2e/secret.css",
        "/s/..%2fsecret.css",
        "/s/%00",
        "/s/a.css%00.png",
        "/sa.css",
        "/x/s/a.css",
        "/s/none",
    ] {
        assert!(site.text(&mut mounted, target, &[]).is_none(), "{target}");
    }
    let long = format!("/s/{}", "a".repeat(300));
    assert!(site.text(&mut mounted, &long, &[]).is_none());
    assert!(site.text(&mut mounted, "/s/in.css", &[]).is_some());
    let post = Head::of("POST", "/s/a.css", &[]);
    assert!(mounted.wanted(&post, 0).is_none());
}

#[test]
fn who_takes_a_coding_gets_the_file_that_has_it() {
    let site = Site::new("coded");
    site.put("files/a.css.gz", "gzipped");
    site.put("files/a.css.br", "brotli");
    site.put("files/b.png", "b");
    site.put("files/b.png.gz", "gzipped");
    let mut files = site.open("");
    let mut get = |target: &str, taken: &str| {
        let fields = [("Accept-Encoding", taken)];
        let text = site.text(&mut files, target, &fields).unwrap();
        let (head, body) = text.split_once("\n\n").unwrap();
        let field = |name: &str| {
            let line = head.lines().find_map(|line| line.strip_prefix(name));
            line.unwrap_or_default().to_owned()
        };
        (
            body.to_owned(),
            field("Content-Encoding: "),
            field("Vary: "),
            field("Content-Type: "),
        )
    };
    let css = |body: &str, coding: &str| {
        (
            body.to_owned(),
            coding.to_owned(),
            "Accept-Encoding".to_owned(),
            "text/css".to_owned(),
        )
    };
    assert_eq!(get("/s/a.css", "gzip, br"), css("brotli", "br"));
    assert_eq!(get("/s/a.css", "gzip, zstd"), css("gzipped", "gzip"));
    assert_eq!(get("/s/a.css", "br;q=0.1, gzip"), css("gzipped", "gzip"));
    assert_eq!(get("/s/a.css", "zstd"), css("0123456789", ""));
    assert_eq!(get("/s/a.css", ""), css("0123456789", ""));
    let (body, coding, vary, _) = get("/s/b.png", "gzip");
    assert_eq!(
        (body.as_str(), coding.as_str(), vary.as_str()),
        ("b", "", "")
    );
}

#[test]
fn what_is_put_beside_a_file_is_seen_within_a_second() {
    let site = Site::new("beside");
    let mut files = site.open("");
    let mut get = |taken: &str| {
        let fields = [("Accept-Encoding", taken)];
        let text = site.text(&mut files, "/s/a.css", &fields).unwrap();
        let body = text.split_once("\n\n").unwrap().1.to_owned();
        (body, text.contains("Vary: Accept-Encoding"))
    };
    let own = |varies| ("0123456789".to_owned(), varies);
    let coded = || ("gzipped".to_owned(), true);
    assert_eq!(get(""), own(false));
    site.put("files/a.css.gz", "gzipped");
    site.now_us.set(999_999);
    assert_eq!(get("gzip"), own(false), "it is not looked for yet");
    site.now_us.set(1_000_000);
    assert_eq!(
        (get("gzip"), get(""), get("gzip")),
        (coded(), own(true), coded())
    );
    fs::remove_file(site.home.join("files/a.css.gz")).unwrap();
    assert_eq!(get("gzip"), own(false), "that it is gone is seen at once");
}

#[test]
fn a_name_with_a_hash_may_be_kept_for_good() {
    let site = Site::new("hash");
    let names = [
        ("app.0f3c9a2b41de.css", true),
        ("css/app.0f3c9a2b41de.css", true),
        ("main-0f3c9a2b41de7c.js", false),
        ("1b4e28ba-2fa1-11d2-883f-0016d3cca427.jpg", false),
        ("main.0F3C9A2B41DE.js", true),
        ("photo-202401011230.jpg", false),
        ("app.0f3c9a2b41d.css", false),
        ("0f3c9a2b41de.css", false),
        ("app.0f3c9a2b41de", false),
        ("app.0f3c9a2b41dg.css", false),
        ("a.css", false),
    ];
    let (mut plain, mut aged) = (site.open(""), site.open(", \"static_max_age\": 60"));
    for (name, is_hashed) in names {
        site.put(&format!("files/{name}"), "x");
        let of = |files: &mut StaticFiles| {
            let text = site.text(files, &format!("/s/{name}"), &[]).unwrap();
            let line = text
                .lines()
                .find_map(|line| line.strip_prefix("Cache-Control: "));
            line.map(str::to_owned)
        };
        let forever = is_hashed.then(|| "public, max-age=31536000, immutable".to_owned());
        assert_eq!(of(&mut plain), forever, "{name}");
        assert_eq!(
            of(&mut aged),
            forever.or(Some("public, max-age=60".to_owned())),
            "{name}"
        );
    }
}

#[test]
fn a_directory_that_is_not_there_stops_the_start() {
    let settings = Settings::from_json("{\"static_files\": [\"/s=/nowhere/at/all\"]}").unwrap();
    let error = StaticFiles::open(&settings).err().unwrap().to_string();
    assert!(
        error.starts_with("static_files: the directory /nowhere/at/all cannot be opened: ")
            && error.ends_with("; make it, for the user that the server runs as"),
        "{error}"
    );
}

#[test]
fn on_a_file_system_that_may_not_answer_a_helper_thread_looks() {
    let scratch = Scratch::new("static-foreign", 0);
    for (directory, path) in [
        ("/proc/sys/kernel", "/s/ostype"),
        ("/proc/sys", "/s/kernel/ostype"),
        ("/", "/s/proc/sys/kernel/ostype"),
    ] {
        let text = format!("{{\"static_files\": [\"/s={directory}\"]}}");
        let files = StaticFiles::open(&Settings::from_json(&text).unwrap()).unwrap();
        let wanted = files
            .wanted(&Head::of("GET", path, &[]), 0)
            .unwrap()
            .unwrap();
        let Err(mut job) = wanted.look(&scratch.disk, 0) else {
            panic!("{directory}: the event loop has looked");
        };
        let found = scratch.until(|| job.take()).unwrap().expect("a file");
        assert_eq!(
            found.attributes.file_system,
            FileSystem::Foreign,
            "{directory}"
        );
    }
}

#[test]
fn what_the_server_could_not_do_is_no_static_answer() {
    for (why, status, outcome) in [
        (io::ErrorKind::PermissionDenied, 403, Outcome::Static),
        (io::ErrorKind::ResourceBusy, 503, Outcome::FileFailed),
        (io::ErrorKind::TimedOut, 503, Outcome::FileFailed),
        (io::ErrorKind::Other, 500, Outcome::FileFailed),
    ] {
        assert_eq!(verdict(why), (status, outcome), "{why}");
    }
}
