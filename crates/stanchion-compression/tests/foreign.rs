//! An encoder reports how much memory C code has allocated for it.

use stanchion_compression::{After, Encoder};
use stanchion_http::Coding;

#[test]
fn an_encoder_tells_the_memory_of_c_code() {
    for (coding, is_foreign) in [
        (Coding::Gzip, false),
        (Coding::Brotli, false),
        (Coding::Zstandard, true),
    ] {
        let mut encoder = Encoder::new(coding);
        let mut out = Vec::new();
        assert_eq!(encoder.foreign_bytes(), 0);
        encoder
            .encode(&vec![7; 200_000], After::More, &mut out)
            .unwrap();
        let bytes = encoder.foreign_bytes();
        assert_eq!(bytes > 500_000, is_foreign, "{coding:?} {bytes}");
    }
}
