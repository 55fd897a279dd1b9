//! Salvages a damaged ArrayRecord file: finds every whole chunk and reports the gaps.

use super::footer::{is_ours, ChunkTable};
use super::{read_table, HEADER_SPAN};
use crate::error::{Error, Kind, Result};
use crate::format::riegeli::records::Unpacker;
use crate::format::riegeli::{ChunkHeader, ChunkType, Span, BLOCK, BLOCK_HEADER};
use crate::format::salvage_report::{Gap, Report};
use crate::io::file::{Progress, RandomAccessFile, WINDOW};
use crate::io::window_reader::WindowReader;

/// Looks at every byte of a file: hands each record of a whole chunk, and the chunk's offset, to `keep`, and reports
/// the rest. All that is not padding within a chunk is checked: a flipped bit costs its chunk, and no other.
pub fn salvage(
    file: &RandomAccessFile,
    keep: &mut dyn FnMut(u64, &[u8]) -> Result<()>,
    progress: Progress<'_>,
) -> Result<Report> {
    let table = match read_table(file) {
        Err(error) if matches!(error.kind(), Kind::Io(_)) => return Err(error.in_file(file.path())),
        outcome => outcome,
    };
    let mut walk = Walk { file, bytes: WindowReader::new(file), joined: Vec::new(), unpacker: Unpacker::default() };
    let mut report = Report::default();
    let (mut at, mut beat, mut chunk) = (0, 0, 0);
    let mut as_the_table_says = true;
    while at < file.size() {
        if at >= beat {
            progress(at)?;
            beat = at + WINDOW as u64;
        }
        let bad = match walk.chunk(at)? {
            Ok((header, end)) => {
                // The table and the postscript are records too, but not the user's.
                let of_the_user = header.content == ChunkType::Records
                    && table.as_ref().map_or_else(|_| !is_ours(walk.unpacker.iter()), |table| at < table.footer());
                if of_the_user {
                    as_the_table_says &= table.as_ref().is_ok_and(|table| table.has(chunk, at, &header));
                    chunk += 1;
                    for record in walk.unpacker.iter() {
                        keep(at, record)?;
                        report.count(record);
                    }
                }
                at = end;
                continue;
            }
            Err(bad) => bad,
        };
        let next = match (bad.end, &table) {
            (Some(end), _) => end.min(file.size()),
            (None, Ok(table)) => table.next_chunk(at).unwrap_or_else(|| file.size().min((at / BLOCK + 1) * BLOCK)),
            (None, Err(_)) => walk.search(at + 1, progress)?,
        };
        report.gaps.push(Gap { offset: at, bytes: next - at, record: report.records, reason: bad.reason });
        at = next;
    }
    if report.gaps.is_empty() {
        let missing = match &table {
            Err(error) => Some((error.offset().unwrap_or(file.size()), error.message().to_owned())),
            Ok(table) if !as_the_table_says || chunk != table.chunks() => {
                let reason = format!("expected the table of chunks to name the {chunk} that are there, got others");
                Some((table.footer(), reason))
            }
            Ok(_) => None,
        };
        report.gaps.extend(missing.map(|(offset, reason)| Gap { offset, bytes: 0, record: report.records, reason }));
    }
    Ok(report)
}

impl ChunkTable {
    fn footer(&self) -> u64 {
        self.offsets.last().copied().unwrap_or(0)
    }

    fn chunks(&self) -> usize {
        self.offsets.len() - 1
    }

    /// Whether chunk `number` is the one at `offset`.
    fn has(&self, number: usize, offset: u64, header: &ChunkHeader) -> bool {
        let records = self.records.saturating_sub(number.saturating_mul(self.group)).min(self.group);
        number < self.chunks()
            && self.offsets[number] == offset
            && self.decoded[number + 1] - self.decoded[number] == header.decoded_size
            && records as u64 == header.records
    }

    /// The next chunk that begins behind `offset`: the table itself, if no other does.
    fn next_chunk(&self, offset: u64) -> Option<u64> {
        self.offsets.get(self.offsets.partition_point(|&begin| begin <= offset)).copied()
    }
}

/// Why there is no whole chunk, and where it ends if its header can be trusted.
struct InvalidChunk {
    reason: String,
    end: Option<u64>,
}

struct Walk<'a> {
    file: &'a RandomAccessFile,
    bytes: WindowReader<'a>,
    joined: Vec<u8>,
    unpacker: Unpacker,
}

impl Walk<'_> {
    /// The header of the chunk at `at` and where it ends, its records unpacked; or what is wrong with it.
    fn chunk(&mut self, at: u64) -> Result<std::result::Result<(ChunkHeader, u64), InvalidChunk>> {
        self.unpacker.clear();
        let bad = |error: Error, end| Ok(Err(InvalidChunk { reason: error.message().to_owned(), end }));
        let header = match (Span { begin: at, bytes: self.bytes.at(at, HEADER_SPAN)? }).header(at) {
            Ok((header, _)) => header,
            Err(error) => return bad(error, None),
        };
        let Some(end) = header.end(at) else {
            return bad(Error::corrupt("expected a chunk of this file's size"), None);
        };
        if end > self.file.size() {
            let message = format!("expected a chunk that ends at {end}, got a file of {} bytes", self.file.size());
            return bad(Error::corrupt(message), Some(end));
        }
        let span = Span { begin: at, bytes: self.bytes.at(at, end - at)? };
        let chunk = match span.chunk(at, &mut self.joined) {
            Ok(chunk) => chunk,
            Err(error) => return bad(error, Some(end)),
        };
        let holds_records = matches!(header.content, ChunkType::Records | ChunkType::Transposed);
        match if holds_records { self.unpacker.unpack(&chunk) } else { Ok(()) } {
            Ok(()) => Ok(Ok((header, end))),
            Err(error) => bad(error, Some(end)),
        }
    }

    /// Return the offset of the next header with a valid hash, at or after `from`; or the end.
    fn search(&mut self, from: u64, progress: Progress<'_>) -> Result<u64> {
        let size = self.file.size();
        let mut start = from;
        while start < size {
            progress(start)?;
            let bytes = self.bytes.at(start, WINDOW as u64)?;
            let window = Span { begin: start, bytes };
            // What a header takes must lie in the window, unless the file ends there.
            let last = start + bytes.len() as u64;
            let end = if last == size { last } else { last - HEADER_SPAN };
            let found = (start..end).find(|&at| {
                let possible = at % BLOCK == 0 || at % BLOCK > BLOCK_HEADER as u64;
                possible && window.may_begin(at) && window.header(at).is_ok_and(|(header, _)| header.end(at).is_some())
            });
            match found {
                Some(at) => return Ok(at),
                None => start = end,
            }
        }
        Ok(size)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{ArrayRecordShard, ArrayRecordWriter, ChunkCompression, WriterOptions};
    use super::*;
    use crate::format::container::Container;
    use crate::format::riegeli::SIGNATURE;

    struct Written {
        folder: tempfile::TempDir,
        bytes: Vec<u8>,
        records: Vec<Vec<u8>>,
        offsets: Vec<u64>,
    }

    fn written(group_size: usize, records: Vec<Vec<u8>>) -> Written {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        let options = WriterOptions { group_size, compression: ChunkCompression::None, threads: 1 };
        let mut writer = ArrayRecordWriter::create(&path, options).unwrap();
        records.iter().for_each(|record| writer.write(record).unwrap());
        writer.finish(false).unwrap();
        let offsets = ArrayRecordShard::open(&path).unwrap().offsets().to_vec();
        Written { bytes: std::fs::read(&path).unwrap(), folder, records, offsets }
    }

    impl Written {
        fn salvage(&self, bytes: &[u8]) -> (Vec<Vec<u8>>, Report) {
            let path = self.folder.path().join("b");
            std::fs::write(&path, bytes).unwrap();
            let mut kept = Vec::new();
            let mut keep = |_, record: &[u8]| {
                kept.push(record.to_vec());
                Ok(())
            };
            let report = salvage(&RandomAccessFile::open(&path).unwrap(), &mut keep, &mut |_| Ok(())).unwrap();
            assert_eq!(report.records as usize, kept.len());
            let mut end = 0;
            for gap in &report.gaps {
                assert!(gap.offset >= end && gap.offset + gap.bytes <= bytes.len() as u64, "{gap:?}");
                end = gap.offset + gap.bytes;
            }
            (kept, report)
        }

        fn without(&self, chunk: usize, group: usize) -> Vec<Vec<u8>> {
            let lost = chunk * group..(chunk + 1) * group;
            let kept = self.records.iter().enumerate().filter(|(number, _)| !lost.contains(number));
            kept.map(|(_, record)| record.clone()).collect()
        }
    }

    fn records() -> Vec<Vec<u8>> {
        (0..90usize).map(|i| (0..i * i % 3001).map(|n| (n * i) as u8).collect()).collect()
    }

    #[test]
    fn whole_files_have_no_gaps() {
        for group in [1, 4, 200] {
            for file in [written(group, records()), written(group, vec![]), written(group, vec![vec![]; 700])] {
                let (kept, report) = file.salvage(&file.bytes);
                assert_eq!((kept, report.gaps), (file.records.clone(), vec![]));
            }
        }
    }

    #[test]
    fn a_flipped_bit_costs_its_chunk_with_and_without_the_table() {
        let file = written(4, records());
        let footer = *file.offsets.last().unwrap();
        for without_table in [false, true] {
            let mut whole = file.bytes.clone();
            if without_table {
                whole.truncate(footer as usize);
            }
            for at in (64..footer as usize).step_by(397) {
                let mut bytes = whole.clone();
                bytes[at] ^= 0x20;
                let hit = file.offsets.partition_point(|&offset| offset <= at as u64) - 1;
                let (kept, report) = file.salvage(&bytes);
                assert_eq!(kept, file.without(hit, 4), "byte {at}");
                assert_eq!((report.gaps[0].offset, report.gaps[0].record), (file.offsets[hit], 4 * hit as u64));
                assert_eq!(report.gaps.len(), 1);
            }
        }
    }

    #[test]
    fn flipped_bits_outside_of_records_are_reported_and_cost_nothing() {
        let file = written(4, records());
        let footer = *file.offsets.last().unwrap() as usize;
        let places = (0..SIGNATURE.len()).chain((footer..file.bytes.len()).step_by(1511));
        for at in places {
            let mut bytes = file.bytes.clone();
            bytes[at] ^= 1;
            let (kept, report) = file.salvage(&bytes);
            assert_eq!(kept, file.records, "byte {at}");
            assert!(!report.gaps.is_empty(), "byte {at}");
        }
    }

    #[test]
    fn a_file_cut_anywhere_gives_the_chunks_before() {
        let file = written(4, records());
        for length in (0..file.bytes.len()).step_by(3011) {
            let whole = file.offsets.windows(2).filter(|pair| pair[1] <= length as u64).count();
            let (kept, report) = file.salvage(&file.bytes[..length]);
            assert_eq!(kept[..], file.records[..(4 * whole).min(90)], "length {length}");
            assert!(!report.gaps.is_empty());
        }
    }

    #[test]
    fn a_table_that_names_other_chunks_is_reported() {
        let file = written(1, vec![b"one".to_vec(), b"two".to_vec(), b"six".to_vec()]);
        let other = written(1, vec![b"one".to_vec(), b"twenty".to_vec(), b"".to_vec()]);
        let footer = *file.offsets.last().unwrap() as usize;
        assert_eq!(footer, *other.offsets.last().unwrap() as usize);
        let mixed = [&file.bytes[..footer], &other.bytes[footer..]].concat();
        let (kept, report) = file.salvage(&mixed);
        assert_eq!((kept.len(), report.gaps.len()), (3, 1));
    }
}
