//! CRC-32 as in IEEE 802.3, gzip and zip: every language has it.

/// The polynomial, its bits reversed.
const POLYNOMIAL: u32 = 0xedb8_8320;

/// The remainders of each byte, with 0 to 7 bytes behind it: eight bytes at a time cost a third of eight bytes one by one.
static REMAINDERS: [[u32; 256]; 8] = remainders();

const fn remainders() -> [[u32; 256]; 8] {
    let mut all = [[0; 256]; 8];
    let mut byte = 0;
    while byte < 256 {
        let mut remainder = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            let is_odd = remainder & 1 == 1;
            remainder = (remainder >> 1) ^ if is_odd { POLYNOMIAL } else { 0 };
            bit += 1;
        }
        all[0][byte] = remainder;
        byte += 1;
    }
    let mut behind = 1;
    while behind < 8 {
        byte = 0;
        while byte < 256 {
            let before = all[behind - 1][byte];
            all[behind][byte] = (before >> 8) ^ all[0][(before & 0xff) as usize];
            byte += 1;
        }
        behind += 1;
    }
    all
}

/// The checksum of these bytes.
pub(crate) fn crc32(bytes: &[u8]) -> u32 {
    let mut sum = u32::MAX;
    let mut eights = bytes.chunks_exact(8);
    for eight in &mut eights {
        let mixed = sum.to_le_bytes();
        sum = 0;
        for (index, &byte) in eight.iter().enumerate() {
            let byte = byte ^ mixed.get(index).copied().unwrap_or_default();
            sum ^= REMAINDERS[7 - index][usize::from(byte)];
        }
    }
    for &byte in eights.remainder() {
        sum = (sum >> 8) ^ REMAINDERS[0][usize::from(byte ^ sum.to_le_bytes()[0])];
    }
    !sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_those_of_the_standard() {
        for (bytes, sum) in [
            (&b""[..], 0),
            (b"a", 0xe8b7_be43),
            // The check value of the catalogue of parametrised CRC algorithms.
            (b"123456789", 0xcbf4_3926),
            (&[0; 60], 0x0412_8908),
            (&[0xff; 32], 0xff6c_ab0b),
        ] {
            assert_eq!(crc32(bytes), sum, "{bytes:?}");
        }
    }
}
