//! For any pieces and any flushes, decompression gives the same body; after a flush it gives everything up to the flush.

use std::io::Read;

use brotli::Decompressor;
use proptest::prelude::*;
use stanchion_compression::{After, Encoder};
use stanchion_http::Coding;
use zlib_rs::{Inflate, InflateFlush};

/// Bytes of gzip's header and trailer.
const HEADER_BYTES: usize = 10;
const TRAILER_BYTES: usize = 8;

/// The part of the body that a client can decompress so far.
fn read(coding: Coding, compressed: &[u8]) -> Vec<u8> {
    let mut read = vec![0; 4 << 20];
    let len = match coding {
        Coding::Gzip => {
            let mut inflate = Inflate::new(false, 15);
            let deflated = compressed.get(HEADER_BYTES..).unwrap_or_default();
            inflate
                .decompress(deflated, &mut read, InflateFlush::SyncFlush)
                .expect("it is DEFLATE");
            inflate.total_out() as usize
        }
        Coding::Brotli => {
            let mut source = Decompressor::new(compressed, 4096);
            let mut len = 0;
            // Reading fails where the end is missing.
            while let Ok(more @ 1..) = source.read(&mut read[len..]) {
                len += more;
            }
            len
        }
        Coding::Zstandard => {
            let mut context = zstd_safe::DCtx::create();
            let mut input = zstd_safe::InBuffer::around(compressed);
            let mut output = zstd_safe::OutBuffer::around(&mut read[..]);
            while input.pos() < compressed.len() {
                context
                    .decompress_stream(&mut output, &mut input)
                    .expect("it is Zstandard");
            }
            output.pos()
        }
    };
    read.truncate(len);
    read
}

/// Texts, noise and long repetitions.
fn piece() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        "[a-z ]{0,300}".prop_map(String::into_bytes),
        prop::collection::vec(any::<u8>(), 0..40_000),
        (any::<u8>(), 0..400_000_usize).prop_map(|(byte, len)| vec![byte; len]),
    ]
}

fn pieces() -> impl Strategy<Value = Vec<(Vec<u8>, bool)>> {
    prop::collection::vec((piece(), any::<bool>()), 0..8)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_body_is_the_same_in_whatever_pieces_it_comes(pieces in pieces()) {
        for coding in Coding::ALL {
            let (mut encoder, mut body, mut out) = (Encoder::new(coding), Vec::new(), Vec::new());
            for (piece, is_flushed) in &pieces {
                let after = if *is_flushed { After::Flush } else { After::More };
                encoder.encode(piece, after, &mut out).expect("it goes on");
                body.extend_from_slice(piece);
                if *is_flushed {
                    prop_assert_eq!(&read(coding, &out), &body, "{:?}", coding);
                }
            }
            encoder.encode(b"", After::End, &mut out).expect("it ends");
            prop_assert_eq!(&read(coding, &out), &body, "{:?}", coding);
        }
    }

    /// A body in one piece, also if it cannot be made shorter.
    #[test]
    fn a_body_at_once_is_hardly_longer_than_it_was(body in prop::collection::vec(any::<u8>(), 0..300_000)) {
        for coding in Coding::ALL {
            let mut out = Vec::new();
            Encoder::new(coding).encode(&body, After::End, &mut out).expect("it ends");
            prop_assert!(out.len() <= body.len() + body.len() / 1_000 + 64, "{:?}: {}", coding, out.len());
            prop_assert_eq!(&read(coding, &out), &body);
        }
    }
}

#[test]
fn gzip_says_what_it_should_be_checked_by() {
    let mut out = Vec::new();
    let mut encoder = Encoder::new(Coding::Gzip);
    for piece in [&b"1234"[..], b"56789"] {
        encoder
            .encode(piece, After::Flush, &mut out)
            .expect("it goes on");
    }
    encoder.encode(b"", After::End, &mut out).expect("it ends");
    let (checksum, len) = out[out.len() - TRAILER_BYTES..].split_at(4);
    // The check value in the catalogue of CRCs.
    assert_eq!(checksum, 0xcbf4_3926_u32.to_le_bytes());
    assert_eq!(len, 9_u32.to_le_bytes());
}
