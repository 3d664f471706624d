//! The crate reads a head of usual shape without allocating, into a `Head` that was used before: counted, not timed.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use stanchion_http::{
    BodyLength, Decoded, Decoder, Head, HeadReader, HeadRules, check, fields, put_field, put_status,
};

/// Counts the allocations of the thread, and passes them to the system.
struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: every call is passed on as it is; the counter has no destructor and allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller has promised what `System` requires.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: the caller has promised what `System` requires.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

const HEADS: [&str; 3] = [
    "GET / HTTP/1.1\r\nHost: 127.0.0.1:8000\r\nConnection: keep-alive\r\n\r\n",
    "GET http://a:80/b?c HTTP/1.1\r\nHost: b\r\nExpect: 100-continue\r\n\r\n",
    "POST /a/b?c=d HTTP/1.1\r\nHost: shop.example.org\r\nConnection: keep-alive\r\n\
     Transfer-Encoding: chunked\r\nUser-Agent: Mozilla/5.0 (X11; Linux x86_64)\r\nAccept: text/html\r\n\
     Accept-Language: en-GB,en;q=0.9\r\nAccept-Encoding: gzip\r\nReferer: https://shop.example.org/\r\n\
     Sec-Fetch-Site: same-origin\r\nSec-Fetch-Mode: navigate\r\nCookie: a=b; c=d\r\nCache-Control: no-cache\r\n\
     Origin: https://shop.example.org\r\nDNT: 1\r\nTE: trailers\r\nX-Request-Start: t=1\r\n\r\n",
];

/// The number of allocations in `work`.
fn allocations(work: impl FnOnce()) -> usize {
    let before = ALLOCATIONS.get();
    work();
    ALLOCATIONS.get() - before
}

fn read(bytes: &[u8], reader: &mut HeadReader, head: &mut Head) {
    reader.reset();
    // In two pieces, the second being all of it.
    let half = reader.read(&bytes[..bytes.len() / 2], &HeadRules::DEFAULT, head);
    assert_eq!(half, Ok(None));
    let whole = reader.read(bytes, &HeadRules::DEFAULT, head);
    assert_eq!(whole, Ok(Some(bytes.len())));
    assert!(head.first("host").is_some() && head.all("cookie").count() < 2);
}

#[test]
fn heads_into_one_that_was_used_before() {
    let (mut reader, mut head) = (HeadReader::default(), Head::default());
    for text in HEADS {
        read(text.as_bytes(), &mut reader, &mut head);
        assert!(head.spans().len() > 1, "there is something to allocate for");
    }
    for text in HEADS {
        let count = allocations(|| read(text.as_bytes(), &mut reader, &mut head));
        assert_eq!(count, 0, "{text}");
    }
    let count = allocations(|| read(HEADS[2].as_bytes(), &mut reader, &mut Head::default()));
    assert!(count > 0, "what is counted");
}

#[test]
fn bodies_and_answers() {
    let mut wire = Vec::with_capacity(200);
    let count = allocations(|| {
        let (mut decoder, mut input) = (
            Decoder::new(stanchion_http::Framing::Chunked),
            &b"5;a=\"b\"\r\nhello\r\n0\r\nX: y\r\n\r\n"[..],
        );
        let data = decoder.decode(&mut input);
        assert_eq!(data, Ok(Decoded::Data(b"hello")));
        assert_eq!(decoder.decode(&mut input), Ok(Decoded::End));
        put_status(&mut wire, 200, b"");
        put_field(&mut wire, b"Content-Length", b"12");
        let facts = check(&wire, false).expect("a head");
        assert_eq!(facts.length, BodyLength::Bytes(12));
        assert_eq!(fields(&wire).count(), 1);
    });
    assert_eq!(count, 0);
}
