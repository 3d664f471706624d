//! Brotli (RFC 7932).

use std::io::Write;

use ::brotli::CompressorWriter;
use ::brotli::enc::BrotliEncoderParams;

use crate::piece::{After, Failed, ROOM_BYTES};

/// The lowest quality whose result is shorter than gzip's (for JSON by a tenth), in up to twice the time. Higher ones suit data that is compressed
/// once and sent often.
const QUALITY: i32 = 5;
/// 256 KiB, as in [`crate::zstandard`]. With a smaller window this quality uses another search, which takes 33 MB.
const WINDOW_BITS: i32 = 18;

/// The compressor of one body; `None` after the body's end.
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
            return Err(Failed("the body has ended already"));
        };
        // The writer's sink is a `Vec`, which takes everything.
        let failed = |_| Failed("Brotli makes no progress");
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
