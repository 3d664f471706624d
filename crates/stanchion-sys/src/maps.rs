//! The mappings of this process, as /proc/self/maps and /proc/self/smaps show them (proc(5)).

use std::ops::Range;

/// A line that begins a mapping.
pub(crate) struct MapLine<'t> {
    pub(crate) range: Range<usize>,
    /// The rights, such as `r-xp`.
    pub(crate) may: &'t str,
    /// Empty for anonymous memory.
    pub(crate) path: &'t str,
}

impl<'t> MapLine<'t> {
    /// Reads a line such as `55d0c0000000-55d0c0021000 r-xp 00001000 fe:00 4242   /usr/bin/python3.11`; other lines begin
    /// with a word and a colon.
    pub(crate) fn read(line: &'t str) -> Option<Self> {
        let mut rest = line;
        let mut word = || {
            let (word, after) = rest.trim_start().split_once(' ')?;
            rest = after;
            Some(word)
        };
        let (start, end) = word()?.split_once('-')?;
        let range = usize::from_str_radix(start, 16).ok()?..usize::from_str_radix(end, 16).ok()?;
        let may = word()?;
        // The offset, the device and the inode.
        let _ = (word()?, word()?, word()?);
        let path = rest.trim();
        Some(Self { range, may, path })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_addresses_rights_and_a_path() {
        let line =
            "7f00a000-7f00b000 r-xp 00001000 fe:00 123                        /usr/lib/lib so.6";
        let read = MapLine::read(line).expect("a mapping");
        let range = 0x7f00_a000..0x7f00_b000;
        assert_eq!(
            (read.range, read.may, read.path),
            (range, "r-xp", "/usr/lib/lib so.6")
        );
        let anonymous = MapLine::read("7f00a000-7f00b000 rw-p 00000000 00:00 0 ");
        assert_eq!(anonymous.expect("a mapping").path, "");
        for line in [
            "Rss:                   8 kB",
            "not smaps",
            "1-2",
            "zz-1 r-xp 0 0 0 /a",
            "",
        ] {
            assert!(MapLine::read(line).is_none(), "{line}");
        }
    }
}
