//! Salvages a damaged TFRecord file: finds every whole record and reports the gaps.

use std::io::Read;

use crate::codec::gzip_members::{Break, Members};
use crate::codec::stream::{read_error, Compression};
use crate::crc32c;
use crate::error::{Error, Kind, Result};
use crate::format::frame::{self, FOOTER, HEADER, OVERHEAD};
use crate::format::salvage_report::{Gap, Report};
use crate::format::tfrecord::stream::FrameStream;
use crate::io::file::{Progress, RandomAccessFile, WINDOW};
use crate::io::window_reader::WindowReader;
use crate::limits::{self, max_inflated_bytes};

/// Looking for the next frame may check this many times the file's size in data CRCs; a file made to cost more is given
/// up.
const SEARCH_BUDGET: u64 = 16;

/// Looks at every byte of a shard: hands each whole record's frame and offset to `keep`, and reports the rest.
pub fn salvage(
    file: &RandomAccessFile,
    keep: &mut dyn FnMut(u64, &[u8]) -> Result<()>,
    progress: Progress<'_>,
) -> Result<Report> {
    let compression = file.compression()?;
    let mut report = Report::default();
    if compression == Compression::None {
        let mut bytes = WindowReader::new(file);
        look(&mut bytes, 0, &mut report, keep, progress)?;
        if report.records == 0 && !report.gaps.is_empty() {
            if let Some(found) = look_without_magic(file, keep, progress)? {
                return Ok(found);
            }
        }
        return Ok(report);
    }
    // A whole shard of any size goes by as a stream; only from the first damage on is it looked at in memory.
    let Some(offset) = stream(file, compression, &mut report, keep, progress)? else { return Ok(report) };
    let members = match compression {
        Compression::Gzip | Compression::Zlib => Members::inflate(&mut WindowReader::new(file), compression, progress)?,
        _ => inflate_what_is_there(file, compression)?,
    };
    look_at_members(WindowReader::in_memory(members.bytes), members.breaks, offset, &mut report, keep, progress)?;
    Ok(report)
}

/// Looks at what a damaged compressed file holds, from `offset` on, and reports where its compression is damaged.
fn look_at_members(
    mut bytes: WindowReader<'_>,
    breaks: Vec<Break>,
    offset: u64,
    report: &mut Report,
    keep: &mut dyn FnMut(u64, &[u8]) -> Result<()>,
    progress: Progress<'_>,
) -> Result<()> {
    let (before, mut starts) = (report.records, Vec::new());
    let mut keep = |offset, frame: &[u8]| {
        starts.push(offset);
        keep(offset, frame)
    };
    look(&mut bytes, offset, report, &mut keep, progress)?;
    report.gaps.extend(breaks.into_iter().map(|Break { offset: at, reason }| {
        // The limit on inflated bytes may lie before the first damage.
        let offset = at.max(offset);
        let record = before + starts.partition_point(|&start| start < offset) as u64;
        Gap { offset, bytes: 0, record, reason }
    }));
    report.gaps.sort_by_key(|gap| gap.offset);
    Ok(())
}

/// Looks at a file as a gzip or zlib file whose first bytes are damaged; `None` if it holds no whole record.
fn look_without_magic(
    file: &RandomAccessFile,
    keep: &mut dyn FnMut(u64, &[u8]) -> Result<()>,
    progress: Progress<'_>,
) -> Result<Option<Report>> {
    for compression in [Compression::Gzip, Compression::Zlib] {
        let Members { bytes, breaks } = Members::inflate(&mut WindowReader::new(file), compression, progress)?;
        let mut bytes = WindowReader::in_memory(bytes);
        let mut budget = bytes.size().saturating_mul(SEARCH_BUDGET).saturating_add(WINDOW as u64);
        if search(&mut bytes, 0, &mut budget, progress)? < bytes.size() {
            let mut report = Report::default();
            look_at_members(bytes, breaks, 0, &mut report, keep, progress)?;
            return Ok(Some(report));
        }
    }
    Ok(None)
}

/// Pass the frames of a compressed shard to `keep` up to its end. Return the offset of damage.
fn stream(
    file: &RandomAccessFile,
    compression: Compression,
    report: &mut Report,
    keep: &mut dyn FnMut(u64, &[u8]) -> Result<()>,
    progress: Progress<'_>,
) -> Result<Option<u64>> {
    let mut frames = FrameStream::new(file.stream(compression));
    loop {
        let offset = frames.offset;
        match frames.next_frame() {
            Ok(Some(frame)) => {
                keep(offset, frame)?;
                report.count(&frame[HEADER..frame.len() - FOOTER]);
            }
            Ok(None) => return Ok(None),
            Err(error) if matches!(error.kind(), Kind::Io(_)) => return Err(error.in_file(file.path())),
            Err(error) => match frames.skip_refused() {
                Some(bytes) => {
                    let reason = error.message().to_owned();
                    report.gaps.push(Gap { offset, bytes, record: report.records, reason });
                }
                None => return Ok(Some(offset)),
            },
        }
        if report.records % 256 == 0 {
            progress(offset)?;
        }
    }
}

/// As much of a zstd, bzip2 or xz stream as can be inflated, and why that was not all.
fn inflate_what_is_there(file: &RandomAccessFile, compression: Compression) -> Result<Members> {
    let mut out = Vec::new();
    let limit = max_inflated_bytes();
    let outcome = file.stream(compression).take(limit.saturating_add(1)).read_to_end(&mut out);
    let broken = match outcome {
        Ok(_) if out.len() as u64 > limit => {
            out.truncate(limit as usize);
            Some(format!("expected at most {limit} inflated bytes, got more"))
        }
        Ok(_) => None,
        Err(error) => match read_error(&error) {
            error if matches!(error.kind(), Kind::Io(_)) => return Err(error.in_file(file.path())),
            error => {
                // A read that fails loses the byte that it inflated before it failed. A second run with another byte in
                // that place shows whether there is one.
                let there = out.len();
                let last = inflate_to_the_last_byte(file, compression, &mut out, 0);
                let again = &mut out[..there].to_vec();
                if inflate_to_the_last_byte(file, compression, again, 1) == last {
                    out.push(last);
                }
                Some(error.message().to_owned())
            }
        },
    };
    let offset = out.len() as u64;
    let breaks = broken.into_iter().map(|reason| Break { offset, reason }).collect();
    Ok(Members { bytes: out, breaks })
}

/// A read that fails loses what it inflated before: goes there again, and on byte by byte. Gives what is in the place
/// of the byte that failed: `byte`, or what was inflated.
fn inflate_to_the_last_byte(file: &RandomAccessFile, compression: Compression, out: &mut Vec<u8>, byte: u8) -> u8 {
    let mut stream = file.stream(compression).take(max_inflated_bytes());
    let there = out.len() as u64;
    if std::io::copy(&mut (&mut stream).take(there), &mut std::io::sink()).is_ok_and(|count| count == there) {
        loop {
            let mut next = [byte];
            match stream.read(&mut next) {
                Ok(1) => out.push(next[0]),
                Ok(_) => break,
                Err(_) => return next[0],
            }
        }
    }
    byte
}

/// Looks at all bytes from `offset` on.
fn look(
    bytes: &mut WindowReader<'_>,
    mut offset: u64,
    report: &mut Report,
    keep: &mut dyn FnMut(u64, &[u8]) -> Result<()>,
    progress: Progress<'_>,
) -> Result<()> {
    let mut budget = bytes.size().saturating_mul(SEARCH_BUDGET).saturating_add(WINDOW as u64);
    let mut beat = 0;
    while offset < bytes.size() {
        if offset >= beat {
            progress(offset)?;
            beat = offset + WINDOW as u64;
        }
        match frame_at(bytes, offset)? {
            Ok(frame) => {
                keep(offset, frame)?;
                report.count(&frame[HEADER..frame.len() - FOOTER]);
                offset += frame.len() as u64;
            }
            Err(InvalidFrame { reason, end }) => {
                let next = match end {
                    // The header holds: if a frame follows where this one should end, only this record is lost.
                    Some(end) if end == bytes.size() || header_at(bytes, end)?.is_some() => end,
                    _ => search(bytes, offset + 1, &mut budget, progress)?,
                };
                report.gaps.push(Gap { offset, bytes: next - offset, record: report.records, reason });
                offset = next;
            }
        }
    }
    Ok(())
}

/// Why there is no whole frame, and where it should end if its header can be trusted.
struct InvalidFrame {
    reason: String,
    end: Option<u64>,
}

/// The whole frame at `offset`, or what is wrong with it.
fn frame_at<'b>(bytes: &'b mut WindowReader<'_>, offset: u64) -> Result<std::result::Result<&'b [u8], InvalidFrame>> {
    let left = bytes.size() - offset;
    let bad = |error: Error, end| Ok(Err(InvalidFrame { reason: error.message().to_owned(), end }));
    let length = match frame::declared_length(bytes.at(offset, HEADER as u64)?) {
        Ok(length) => length,
        Err(error) => return bad(error, None),
    };
    let Some(frame_length) = length.checked_add(OVERHEAD as u64).filter(|&whole| whole <= left) else {
        let reason = format!("expected a record of {length} bytes, got only {left} bytes to the end");
        return Ok(Err(InvalidFrame { reason, end: None }));
    };
    if bytes.is_in_memory() && length > limits::max_row_bytes() {
        return bad(limits::too_large("a record", length), Some(offset + frame_length));
    }
    let frame = bytes.at(offset, frame_length)?;
    match frame::open(frame) {
        Ok(_) => Ok(Ok(frame)),
        Err(error) => bad(error, Some(offset + frame_length)),
    }
}

/// The length declared by a header at `offset` that holds and fits.
fn header_at(bytes: &mut WindowReader<'_>, offset: u64) -> Result<Option<u64>> {
    let left = bytes.size() - offset;
    let length = frame::declared_length(bytes.at(offset, HEADER as u64)?).ok();
    Ok(length.filter(|length| length.checked_add(OVERHEAD as u64).is_some_and(|whole| whole <= left)))
}

/// Where the next whole frame begins at or after `from`, or the end.
fn search(bytes: &mut WindowReader<'_>, from: u64, budget: &mut u64, progress: Progress<'_>) -> Result<u64> {
    let size = bytes.size();
    let mut start = from;
    while start + OVERHEAD as u64 <= size {
        progress(start)?;
        let window = bytes.at(start, WINDOW as u64)?;
        let candidates: Vec<u64> = window
            .windows(HEADER)
            .enumerate()
            .filter_map(|(at, header)| {
                let offset = start + at as u64;
                let length = u64::from_le_bytes(header[..8].try_into().ok()?);
                // Most of what is no header declares more than there is: no CRC is needed to tell.
                let fits = length.checked_add(OVERHEAD as u64)? <= size - offset;
                (fits && crc32c::masked(&header[..8]).to_le_bytes() == header[8..]).then_some(offset)
            })
            .collect();
        let searched = (window.len() - HEADER + 1) as u64;
        for offset in candidates {
            let length = header_at(bytes, offset)?.unwrap_or(0);
            *budget = match budget.checked_sub(length + OVERHEAD as u64) {
                Some(left) => left,
                None => return Ok(size),
            };
            if frame_at(bytes, offset)?.is_ok() {
                return Ok(offset);
            }
        }
        start += searched;
    }
    Ok(size)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::frame::Frames;
    use std::path::PathBuf;

    fn frames(records: &[Vec<u8>]) -> Frames {
        let mut frames = Frames::default();
        records.iter().for_each(|record| frames.push(record));
        frames
    }

    fn run(bytes: &[u8]) -> (Vec<Vec<u8>>, Report) {
        let folder = tempfile::tempdir().unwrap();
        let path: PathBuf = folder.path().join("a");
        std::fs::write(&path, bytes).unwrap();
        let mut kept = Vec::new();
        let mut keep = |_, frame: &[u8]| {
            kept.push(frame[HEADER..frame.len() - 4].to_vec());
            Ok(())
        };
        let report = salvage(&RandomAccessFile::open(&path).unwrap(), &mut keep, &mut |_| Ok(())).unwrap();
        assert_eq!(report.records as usize, kept.len());
        let covered: u64 =
            report.gaps.iter().map(|gap| gap.bytes).sum::<u64>() + report.record_bytes + 16 * report.records;
        if Compression::detect(bytes) == Compression::None {
            assert_eq!(covered, bytes.len() as u64, "every byte is in a record or in a gap");
        }
        (kept, report)
    }

    fn records() -> Vec<Vec<u8>> {
        (0..50u8).map(|i| vec![i; usize::from(i) * 7]).collect()
    }

    #[test]
    fn whole_files_have_no_gaps() {
        let records = records();
        let (kept, report) = run(frames(&records).bytes());
        assert_eq!((kept, report.gaps.len()), (records, 0));
        assert_eq!(run(b""), (vec![], Report::default()));
    }

    #[test]
    fn one_damaged_byte_costs_one_record() {
        let records = records();
        let whole = frames(&records);
        let starts: Vec<usize> = std::iter::once(0)
            .chain(whole.lengths().scan(0, |end, n| {
                *end += n;
                Some(*end)
            }))
            .collect();
        for at in (0..whole.bytes().len()).step_by(11) {
            let mut bytes = whole.bytes().to_vec();
            bytes[at] ^= 0x10;
            let hit = starts.partition_point(|&start| start <= at) - 1;
            let (kept, report) = run(&bytes);
            let expected: Vec<_> =
                records.iter().enumerate().filter(|(i, _)| *i != hit).map(|(_, r)| r.clone()).collect();
            assert_eq!(kept, expected, "byte {at}");
            assert_eq!(report.gaps.len(), 1);
            assert_eq!((report.gaps[0].offset, report.gaps[0].record), (starts[hit] as u64, hit as u64));
        }
    }

    #[test]
    fn removed_inserted_and_trailing_bytes_cost_what_they_touch() {
        let records = records();
        let whole = frames(&records).bytes().to_vec();
        let removed = [&whole[..200], &whole[290..]].concat();
        assert!(run(&removed).0.len() >= 45);
        let inserted = [&whole[..200], &[9; 77], &whole[200..]].concat();
        assert!(run(&inserted).0.len() >= 48);
        for tail in 1..20 {
            let (kept, report) = run(&[&whole[..], &vec![0; tail]].concat());
            assert_eq!((kept.len(), report.gaps.len()), (50, 1), "tail {tail}");
        }
        let cut = &whole[..whole.len() - 5];
        assert_eq!(run(cut).0.len(), 49);
    }

    #[test]
    fn random_bytes_are_one_gap() {
        let noise: Vec<u8> = (0..300_000u64).map(|i| (i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8).collect();
        let (kept, report) = run(&noise);
        assert_eq!((kept.len(), report.gaps.len()), (0, 1));
    }

    #[test]
    fn a_file_made_to_be_slow_is_given_up() {
        // Headers that hold, each declaring a record nearly as long as the rest of the file, none with good data.
        let size = 600_000u64;
        let mut bytes = Vec::new();
        while (bytes.len() as u64) < size {
            let length = (size - bytes.len() as u64).saturating_sub(100).to_le_bytes();
            bytes.extend(length);
            bytes.extend(crc32c::masked(&length).to_le_bytes());
        }
        let started = std::time::Instant::now();
        let (kept, _) = run(&bytes);
        assert!(kept.is_empty());
        assert!(started.elapsed().as_secs() < 20);
    }

    #[test]
    fn a_broken_gzip_gives_every_record_before_the_break() {
        use crate::codec::stream::InflateStream;
        use std::io::Write;
        let records: Vec<Vec<u8>> = (0..90u32).map(|i| i.wrapping_mul(2_654_435_761).to_le_bytes().repeat(9)).collect();
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(frames(&records).bytes()).unwrap();
        let whole = encoder.finish().unwrap();
        for at in (20..whole.len()).step_by(23) {
            let mut bytes = whole.clone();
            bytes[at] ^= 0x5a;
            let mut stream = FrameStream::new(InflateStream::new(&bytes[..], Compression::Gzip));
            let before = std::iter::from_fn(|| stream.next_frame().ok()?.map(drop)).count();
            assert_eq!(run(&bytes).0.get(..before), Some(&records[..before]), "byte {at}");
        }
    }

    #[test]
    fn a_broken_gzip_gives_what_came_before() {
        use std::io::Write;
        let records: Vec<Vec<u8>> =
            (0..2000u32).map(|i| i.wrapping_mul(2_654_435_761).to_le_bytes().repeat(5)).collect();
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(frames(&records).bytes()).unwrap();
        let whole = encoder.finish().unwrap();
        let (kept, report) = run(&whole[..whole.len() / 2]);
        assert!(!kept.is_empty() && kept.len() < 2000);
        assert_eq!(kept, records[..kept.len()]);
        assert!(report.gaps.iter().any(|gap| gap.reason.contains("truncated")));
    }
}
