//! Any records: the quick walk and the whole parser agree, and what is decoded comes back when it is encoded.
#![no_main]

use libfuzzer_sys::fuzz_target;
use penstock_core::codec::protobuf;
use penstock_core::example::columns::{Column, ColumnBuffer};
use penstock_core::example::encode::{EncodeBatch, Input};
use penstock_core::example::plan::{Encoding, Plan};
use penstock_core::example::walk::{parse, walk};
use penstock_fuzz::columns::{input, rows};
use penstock_fuzz::naive::{self, Row};
use penstock_fuzz::{build, is_too_large, open, plans, records};

/// The rows of a column by the whole parser; a record it refuses may still be read if it is broken where nobody looks.
fn expected(plan: &Plan, column: usize, records: &[&[u8]]) -> Option<Vec<Row>> {
    let spec = &plan.specs()[column];
    let row = |record: &&[u8]| match parse(record) {
        Ok(features) => naive::row(spec, features.get(spec.key.as_str())),
        Err(_) => naive::row(spec, Some(&naive::feature_of_usual(record, &spec.key)?)),
    };
    records.iter().map(row).collect()
}

fn decode(plan: &Plan, records: &[&[u8]]) -> Option<Vec<Column>> {
    let walked = match walk(plan, records.iter().copied()) {
        Ok(walked) => walked,
        Err(error) => {
            let record = error.record().expect("the record's number") as usize;
            assert!(parse(records[record]).is_err(), "refused what the whole parser takes: {error}");
            return None;
        }
    };
    assert_eq!(walked.rows(), records.len());
    let mut columns = Vec::new();
    for (number, spec) in plan.specs().iter().enumerate() {
        let expected = expected(plan, number, records);
        // Another library inflates for the naive decoder, and it is a little stricter about odd streams.
        let zlib = spec.encoding == Encoding::Zlib;
        let filled = walked.fixed_bytes(number).map(|bytes| {
            let mut buffer = ColumnBuffer::numbers(bytes).expect("memory for rows that are there");
            walked.fill(number, buffer.bytes_mut()).map(|()| buffer)
        });
        match (walked.column(number), expected) {
            (Ok(column), Some(expected)) => {
                assert_eq!(rows(spec, &column, records.len()), expected);
                if let Some(filled) = filled {
                    assert_eq!(filled.expect("what was decoded into memory of its own"), column.values);
                }
                assert_eq!(in_two_pieces(plan, number, records).expect("what was decoded at once"), column);
                columns.push(column);
            }
            (Ok(_), None) => assert!(zlib, "took what the naive decoder refuses"),
            (Err(error), Some(_)) if is_too_large(&error) => {
                assert!(filled.is_none_or(|filled| filled.is_err()));
            }
            (Err(error), Some(_)) => panic!("refused what the naive decoder takes: {error}"),
            (Err(error), None) => {
                assert!(filled.is_none_or(|filled| filled == Err(error.clone())));
                assert_eq!(error.field(), Some(spec.key.as_str()));
                assert!(error.record().is_some_and(|record| record < records.len() as u64));
            }
        }
    }
    (columns.len() == plan.specs().len()).then_some(columns)
}

/// A column decoded in two pieces, the second behind the first.
fn in_two_pieces(plan: &Plan, number: usize, records: &[&[u8]]) -> penstock_core::Result<Column> {
    let (first, second) = records.split_at(records.len() / 2);
    let mut column = Column::empty(&plan.specs()[number]);
    for piece in [first, second] {
        walk(plan, piece.iter().copied())?.append(number, &mut column)?;
    }
    Ok(column)
}

/// Any bytes as packed varints: read many at a time as they are read one at a time.
fn check_varints(packed: &[u8]) {
    let (mut expected, mut value, mut length) = (Vec::new(), 0u64, 0);
    let mut whole = true;
    for &byte in packed {
        value |= u64::from(byte & 0x7f).checked_shl(7 * length).unwrap_or(0);
        length += 1;
        whole &= length <= 10;
        if byte < 0x80 {
            expected.push(value);
            (value, length) = (0, 0);
        }
    }
    whole &= length == 0;
    assert_eq!(protobuf::count_varints(packed), expected.len());
    let mut read = Vec::new();
    assert_eq!(protobuf::each_varint(packed, |value| read.push(value)), whole);
    for room in [expected.len(), expected.len() + 1, expected.len().saturating_sub(1)] {
        let mut out = vec![0u64; room];
        assert_eq!(protobuf::read_varints(packed, &mut out, |value| (value, true)), whole && room == expected.len());
        if whole && room == expected.len() {
            assert_eq!((&read, &out), (&expected, &expected));
        }
    }
    let limit = expected.first().copied().unwrap_or(0);
    let mut out = vec![0u64; expected.len()];
    let below = protobuf::read_varints(packed, &mut out, |value| (value, value <= limit));
    assert_eq!(below, whole && expected.iter().all(|&value| value <= limit));
}

fn check(bytes: &[u8]) {
    check_varints(bytes);
    let [number, rest @ ..] = bytes else { return };
    let plan = plans::plan(*number);
    let records = records(rest);
    let Some(columns) = decode(&plan, &records) else { return };
    let inputs: Vec<Input<'_>> = columns.iter().map(input).collect();
    let batch = EncodeBatch::new(&plan, &inputs, records.len()).expect("what was decoded can be encoded");
    let frames = batch.encode(0..records.len(), Vec::new()).expect("what was decoded can be encoded");
    let again: Vec<&[u8]> = frames.iter().collect();
    assert_eq!(decode(&plan, &again).as_ref(), Some(&columns));
}

fuzz_target!(|input: &[u8]| check(&open(input, |program| build::records(program, 1))));
