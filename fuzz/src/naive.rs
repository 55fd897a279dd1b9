//! Decoding one feature the plain way: what the fast way must agree with.

use std::io::Read;

use flate2::read::ZlibDecoder;
use half::f16;
use penstock_core::codec::protobuf::{Fields, WireValue};
use penstock_core::example::plan::{Dtype, Encoding, List, Missing, Spec};
use penstock_core::example::walk::Feature;

/// What one record has of one column.
#[derive(Clone, Debug, PartialEq)]
pub enum Row {
    /// Nothing, and the plan says that this is fine.
    Missing,
    /// Elements in C order, little endian.
    Numbers(Vec<u8>),
    /// Byte strings.
    Strings(Vec<Vec<u8>>),
}

/// The row that a feature means, `None` if the plan refuses it.
pub fn row(spec: &Spec, feature: Option<&Feature<'_>>) -> Option<Row> {
    let counted = |count: usize| spec.count.is_none_or(|expected| expected == count);
    let sized = |bytes: &[u8]| bytes.len() % spec.dtype.width() == 0 && counted(bytes.len() / spec.dtype.width());
    match (feature.unwrap_or(&Feature::Unset), spec.encoding) {
        (Feature::Unset, _) => match &spec.missing {
            Missing::Refuse => None,
            Missing::Mask => Some(Row::Missing),
            Missing::Default(value) if spec.dtype == Dtype::Bytes => Some(Row::Strings(vec![value.clone()])),
            Missing::Default(row) => Some(Row::Numbers(row.clone())),
        },
        (Feature::Bytes(values), Encoding::None) if spec.dtype == Dtype::Bytes && counted(values.len()) => {
            Some(Row::Strings(values.iter().map(|value| value.to_vec()).collect()))
        }
        (Feature::Ints(values), Encoding::None) if spec.list() == List::Ints && counted(values.len()) => {
            let rows = values.iter().map(|&value| int(spec.dtype, value)).collect::<Option<Vec<_>>>()?;
            Some(Row::Numbers(rows.concat()))
        }
        (Feature::Floats(values), Encoding::None) if spec.list() == List::Floats && counted(values.len()) => {
            let rows = values.iter().map(|&value| float(spec.dtype, value)).collect::<Option<Vec<_>>>()?;
            Some(Row::Numbers(rows.concat()))
        }
        (Feature::Bytes(values), Encoding::Bytes) if values.len() == 1 && sized(values[0]) => {
            Some(Row::Numbers(values[0].to_vec()))
        }
        (Feature::Bytes(values), Encoding::Zlib) if values.len() == 1 => {
            let mut inflated = Vec::new();
            ZlibDecoder::new(values[0]).read_to_end(&mut inflated).ok()?;
            sized(&inflated).then_some(Row::Numbers(inflated))
        }
        _ => None,
    }
}

fn int(dtype: Dtype, value: i64) -> Option<Vec<u8>> {
    let range = match dtype {
        Dtype::Bool => 0..=1,
        Dtype::Int8 => i64::from(i8::MIN)..=i64::from(i8::MAX),
        Dtype::Int16 => i64::from(i16::MIN)..=i64::from(i16::MAX),
        Dtype::Int32 => i64::from(i32::MIN)..=i64::from(i32::MAX),
        Dtype::Uint8 => 0..=i64::from(u8::MAX),
        Dtype::Uint16 => 0..=i64::from(u16::MAX),
        Dtype::Uint32 => 0..=i64::from(u32::MAX),
        Dtype::Int64 | Dtype::Uint64 => i64::MIN..=i64::MAX,
        _ => return None,
    };
    range.contains(&value).then(|| value.to_le_bytes()[..dtype.width()].to_vec())
}

fn float(dtype: Dtype, value: f32) -> Option<Vec<u8>> {
    match dtype {
        Dtype::Float16 => Some(f16::from_f32(value).to_le_bytes().to_vec()),
        Dtype::Float32 => Some(value.to_le_bytes().to_vec()),
        Dtype::Float64 => Some(f64::from(value).to_le_bytes().to_vec()),
        _ => None,
    }
}

/// The feature of a key in a record that is broken only where nobody looks: one `Features` message, entries of key then
/// value, and the last entry of the key whole. `None` if the record is broken elsewhere.
pub fn feature_of_usual<'r>(record: &'r [u8], key: &str) -> Option<Feature<'r>> {
    let [features] = fields(record)?[..] else { return None };
    let mut last: &[u8] = &[];
    for entry in fields(bytes(features, 1)?)? {
        let [entry_key, value] = fields(bytes(entry, 1)?)?[..] else { return None };
        let value = bytes(value, 2)?;
        if std::str::from_utf8(bytes(entry_key, 1)?).ok()? == key {
            last = value;
        }
    }
    let mut feature = Feature::Unset;
    feature.merge(last).ok()?;
    Some(feature)
}

fn fields(message: &[u8]) -> Option<Vec<(u32, WireValue<'_>)>> {
    Fields::new(message).collect::<Result<_, _>>().ok()
}

fn bytes<'r>(field: (u32, WireValue<'r>), number: u32) -> Option<&'r [u8]> {
    match field {
        (found, WireValue::Bytes(bytes)) if found == number => Some(bytes),
        _ => None,
    }
}
