//! Any file: read as a stream, scanned, read by number, salvaged. All must agree on what is there.
#![no_main]

use std::io::Read;
use std::path::PathBuf;

use libfuzzer_sys::fuzz_target;
use penstock_core::codec::stream::{Compression, InflateStream};
use penstock_core::format::container::{Container, ReadBuffer};
use penstock_core::format::frame::{self, Frames, FOOTER, HEADER};
use penstock_core::format::gather::read_many;
use penstock_core::format::index::{Index, Sidecar};
use penstock_core::format::tfrecord::salvage::salvage;
use penstock_core::format::tfrecord::shard::TfRecordShard;
use penstock_core::format::tfrecord::stream::FrameStream;
use penstock_core::io::file::RandomAccessFile;
use penstock_core::limits::{set_max_inflated_bytes, set_max_row_bytes};
use penstock_core::Error;
use penstock_fuzz::{build, open};

/// The largest record: built frames reach beyond it.
const FRAME_BYTES: u64 = 1 << 12;

/// The bytes that salvage inflates: inputs reach beyond it, and searching them stays quick.
const INFLATED_BYTES: u64 = 1 << 14;

/// A reader that gives a few bytes at a time.
struct Slow<'a>(&'a [u8], usize);

impl Read for Slow<'_> {
    fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
        let count = out.len().min(self.1);
        self.0.read(&mut out[..count])
    }
}

type Found = Vec<(u64, Vec<u8>)>;

/// The frames of a stream with their offsets, until it ends or breaks.
fn stream(reader: impl Read) -> (Found, Option<Error>) {
    let mut stream = FrameStream::new(reader);
    let mut found = Vec::new();
    loop {
        let (offset, record) = (stream.offset, stream.record);
        assert_eq!(record, found.len() as u64);
        match stream.next_frame() {
            Ok(Some(frame)) => found.push((offset, frame.to_vec())),
            Ok(None) => return (found, None),
            Err(error) => {
                assert!(error.kind().is_corrupt(), "{error}");
                assert_eq!((error.offset(), error.record()), (Some(offset), Some(record)));
                return (found, Some(error));
            }
        }
    }
}

/// Gaps and records lie one after the other and leave nothing out.
fn check_salvaged(file: &RandomAccessFile, size: Option<u64>) -> Found {
    let mut kept = Vec::new();
    let mut keep = |offset, frame: &[u8]| {
        frame::open(frame).expect("what is kept is whole");
        kept.push((offset, frame.to_vec()));
        Ok(())
    };
    let report = salvage(file, &mut keep, &mut |_| Ok(())).expect("salvage reports damage, it does not fail of it");
    assert_eq!(report.records, kept.len() as u64);
    assert_eq!(report.record_bytes, kept.iter().map(|(_, frame)| (frame.len() - HEADER - FOOTER) as u64).sum::<u64>());
    let mut pieces: Vec<(u64, u64)> = kept.iter().map(|(offset, frame)| (*offset, frame.len() as u64)).collect();
    // Gaps without bytes are places where the compression is damaged, within a record or not.
    pieces.extend(report.gaps.iter().filter(|gap| gap.bytes > 0).map(|gap| (gap.offset, gap.bytes)));
    pieces.sort_unstable();
    let end = pieces.iter().fold(0, |end, &(offset, length)| {
        assert_eq!(offset, end, "neither holes nor overlaps");
        offset + length
    });
    // A file whose first bytes are damaged may be a compressed one: what is found is not in the file as it is.
    let content = size.map(|_| std::fs::read(file.path()).expect("the file just written"));
    let is_plain = |(offset, frame): &(u64, Vec<u8>)| {
        content.as_ref().is_some_and(|content| content[(*offset as usize).min(content.len())..].starts_with(frame))
    };
    if let Some(size) = size.filter(|_| kept.iter().all(is_plain)) {
        assert_eq!(end, size);
        assert!(report.gaps.iter().all(|gap| gap.bytes > 0));
    }
    for gap in &report.gaps {
        assert_eq!(gap.record, kept.iter().filter(|(offset, _)| *offset < gap.offset).count() as u64);
    }
    kept
}

/// Reading by number gives what the stream gave, and breaks where it broke.
fn check_shard(shard: &TfRecordShard, streamed: &Found, broken: bool) {
    let mut buffer = ReadBuffer::default();
    for (number, (_, frame)) in streamed.iter().enumerate() {
        assert_eq!(shard.read(number, &mut buffer).expect("a whole record"), &frame[HEADER..frame.len() - FOOTER]);
    }
    assert_eq!(broken, streamed.len() < shard.len());
    if broken {
        assert!(shard.read(streamed.len(), &mut buffer).is_err());
    }
    assert!(shard.read(shard.len(), &mut buffer).is_err());
    let backwards: Vec<usize> = (0..shard.len()).rev().collect();
    match read_many(shard, &backwards) {
        Ok(frames) => assert!(!broken && frames.len() == shard.len()),
        Err(_) => assert!(broken),
    }
    let index = shard.index(&mut |_| Ok(())).expect("a file that can be read");
    assert_eq!(Index::from_bytes(&index.to_bytes()).expect("our own index"), index);
    TfRecordShard::open(shard.file().path(), Sidecar::Use(index), &mut |_| Ok(())).expect("an index that fits");
}

fn check(bytes: &[u8]) {
    let compression = Compression::detect(bytes);
    let (streamed, error) = stream(InflateStream::new(bytes, compression));
    if compression == Compression::None || error.is_none() {
        let slowly = stream(InflateStream::new(Slow(bytes, 1 + bytes.len() % 13), compression));
        assert_eq!(slowly, (streamed.clone(), error.clone()), "however the bytes arrive");
    }

    let lengths = || streamed.iter().map(|(_, frame)| frame.len());
    let frames = Frames::checked(streamed.iter().flat_map(|(_, frame)| frame.clone()).collect(), lengths());
    assert!(frames.expect("whole frames").iter().eq(streamed.iter().map(|(_, f)| &f[HEADER..f.len() - FOOTER])));
    if compression == Compression::None {
        let frames = Frames::checked(bytes.to_vec(), lengths()).expect("the frames at the start");
        assert_eq!(frames.len(), streamed.len());
        for beyond in [0, 1, bytes.len(), usize::MAX] {
            let result = Frames::checked(bytes.to_vec(), lengths().chain([beyond]));
            assert_eq!(result.expect_err("a frame that is not there").record(), Some(streamed.len() as u64));
        }
    }

    let folder = if PathBuf::from("/dev/shm").is_dir() { "/dev/shm".into() } else { std::env::temp_dir() };
    let path = folder.join(format!("penstock-fuzz-{}", std::process::id()));
    std::fs::write(&path, bytes).expect("room for a small file");
    let file = RandomAccessFile::open(&path).expect("the file just written");
    assert_eq!(file.compression().expect("the file just written"), compression);
    let kept = check_salvaged(&file, (compression == Compression::None).then_some(bytes.len() as u64));
    assert_eq!(kept.get(..streamed.len()), Some(&streamed[..]), "salvage finds what the stream finds");
    assert!(error.is_some() || kept.len() == streamed.len());
    match TfRecordShard::open(&path, Sidecar::Ignore, &mut |_| Ok(())) {
        Ok(shard) => check_shard(&shard, &streamed, error.is_some()),
        Err(scanned) => {
            assert!(scanned.kind().is_corrupt(), "{scanned}");
            assert!(error.is_some(), "what the stream reads, the scan finds: {scanned}");
        }
    }
    std::fs::remove_file(&path).expect("the file just written");
}

fuzz_target!(|input: &[u8]| {
    let bytes = open(input, build::shard);
    set_max_row_bytes(FRAME_BYTES);
    set_max_inflated_bytes(INFLATED_BYTES);
    check(&bytes);
});
