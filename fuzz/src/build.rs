//! Programs that build messages and shards. A program is bytes: the low three bits of each say what comes next, the
//! others how much of it. Every sequence of bytes is a program.

use std::io::Read;

use penstock_core::codec::protobuf::put_varint;
use penstock_core::crc32c;
use penstock_core::format::frame;

/// Takes the next `count` bytes of a program, or as many as there are.
pub fn take<'p>(program: &mut &'p [u8], count: usize) -> &'p [u8] {
    let (taken, rest) = program.split_at(program.len().min(count));
    *program = rest;
    taken
}

const TAGS: [u8; 4] = [0x0a, 0x12, 0x1a, 0x22];
const KEYS: [&[u8]; 10] = [b"a", b"b", b"c", b"d", b"e", b"f", b"g", b"h", b"", b"\xff"];
const NOISE: [&[u8]; 8] = [
    &[0x20, 0x01],
    &[0x2b, 0x08, 0x01, 0x2c],
    &[0x0d, 0x00, 0x00, 0x80, 0x3f],
    &[0x08, 0x05],
    &[0x31, 1, 2, 3, 4, 5, 6, 7, 8],
    &[0x8a, 0x00, 0x01, 0x07],
    &[0x0b, 0x0c],
    &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01],
];

/// Protobuf messages whose lengths fit, however deep they nest.
pub fn message(mut program: &[u8]) -> Vec<u8> {
    let mut open: Vec<(u8, Vec<u8>)> = Vec::new();
    let mut body = Vec::new();
    let close = |open: &mut Vec<(u8, Vec<u8>)>, body: &mut Vec<u8>| {
        if let Some((tag, mut outer)) = open.pop() {
            outer.push(tag);
            put_varint(&mut outer, body.len() as u64);
            outer.append(body);
            *body = outer;
        }
    };
    while let [step, rest @ ..] = program {
        program = rest;
        let (kind, count) = (step & 7, usize::from(step >> 3));
        match kind {
            // A message within this one, to the step that closes it.
            0 | 1 => open.push((TAGS[count % TAGS.len()], std::mem::take(&mut body))),
            2 => (0..=count % 4).for_each(|_| close(&mut open, &mut body)),
            // A key, as an entry has it.
            3 => {
                let key = KEYS[count % KEYS.len()];
                body.push(0x0a);
                put_varint(&mut body, key.len() as u64);
                body.extend_from_slice(key);
            }
            // Packed integers, short ones and long ones.
            4 => take(&mut program, count).iter().for_each(|&byte| {
                put_varint(&mut body, (i64::from(byte as i8) << (byte as u32 % 8 * 8)) as u64);
            }),
            5 => body.extend_from_slice(take(&mut program, count)),
            6 => body.extend_from_slice(NOISE[count % NOISE.len()]),
            // A zlib stream as a byte string.
            _ => {
                let stream = match count {
                    28.. => zeros(1 << (18 + count % 4), false),
                    _ => wrap(take(&mut program, count), false),
                };
                body.push(0x0a);
                put_varint(&mut body, stream.len() as u64);
                body.extend_from_slice(&stream);
            }
        }
    }
    while !open.is_empty() {
        close(&mut open, &mut body);
    }
    body
}

/// A plan's numbers, and records built by the rest of the program: a byte of 0xfe begins the next one.
pub fn records(program: &[u8], plans: usize) -> Vec<u8> {
    let (numbers, program) = program.split_at(program.len().min(plans));
    let mut out = numbers.to_vec();
    out.resize(plans, 0);
    for part in program.split(|&byte| byte == 0xfe) {
        let record = message(part);
        let length = record.len().min(usize::from(u16::MAX));
        out.extend_from_slice(&(length as u16).to_le_bytes());
        out.extend_from_slice(&record[..length]);
    }
    out
}

/// A gzip member or a zlib stream whose one block is stored as it is: a compressor would take most of the time.
fn wrap(bytes: &[u8], gzip: bool) -> Vec<u8> {
    let length = bytes.len().min(usize::from(u16::MAX));
    let bytes = &bytes[..length];
    let mut out = if gzip { vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff] } else { vec![0x78, 0x01] };
    out.push(1);
    out.extend_from_slice(&(length as u16).to_le_bytes());
    out.extend_from_slice(&(!(length as u16)).to_le_bytes());
    out.extend_from_slice(bytes);
    if gzip {
        let mut crc = flate2::Crc::new();
        crc.update(bytes);
        out.extend_from_slice(&crc.sum().to_le_bytes());
        out.extend_from_slice(&(length as u32).to_le_bytes());
    } else {
        let sums = bytes.iter().fold((1u32, 0u32), |(a, b), &byte| {
            let a = (a + u32::from(byte)) % 65521;
            (a, (b + a) % 65521)
        });
        out.extend_from_slice(&(sums.1 << 16 | sums.0).to_be_bytes());
    }
    out
}

/// Many zeros in a few bytes.
fn zeros(count: usize, gzip: bool) -> Vec<u8> {
    compressed(&vec![0; count], gzip)
}

fn compressed(bytes: &[u8], gzip: bool) -> Vec<u8> {
    let (mut out, level) = (Vec::new(), flate2::Compression::fast());
    let read = match gzip {
        true => flate2::read::GzEncoder::new(bytes, level).read_to_end(&mut out),
        false => flate2::read::ZlibEncoder::new(bytes, level).read_to_end(&mut out),
    };
    read.expect("memory for it");
    out
}

/// A shard out of whole frames, broken ones, bytes between them, and compressed members.
pub fn shard(mut program: &[u8]) -> Vec<u8> {
    let (mut wrapped, mut plain, mut members) = (Vec::new(), Vec::new(), 0);
    while let [step, rest @ ..] = program {
        program = rest;
        let (kind, count) = (step & 7, usize::from(step >> 3));
        match kind {
            0 => frame::append(&mut plain, take(&mut program, count)),
            1 => frame::append(&mut plain, &vec![*step; count * 29]),
            2 => {
                frame::append(&mut plain, take(&mut program, count));
                let last = plain.len() - 1 - count % 4;
                plain[last] ^= *step;
            }
            // A header that holds, and nothing behind it.
            3 => {
                let mut length = [0; 8];
                let given = take(&mut program, count % 9);
                length[..given.len()].copy_from_slice(given);
                plain.extend_from_slice(&length);
                plain.extend_from_slice(&crc32c::masked(&length).to_le_bytes());
            }
            4 => plain.extend_from_slice(take(&mut program, count)),
            5 => plain.truncate(plain.len() - plain.len().min(count)),
            // A frame that is small on disk and large in memory.
            6 if members < 4 && count >= 28 => {
                members += 1;
                frame::append(&mut plain, &vec![0; 1 << (11 + count % 4)]);
                wrapped.extend(compressed(&std::mem::take(&mut plain), count % 2 == 0));
            }
            6 if members < 4 => {
                members += 1;
                wrapped.extend(wrap(&std::mem::take(&mut plain), count % 2 == 0));
            }
            _ => {
                let bytes = if plain.is_empty() { &mut wrapped } else { &mut plain };
                let at = take(&mut program, 2).iter().fold(0, |at, &byte| at << 8 | usize::from(byte));
                let length = bytes.len();
                if length > 0 {
                    bytes[at % length] ^= 1 << (count % 8);
                }
            }
        }
    }
    wrapped.append(&mut plain);
    wrapped
}
