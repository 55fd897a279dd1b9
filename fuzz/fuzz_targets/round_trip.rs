//! Any columns that fit a plan: what is encoded can be parsed, decoded, and is what it was.
#![no_main]

use half::f16;
use libfuzzer_sys::arbitrary::{Result, Unstructured};
use libfuzzer_sys::fuzz_target;
use penstock_core::example::encode::{EncodeBatch, Input, Values};
use penstock_core::example::plan::{Dtype, Encoding, Missing, Plan, Spec};
use penstock_core::example::sequence::{self, ListInput};
use penstock_core::example::walk::{parse, walk};
use penstock_core::format::frame::Frames;
use penstock_fuzz::columns::rows;
use penstock_fuzz::naive::{self, Row};

const DTYPES: [Dtype; 14] = [
    Dtype::Bool,
    Dtype::Int8,
    Dtype::Int16,
    Dtype::Int32,
    Dtype::Int64,
    Dtype::Uint8,
    Dtype::Uint16,
    Dtype::Uint32,
    Dtype::Uint64,
    Dtype::Float16,
    Dtype::Float32,
    Dtype::Float64,
    Dtype::Bfloat16,
    Dtype::Bytes,
];
const KEYS: [&str; 5] = ["b", "", "a", "label/\u{e9}", "a key of more than a hundred and twenty-seven bytes, so that its length takes two bytes on the wire, which is seldom seen but allowed"];

/// A column to encode, in memory of its own.
struct Given {
    spec: Spec,
    numbers: Vec<u8>,
    strings: Vec<Vec<u8>>,
    row_splits: Option<Vec<i64>>,
    present: Option<Vec<u8>>,
}

/// So many elements, each of bytes that the dtype can be made of.
fn numbers(u: &mut Unstructured<'_>, dtype: Dtype, elements: usize) -> Result<Vec<u8>> {
    let mut out = Vec::new();
    for _ in 0..elements {
        let bytes = u.arbitrary::<[u8; 8]>()?;
        match dtype {
            Dtype::Bool => out.push(bytes[0] & 1),
            // Mostly what a float_list can hold.
            Dtype::Float64 if bytes[0] < 0xf0 => {
                let narrow = f32::from_le_bytes([bytes[1], bytes[2], bytes[3], bytes[4]]);
                out.extend_from_slice(&f64::from(narrow).to_le_bytes());
            }
            _ => out.extend_from_slice(&bytes[8 - dtype.width()..]),
        }
    }
    Ok(out)
}

/// Splits that rise from zero.
fn splits(u: &mut Unstructured<'_>, rows: usize) -> Result<Vec<i64>> {
    let mut splits = vec![0];
    for row in 0..rows {
        splits.push(splits[row] + u.int_in_range(0..=4)?);
    }
    Ok(splits)
}

fn given(u: &mut Unstructured<'_>, key: &str, rows: usize) -> Result<Given> {
    let dtype = *u.choose(&DTYPES)?;
    let encoding = match dtype {
        Dtype::Bytes => Encoding::None,
        Dtype::Bfloat16 => *u.choose(&[Encoding::Bytes, Encoding::Zlib])?,
        _ => *u.choose(&[Encoding::None, Encoding::Bytes, Encoding::Zlib])?,
    };
    let count = *u.choose(&[None, Some(0), Some(1), Some(3)])?;
    let missing = match u.int_in_range(0..=2)? {
        0 => Missing::Refuse,
        1 => Missing::Mask,
        _ if dtype == Dtype::Bytes && count != Some(1) => Missing::Mask,
        _ if dtype == Dtype::Bytes => Missing::Default(b"a default".to_vec()),
        _ => Missing::Default(numbers(u, dtype, count.unwrap_or(2))?),
    };
    let row_splits = if count.is_none() { Some(splits(u, rows)?) } else { None };
    let elements = row_splits.as_ref().map_or(rows * count.unwrap_or(0), |splits| splits[rows] as usize);
    let strings = (0..elements).filter(|_| dtype == Dtype::Bytes).map(|_| u.arbitrary()).collect::<Result<_>>()?;
    let numbers = if dtype == Dtype::Bytes { Vec::new() } else { numbers(u, dtype, elements)? };
    let present = match missing {
        Missing::Refuse => None,
        _ => Some((0..rows).map(|_| Ok(u8::from(u.ratio(3, 4)?))).collect::<Result<_>>()?),
    };
    Ok(Given { spec: Spec { key: key.into(), dtype, encoding, count, missing }, numbers, strings, row_splits, present })
}

impl Given {
    fn input(&self) -> Input<'_> {
        let values = match self.spec.dtype {
            Dtype::Bytes => Values::Slices(self.strings.iter().map(Vec::as_slice).collect()),
            _ => Values::Numbers(&self.numbers),
        };
        Input { values, row_splits: self.row_splits.as_deref(), present: self.present.as_deref() }
    }

    fn there(&self, row: usize) -> bool {
        self.present.as_ref().is_none_or(|present| present[row] == 1)
    }

    /// What row `row` must be once it is decoded.
    fn row(&self, row: usize) -> Row {
        if !self.there(row) {
            return naive::row(&self.spec, None).expect("the plan lets it be missing");
        }
        let range = match (&self.row_splits, self.spec.count) {
            (Some(splits), _) => splits[row] as usize..splits[row + 1] as usize,
            (None, count) => row * count.unwrap_or(0)..(row + 1) * count.unwrap_or(0),
        };
        match self.spec.dtype {
            Dtype::Bytes => Row::Strings(self.strings[range].to_vec()),
            dtype => Row::Numbers(self.numbers[range.start * dtype.width()..range.end * dtype.width()].to_vec()),
        }
    }

    /// Whether a float_list would lose what row `row` holds.
    fn loses(&self, row: usize) -> bool {
        let Row::Numbers(bytes) = self.row(row) else { return false };
        let list = self.spec.dtype == Dtype::Float64 && self.spec.encoding == Encoding::None;
        list && self.there(row) && floats64(&bytes).any(|value| !value.is_nan() && f64::from(value as f32) != value)
    }
}

fn floats64(bytes: &[u8]) -> impl Iterator<Item = f64> + '_ {
    bytes.chunks_exact(8).map(|bytes| f64::from_le_bytes(bytes.try_into().expect("eight bytes")))
}

/// The same row, but a NaN that went through a float32 is any NaN.
fn assert_same(spec: &Spec, got: &Row, expected: &Row) {
    let plain = |row: &Row| match (row, spec.dtype, spec.encoding) {
        (Row::Numbers(bytes), Dtype::Float64, Encoding::None) => {
            let whole = |value: f64| if value.is_nan() { f64::NAN } else { value };
            Row::Numbers(floats64(bytes).flat_map(|value| whole(value).to_le_bytes()).collect())
        }
        (Row::Numbers(bytes), Dtype::Float16, Encoding::None) => {
            let whole = |value: f16| if value.is_nan() { f16::NAN } else { value };
            let values = bytes.chunks_exact(2).map(|bytes| f16::from_le_bytes([bytes[0], bytes[1]]));
            Row::Numbers(values.flat_map(|value| whole(value).to_le_bytes()).collect())
        }
        (row, ..) => row.clone(),
    };
    assert_eq!(plain(got), plain(expected), "{spec:?}");
}

/// Some columns of `rows` rows, and their plan.
fn batch(u: &mut Unstructured<'_>, rows: usize) -> Result<(Vec<Given>, Plan)> {
    let width = u.int_in_range(0..=KEYS.len())?;
    let columns = KEYS[..width].iter().map(|key| given(u, key, rows)).collect::<Result<Vec<_>>>()?;
    let plan = Plan::new(columns.iter().map(|column| column.spec.clone()).collect()).expect("a plan that makes sense");
    Ok((columns, plan))
}

fn check_example(columns: &[Given], plan: &Plan, frames: &Frames, rows_of_batch: usize) {
    assert_eq!(frames.len(), rows_of_batch);
    let again = Frames::checked(frames.bytes().to_vec(), frames.lengths()).expect("our own frames");
    assert_eq!(&again, frames);
    for (row, record) in frames.iter().enumerate() {
        let features = parse(record).expect("our own record");
        assert_eq!(features.len(), columns.iter().filter(|column| column.there(row)).count());
        for column in columns {
            let feature = features.get(column.spec.key.as_str());
            assert_eq!(feature.is_some(), column.there(row));
            assert_same(&column.spec, &naive::row(&column.spec, feature).expect("our own record"), &column.row(row));
        }
    }
    let walked = walk(plan, frames.iter()).expect("our own records");
    for (number, column) in columns.iter().enumerate() {
        let decoded = walked.column(number).expect("our own records");
        for (row, got) in rows(&column.spec, &decoded, rows_of_batch).iter().enumerate() {
            assert_same(&column.spec, got, &column.row(row));
        }
    }
}

fn check(u: &mut Unstructured<'_>) -> Result<()> {
    let count = u.int_in_range(0..=5)?;
    let (columns, plan) = batch(u, count)?;
    let cut = u.int_in_range(0..=count)?;
    let inputs: Vec<Input<'_>> = columns.iter().map(Given::input).collect();
    let context = EncodeBatch::new(&plan, &inputs, count).expect("columns that fit their plan");
    let context_loses = (0..count).any(|row| columns.iter().any(|column| column.loses(row)));
    match context.encode(0..count, Vec::new()) {
        Err(error) => assert!(context_loses, "{error}"),
        Ok(frames) => {
            assert!(!context_loses);
            check_example(&columns, &plan, &frames, count);
            let pieces = [
                context.encode(0..cut, Vec::new()).expect("a part"),
                context.encode(cut..count, b"used before".to_vec()).expect("a part"),
            ];
            assert_eq!([pieces[0].bytes(), pieces[1].bytes()].concat(), frames.bytes(), "in any pieces");
        }
    }

    let step_splits = splits(u, count)?;
    let steps = step_splits[count] as usize;
    let (lists, list_plan) = batch(u, steps)?;
    // A list may be missing where it has no steps and the plan lets it.
    let absent = u.arbitrary::<bool>()?;
    let there: Vec<u8> = step_splits.windows(2).map(|pair| u8::from(!absent || pair[0] < pair[1])).collect();
    let list_inputs: Vec<ListInput<'_>> = lists
        .iter()
        .map(|list| ListInput {
            input: list.input(),
            step_splits: &step_splits,
            present: (list.spec.missing == Missing::Mask).then_some(&there[..]),
        })
        .collect();
    let loses = context_loses || (0..steps).any(|step| lists.iter().any(|list| list.loses(step)));
    let frames = match sequence::encode(&context, &list_plan, &list_inputs) {
        Ok(frames) => frames,
        Err(error) => {
            assert!(loses, "{error}");
            return Ok(());
        }
    };
    assert!(!loses);
    let (context_columns, list_columns) =
        sequence::decode(&plan, &list_plan, frames.iter()).expect("our own sequences");
    for (column, decoded) in columns.iter().zip(&context_columns) {
        for (row, got) in rows(&column.spec, decoded, count).iter().enumerate() {
            assert_same(&column.spec, got, &column.row(row));
        }
    }
    for (list, decoded) in lists.iter().zip(&list_columns) {
        assert_eq!(decoded.step_splits, step_splits);
        assert_eq!(decoded.present.as_deref(), (list.spec.missing == Missing::Mask).then_some(&there[..]));
        for (step, got) in rows(&list.spec, &decoded.column, steps).iter().enumerate() {
            assert_same(&list.spec, got, &list.row(step));
        }
    }
    Ok(())
}

fuzz_target!(|input: &[u8]| {
    // An input too short to make columns of is no finding.
    let _ = check(&mut Unstructured::new(input));
});
