//! Programs that build ArrayRecord files: chunks that are whole, that lie, or are damaged, with a table or without.

use penstock_core::codec::protobuf::put_varint;
use penstock_core::format::array_record::ChunkCompression;
use penstock_core::format::riegeli::records::Packer;
use penstock_core::format::riegeli::{append, padding, ChunkHeader, ChunkType, BLOCK, SIGNATURE};

use crate::build::take;

const COMPRESSIONS: [ChunkCompression; 4] =
    [ChunkCompression::None, ChunkCompression::Zstd(1), ChunkCompression::Brotli(0), ChunkCompression::Snappy];
const CONTENTS: [ChunkType; 5] =
    [ChunkType::Records, ChunkType::Padding, ChunkType::Transposed, ChunkType::Metadata, ChunkType::Signature];

/// A file and what its table will say.
struct File {
    bytes: Vec<u8>,
    /// Offset, decoded size and number of records of each chunk.
    chunks: Vec<[u64; 3]>,
    packers: Vec<Packer>,
}

impl File {
    fn put(&mut self, content: ChunkType, data: &[u8], records: u64, decoded_size: u64) {
        let chunk = [&ChunkHeader::new(content, data, records, decoded_size).to_bytes()[..], data].concat();
        let position = self.bytes.len() as u64;
        append(&mut self.bytes, position, &chunk, records).expect("a small file");
    }

    fn pack(&mut self, compression: usize, records: &[&[u8]]) -> [u64; 3] {
        let mut chunk = Vec::new();
        let packed = self.packers[compression].pack(records, &mut chunk).expect("small records");
        let position = self.bytes.len() as u64;
        append(&mut self.bytes, position, &chunk, packed.records).expect("a small file");
        [position, packed.decoded_size, packed.records]
    }

    fn pad(&mut self) {
        if let Some(length) = padding(self.bytes.len() as u64) {
            self.put(ChunkType::Padding, &vec![0; length], 0, 0);
        }
    }

    /// Appends the table and the postscript, the numbers changed by what is left of the program.
    fn finish(&mut self, lies: &[u8]) {
        let mut lies = lies.iter().copied();
        let mut number = |number: u64| match lies.next() {
            Some(lie @ 1..) => number.wrapping_add(lie as i8 as u64),
            _ => number,
        };
        let total = self.chunks.iter().map(|chunk| chunk[2]).sum();
        let mut inner = Vec::new();
        for (tag, value) in [(0x08u8, 1), (0x10, self.chunks.len() as u64), (0x18, total)] {
            inner.push(tag);
            put_varint(&mut inner, number(value));
        }
        let mut records = vec![[&[0x0a, inner.len() as u8][..], &inner].concat()];
        for chunk in &self.chunks {
            let mut entry = Vec::new();
            for (tag, &value) in [0x08u8, 0x10, 0x18].into_iter().zip(chunk) {
                entry.push(tag);
                put_varint(&mut entry, number(value));
            }
            records.push(entry);
        }
        let records: Vec<&[u8]> = records.iter().map(Vec::as_slice).collect();
        let [footer, ..] = self.pack(1, &records);
        self.pad();
        let mut postscript = vec![0x08];
        put_varint(&mut postscript, number(footer));
        postscript.push(0x10);
        put_varint(&mut postscript, 0x7193_0e70_4fda_e05e);
        self.pack(0, &[&postscript[..]; 3]);
        self.pad();
    }
}

/// A file, whatever the program.
pub fn file(mut program: &[u8]) -> Vec<u8> {
    let packers = COMPRESSIONS.map(|compression| Packer::new(compression).expect("a compressor"));
    let mut file = File { bytes: SIGNATURE.to_vec(), chunks: Vec::new(), packers: packers.into() };
    let mut flips = Vec::new();
    while let [step, rest @ ..] = program {
        program = rest;
        let (kind, count) = (step & 7, usize::from(step >> 3));
        match kind {
            // Records: how many times, and how they are compressed; the bytes of the first, the others are made of it.
            0 | 1 => {
                let [how, times] = [0, 1].map(|_| take(&mut program, 1).first().copied().unwrap_or(0));
                let record = take(&mut program, count).repeat(if kind == 1 { usize::from(how >> 2) * 9 } else { 1 });
                let records: Vec<&[u8]> = (0..times % 8 + 1).map(|n| &record[..record.len() >> n]).collect();
                let chunk = file.pack(usize::from(how % 4), &records);
                file.chunks.push(chunk);
            }
            // Any data under a header whose hashes hold.
            2 => {
                let [records, decoded] = [0, 1].map(|_| take(&mut program, 1).first().copied().unwrap_or(0));
                file.chunks.push([file.bytes.len() as u64, u64::from(decoded), u64::from(records)]);
                let data = take(&mut program, count);
                file.put(ChunkType::Records, data, u64::from(records), u64::from(decoded));
            }
            3 => file.put(CONTENTS[count % CONTENTS.len()], &vec![0; count * 50], 0, 0),
            4 => file.pad(),
            5 => flips.push((take(&mut program, 3).iter().fold(0, |at, &byte| at << 8 | usize::from(byte)), count)),
            6 => file.bytes.extend_from_slice(take(&mut program, count)),
            _ => {
                file.finish(take(&mut program, count));
                break;
            }
        }
        if file.bytes.len() as u64 > 8 * BLOCK {
            break;
        }
    }
    let length = file.bytes.len();
    flips.into_iter().for_each(|(at, bit)| file.bytes[at % length] ^= 1 << (bit % 8));
    file.bytes
}
