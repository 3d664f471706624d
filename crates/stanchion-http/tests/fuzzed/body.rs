//! Bodies in all framings: the bytes, the end and the fault are the same however the input was cut, and bytes read past the decoder are those that it
//! would have given.

use stanchion_http::{Decoded, Decoder, Fault, Framing};

/// The body, whether it is over, and how much of the input was taken.
type Read = (Vec<u8>, bool, usize);

fn read(framing: Framing, bytes: &[u8], piece: usize) -> Result<Read, Fault> {
    let (mut decoder, mut body, mut taken) = (Decoder::new(framing), Vec::new(), 0);
    for piece in bytes.chunks(piece) {
        let mut input = piece;
        while let Decoded::Data(data) = decoder.decode(&mut input)? {
            assert!(!data.is_empty());
            body.extend_from_slice(data);
        }
        taken += piece.len() - input.len();
        if decoder.is_over() {
            break;
        }
        assert!(input.is_empty(), "what is not over takes everything");
    }
    Ok((body, decoder.is_over(), taken))
}

/// The same, but the data is taken past the decoder wherever the decoder permits it.
fn read_past(framing: Framing, bytes: &[u8]) -> Result<Read, Fault> {
    let (mut decoder, mut body, mut taken) = (Decoder::new(framing), Vec::new(), 0);
    while taken < bytes.len() && !decoder.is_over() {
        let plain = decoder.plain_left().min((bytes.len() - taken) as u64) as usize;
        if plain > 0 {
            body.extend_from_slice(&bytes[taken..taken + plain]);
            decoder.took(plain as u64);
            taken += plain;
            continue;
        }
        let mut input = &bytes[taken..=taken];
        match decoder.decode(&mut input)? {
            Decoded::Data(data) => panic!("{data:?} was not announced"),
            Decoded::More | Decoded::End => taken += 1 - input.len(),
        }
    }
    Ok((body, decoder.is_over(), taken))
}

pub(crate) fn look(bytes: &[u8]) {
    let length = u64::from(bytes.first().copied().unwrap_or_default());
    for framing in [Framing::Chunked, Framing::Length(length), Framing::Empty] {
        let whole = read(framing, bytes, bytes.len().max(1));
        for piece in [1, 3, 16] {
            assert_eq!(read(framing, bytes, piece), whole, "in pieces of {piece}");
        }
        assert_eq!(read_past(framing, bytes), whole);
    }
}
