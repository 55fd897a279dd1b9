//! The index of a shard: the offsets of its records, in Penstock's sidecar file or in DALI's text format.
//!
//! FORMAT.md has the sidecar's layout. All numbers are little endian.

use std::fs::File;
use std::io::Read;
use std::ops::Range;
use std::path::Path;

use crate::codec::stream::Compression;
use crate::crc32c;
use crate::error::{Error, Kind, Result};
use crate::format::frame::OVERHEAD;
use crate::interrupt::{self, BLOCK};
use crate::io::file::RandomAccessFile;

const MAGIC: &[u8; 8] = b"PENSTIDX";
const VERSION: u32 = 1;
/// The version of an index that has segments.
const SCATTERED: u32 = 2;
const FIXED: usize = 40;
const TRAILER: usize = 4;

/// The offsets of a shard's records, bound to the shard they were made from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Index {
    /// How the shard is wrapped: offsets are in the inflated stream.
    pub compression: Compression,
    /// The shard's size in bytes.
    pub shard_size: u64,
    /// CRC-32C of the shard's bytes.
    pub shard_crc32c: u32,
    /// Where each frame begins, and where the last one ends: one more than there are records.
    pub offsets: Vec<u64>,
    /// Where the bytes of records are whose files are scattered over an archive, put in a row: offsets are in that row
    /// then. None where records follow each other.
    pub segments: Vec<Range<u64>>,
}

fn bad(message: impl Into<String>) -> Error {
    Error::new(Kind::Sidecar, message).advise("Make the index again with `penstock index`.")
}

/// Offsets begin at zero and leave room for a frame each.
fn check_offsets(offsets: &[u64]) -> Result<()> {
    if offsets.first() != Some(&0) {
        return Err(bad("expected the first record at offset 0"));
    }
    match offsets.windows(2).position(|pair| pair[1].checked_sub(pair[0]).is_none_or(|length| length < OVERHEAD as u64))
    {
        None => Ok(()),
        Some(record) => Err(bad(format!("expected offsets that leave room for a frame, got {}", offsets[record + 1]))
            .in_record(record as u64)),
    }
}

/// Segments have all bytes of the records, lie within the shard and apart from each other, and belong to one record
/// each.
fn check_segments(index: &Index) -> Result<()> {
    let refuse = |what: &str| Err(bad(format!("expected segments that {what}, got others")));
    let limit = match index.compression {
        Compression::None => index.shard_size,
        _ => i64::MAX as u64,
    };
    let mut places: Vec<&Range<u64>> = index.segments.iter().collect();
    places.sort_unstable_by_key(|segment| segment.start);
    let mut end = 0;
    for segment in places {
        if segment.start < end || segment.end <= segment.start || segment.end > limit {
            return refuse("lie within the shard and apart from each other");
        }
        end = segment.end;
    }
    let mut offsets = index.offsets[1..].iter();
    let mut next = offsets.next();
    let mut end = 0;
    for segment in &index.segments {
        end += segment.end - segment.start;
        if next == Some(&end) {
            next = offsets.next();
        } else if next.is_none_or(|&next| next < end) {
            return refuse("have the bytes of one record each");
        }
    }
    if next.is_some() {
        return refuse("have the bytes of all records");
    }
    Ok(())
}

impl Index {
    /// How many records.
    pub fn len(&self) -> usize {
        self.offsets.len() - 1
    }

    /// Whether the shard is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The sidecar's bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(FIXED + 8 * (self.offsets.len() + 1 + 2 * self.segments.len()) + TRAILER);
        let version = if self.segments.is_empty() { VERSION } else { SCATTERED };
        out.extend_from_slice(MAGIC);
        out.extend_from_slice(&version.to_le_bytes());
        out.extend_from_slice(&self.compression.code().to_le_bytes());
        out.extend_from_slice(&self.shard_size.to_le_bytes());
        out.extend_from_slice(&self.shard_crc32c.to_le_bytes());
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(&(self.len() as u64).to_le_bytes());
        self.offsets.iter().for_each(|offset| out.extend_from_slice(&offset.to_le_bytes()));
        if version == SCATTERED {
            out.extend_from_slice(&(self.segments.len() as u64).to_le_bytes());
            let ends = self.segments.iter().flat_map(|segment| [segment.start, segment.end]);
            ends.for_each(|end| out.extend_from_slice(&end.to_le_bytes()));
        }
        let crc = crc32c::crc32c(&out);
        out.extend_from_slice(&crc.to_le_bytes());
        out
    }

    /// Reads a sidecar.
    pub fn read(path: &Path) -> Result<Index> {
        let fail = |error: std::io::Error| Error::io("reading the index failed", &error).in_file(path);
        let file = File::open(path).map_err(fail)?;
        let size = file.metadata().map_err(fail)?.len();
        Index::from_reader(file, size).map_err(fail)?.map_err(|error| error.in_file(path))
    }

    /// Reads a sidecar's bytes; whatever they are, the result is an index or an error.
    pub fn from_bytes(bytes: &[u8]) -> Result<Index> {
        Index::from_reader(bytes, bytes.len() as u64).map_err(|error| Error::io("reading the index failed", &error))?
    }

    /// Reads a sidecar of `size` bytes, the offsets right to where they stay.
    fn from_reader(mut reader: impl Read, size: u64) -> std::io::Result<Result<Index>> {
        let mut fixed = [0; FIXED];
        if size < (FIXED + 8 + TRAILER) as u64 {
            return Ok(Err(bad("expected a Penstock index, got another file")));
        }
        reader.read_exact(&mut fixed)?;
        let u32_at = |at: usize| u32::from_le_bytes(fixed[at..at + 4].try_into().expect("four bytes"));
        let u64_at = |at: usize| u64::from_le_bytes(fixed[at..at + 8].try_into().expect("eight bytes"));
        if &fixed[..8] != MAGIC {
            return Ok(Err(bad("expected a Penstock index, got another file")));
        }
        let version = u32_at(8);
        if version != VERSION && version != SCATTERED {
            return Ok(Err(bad(format!("expected index version {VERSION} or {SCATTERED}, got {version}"))));
        }
        // Each offset is a word; so is the number of segments, and both ends of each.
        let count = u64_at(32);
        let rest = size - (FIXED + TRAILER) as u64;
        let offsets = count.checked_add(1).filter(|offsets| match version {
            VERSION => offsets.checked_mul(8) == Some(rest),
            _ => offsets.checked_mul(8).is_some_and(|bytes| bytes < rest && (rest - bytes) % 16 == 8),
        });
        let (Some(count_of_offsets), true) = (offsets, rest % 8 == 0 && u32_at(28) == 0) else {
            return Ok(Err(bad(format!("expected an index of {count} records, got {size} bytes"))));
        };
        let (mut words, mut trailer) = (vec![0u64; (rest / 8) as usize], [0; TRAILER]);
        for block in bytemuck::cast_slice_mut::<u64, u8>(&mut words).chunks_mut(BLOCK) {
            interrupt::check_io()?;
            reader.read_exact(block)?;
        }
        reader.read_exact(&mut trailer)?;
        let actual = crc32c::append(crc32c::crc32c(&fixed), bytemuck::cast_slice(&words));
        if trailer != actual.to_le_bytes() {
            return Ok(Err(bad(format!("expected the index's CRC to be {actual:#010x}, got another one"))));
        }
        if cfg!(target_endian = "big") {
            words.iter_mut().for_each(|word| *word = word.swap_bytes());
        }
        let behind = if version == SCATTERED { words.split_off(count_of_offsets as usize) } else { Vec::new() };
        let segments: Vec<Range<u64>> =
            behind.get(1..).unwrap_or_default().chunks_exact(2).map(|ends| ends[0]..ends[1]).collect();
        if version == SCATTERED && (segments.is_empty() || behind[0] != segments.len() as u64) {
            return Ok(Err(bad(format!("expected {} segments, got another number", behind[0]))));
        }
        let code = u32_at(12);
        let Some(compression) = Compression::from_code(code) else {
            return Ok(Err(bad(format!("expected a compression of 0 to 5, got {code}"))));
        };
        let index = Index { compression, shard_size: u64_at(16), shard_crc32c: u32_at(24), offsets: words, segments };
        Ok(check_offsets(&index.offsets).and_then(|()| match index.offsets.last() {
            _ if version == SCATTERED => check_segments(&index).map(|()| index),
            Some(&end) if compression == Compression::None && end != index.shard_size => {
                Err(bad("expected the last frame to end where the shard ends"))
            }
            _ => Ok(index),
        }))
    }

    /// DALI's text: a line of frame offset and frame length for each record. Only for uncompressed shards.
    pub fn to_dali(&self) -> Result<String> {
        if self.compression != Compression::None {
            let message = format!("expected an uncompressed shard, got {}", self.compression.name());
            return Err(Error::usage(message).advise("DALI's index has no meaning for compressed shards."));
        }
        if !self.segments.is_empty() {
            let message = "expected a shard whose records follow each other, got a tar whose samples are scattered";
            return Err(Error::usage(message));
        }
        Ok(self.offsets.windows(2).map(|pair| format!("{} {}\n", pair[0], pair[1] - pair[0])).collect())
    }
}

/// The index that a shard is opened with.
#[derive(Clone, Debug)]
pub enum Sidecar {
    /// A scan of the file.
    Ignore,
    /// This one, or an error.
    Use(Index),
    /// This one if it fits, otherwise a scan.
    Try(Index),
}

/// The error for an index that belongs to another file.
pub(crate) fn unfit(file: &RandomAccessFile, message: String) -> Error {
    let advice = "The shard was changed after its index was made; make the index again with `penstock index`.";
    Error::new(Kind::Sidecar, message).advise(advice).in_file(file.path())
}

/// Whether a file has the size and the wrapping that an index names.
pub(crate) fn same_file(file: &RandomAccessFile, compression: Compression, index: &Index) -> Result<()> {
    let refuse = |message: String| Err(unfit(file, message));
    if index.shard_size != file.size() {
        return refuse(format!(
            "expected a shard of {} bytes, as its index says, got {}",
            index.shard_size,
            file.size()
        ));
    }
    if index.compression != compression {
        return refuse(format!(
            "expected a {} shard, as its index says, got {}",
            index.compression.name(),
            compression.name()
        ));
    }
    Ok(())
}

/// Reads DALI's text: the offsets of frames that follow each other from the start of the shard.
pub fn offsets_from_dali(text: &str) -> Result<Vec<u64>> {
    let mut offsets = vec![0u64];
    for (number, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let mut words = line.split_ascii_whitespace().map(str::parse::<u64>);
        let end = match (words.next(), words.next(), words.next()) {
            (Some(Ok(offset)), Some(Ok(length)), None) if Some(&offset) == offsets.last() => offset.checked_add(length),
            (Some(Ok(_)), Some(Ok(_)), None) => {
                let expected = offsets.last().copied().unwrap_or(0);
                return Err(bad(format!("expected a frame at offset {expected}, got line {}: {line:?}", number + 1)));
            }
            _ => None,
        };
        offsets.push(
            end.ok_or_else(|| bad(format!("expected \"<offset> <length>\", got line {}: {line:?}", number + 1)))?,
        );
    }
    check_offsets(&offsets)?;
    Ok(offsets)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Index {
        let (offsets, segments) = (vec![0, 20, 36, 60], Vec::new());
        Index { compression: Compression::None, shard_size: 60, shard_crc32c: 7, offsets, segments }
    }

    #[test]
    fn comes_back() {
        assert_eq!(Index::from_bytes(&sample().to_bytes()).unwrap(), sample());
        let (offsets, segments) = (vec![0], Vec::new());
        let empty = Index { compression: Compression::Gzip, shard_size: 0, shard_crc32c: 0, offsets, segments };
        assert_eq!(Index::from_bytes(&empty.to_bytes()).unwrap(), empty);
    }

    /// Two records: the first one is in two places.
    fn scattered() -> Index {
        Index { offsets: vec![0, 36, 56], segments: vec![0..16, 40..60, 20..40], ..sample() }
    }

    #[test]
    fn segments_come_back_and_must_make_sense() {
        assert_eq!(Index::from_bytes(&scattered().to_bytes()).unwrap(), scattered());
        assert!(scattered().to_dali().is_err());
        for segments in [
            vec![0..16, 40..61, 20..39],
            vec![0..16, 39..59, 20..40],
            vec![0..16, 40..60],
            vec![0..16, 40..60, 20..30],
            vec![0..16, 40..60, 20..40, 16..17],
            vec![0..36, 40..60, 36..36],
            vec![0..37, 41..60],
            vec![0..16, Range { start: 60, end: 40 }, 20..40],
            vec![0..u64::MAX, 40..60, 20..40],
        ] {
            let index = Index { segments, ..scattered() };
            assert!(Index::from_bytes(&index.to_bytes()).is_err(), "{index:?}");
        }
    }

    #[test]
    fn the_code_of_each_compression_is_a_promise() {
        let codes = [
            (0, Compression::None),
            (1, Compression::Gzip),
            (2, Compression::Zlib),
            (3, Compression::Zstd),
            (4, Compression::Bzip2),
            (5, Compression::Xz),
        ];
        for (code, compression) in codes {
            let bytes = Index { compression, ..sample() }.to_bytes();
            assert_eq!(bytes[12..16], u32::to_le_bytes(code));
            assert_eq!(Index::from_bytes(&bytes).unwrap().compression, compression);
        }
    }

    #[test]
    fn every_flipped_bit_and_truncation_is_found() {
        for bytes in [sample().to_bytes(), scattered().to_bytes()] {
            check_flips(&bytes);
        }
    }

    fn check_flips(bytes: &[u8]) {
        for bit in 0..bytes.len() * 8 {
            let mut bad = bytes.to_vec();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Index::from_bytes(&bad).unwrap_err().kind(), Kind::Sidecar, "bit {bit}");
        }
        for length in 0..bytes.len() {
            assert!(Index::from_bytes(&bytes[..length]).is_err());
        }
    }

    #[test]
    fn offsets_that_make_no_sense_are_refused_even_with_a_good_crc() {
        for offsets in [vec![0, 10, 60], vec![16, 32, 60], vec![0, 40, 20, 60], vec![0, 20, 59], vec![0, u64::MAX, 60]]
        {
            let index = Index { offsets: offsets.clone(), ..sample() };
            assert!(Index::from_bytes(&index.to_bytes()).is_err(), "{offsets:?}");
        }
    }

    #[test]
    fn dali_text_goes_both_ways() {
        let text = sample().to_dali().unwrap();
        assert_eq!(text, "0 20\n20 16\n36 24\n");
        assert_eq!(offsets_from_dali(&text).unwrap(), sample().offsets);
        for bad in
            ["0 20\n21 16\n", "0\n", "0 20 3\n", "a b\n", "0 3\n", "0 18446744073709551615\n18446744073709551615 20\n"]
        {
            assert!(offsets_from_dali(bad).is_err(), "{bad:?}");
        }
    }
}
