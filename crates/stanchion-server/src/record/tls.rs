//! What is known of the TLS that a request came by: named values, one behind the other, each behind its length, as what a
//! client's certificate says may hold any byte.

/// So much may be said of a connection's TLS. The certificates of a client with which it would be more are not taken.
pub const TLS_BYTES_MAX: usize = 32 * 1024;

/// What is in front of a name or a value: how long it is.
const LEN_BYTES: usize = 2;

/// Writes them.
#[derive(Debug, Default)]
pub struct TlsValues(Vec<u8>);

impl TlsValues {
    /// One more, which is left out if it is longer than all may be.
    pub fn put(&mut self, name: &str, value: &[u8]) {
        if name.len().max(value.len()) <= TLS_BYTES_MAX {
            for part in [name.as_bytes(), value] {
                self.0.extend_from_slice(&(part.len() as u16).to_le_bytes());
                self.0.extend_from_slice(part);
            }
        }
    }

    /// All of them; `None` if that is too much.
    pub fn finish(self) -> Option<Vec<u8>> {
        (self.0.len() <= TLS_BYTES_MAX).then_some(self.0)
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
        let mut values = TlsValues::default();
        values.put("A", &[0; TLS_BYTES_MAX / 2]);
        values.put("B", &[0; TLS_BYTES_MAX / 2]);
        assert_eq!(values.finish(), None);
    }
}
