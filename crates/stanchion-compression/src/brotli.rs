//! Brotli (RFC 7932).

use std::io::Write;

use ::brotli::CompressorWriter;
use ::brotli::enc::BrotliEncoderParams;

use crate::encoder::{After, Failed, ROOM_BYTES};

/// The least one whose result is shorter than gzip's, by a tenth for JSON, for up to twice the time. Higher ones are for what is
/// compressed once.
const QUALITY: i32 = 5;
/// 256 KiB, as in [`crate::zstandard`]. With a smaller one this quality takes 33 MB, for another way to search.
const WINDOW_BITS: i32 = 18;

/// The compressor of one body; `None` once that has ended.
pub(crate) struct Brotli(Option<CompressorWriter<Vec<u8>>>);

impl Default for Brotli {
    fn default() -> Self {
        let parameters = BrotliEncoderParams {
            quality: QUALITY,
            lgwin: WINDOW_BITS,
            ..BrotliEncoderParams::default()
        };
        let writer = CompressorWriter::with_params(Vec::new(), ROOM_BYTES, &parameters);
        Self(Some(writer))
    }
}

impl Brotli {
    pub(crate) fn encode(
        &mut self,
        piece: &[u8],
        after: After,
        out: &mut Vec<u8>,
    ) -> Result<(), Failed> {
        let Some(writer) = &mut self.0 else {
            return Err(Failed("it has ended"));
        };
        // What it writes to has room for everything.
        let failed = |_| Failed("Brotli does not go on");
        writer.write_all(piece).map_err(failed)?;
        if after == After::Flush {
            writer.flush().map_err(failed)?;
        }
        out.append(writer.get_mut());
        if after == After::End
            && let Some(writer) = self.0.take()
        {
            out.append(&mut writer.into_inner());
        }
        Ok(())
    }
}
