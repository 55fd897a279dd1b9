use super::*;
use std::collections::BTreeMap;

use crate::example::walk::{parse, Feature};
use crate::format::container::{Container, ReadBuffer};
use crate::format::gather::read_many;
use crate::format::shard::Shard;

/// A member as an old, plain header has it.
fn member(name: &[u8], kind: u8, data: &[u8]) -> Vec<u8> {
    let mut out = header(name, kind, &format!("{:011o}\0", data.len()).into_bytes());
    out.extend_from_slice(data);
    out.resize(out.len().div_ceil(BLOCK) * BLOCK, 0);
    out
}

fn header(name: &[u8], kind: u8, size: &[u8]) -> Vec<u8> {
    let mut block = vec![0; BLOCK];
    block[..name.len()].copy_from_slice(name);
    block[124..124 + size.len()].copy_from_slice(size);
    block[156] = kind;
    block[257..265].copy_from_slice(b"ustar\x0000");
    sum(&mut block);
    block
}

fn sum(block: &mut [u8]) {
    block[148..156].copy_from_slice(b"        ");
    let sum: u32 = block.iter().map(|&byte| u32::from(byte)).sum();
    block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
}

fn archive(members: &[Vec<u8>]) -> Vec<u8> {
    [members.concat(), vec![0; 2 * BLOCK]].concat()
}

fn file(name: &str, data: &[u8]) -> Vec<u8> {
    member(name.as_bytes(), b'0', data)
}

type Samples = Vec<BTreeMap<String, Vec<u8>>>;

/// Every sample of an archive as it is opened, or the first error.
fn read(name: &str, bytes: &[u8]) -> Result<Samples> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    std::fs::write(&path, bytes).unwrap();
    let opened = Shard::open(&path, Sidecar::Ignore, None, &mut |_| Ok(()))?;
    assert_eq!(opened.format().0, "tar");
    let mut buffer = ReadBuffer::default();
    (0..opened.len()).map(|record| opened.read(record, &mut buffer).map(values)).collect()
}

fn values(record: &[u8]) -> BTreeMap<String, Vec<u8>> {
    let value = |(key, feature): (&str, Feature<'_>)| {
        let bytes = match &feature {
            Feature::Bytes(values) => values.iter().next().unwrap().to_vec(),
            other => format!("{other:?}").into_bytes(),
        };
        (key.to_owned(), bytes)
    };
    parse(record).unwrap().into_iter().map(value).collect()
}

fn sample(key: &str, files: &[(&str, &[u8])]) -> BTreeMap<String, Vec<u8>> {
    let named = [(KEY, key.as_bytes())].into_iter().chain(files.iter().copied());
    named.map(|(name, data)| (name.to_owned(), data.to_vec())).collect()
}

fn refused(bytes: &[u8]) -> String {
    read("a.tar", bytes).unwrap_err().to_string()
}

#[test]
fn files_of_one_key_are_a_sample() {
    let bytes = archive(&[
        member(b"d/", b'5', b""),
        file("d/a.jpg", b"A"),
        file("d/a.Seg.PNG", &[7; 600]),
        file("d/.hidden.jpg", b"-"),
        file("README", b"-"),
        member(b"d/link.jpg", b'2', b""),
        file("d/b.jpg", b""),
        file("__meta__/x.json", b"-"),
        file("a.b/c.txt", b"C"),
    ]);
    let expected = vec![
        sample("d/a", &[("jpg", b"A"), ("seg.png", &[7; 600])]),
        sample("d/b", &[("jpg", b"")]),
        sample("a.b/c", &[("txt", b"C")]),
    ];
    assert_eq!(read("a.tar", &bytes).unwrap(), expected);
    assert_eq!(read("called otherwise", &bytes).unwrap(), expected);
    assert_eq!(read("a.tar", &archive(&[])).unwrap(), Samples::new());
}

#[test]
fn compressed_archives_are_told_by_their_content() {
    use std::io::Write;
    let bytes = archive(&[file("a.txt", b"A"), file("b.txt", &[b'B'; 2000])]);
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(&bytes).unwrap();
    let gzip = gzip.finish().unwrap();
    let zstd = zstd::bulk::compress(&bytes, 3).unwrap();
    let mut bzip2 = bzip2::write::BzEncoder::new(Vec::new(), bzip2::Compression::best());
    bzip2.write_all(&bytes).unwrap();
    let bzip2 = bzip2.finish().unwrap();
    let mut xz = lzma_rust2::XzWriter::new(Vec::new(), lzma_rust2::XzOptions::with_preset(1)).unwrap();
    xz.write_all(&bytes).unwrap();
    let xz = xz.finish().unwrap();
    let expected = vec![sample("a", &[("txt", b"A")]), sample("b", &[("txt", &[b'B'; 2000])])];
    for packed in [&gzip, &zstd, &bzip2, &xz] {
        for name in ["a.tar", "a.tar.gz", "anything"] {
            assert_eq!(read(name, packed).unwrap(), expected);
        }
        for length in 0..packed.len() {
            let error = read("a.tgz", &packed[..length]).unwrap_err();
            assert!(error.kind().is_corrupt(), "{length}: {error}");
        }
        let mut broken = packed.clone();
        let middle = broken.len() / 2;
        broken[middle] ^= 0x55;
        assert!(read("a.tar.zst", &broken).unwrap_err().kind().is_corrupt());
    }
    // A name may begin as compressed bytes do.
    assert_eq!(read("a.tar", &archive(&[file("x^.txt", b"A")])).unwrap(), vec![sample("x^", &[("txt", b"A")])]);
}

#[test]
fn salvage_of_compressed_archives_gives_what_comes_before_their_end() {
    use std::io::Write;
    let noise =
        |seed: u32| (0..40_000u32).map(|n| (n.wrapping_mul(2_654_435_761 ^ seed) >> 13) as u8).collect::<Vec<_>>();
    let members = (0..9).map(|n| file(&format!("{n}.bin"), &noise(n))).collect::<Vec<_>>();
    let bytes = archive(&members);
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(&bytes).unwrap();
    let (folder, mut kept) = (tempfile::tempdir().unwrap(), Vec::new());
    for packed in [gzip.finish().unwrap(), zstd::bulk::compress(&bytes, 1).unwrap()] {
        let path = folder.path().join("a.tar.gz");
        std::fs::write(&path, &packed[..packed.len() * 2 / 3]).unwrap();
        let mut records = 0;
        let mut keep = |_: u64, _: &[u8]| {
            records += 1;
            Ok(())
        };
        let report = salvage(&RandomAccessFile::open(&path).unwrap(), &mut keep, &mut |_| Ok(())).unwrap();
        assert_eq!((report.records, report.gaps.len()), (records, 1));
        kept.push(records);
    }
    assert!(kept.iter().all(|count| (3..9).contains(count)), "{kept:?}");
}

#[test]
fn long_names_of_both_kinds() {
    let long = format!("{}/a.txt", "d".repeat(300));
    let pax = |line: &str| {
        let length = line.len() + 5; // three digits, a space and a newline
        format!("{length} {line}\n").into_bytes()
    };
    let key = long.strip_suffix(".txt").unwrap();
    let gnu = archive(&[member(b"././@LongLink", b'L', &[long.as_bytes(), b"\0"].concat()), file("short.txt", b"A")]);
    let posix = archive(&[
        member(b"pax_global_header", b'g', b"13 comment=x\n"),
        member(b"x", b'x', &pax(&format!("path={long}"))),
        file("short.txt", b"A"),
    ]);
    for bytes in [gnu, posix] {
        assert_eq!(read("a.tar", &bytes).unwrap(), vec![sample(key, &[("txt", b"A")])]);
    }
    let mut prefixed = file("a.txt", b"A");
    prefixed[345..349].copy_from_slice(b"deep");
    sum(&mut prefixed[..BLOCK]);
    assert_eq!(read("a.tar", &archive(&[prefixed])).unwrap(), vec![sample("deep/a", &[("txt", b"A")])]);
}

#[test]
fn every_truncation_is_reported() {
    let whole = archive(&[file("a.txt", b"A"), file("a.cls", b"1"), file("b.txt", &[b'B'; 700])]);
    for length in 0..whole.len() - 2 * BLOCK + 1 {
        let error = read("a.tar", &whole[..length]).unwrap_err();
        assert!(error.kind().is_corrupt() && error.to_string().contains("truncated"), "{length}: {error}");
    }
    assert!(refused(&whole[..3 * BLOCK]).contains("\"a.cls\""), "{}", refused(&whole[..3 * BLOCK]));
}

#[test]
fn what_is_wrong_has_its_member_and_its_offset() {
    let first = file("a.txt", b"A");
    let after = |bytes: Vec<u8>| refused(&archive(&[first.clone(), bytes]));
    let mut broken = file("b.txt", b"B");
    broken[3] ^= 1;
    let cases = [
        (after(broken), "expected a member's header whose checksum is"),
        (after(header(b"b.txt", b'0', b"77777777777\0")), "expected the 8589934591 bytes of \"b.txt\""),
        (after(header(b"b.txt", b'0', &[0x80, 0, 0, 0, 0x7f, 1, 1, 1, 1, 1, 1, 1])), "bytes of \"b.txt\""),
        (after(header(b"b.txt", b'0', &[0xff; 12])), "expected the size of \"b.txt\" as a number"),
        (after(file("a.txt", b"B")), "expected one file of each extension in a sample, got another one: \"a.txt\""),
        (after(file("a.__key__", b"B")), "another one: \"a.__key__\""),
        (after(file("/etc/b.txt", b"B")), "expected a name within the archive, got \"/etc/b.txt\""),
        (after(file("c/../../b.txt", b"B")), "expected a name within the archive, got \"c/../../b.txt\""),
        (after(member(b"\xff.txt", b'0', b"")), "expected a member's name in UTF-8"),
        (after(member(b"s.txt", b'S', b"")), "the sparse file \"s.txt\""),
        (after(member(b"x", b'x', b"22 GNU.sparse.major=1\n")), "expected a member after its long name"),
        (after(member(b"x", b'x', b"99 path=b\n")), "expected lines of length, key and value"),
        (after(member(b"x", b'g', b"11 path=bc\n")), "got one for all of them"),
    ];
    for (error, expected) in cases {
        assert!(error.contains(expected), "{error}");
        let offset = if expected.contains("after its long") { 2048 } else { 1024 };
        assert!(error.contains(&format!("a.tar, offset {offset}")), "{error}");
    }
    let twice = refused(&archive(&[first.clone(), file("b.txt", b"B"), file("a.txt", b"1")]));
    assert!(twice.contains("another one: \"a.txt\" - at") && twice.contains("offset 2048, record 0"), "{twice}");
}

#[test]
fn scattered_files_are_grouped_by_key() {
    let members = [
        member(b"d/", b'5', b""),
        file("d/b.txt", b"B"),
        file("d/a.txt", b"A"),
        file("d/._a.txt", b"-"),
        file("d/a.cls", b"1"),
        file("d/b.cls", &[b'2'; 700]),
        file("d/a.bin", b""),
    ];
    let expected = vec![
        sample("d/b", &[("txt", b"B"), ("cls", &[b'2'; 700])]),
        sample("d/a", &[("txt", b"A"), ("cls", b"1"), ("bin", b"")]),
    ];
    let whole = archive(&members);
    assert_eq!(read("a.tar", &whole).unwrap(), expected);
    for length in 0..whole.len() - 2 * BLOCK + 1 {
        let error = read("a.tar", &whole[..length]).unwrap_err();
        assert!(error.kind().is_corrupt() && error.to_string().contains("truncated"), "{length}: {error}");
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.tar");
    std::fs::write(&path, &whole).unwrap();
    let open = |sidecar| TarShard::open(&path, sidecar, None, &mut |_| Ok(()));
    let shard = open(Sidecar::Ignore).unwrap();
    let index = shard.index(&mut |_| Ok(())).unwrap();
    assert_eq!(Index::from_bytes(&index.to_bytes()).unwrap(), index);
    assert!(shard.is_scattered() && !index.segments.is_empty());
    let again = open(Sidecar::Use(index.clone())).unwrap();
    let many = read_many(&again, &[1, 0, 1]).unwrap();
    let found: Vec<_> = many.iter().map(values).collect();
    assert_eq!(found, [expected[1].clone(), expected[0].clone(), expected[1].clone()]);
    let first = first_records(&RandomAccessFile::open(&path).unwrap(), 1, 1 << 20, &mut |_| Ok(())).unwrap();
    assert_eq!(first.iter().map(values).collect::<Vec<_>>(), expected[..1]);
    // An index of frames, or of contiguous samples, is none of scattered ones, and the other way round.
    let other = Index { segments: Vec::new(), offsets: vec![0, 1024, whole.len() as u64], ..index.clone() };
    assert_eq!(open(Sidecar::Use(other)).unwrap_err().kind(), Kind::Sidecar);
    let wrong = TarRules([("cls".to_owned(), FileContent::Float)].into());
    std::fs::write(&path, archive(&[&members[..5], &[file("d/b.cls", b"no")]].concat())).unwrap();
    let shard = TarShard::open(&path, Sidecar::Ignore, Some(Arc::new(wrong)), &mut |_| Ok(())).unwrap();
    let error = shard.read(0, &mut ReadBuffer::default()).unwrap_err();
    assert_eq!((error.offset(), error.record(), error.field()), (Some(4608), Some(0), Some("cls")), "{error}");
}

#[test]
fn salvage_of_scattered_samples_keeps_those_that_have_all_files() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.tar");
    let of = |extension: &'static str| (0..6).map(move |n| file(&format!("{n}.{extension}"), &[n; 600]));
    let whole = archive(&of("txt").chain(of("cls")).collect::<Vec<_>>());
    for (length, expected, gaps) in [(whole.len(), 6, 0), (9 * 1536 + 700, 3, 4), (6 * 1536 + 10, 5, 1)] {
        std::fs::write(&path, &whole[..length]).unwrap();
        let mut kept = Vec::new();
        let mut keep = |_, record: &[u8]| {
            kept.push(values(record));
            Ok(())
        };
        let report = salvage(&RandomAccessFile::open(&path).unwrap(), &mut keep, &mut |_| Ok(())).unwrap();
        assert_eq!((report.records, report.gaps.len()), (expected, gaps), "{report:?}");
        assert_eq!(kept.len() as u64, expected);
        assert!(expected == 5 || kept.iter().all(|sample| sample.len() == 3), "{kept:?}");
    }
}

#[test]
fn rules_say_what_files_are() {
    let head = b"{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }\n";
    let array = [b"\x93NUMPY\x01\x00", &(head.len() as u16).to_le_bytes()[..], head, &[9; 24]].concat();
    let bytes =
        archive(&[file("a.npy", &array), file("a.cls", b" -3\n"), file("a.score", b"0.5"), file("a.bin", b"-")]);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.tar");
    std::fs::write(&path, bytes).unwrap();
    let read = |rules: &[(&str, FileContent)]| {
        let rules = rules.iter().map(|(name, content)| ((*name).to_owned(), content.clone())).collect();
        let shard = TarShard::open(&path, Sidecar::Ignore, Some(Arc::new(TarRules(rules))), &mut |_| Ok(()))?;
        let record = shard.read(0, &mut ReadBuffer::default()).map(values);
        assert_eq!(read_many(&shard, &[0]).is_ok(), record.is_ok());
        record
    };
    let shape = |sizes: &[Option<u64>]| FileContent::Array("<f4".into(), sizes.to_vec());
    let numbers = read(&[("cls", FileContent::Int), ("score", FileContent::Float)]).unwrap();
    assert_eq!(numbers.keys().collect::<Vec<_>>(), ["cls", "score"]);
    assert!(String::from_utf8_lossy(&numbers["cls"]).contains("-3"), "{numbers:?}");
    let number = read(&[("bin", FileContent::Int)]).unwrap_err().to_string();
    assert!(
        number.contains("expected a whole number in \"a.bin\", got \"-\"") && number.contains("offset 3072"),
        "{number}"
    );
    assert_eq!(read(&[("cls", FileContent::Bytes)]).unwrap()["cls"], b" -3\n");
    assert_eq!(read(&[("npy", shape(&[Some(2), None]))]).unwrap()["npy"], [9; 24]);
    let shaped = read(&[("npy", shape(&[None, None]))]).unwrap();
    assert_eq!(shaped.keys().collect::<Vec<_>>(), ["npy/shape", "npy/value"]);
    for wrong in [shape(&[Some(3), Some(2)]), shape(&[Some(6)]), FileContent::Array("<i4".into(), vec![None, None])] {
        let error = read(&[("npy", wrong)]).unwrap_err();
        assert_eq!((error.kind(), error.field()), (Kind::Schema, Some("npy")), "{error}");
    }
    assert!(read(&[("bin", shape(&[None]))]).unwrap_err().to_string().contains("an array in NumPy's format"));
}

#[test]
fn an_index_stands_for_a_scan_as_long_as_it_fits() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.tar");
    let members: Vec<Vec<u8>> = (0..50).map(|i| file(&format!("{i}.txt"), &vec![b'a'; i * 40])).collect();
    std::fs::write(&path, archive(&members)).unwrap();
    let open = |sidecar| TarShard::open(&path, sidecar, None, &mut |_| Ok(()));
    let index = open(Sidecar::Ignore).unwrap().index(&mut |_| Ok(())).unwrap();
    assert_eq!(Index::from_bytes(&index.to_bytes()).unwrap(), index);
    assert_eq!(open(Sidecar::Use(index.clone())).unwrap().len(), 50);
    std::fs::write(&path, archive(&members[..49])).unwrap();
    assert_eq!(open(Sidecar::Use(index.clone())).unwrap_err().kind(), Kind::Sidecar);
    assert_eq!(open(Sidecar::Try(index)).unwrap().len(), 49);
}

#[test]
fn salvage_gives_what_comes_before_the_damage() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.tar");
    let members: Vec<Vec<u8>> = (0..9).map(|i| file(&format!("{i}.txt"), &[i; 900])).collect();
    let mut bytes = archive(&members);
    for (damage, whole) in [(None, 9), (Some(3 * 1536 + 200), 2), (Some(10), 0)] {
        if let Some(at) = damage {
            bytes[at] ^= 0x40;
        }
        std::fs::write(&path, &bytes).unwrap();
        let mut kept = 0;
        let mut keep = |_, _: &[u8]| {
            kept += 1;
            Ok(())
        };
        let report = salvage(&RandomAccessFile::open(&path).unwrap(), &mut keep, &mut |_| Ok(())).unwrap();
        assert_eq!((report.records, kept, report.gaps.len()), (whole, whole, usize::from(damage.is_some())));
    }
}

#[test]
fn salvage_reports_a_wrong_checksum_beside_other_damage() {
    use std::io::Write;
    let mut bytes = archive(&[file("a.txt", b"A"), file("b.txt", b"B"), file("c.txt", b"C")]);
    bytes[2048 + 10] ^= 0x40;
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(&bytes).unwrap();
    let mut gzip = gzip.finish().unwrap();
    let sum = gzip.len() - 8;
    gzip[sum] ^= 1;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.tar.gz");
    std::fs::write(&path, &gzip).unwrap();
    let report = salvage(&RandomAccessFile::open(&path).unwrap(), &mut |_, _| Ok(()), &mut |_| Ok(())).unwrap();
    assert_eq!((report.records, report.gaps.len()), (0, 1));
    assert!(report.gaps[0].reason.contains("checksum"), "{}", report.gaps[0].reason);
}
