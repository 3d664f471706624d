//! Measures how long it takes to read and check heads: `cargo run --release --package stanchion-http --example speed`. With a number as its argument
//! it does each that many times only, for valgrind to count instructions.

#![allow(clippy::print_stdout)] // it is for people

use std::hint::black_box;
use std::time::Instant;

use stanchion_http::{AnswerFacts, Decoded, Decoder, Framing, Head, HeadReader, HeadRules, check};

/// The request that wrk sends.
const WRK: &[u8] = b"GET / HTTP/1.1\r\nHost: 127.0.0.1:8000\r\n\r\n";

/// The request that a browser sends.
const BROWSER: &[u8] = b"GET /shop/articles?page=2&order=price HTTP/1.1\r\n\
Host: shop.example.org\r\n\
Connection: keep-alive\r\n\
Cache-Control: max-age=0\r\n\
sec-ch-ua: \"Chromium\";v=\"126\", \"Not(A:Brand\";v=\"24\"\r\n\
sec-ch-ua-mobile: ?0\r\n\
sec-ch-ua-platform: \"Linux\"\r\n\
Upgrade-Insecure-Requests: 1\r\n\
User-Agent: Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/126.0.0.0 Safari/537.36\r\n\
Accept: text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8\r\n\
Sec-Fetch-Site: same-origin\r\n\
Sec-Fetch-Mode: navigate\r\n\
Referer: https://shop.example.org/shop/articles?page=1&order=price\r\n\
Accept-Encoding: gzip, deflate, br, zstd\r\n\
Accept-Language: en-GB,en;q=0.9,de;q=0.8\r\n\
Cookie: session=4f2b9c1e7a5d4c3b8e6f0a1b2c3d4e5f; theme=dark\r\n\
\r\n";

const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\n\
Content-Type: text/html; charset=utf-8\r\n\
Content-Length: 12\r\n\
Cache-Control: no-cache\r\n\
Set-Cookie: session=4f2b9c1e7a5d4c3b8e6f0a1b2c3d4e5f; Path=/; HttpOnly; SameSite=Lax\r\n";

const CHUNKS: &[u8] = b"5\r\nhello\r\n6\r\n world\r\n0\r\n\r\n";

#[inline(never)]
fn read_head(reader: &mut HeadReader, head: &mut Head, bytes: &[u8]) -> usize {
    reader.reset();
    let read = reader.read(black_box(bytes), &HeadRules::DEFAULT, head);
    read.expect("a head").expect("the whole of it")
}

#[inline(never)]
fn check_answer(bytes: &[u8]) -> AnswerFacts {
    check(black_box(bytes), false).expect("a head")
}

#[inline(never)]
fn decode_chunks(bytes: &[u8]) {
    let (mut decoder, mut input) = (Decoder::new(Framing::Chunked), black_box(bytes));
    while let Decoded::Data(data) = decoder.decode(&mut input).expect("chunks") {
        black_box(data);
    }
}

fn measure(name: &str, bytes: &[u8], times: u32, mut once: impl FnMut(&[u8])) {
    // The best of several turns: other work of the machine only adds time.
    let turns = (0..9).map(|_| {
        let start = Instant::now();
        (0..times).for_each(|_| once(bytes));
        start.elapsed() / times
    });
    let best = turns.min().expect("a turn");
    println!("{name}: {} bytes, {best:?}", bytes.len());
}

fn main() {
    let times = std::env::args().nth(1);
    let times = times.map_or(500_000, |times| times.parse().expect("a number"));
    let (mut reader, mut head) = (HeadReader::default(), Head::default());
    for (name, bytes) in [("wrk's head", WRK), ("a browser's head", BROWSER)] {
        measure(name, bytes, times, |bytes| {
            black_box(read_head(&mut reader, &mut head, bytes));
        });
    }
    measure("an answer's head", ANSWER, times, |bytes| {
        black_box(check_answer(bytes));
    });
    measure("a chunked body", CHUNKS, times, |bytes| {
        decode_chunks(bytes);
    });
}
