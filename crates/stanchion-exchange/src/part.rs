//! Bytes on their way into the exchange.

use std::array;

/// How many bytes are combined with a key at a time: the compiler makes one instruction of each number of this size.
const WORD_BYTES: usize = size_of::<u128>();

/// Bytes to copy as they are, or each combined (xor) with a byte of a key of four, which repeats.
#[derive(Clone, Copy, Debug)]
pub struct MaskedBytes<'b> {
    bytes: &'b [u8],
    key: Option<[u8; 4]>,
}

impl<'b> From<&'b [u8]> for MaskedBytes<'b> {
    /// Bytes to copy as they are.
    fn from(bytes: &'b [u8]) -> Self {
        Self { bytes, key: None }
    }
}

impl<'b> MaskedBytes<'b> {
    /// Bytes to combine with the key, if there is one.
    pub fn new(bytes: &'b [u8], key: Option<[u8; 4]>) -> Self {
        Self { bytes, key }
    }

    /// How many bytes there are.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The first `len` bytes, and the others.
    pub(crate) fn split_at(self, len: usize) -> (Self, Self) {
        let (first, rest) = self.bytes.split_at(len);
        let mut key = self.key;
        if let Some(key) = &mut key {
            key.rotate_left(len % 4);
        }
        (Self::new(first, self.key), Self::new(rest, key))
    }

    /// Copies the bytes to `to`, combined with the key.
    ///
    /// # Safety
    /// There is room for [`len`](Self::len) bytes at `to`. No reference to them exists, and they do not overlap these
    /// bytes.
    pub(crate) unsafe fn copy_to(self, to: *mut u8) {
        let Some(key) = self.key else {
            // SAFETY: the caller has promised as much.
            unsafe { std::ptr::copy_nonoverlapping(self.bytes.as_ptr(), to, self.len()) };
            return;
        };
        let word = u128::from_ne_bytes(array::from_fn(|at| key[at % 4]));
        let (words, rest) = self.bytes.as_chunks::<WORD_BYTES>();
        for (number, bytes) in words.iter().enumerate() {
            let combined = (u128::from_ne_bytes(*bytes) ^ word).to_ne_bytes();
            // SAFETY: the caller has promised room for these bytes, and an array of bytes needs no alignment.
            unsafe { to.cast::<[u8; WORD_BYTES]>().add(number).write(combined) };
        }
        let done = self.len() - rest.len();
        for (at, byte) in rest.iter().enumerate() {
            // SAFETY: the caller has promised room for this byte.
            unsafe { to.add(done + at).write(byte ^ key[at % 4]) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_combined_with_their_key_wherever_they_are_split() {
        let bytes: Vec<u8> = (0..200).collect();
        let key = [1, 2, 4, 128];
        let combined = bytes.iter().zip(key.iter().cycle());
        let combined: Vec<u8> = combined.map(|(byte, key)| byte ^ key).collect();
        for (key, expected) in [(Some(key), &combined), (None, &bytes)] {
            for split in 0..=bytes.len() {
                let mut copied = vec![0; bytes.len()];
                let (first, rest) = MaskedBytes::new(&bytes, key).split_at(split);
                // SAFETY: there is room for all of them, and for the rest behind the first.
                unsafe {
                    first.copy_to(copied.as_mut_ptr());
                    rest.copy_to(copied.as_mut_ptr().add(split));
                }
                assert_eq!(&copied, expected, "{split}");
            }
        }
    }
}
