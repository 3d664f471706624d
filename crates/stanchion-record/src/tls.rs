//! Facts on the TLS that a request came by: named values, one behind the other, each behind its length, as a value of a client's certificate may hold
//! any byte.

/// The most bytes of the values of a connection's TLS. The acceptor does not serve a client whose certificates would make them
/// longer.
pub const TLS_BYTES_MAX: usize = 32 * 1024;

/// Bytes of the length in front of a name or a value.
const LEN_BYTES: usize = 2;

/// Writes them.
#[derive(Debug, Default)]
pub struct TlsValues {
    bytes: Vec<u8>,
    /// A value had no room.
    is_too_much: bool,
}

impl TlsValues {
    /// Adds a value.
    pub fn put(&mut self, name: &str, value: &[u8]) {
        if !self.has_room_for(name, value) {
            self.is_too_much = true;
            return;
        }
        for part in [name.as_bytes(), value] {
            let len = (part.len() as u16).to_le_bytes();
            self.bytes.extend_from_slice(&len);
            self.bytes.extend_from_slice(part);
        }
    }

    /// Whether there is room for this one.
    pub fn has_room_for(&self, name: &str, value: &[u8]) -> bool {
        self.bytes.len() + 2 * LEN_BYTES + name.len() + value.len() <= TLS_BYTES_MAX
    }

    /// All of them; `None` if that was too much.
    pub fn finish(self) -> Option<Vec<u8>> {
        (!self.is_too_much).then_some(self.bytes)
    }
}

/// Reads what [`TlsValues`] wrote, as far as it makes sense.
pub fn tls_values(mut bytes: &[u8]) -> impl Iterator<Item = (&str, &[u8])> {
    std::iter::from_fn(move || {
        let name = std::str::from_utf8(take(&mut bytes)?).ok()?;
        Some((name, take(&mut bytes)?))
    })
}

fn take<'b>(bytes: &mut &'b [u8]) -> Option<&'b [u8]> {
    let (len, rest) = bytes.split_first_chunk::<LEN_BYTES>()?;
    let (part, rest) = rest.split_at_checked(usize::from(u16::from_le_bytes(*len)))?;
    *bytes = rest;
    Some(part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_whatever_is_in_it() {
        let said = [("A", &b"1"[..]), ("B", b""), ("C", b"x\0A\n=\xff")];
        let mut values = TlsValues::default();
        for (name, value) in said {
            values.put(name, value);
        }
        let bytes = values.finish().unwrap();
        assert_eq!(tls_values(&bytes).collect::<Vec<_>>(), said);
        for len in 0..bytes.len() {
            assert!(tls_values(&bytes[..len]).count() < said.len());
        }
        assert_eq!(tls_values(b"").count(), 0);
    }

    #[test]
    fn more_than_fits_is_not_said() {
        let half = TLS_BYTES_MAX / 2;
        for lens in [&[half, half][..], &[TLS_BYTES_MAX + 1], &[1, 70_000, 1]] {
            let mut values = TlsValues::default();
            for len in lens {
                values.put("A", &vec![0; *len]);
            }
            assert_eq!(values.finish(), None, "{lens:?}");
        }
        let mut values = TlsValues::default();
        values.put("A", &vec![0; TLS_BYTES_MAX - 2 * LEN_BYTES - 1]);
        assert_eq!(
            values.finish().map(|bytes| bytes.len()),
            Some(TLS_BYTES_MAX)
        );
    }
}
