//! Any tar archive: opened, read by number, salvaged, and opened again by its index.
#![no_main]

use std::path::PathBuf;

use libfuzzer_sys::fuzz_target;
use penstock_core::example::walk::parse;
use penstock_core::format::container::{Container, ReadBuffer};
use penstock_core::format::gather::read_many;
use penstock_core::format::index::Sidecar;
use penstock_core::format::tar::{salvage, TarShard, BLOCK};
use penstock_core::io::file::RandomAccessFile;
use penstock_fuzz::PROGRAM;

/// Members whose headers are right in most places: each has its kind, its size and its name before it.
fn archive(mut program: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    while let [kind, size, name, wrong, rest @ ..] = program {
        let (data, rest) = rest.split_at(rest.len().min(usize::from(*size)));
        program = rest;
        let mut block = [0; BLOCK];
        let text = [&b"abc"[usize::from(name % 3)..][..1], &[b"./"[usize::from(name >> 7)]; 1], b"txt"].concat();
        block[..text.len()].copy_from_slice(&text);
        block[124..136].copy_from_slice(format!("{:011o}\0", data.len()).as_bytes());
        block[156] = b"00005LKxgS12"[usize::from(*kind) % 12];
        block[257..263].copy_from_slice(b"ustar\0");
        if *wrong > 250 {
            block[124 + usize::from(*wrong % 12)] = *name;
        }
        block[148..156].copy_from_slice(b"        ");
        let sum: u32 = block.iter().map(|&byte| u32::from(byte)).sum();
        block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        out.extend_from_slice(&block);
        out.extend_from_slice(data);
        out.resize(out.len().div_ceil(BLOCK) * BLOCK, 0);
    }
    out.resize(out.len() + 2 * BLOCK, 0);
    out
}

fn check(bytes: &[u8]) {
    let folder = if PathBuf::from("/dev/shm").is_dir() { "/dev/shm".into() } else { std::env::temp_dir() };
    let path = folder.join(format!("penstock-fuzz-{}.tar", std::process::id()));
    std::fs::write(&path, bytes).expect("room for a small file");
    let mut kept = Vec::new();
    let mut keep = |_, record: &[u8]| {
        kept.push(record.to_vec());
        Ok(())
    };
    let file = RandomAccessFile::open(&path).expect("the file just written");
    let report = salvage(&file, &mut keep, &mut |_| Ok(())).expect("salvage reports damage, it does not fail of it");
    assert_eq!(report.records, kept.len() as u64);
    let open = |sidecar| TarShard::open(&path, sidecar, None, &mut |_| Ok(()));
    match open(Sidecar::Ignore) {
        Ok(shard) => {
            let mut buffer = ReadBuffer::default();
            for record in 0..shard.len() {
                let read = shard.read(record, &mut buffer).expect("what a scan has found");
                parse(read).expect("a record is an example");
                assert_eq!(read, kept[record]);
            }
            let many = read_many(&shard, &(0..shard.len()).collect::<Vec<_>>()).expect("the same, all at once");
            assert!(many.iter().eq(kept.iter().map(Vec::as_slice)));
            assert!(report.gaps.is_empty());
            if !shard.is_empty() {
                let index = shard.index(&mut |_| Ok(())).expect("a file that is there");
                assert_eq!(open(Sidecar::Use(index)).expect("its own index").len(), shard.len());
            }
        }
        Err(error) => {
            assert!(!report.gaps.is_empty(), "{error}");
            assert!(error.kind().is_corrupt() && error.path().is_some(), "{error}");
        }
    }
    std::fs::remove_file(&path).expect("the file just written");
}

fuzz_target!(|input: &[u8]| match input {
    [PROGRAM, program @ ..] => check(&archive(program)),
    _ => check(input),
});
