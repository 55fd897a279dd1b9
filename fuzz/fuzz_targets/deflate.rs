//! Any bytes as numbers, repeated as the first of them says: any zlib gives them back, and they hardly grow.
#![no_main]

use std::io::Read;

use flate2::read::ZlibDecoder;
use libfuzzer_sys::fuzz_target;
use penstock_core::codec::deflate::Deflate;

fuzz_target!(|input: &[u8]| {
    let Some((times, bytes)) = input.split_first() else { return };
    let bytes = bytes.repeat(1 + usize::from(*times));
    let mut stream = Vec::new();
    Deflate::default().zlib(&bytes, &mut stream);
    assert!(stream.len() <= bytes.len() + 5 * (bytes.len() / 64_000 + 1) + 6);
    let mut back = Vec::new();
    ZlibDecoder::new(&stream[..]).read_to_end(&mut back).expect("a zlib stream");
    assert_eq!(back, bytes);
});
