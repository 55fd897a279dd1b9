//! Any ArrayRecord file: opened, read by number, salvaged. Any chunk's data: unpacked, and packed again.
#![no_main]

use std::path::PathBuf;

use libfuzzer_sys::fuzz_target;
use penstock_core::format::array_record::{salvage, ArrayRecordShard, ChunkCompression};
use penstock_core::format::container::{Container, ReadBuffer};
use penstock_core::format::gather::read_many;
use penstock_core::format::riegeli::records::{Packer, Unpacker};
use penstock_core::format::riegeli::{Chunk, ChunkHeader, ChunkType, Span, CHUNK_HEADER};
use penstock_core::io::file::RandomAccessFile;
use penstock_core::Kind;
use penstock_fuzz::{chunks, PROGRAM};

/// What is unpacked is what the header says, and comes back in every compression.
fn check_data(records: u64, decoded_size: u64, data: &[u8]) {
    let mut unpacker = Unpacker::default();
    let header = ChunkHeader::new(ChunkType::Records, data, records, decoded_size);
    if unpacker.unpack(&Chunk { header, data, end: 0 }).is_err() {
        return assert!(unpacker.is_empty());
    }
    let found: Vec<Vec<u8>> = unpacker.iter().map(<[u8]>::to_vec).collect();
    assert_eq!(found.len() as u64, records);
    assert_eq!(found.iter().map(|record| record.len() as u64).sum::<u64>(), decoded_size);
    let slices: Vec<&[u8]> = found.iter().map(Vec::as_slice).collect();
    for compression in
        [ChunkCompression::None, ChunkCompression::Zstd(1), ChunkCompression::Brotli(0), ChunkCompression::Snappy]
    {
        let mut chunk = Vec::new();
        Packer::new(compression).and_then(|mut packer| packer.pack(&slices, &mut chunk)).expect("small records");
        let header = ChunkHeader::from_bytes(chunk[..CHUNK_HEADER].try_into().expect("a header")).expect("our own");
        unpacker.clear();
        unpacker.unpack(&Chunk { header, data: &chunk[CHUNK_HEADER..], end: 0 }).expect("our own chunk");
        assert!(unpacker.iter().eq(slices.iter().copied()));
    }
}

/// Opened, read and salvaged, all agree.
fn check_file(bytes: &[u8]) {
    let folder = if PathBuf::from("/dev/shm").is_dir() { "/dev/shm".into() } else { std::env::temp_dir() };
    let path = folder.join(format!("penstock-fuzz-array-{}", std::process::id()));
    std::fs::write(&path, bytes).expect("room for a small file");
    let file = RandomAccessFile::open(&path).expect("the file just written");
    let mut kept = Vec::new();
    let mut keep = |offset, record: &[u8]| {
        kept.push((offset, record.to_vec()));
        Ok(())
    };
    let report = salvage(&file, &mut keep, &mut |_| Ok(())).expect("salvage reports damage, it does not fail of it");
    assert_eq!(report.records, kept.len() as u64);
    assert_eq!(report.record_bytes, kept.iter().map(|(_, record)| record.len() as u64).sum::<u64>());
    let end = report.gaps.iter().fold(0, |end, gap| {
        assert!(gap.offset >= end, "gaps follow each other");
        gap.offset + gap.bytes
    });
    assert!(end <= bytes.len() as u64);
    match ArrayRecordShard::open(&path) {
        Ok(shard) => {
            let mut buffer = ReadBuffer::default();
            let read: Vec<_> =
                (0..shard.len()).map(|record| shard.read(record, &mut buffer).map(<[u8]>::to_vec)).collect();
            for (record, outcome) in read.iter().enumerate() {
                match outcome {
                    Ok(data) => assert!(kept.iter().any(|(_, kept)| kept == data), "what is read is salvaged"),
                    Err(error) => assert!(error.record() == Some(record as u64) && error.offset().is_some()),
                }
            }
            let many = read_many(&shard, &(0..shard.len()).rev().collect::<Vec<_>>());
            assert_eq!(many.is_ok(), read.iter().all(Result::is_ok));
            if report.gaps.is_empty() {
                assert!(read
                    .into_iter()
                    .map(|data| data.expect("a whole file"))
                    .eq(kept.into_iter().map(|kept| kept.1)));
            }
        }
        Err(error) => {
            assert!(!report.gaps.is_empty(), "{error}");
            assert!(error.kind().is_corrupt() || error.kind() == Kind::Usage);
        }
    }
    std::fs::remove_file(&path).expect("the file just written");
}

fuzz_target!(|input: &[u8]| match input {
    [PROGRAM, program @ ..] => check_file(&chunks::file(program)),
    [records, low, high, data @ ..] => {
        check_data(u64::from(*records), u64::from(u16::from_le_bytes([*low, *high])), data);
        // As a chunk it is no more than its header says, wherever it begins.
        let begin = u64::from(*low) * 1000;
        let _ = Span { begin, bytes: input }.chunk(begin, &mut Vec::new());
    }
    _ => {}
});
