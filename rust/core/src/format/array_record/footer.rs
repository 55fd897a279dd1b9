//! The footer of an ArrayRecord file: the table of chunks, and the postscript with its offset.

use crate::codec::protobuf::{put_varint, varint, Fields, Malformed, WireValue};
use crate::error::{Error, Result};
use crate::format::riegeli::{CHUNK_HEADER, SIGNATURE};

/// The only version there is.
const VERSION: u64 = 1;
/// What every postscript holds.
const MAGIC: u64 = 0x7193_0e70_4fda_e05e;
/// How often the postscript is written.
const COPIES: usize = 3;

fn broken(what: &str) -> Error {
    Error::corrupt(format!("expected {what}, got something else"))
}

/// The numbers of fields 1 to `N` of a message.
fn numbers<const N: usize>(message: &[u8]) -> Result<[Option<u64>; N]> {
    // Nearly always they stand there in order and nothing else does.
    let (mut found, mut position) = ([None; N], 0);
    for (slot, tag) in found.iter_mut().zip((8u8..).step_by(8)) {
        if message.get(position) != Some(&tag) {
            break;
        }
        position += 1;
        *slot = varint(message, &mut position);
    }
    if position == message.len() && found.iter().all(Option::is_some) {
        return Ok(found);
    }
    let mut found = [None; N];
    for field in Fields::new(message) {
        match field.map_err(|Malformed(what)| Error::corrupt(format!("expected a message, got {what}")))? {
            (number @ 1.., WireValue::Varint(value)) if number as usize <= N => {
                found[number as usize - 1] = Some(value)
            }
            _ => {}
        }
    }
    Ok(found)
}

fn put_numbers(out: &mut Vec<u8>, numbers: &[u64]) {
    for (number, tag) in numbers.iter().zip((8u8..).step_by(8)) {
        out.push(tag);
        put_varint(out, *number);
    }
}

fn put_bytes(out: &mut Vec<u8>, field: u8, bytes: &[u8]) {
    out.push(field << 3 | 2);
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// The last thing in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Postscript {
    /// Where the chunk of the table begins.
    pub footer: u64,
}

impl Postscript {
    pub fn from_bytes(message: &[u8]) -> Result<Postscript> {
        match numbers(message)? {
            [Some(footer), Some(MAGIC)] => Ok(Postscript { footer }),
            _ => Err(broken("a postscript in the last block")),
        }
    }

    /// The records of its chunk.
    pub fn to_records(self) -> Vec<Vec<u8>> {
        let mut out = Vec::new();
        put_numbers(&mut out, &[self.footer, MAGIC]);
        vec![out; COPIES]
    }
}

/// Where the chunks are, and which records are where.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ChunkTable {
    /// Where each chunk begins, and where the table does.
    pub offsets: Vec<u64>,
    /// The bytes of all records before each chunk, and of all there are.
    pub decoded: Vec<u64>,
    /// Records to a chunk; the last one may have fewer.
    pub group: usize,
    /// How many records.
    pub records: usize,
    /// What the writer says about its options.
    pub options: String,
}

impl ChunkTable {
    /// Reads the records of the table's chunk, which begins at `footer`.
    pub fn from_records<'a>(mut records: impl ExactSizeIterator<Item = &'a [u8]>, footer: u64) -> Result<ChunkTable> {
        let chunks = records.len().saturating_sub(1);
        let (metadata, options) = metadata(records.next().unwrap_or_default())?;
        let mut table = ChunkTable {
            offsets: Vec::with_capacity(chunks + 1),
            decoded: Vec::with_capacity(chunks + 1),
            group: 1,
            records: 0,
            options,
        };
        let (mut least, mut decoded) = (SIGNATURE.len() as u64, 0u64);
        for (number, message) in records.enumerate() {
            let refuse = |what: &str| Err(broken(what).in_chunk(number as u64));
            let [Some(offset), size, Some(count)] = numbers(message)? else {
                return refuse("an offset for each chunk");
            };
            if offset < least || offset >= footer {
                return refuse("chunks that follow each other");
            }
            let count = usize::try_from(count).unwrap_or(0);
            if number == 0 {
                table.group = count;
            }
            let last = number + 1 == chunks;
            if count == 0 || count > table.group || (count < table.group && !last) {
                return refuse("as many records in each chunk as in the first, but for the last");
            }
            table.offsets.push(offset);
            table.decoded.push(decoded);
            let total = table.records.checked_add(count).zip(decoded.checked_add(size.unwrap_or(0)));
            let Some((records, bytes)) = total else { return refuse("fewer records") };
            (table.records, decoded) = (records, bytes);
            least = offset + CHUNK_HEADER as u64;
        }
        table.offsets.push(footer);
        table.decoded.push(decoded);
        if metadata != [Some(VERSION), Some(chunks as u64), Some(table.records as u64)] || least > footer {
            return Err(broken("a table of as many chunks and records as it says"));
        }
        Ok(table)
    }

    /// The records of the table's chunk, one after the other, and where each ends.
    pub fn to_records(&self) -> (Vec<u8>, Vec<usize>) {
        let (mut inner, mut out) = (Vec::new(), Vec::new());
        let chunks = self.offsets.len() - 1;
        put_numbers(&mut inner, &[VERSION, chunks as u64, self.records as u64]);
        put_bytes(&mut inner, 4, self.options.as_bytes());
        put_bytes(&mut out, 1, &inner);
        let mut ends = Vec::with_capacity(chunks + 1);
        ends.push(out.len());
        for (number, &offset) in self.offsets[..chunks].iter().enumerate() {
            let count = (self.records - number * self.group).min(self.group);
            put_numbers(&mut out, &[offset, self.decoded[number + 1] - self.decoded[number], count as u64]);
            ends.push(out.len());
        }
        (out, ends)
    }
}

/// Version, chunks and records, and the writer's options.
fn metadata(message: &[u8]) -> Result<([Option<u64>; 3], String)> {
    let array_record = Fields::new(message).find_map(|field| match field {
        Ok((1, WireValue::Bytes(inner))) => Some(inner),
        _ => None,
    });
    let inner = array_record.ok_or_else(|| broken("the table of an ArrayRecord file"))?;
    let options = Fields::new(inner).find_map(|field| match field {
        Ok((4, WireValue::Bytes(options))) => Some(String::from_utf8_lossy(options).into_owned()),
        _ => None,
    });
    // Numbers that are zero may be left out.
    let [version, chunks, records] = numbers(inner)?;
    Ok(([version, Some(chunks.unwrap_or(0)), Some(records.unwrap_or(0))], options.unwrap_or_default()))
}

/// Whether the records of a chunk are the table of a file, or its postscript: no records of the user.
pub(super) fn is_ours<'a>(mut records: impl ExactSizeIterator<Item = &'a [u8]>) -> bool {
    let count = records.len();
    let Some(first) = records.next() else { return false };
    match metadata(first) {
        Ok((numbers, _)) => numbers[0] == Some(VERSION) && numbers[1] == Some(count as u64 - 1),
        Err(_) => count == COPIES && Postscript::from_bytes(first).is_ok() && records.all(|record| record == first),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(chunks: u64, group: usize, records: usize) -> ChunkTable {
        ChunkTable {
            offsets: (0..=chunks).map(|chunk| 64 + 100 * chunk).collect(),
            decoded: (0..=chunks).map(|chunk| 7 * chunk).collect(),
            group,
            records,
            options: "group_size:1,uncompressed".into(),
        }
    }

    fn records(table: &ChunkTable) -> Vec<Vec<u8>> {
        let (bytes, ends) = table.to_records();
        let starts = std::iter::once(0).chain(ends.iter().copied());
        starts.zip(&ends).map(|(start, &end)| bytes[start..end].to_vec()).collect()
    }

    fn read(records: &[Vec<u8>], footer: u64) -> Result<ChunkTable> {
        ChunkTable::from_records(records.iter().map(Vec::as_slice), footer)
    }

    #[test]
    fn tables_come_back() {
        for table in [table(0, 1, 0), table(1, 1, 1), table(5, 1, 5), table(5, 100, 401), table(5, 100, 500)] {
            let records = records(&table);
            assert_eq!(read(&records, *table.offsets.last().unwrap()).unwrap(), table);
            assert!(is_ours(records.iter().map(Vec::as_slice)));
        }
    }

    #[test]
    fn tables_that_make_no_sense_are_refused() {
        let good = records(&table(4, 2, 7));
        assert!(read(&good, 464).is_ok());
        for footer in [0, 64, 364, 390] {
            assert!(read(&good, footer).is_err(), "{footer}");
        }
        for number in 0..good.len() {
            let mut fewer = good.clone();
            fewer.remove(number);
            assert!(read(&fewer, 464).is_err(), "without {number}");
            for at in 0..good[number].len() {
                let mut bad = good.clone();
                bad[number][at] ^= 0x40;
                let _ = read(&bad, 464);
                bad[number].truncate(at);
                assert!(number == 0 || read(&bad, 464).is_err(), "{number} cut at {at}");
            }
        }
        let huge = records(&ChunkTable { decoded: vec![0, u64::MAX, u64::MAX], ..table(2, 1, 2) });
        assert!(read(&huge, 264).is_ok());
        let mut message = Vec::new();
        put_numbers(&mut message, &[164, 1, 1]);
        assert!(read(&[huge[0].clone(), huge[1].clone(), message], 264).is_err(), "sizes that overflow");
    }

    #[test]
    fn fields_may_stand_in_any_order() {
        assert_eq!(numbers::<3>(&[0x18, 3, 0x22, 1, 9, 0x08, 1]).unwrap(), [Some(1), None, Some(3)]);
        assert_eq!(numbers::<2>(&[0x08, 1, 0x10, 2, 0x08, 5]).unwrap(), [Some(5), Some(2)]);
        assert!(numbers::<2>(&[0x08, 0x80]).is_err());
    }

    #[test]
    fn postscripts_come_back() {
        let records = Postscript { footer: 1 << 40 }.to_records();
        assert_eq!(Postscript::from_bytes(&records[2]).unwrap(), Postscript { footer: 1 << 40 });
        assert!(is_ours(records.iter().map(Vec::as_slice)));
        assert!(!is_ours(records[..2].iter().map(Vec::as_slice)));
        assert!(Postscript::from_bytes(b"").is_err());
    }
}
