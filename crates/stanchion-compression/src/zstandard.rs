//! Zstandard (RFC 8878).

use zstd_safe::zstd_sys::ZSTD_EndDirective;
use zstd_safe::{CCtx, CParameter, InBuffer, OutBuffer, get_error_name};

use crate::piece::{After, Failed, ROOM_BYTES};

/// zstd's default.
const LEVEL: i32 = 3;
/// 256 KiB. Decoders of HTTP have to support 8 MiB (RFC 9659 section 3), but an encoder takes several times its window.
const WINDOW_BITS: u32 = 18;

/// The compressor of one body.
#[derive(Default)]
pub(crate) struct Zstandard(Option<CCtx<'static>>);

impl Zstandard {
    /// The memory that the C library has allocated for it.
    pub(crate) fn bytes(&self) -> usize {
        self.0.as_ref().map_or(0, CCtx::sizeof)
    }

    pub(crate) fn encode(
        &mut self,
        piece: &[u8],
        after: After,
        out: &mut Vec<u8>,
    ) -> Result<(), Failed> {
        let context = match &mut self.0 {
            Some(context) => context,
            begins => begins.insert(begin()?),
        };
        let directive = match after {
            After::More => ZSTD_EndDirective::ZSTD_e_continue,
            After::Flush => ZSTD_EndDirective::ZSTD_e_flush,
            After::End => ZSTD_EndDirective::ZSTD_e_end,
        };
        let mut input = InBuffer::around(piece);
        loop {
            let from = out.len();
            out.reserve(ROOM_BYTES);
            let mut output = OutBuffer::around_pos(out, from);
            let left = context.compress_stream2(&mut output, &mut input, directive);
            let left = left.map_err(failed)?;
            let is_done = match after {
                After::More => input.pos() == piece.len(),
                After::Flush | After::End => left == 0,
            };
            if is_done {
                return Ok(());
            }
        }
    }
}

fn begin() -> Result<CCtx<'static>, Failed> {
    let mut context = CCtx::try_create().ok_or(Failed("zstd has no memory"))?;
    for parameter in [
        CParameter::CompressionLevel(LEVEL),
        CParameter::WindowLog(WINDOW_BITS),
    ] {
        context.set_parameter(parameter).map_err(failed)?;
    }
    Ok(context)
}

fn failed(code: usize) -> Failed {
    Failed(get_error_name(code))
}
