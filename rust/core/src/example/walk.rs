//! Parses `tf.train.Example`: a full parser with protobuf's semantics, and a fast walk that locates columns.
//!
//! Nearly every record has one shape: one `Features` message, entries of key then value, one packed chunk a list. The
//! walk takes that shape alone and borrows each column's bytes; whatever else a record does (several chunks, unpacked
//! values, unknown fields, merged messages ...) sends that one record to the whole parser.

use std::collections::BTreeMap;

use crate::codec::protobuf::{each_varint, varint, Fields, Malformed, WireValue};
use crate::error::{Error, Result};
use crate::example::feature_lists;
use crate::example::plan::{List, Plan};
use crate::limits;

/// A parsed `tf.train.Feature`.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Feature<'a> {
    /// No list is set: the same as no feature.
    #[default]
    Unset,
    /// `bytes_list`.
    Bytes(Vec<&'a [u8]>),
    /// `float_list`.
    Floats(Vec<f32>),
    /// `int64_list`.
    Ints(Vec<i64>),
}

impl Feature<'_> {
    /// Which list is set.
    pub fn list(&self) -> Option<List> {
        match self {
            Feature::Unset => None,
            Feature::Bytes(_) => Some(List::Bytes),
            Feature::Floats(_) => Some(List::Floats),
            Feature::Ints(_) => Some(List::Ints),
        }
    }

    /// How many values it holds.
    pub fn len(&self) -> usize {
        match self {
            Feature::Unset => 0,
            Feature::Bytes(values) => values.len(),
            Feature::Floats(values) => values.len(),
            Feature::Ints(values) => values.len(),
        }
    }

    /// Whether it holds none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<'a> Feature<'a> {
    /// Merges a serialized `Feature` into this one: the last kind wins, values of one kind add up.
    pub fn merge(&mut self, bytes: &'a [u8]) -> std::result::Result<(), Malformed> {
        for field in Fields::new(bytes) {
            match field? {
                (1, WireValue::Bytes(list)) => {
                    if !matches!(self, Feature::Bytes(_)) {
                        *self = Feature::Bytes(Vec::new());
                    }
                    let Feature::Bytes(values) = self else { continue };
                    for field in Fields::new(list) {
                        if let (1, WireValue::Bytes(value)) = field? {
                            values.push(value);
                        }
                    }
                }
                (2, WireValue::Bytes(list)) => {
                    if !matches!(self, Feature::Floats(_)) {
                        *self = Feature::Floats(Vec::new());
                    }
                    let Feature::Floats(values) = self else { continue };
                    for field in Fields::new(list) {
                        match field? {
                            (1, WireValue::Fixed32(bits)) => values.push(f32::from_bits(bits)),
                            (1, WireValue::Bytes(packed)) if packed.len() % 4 != 0 => {
                                return Err(Malformed("a packed float list whose length is no multiple of 4"));
                            }
                            (1, WireValue::Bytes(packed)) => values.extend(
                                packed.chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().expect("four bytes"))),
                            ),
                            _ => {}
                        }
                    }
                }
                (3, WireValue::Bytes(list)) => {
                    if !matches!(self, Feature::Ints(_)) {
                        *self = Feature::Ints(Vec::new());
                    }
                    let Feature::Ints(values) = self else { continue };
                    for field in Fields::new(list) {
                        match field? {
                            (1, WireValue::Varint(value)) => values.push(value as i64),
                            (1, WireValue::Bytes(packed)) => each_varint(packed, |value| values.push(value as i64))
                                .then_some(())
                                .ok_or(Malformed("a broken varint in an int64 list"))?,
                            _ => {}
                        }
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }
}

/// The entries of a serialized map message (`Features`, `FeatureLists`): each key with its value's bytes, merged in
/// place.
pub(crate) fn merge_map<'a, V: Default>(
    map: &mut BTreeMap<&'a str, V>,
    bytes: &'a [u8],
    merge: impl Fn(&mut V, &'a [u8]) -> std::result::Result<(), Malformed>,
) -> std::result::Result<(), Malformed> {
    for field in Fields::new(bytes) {
        let (1, WireValue::Bytes(entry)) = field? else { continue };
        let (mut key, mut value, mut known) = ("", V::default(), true);
        for field in Fields::new(entry) {
            match field? {
                // Every key is checked, also one that another key takes the place of.
                (1, WireValue::Bytes(bytes)) => {
                    key = std::str::from_utf8(bytes).map_err(|_| Malformed("a key that is not UTF-8"))?;
                }
                (2, WireValue::Bytes(bytes)) => merge(&mut value, bytes)?,
                _ => known = false,
            }
        }
        // Protobuf keeps an entry with an unknown field among the unknown fields: it is not part of the map.
        if known {
            map.insert(key, value);
        }
    }
    Ok(())
}

/// Parses a record as protobuf does: the features by key, the last one of a key winning.
pub fn parse(record: &[u8]) -> Result<BTreeMap<&str, Feature<'_>>> {
    parse_features(record).map_err(malformed)
}

fn parse_features(record: &[u8]) -> std::result::Result<BTreeMap<&str, Feature<'_>>, Malformed> {
    let mut features = BTreeMap::new();
    for field in Fields::new(record) {
        if let (1, WireValue::Bytes(bytes)) = field? {
            merge_map(&mut features, bytes, Feature::merge)?;
        }
    }
    Ok(features)
}

pub(crate) fn malformed(reason: Malformed) -> Error {
    Error::corrupt(format!("expected a tf.train.Example, got {}", reason.0))
}

/// Where a record keeps one column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cell<'r> {
    /// Nowhere.
    Missing,
    /// A list in its usual form: the chunk of packed numbers, or the whole `BytesList` message.
    Packed(List, &'r [u8]),
    /// In any other form: the number of a parsed [`Feature`].
    Parsed(usize),
}

/// A batch of records with their columns found.
#[derive(Clone, Debug)]
pub struct Walked<'p, 'r> {
    pub(crate) plan: &'p Plan,
    pub(crate) rows: usize,
    pub(crate) cells: Vec<Cell<'r>>,
    pub(crate) parsed: Vec<Feature<'r>>,
}

/// A cell for each column of each row.
pub(crate) fn missing_cells<'r>(rows: usize, width: usize) -> Result<Vec<Cell<'r>>> {
    let mut cells = Vec::new();
    limits::grow_to(&mut cells, rows.saturating_mul(width), Cell::Missing)?;
    Ok(cells)
}

/// What stood at a position of the record before: the first thing to compare a key with.
#[derive(Clone, Copy)]
struct Seen<'r> {
    key: &'r [u8],
    column: Option<usize>,
}

/// Finds the plan's columns in each record. An error carries the row as its record number.
pub fn walk<'p, 'r>(plan: &'p Plan, records: impl ExactSizeIterator<Item = &'r [u8]>) -> Result<Walked<'p, 'r>> {
    let width = plan.specs().len();
    let rows = records.len();
    let mut walked = Walked { plan, rows, cells: missing_cells(rows, width)?, parsed: Vec::new() };
    let mut seen = Vec::with_capacity(width);
    for (row, record) in records.enumerate() {
        let cells = &mut walked.cells[row * width..(row + 1) * width];
        if walk_usual(plan, record, cells, &mut seen).is_none() {
            cells.fill(Cell::Missing);
            let features = parse_features(record).map_err(|reason| malformed(reason).in_record(row as u64))?;
            for (column, feature) in
                feature_lists::columns(plan, record).map_err(|error| error.in_record(row as u64))?
            {
                cells[column] = Cell::Parsed(walked.parsed.len());
                walked.parsed.push(feature);
            }
            for (key, feature) in features {
                let Some(column) = plan.find(key.as_bytes()) else { continue };
                if feature != Feature::Unset {
                    if cells[column] != Cell::Missing {
                        return Err(feature_lists::twice(key).in_record(row as u64));
                    }
                    cells[column] = Cell::Parsed(walked.parsed.len());
                    walked.parsed.push(feature);
                }
            }
        }
    }
    Ok(walked)
}

/// The bytes of the length-delimited field at `position`, if its tag is `tag`.
#[inline]
fn field<'r>(bytes: &'r [u8], position: &mut usize, tag: u8) -> Option<&'r [u8]> {
    if *bytes.get(*position)? != tag {
        return None;
    }
    let mut at = *position + 1;
    let length = usize::try_from(varint(bytes, &mut at)?).ok()?;
    let end = at.checked_add(length)?;
    *position = end;
    bytes.get(at..end)
}

/// Walks a record of the usual shape; `None` when it has another one, or none at all.
fn walk_usual<'r>(plan: &Plan, record: &'r [u8], cells: &mut [Cell<'r>], seen: &mut Vec<Seen<'r>>) -> Option<()> {
    let mut position = 0;
    let features = field(record, &mut position, 0x0a)?;
    if position != record.len() {
        return None;
    }
    let (mut position, mut number) = (0, 0);
    while position < features.len() {
        let entry = field(features, &mut position, 0x0a)?;
        let mut inner = 0;
        let key = field(entry, &mut inner, 0x0a)?;
        let value = field(entry, &mut inner, 0x12)?;
        if inner != entry.len() {
            return None;
        }
        let column = match seen.get(number) {
            Some(expected) if expected.key == key => expected.column,
            _ => {
                let column = plan.find(key);
                if column.is_none() {
                    std::str::from_utf8(key).ok()?;
                }
                if number == seen.len() {
                    seen.push(Seen { key, column });
                } else {
                    seen[number] = Seen { key, column };
                }
                column
            }
        };
        number += 1;
        if let Some(column) = column {
            cells[column] = usual_feature(value)?;
        }
    }
    Some(())
}

#[inline]
fn usual_feature(value: &[u8]) -> Option<Cell<'_>> {
    let Some(&tag) = value.first() else { return Some(Cell::Missing) };
    let mut position = 0;
    let message = field(value, &mut position, tag)?;
    if position != value.len() {
        return None;
    }
    let list = match tag {
        0x0a => return Some(Cell::Packed(List::Bytes, message)),
        0x12 => List::Floats,
        0x1a => List::Ints,
        _ => return None,
    };
    if message.is_empty() {
        return Some(Cell::Packed(list, message));
    }
    let mut position = 0;
    let packed = field(message, &mut position, 0x0a)?;
    (position == message.len()).then_some(Cell::Packed(list, packed))
}

/// The byte strings of a `BytesList` message.
pub(crate) fn byte_strings(message: &[u8]) -> impl Iterator<Item = std::result::Result<&[u8], Malformed>> {
    Fields::new(message).filter_map(|field| match field {
        Ok((1, WireValue::Bytes(value))) => Some(Ok(value)),
        Ok(_) => None,
        Err(reason) => Some(Err(reason)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::example::plan::{spec, Dtype};

    fn message(tag: u8, body: &[u8]) -> Vec<u8> {
        let mut out = vec![tag, body.len() as u8];
        out.extend_from_slice(body);
        out
    }

    fn record(entries: &[(&str, &[u8])]) -> Vec<u8> {
        let mut features = Vec::new();
        for (key, feature) in entries {
            let entry = [message(0x0a, key.as_bytes()), message(0x12, feature)].concat();
            features.extend(message(0x0a, &entry));
        }
        message(0x0a, &features)
    }

    fn ints(packed: &[u8]) -> Vec<u8> {
        message(0x1a, &message(0x0a, packed))
    }

    fn parsed_a(feature: &[u8]) -> Result<Feature<'_>> {
        let mut out = Feature::default();
        out.merge(feature).map_err(malformed)?;
        Ok(out)
    }

    #[test]
    fn packed_unpacked_and_mixed_lists_add_up() {
        assert_eq!(parsed_a(&ints(&[1, 2])).unwrap(), Feature::Ints(vec![1, 2]));
        assert_eq!(parsed_a(&message(0x1a, &[0x08, 1, 0x08, 2])).unwrap(), Feature::Ints(vec![1, 2]));
        assert_eq!(parsed_a(&message(0x1a, &[0x08, 1, 0x0a, 2, 2, 3])).unwrap(), Feature::Ints(vec![1, 2, 3]));
        assert_eq!(parsed_a(&message(0x1a, &[0x0a, 1, 1, 0x0a, 1, 2])).unwrap(), Feature::Ints(vec![1, 2]));
        assert_eq!(parsed_a(&message(0x1a, &[0x0a, 1, 1, 0x08, 2])).unwrap(), Feature::Ints(vec![1, 2]));
        let twice = [ints(&[1]), ints(&[2])].concat();
        assert_eq!(parsed_a(&twice).unwrap(), Feature::Ints(vec![1, 2]));
    }

    #[test]
    fn the_last_kind_wins() {
        let both = [ints(&[1]), message(0x12, &message(0x0a, &1f32.to_le_bytes()))].concat();
        assert_eq!(parsed_a(&both).unwrap(), Feature::Floats(vec![1.0]));
    }

    #[test]
    fn five_packed_float_bytes_are_an_error() {
        assert!(parsed_a(&message(0x12, &message(0x0a, &[0; 5]))).is_err());
    }

    #[test]
    fn an_eleven_byte_varint_is_an_error() {
        assert!(parsed_a(&ints(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1])).is_err());
    }

    #[test]
    fn duplicate_keys_and_two_messages_let_the_last_win() {
        let one = record(&[("a", &ints(&[1])), ("a", &ints(&[2]))]);
        assert_eq!(parse(&one).unwrap()["a"], Feature::Ints(vec![2]));
        let two = [record(&[("a", &ints(&[1])), ("b", &ints(&[5]))]), record(&[("a", &ints(&[2]))])].concat();
        let parsed = parse(&two).unwrap();
        assert_eq!((&parsed["a"], &parsed["b"]), (&Feature::Ints(vec![2]), &Feature::Ints(vec![5])));
    }

    #[test]
    fn unknown_fields_are_skipped_except_in_an_entry() {
        let noise = [0x20, 1];
        let feature = [&noise[..], &ints(&[1]), &noise].concat();
        assert_eq!(parse(&record(&[("a", &feature)])).unwrap()["a"], Feature::Ints(vec![1]));
        let entry = [message(0x0a, b"a"), message(0x12, &ints(&[1])), noise.to_vec()].concat();
        assert!(parse(&message(0x0a, &message(0x0a, &entry))).unwrap().is_empty());
        let outer = [noise.to_vec(), record(&[("a", &ints(&[1]))])].concat();
        assert_eq!(parse(&outer).unwrap()["a"], Feature::Ints(vec![1]));
    }

    #[test]
    fn value_before_key_no_value_and_no_key() {
        let entry = [message(0x12, &ints(&[1])), message(0x0a, b"a")].concat();
        assert_eq!(parse(&message(0x0a, &message(0x0a, &entry))).unwrap()["a"], Feature::Ints(vec![1]));
        assert_eq!(parse(&message(0x0a, &message(0x0a, &message(0x0a, b"a")))).unwrap()["a"], Feature::Unset);
        assert_eq!(
            parse(&message(0x0a, &message(0x0a, &message(0x12, &ints(&[1]))))).unwrap()[""],
            Feature::Ints(vec![1])
        );
    }

    #[test]
    fn keys_must_be_text() {
        let entry = [message(0x0a, &[0xff]), message(0x12, &ints(&[1]))].concat();
        let bytes = message(0x0a, &message(0x0a, &entry));
        assert!(parse(&bytes).is_err());
        let plan = Plan::new(vec![spec("a", Dtype::Int64, None)]).unwrap();
        assert!(walk(&plan, [&bytes[..]].into_iter()).is_err());
        let twice = [message(0x0a, &[0xff]), message(0x0a, b"a"), message(0x12, &ints(&[1]))].concat();
        assert!(parse(&message(0x0a, &message(0x0a, &twice))).is_err());
    }

    #[test]
    fn the_walk_borrows_usual_records_and_parses_the_rest() {
        let plan = Plan::new(vec![spec("a", Dtype::Int64, None), spec("b", Dtype::Int64, None)]).unwrap();
        let usual = record(&[("a", &ints(&[1])), ("x", &ints(&[9])), ("b", &ints(&[2]))]);
        let swapped = record(&[("b", &ints(&[3])), ("a", &ints(&[4]))]);
        let odd = record(&[("a", &message(0x1a, &[0x08, 7]))]);
        let unset = record(&[("a", &[]), ("b", &ints(&[]))]);
        let walked = walk(&plan, [&usual[..], &swapped, &odd, &unset, &[]].into_iter()).unwrap();
        let packed = |bytes| Cell::Packed(List::Ints, bytes);
        assert_eq!(walked.cells[..4], [packed(&[1][..]), packed(&[2]), packed(&[4]), packed(&[3])]);
        assert_eq!(walked.cells[4..6], [Cell::Parsed(0), Cell::Missing]);
        assert_eq!(walked.parsed, [Feature::Ints(vec![7])]);
        assert_eq!(walked.cells[6..], [Cell::Missing, packed(&[]), Cell::Missing, Cell::Missing]);
    }
}
