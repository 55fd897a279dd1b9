//! Any file as an index: what is taken is what would be written, byte for byte; and DALI's text goes both ways.
#![no_main]

use libfuzzer_sys::fuzz_target;
use penstock_core::codec::stream::Compression;
use penstock_core::crc32c;
use penstock_core::format::index::{offsets_from_dali, Index};
use penstock_core::Kind;

fn check_index(bytes: &[u8]) {
    let index = match Index::from_bytes(bytes) {
        Ok(index) => index,
        Err(error) => return assert_eq!(error.kind(), Kind::Sidecar),
    };
    assert_eq!(index.to_bytes(), bytes);
    assert_eq!(index.len() + 1, index.offsets.len());
    match index.to_dali() {
        Ok(text) => assert_eq!(offsets_from_dali(&text).expect("our own text"), index.offsets),
        Err(_) => assert!(index.compression != Compression::None || !index.segments.is_empty()),
    }
}

fn check_dali(text: &str) {
    let offsets = match offsets_from_dali(text) {
        Ok(offsets) => offsets,
        Err(error) => return assert_eq!(error.kind(), Kind::Sidecar),
    };
    let shard_size = *offsets.last().expect("at least the end");
    let index = Index { compression: Compression::None, shard_size, shard_crc32c: 0, offsets, segments: Vec::new() };
    let text = index.to_dali().expect("an uncompressed shard");
    assert_eq!(offsets_from_dali(&text).expect("our own text"), index.offsets);
    assert_eq!(Index::from_bytes(&index.to_bytes()).expect("our own index"), index);
}

fuzz_target!(|input: &[u8]| {
    check_index(input);
    // The same with a checksum that fits, so that the checks behind it are reached.
    let body = &input[..input.len().saturating_sub(4)];
    check_index(&[body, &crc32c::crc32c(body).to_le_bytes()].concat());
    if let Ok(text) = std::str::from_utf8(input) {
        check_dali(text);
    }
});
