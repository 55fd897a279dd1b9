//! The frames of a TFRecord stream, one after the other.

use std::io::Read;

use crate::codec::stream::read_error;
use crate::error::{Error, Result};
use crate::format::frame::{self, HEADER};
use crate::limits;

/// Frames read one after the other, both CRCs checked, nothing allocated by a length that was not backed by bytes.
pub struct FrameStream<R> {
    stream: R,
    frame: Vec<u8>,
    /// Where the next frame begins, in the inflated stream.
    pub offset: u64,
    /// The number of the next record.
    pub record: u64,
    /// The length of the record that was refused as too large.
    refused: Option<u64>,
}

impl<R: Read> FrameStream<R> {
    /// From the start of `stream`.
    pub fn new(stream: R) -> Self {
        FrameStream { stream, frame: Vec::new(), offset: 0, record: 0, refused: None }
    }

    /// The next whole frame, `None` at a clean end.
    pub fn next_frame(&mut self) -> Result<Option<&[u8]>> {
        let (offset, record) = (self.offset, self.record);
        let place = |error: Error| error.at_offset(offset).in_record(record);
        self.frame.clear();
        self.fill(HEADER as u64).map_err(place)?;
        if self.frame.is_empty() {
            return Ok(None);
        }
        let length = frame::declared_length(&self.frame).map_err(place)?;
        if length > limits::max_row_bytes() {
            self.refused = Some(length);
            return Err(place(limits::too_large("a record", length)));
        }
        let rest = length.checked_add(frame::FOOTER as u64);
        let rest = rest.ok_or_else(|| place(Error::corrupt(format!("expected a record, got a length of {length}"))))?;
        self.fill(rest).map_err(place)?;
        if (self.frame.len() - HEADER) as u64 != rest {
            let got = self.frame.len() - HEADER;
            return Err(place(Error::corrupt(format!(
                "expected {rest} more bytes of this frame, got the end after {got}: the file is truncated"
            ))));
        }
        frame::open(&self.frame).map_err(place)?;
        self.offset += self.frame.len() as u64;
        self.record += 1;
        Ok(Some(&self.frame))
    }

    /// Reads over the record that was just refused as too large, and returns the size of its frame; `None` if the last
    /// error was another one, or the stream ends before the record does.
    pub(crate) fn skip_refused(&mut self) -> Option<u64> {
        let rest = self.refused.take()?.checked_add(frame::FOOTER as u64)?;
        let read = std::io::copy(&mut (&mut self.stream).take(rest), &mut std::io::sink()).ok()?;
        let size = rest + HEADER as u64;
        self.offset += size;
        (read == rest).then_some(size)
    }

    /// Reads up to `count` more bytes; the buffer grows with what arrives, not with what was announced.
    fn fill(&mut self, count: u64) -> Result<()> {
        (&mut self.stream).take(count).read_to_end(&mut self.frame).map_err(|error| read_error(&error)).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crc32c;

    #[test]
    fn a_huge_length_allocates_nothing() {
        for length in [u64::MAX, u64::MAX - 3, 1 << 62, 1 << 40] {
            let mut bytes = length.to_le_bytes().to_vec();
            bytes.extend(crc32c::masked(&bytes).to_le_bytes());
            bytes.extend([7; 100]);
            let mut frames = FrameStream::new(&bytes[..]);
            assert!(frames.next_frame().is_err());
            assert!(frames.frame.capacity() < 1 << 16);
        }
    }
}
