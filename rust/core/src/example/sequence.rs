//! `tf.train.SequenceExample`: context features, and lists of features with one per step.

use std::collections::BTreeMap;

use crate::codec::protobuf::{entry_size, put_entry, put_varint, varint_length, Fields, Malformed, WireValue};
use crate::error::{Error, Result};
use crate::example::columns::Column;
use crate::example::decode;
use crate::example::encode::{self, check_splits, Scratch};
use crate::example::plan::{Missing, Plan, Spec};
use crate::example::walk::{malformed, merge_map, missing_cells, Cell, Feature, Walked};
use crate::format::frame::Frames;

/// A parsed record.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sequence<'a> {
    /// The features that hold for the whole record.
    pub context: BTreeMap<&'a str, Feature<'a>>,
    /// The features of each step.
    pub lists: BTreeMap<&'a str, Vec<Feature<'a>>>,
}

/// Parses a record as protobuf does.
pub fn parse(record: &[u8]) -> Result<Sequence<'_>> {
    fn whole(record: &[u8]) -> std::result::Result<Sequence<'_>, Malformed> {
        let mut sequence = Sequence::default();
        for field in Fields::new(record) {
            match field? {
                (1, WireValue::Bytes(bytes)) => merge_map(&mut sequence.context, bytes, Feature::merge)?,
                (2, WireValue::Bytes(bytes)) => merge_map(&mut sequence.lists, bytes, merge_list)?,
                _ => {}
            }
        }
        Ok(sequence)
    }
    whole(record).map_err(malformed)
}

fn merge_list<'a>(list: &mut Vec<Feature<'a>>, bytes: &'a [u8]) -> std::result::Result<(), Malformed> {
    for field in Fields::new(bytes) {
        if let (1, WireValue::Bytes(bytes)) = field? {
            let mut feature = Feature::default();
            feature.merge(bytes)?;
            list.push(feature);
        }
    }
    Ok(())
}

/// A feature list of a batch: the column of all steps, and where each record's steps begin and end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListColumn {
    /// The values of all steps of all records.
    pub column: Column,
    /// Where each record's steps begin and end.
    pub step_splits: Vec<i64>,
    /// 0 for each record that lacks the list; only when the plan lets it.
    pub present: Option<Vec<u8>>,
}

/// Decodes records into the context's columns and the lists' columns.
pub fn decode<'r>(
    context: &Plan,
    lists: &Plan,
    records: impl ExactSizeIterator<Item = &'r [u8]>,
) -> Result<(Vec<Column>, Vec<ListColumn>)> {
    let rows = records.len();
    let width = context.specs().len();
    let mut walked = Walked { plan: context, rows, cells: missing_cells(rows, width)?, parsed: Vec::new() };
    let mut steps: Vec<Vec<Cell<'r>>> = vec![Vec::new(); lists.specs().len()];
    let mut splits: Vec<Vec<i64>> = vec![vec![0]; lists.specs().len()];
    let mut present: Vec<Vec<u8>> = vec![Vec::with_capacity(rows); lists.specs().len()];
    for (row, record) in records.enumerate() {
        crate::interrupt::check_at(row)?;
        let mut sequence = parse(record).map_err(|error| error.in_record(row as u64))?;
        for (key, feature) in sequence.context {
            if let (Some(column), true) = (context.find(key.as_bytes()), feature != Feature::Unset) {
                walked.cells[row * width + column] = Cell::Parsed(walked.parsed.len());
                walked.parsed.push(feature);
            }
        }
        for (number, spec) in lists.specs().iter().enumerate() {
            let list = sequence.lists.remove(spec.key.as_str());
            if list.is_none() && spec.missing == Missing::Refuse {
                return Err(Error::schema("expected a feature list, got none")
                    .advise("Mark the field optional, if records may lack it.")
                    .in_record(row as u64)
                    .in_field(&spec.key));
            }
            present[number].push(u8::from(list.is_some()));
            for feature in list.unwrap_or_default() {
                steps[number].push(match feature {
                    Feature::Unset => Cell::Missing,
                    feature => {
                        walked.parsed.push(feature);
                        Cell::Parsed(walked.parsed.len() - 1)
                    }
                });
            }
            splits[number].push(steps[number].len() as i64);
        }
    }
    let columns = (0..width).map(|column| walked.column(column)).collect::<Result<_>>()?;
    let mut out = Vec::with_capacity(lists.specs().len());
    for (number, (step_splits, present)) in splits.into_iter().zip(present).enumerate() {
        let spec = &lists.specs()[number];
        let lane = decode::ColumnCells { spec, cells: &steps[number], stride: 1, parsed: &walked.parsed };
        let record_of = |step: u64| (step_splits.partition_point(|&split| split as u64 <= step) - 1) as u64;
        let mut column = Column::empty(spec);
        lane.append(&mut column).map_err(|error| error.renumbered(record_of))?;
        let present = (spec.missing == Missing::Mask).then_some(present);
        out.push(ListColumn { column, step_splits, present });
    }
    Ok((columns, out))
}

/// A feature list to be encoded.
pub struct ListInput<'a> {
    /// The values of all steps of all records.
    pub input: encode::Input<'a>,
    /// Where each record's steps begin and end.
    pub step_splits: &'a [i64],
    /// 0 for each record that lacks the list; only when the plan lets it.
    pub present: Option<&'a [u8]>,
}

/// Encodes a batch of `rows` records, framed.
pub fn encode(context: &encode::EncodeBatch<'_>, lists: &Plan, inputs: &[ListInput<'_>]) -> Result<Frames> {
    if inputs.len() != lists.specs().len() {
        return Err(Error::usage(format!("expected {} feature lists, got {}", lists.specs().len(), inputs.len())));
    }
    let rows = context.rows();
    let mut steps = Vec::with_capacity(inputs.len());
    for &number in lists.sorted() {
        let (spec, given) = (&lists.specs()[number], &inputs[number]);
        let lane = StepRows::new(spec, &given.input, given.step_splits)?;
        if given.step_splits.len() != rows + 1 || given.present.is_some_and(|present| present.len() != rows) {
            let got = given.step_splits.len().saturating_sub(1);
            return Err(
                Error::schema(format!("expected {rows} rows, as other columns have, got {got}")).in_field(&spec.key)
            );
        }
        steps.push((lane, given.present));
    }
    let mut scratch = Scratch::default();
    let mut frames = Frames::default();
    for row in 0..rows {
        crate::interrupt::check_at(row)?;
        frames
            .push_with(|out| encode_row(context, &steps, row, &mut scratch, out))
            .map_err(|error: Error| error.in_record(row as u64))?;
    }
    Ok(frames)
}

/// One feature list of a `SequenceExample`: `steps` says which rows of the lane belong to each record.
struct StepRows<'a> {
    lane: encode::InputColumn<'a>,
    steps: &'a [i64],
}

impl<'a> StepRows<'a> {
    fn new(spec: &'a Spec, input: &'a encode::Input<'a>, steps: &'a [i64]) -> Result<Self> {
        let rows = steps.last().copied().unwrap_or(0);
        let rows = usize::try_from(rows).map_err(|_| Error::usage("expected step splits that rise from 0"))?;
        check_splits(steps, rows, "step splits").map_err(|error| error.in_field(&spec.key))?;
        Ok(StepRows { lane: encode::InputColumn::new(spec, input, rows)?, steps })
    }

    /// Bytes of the record's `FeatureList`; the lists' sizes are added to the scratch.
    fn measure(&self, row: usize, scratch: &mut Scratch) -> Result<usize> {
        let mut total = 0;
        for step in self.steps[row] as usize..self.steps[row + 1] as usize {
            let size = self.lane.measure(step, scratch)?;
            let feature = size.map_or(0, |size| self.lane.feature_size(size));
            total += 1 + varint_length(feature as u64) + feature;
            scratch.sizes.push(size);
        }
        Ok(total)
    }

    /// Appends the record's `FeatureList`; its sizes begin at `first` in the scratch. Returns where the next begin.
    fn put(&self, row: usize, first: usize, scratch: &mut Scratch, out: &mut Vec<u8>) -> Result<usize> {
        let steps = self.steps[row] as usize..self.steps[row + 1] as usize;
        let next = first + steps.len();
        for (number, step) in (first..).zip(steps) {
            let size = scratch.sizes[number];
            out.push(0x0a);
            put_varint(out, size.map_or(0, |size| self.lane.feature_size(size)) as u64);
            if let Some(size) = size {
                self.lane.put_feature(step, size, scratch, out)?;
            }
        }
        Ok(next)
    }
}

fn encode_row(
    context: &encode::EncodeBatch<'_>,
    lists: &[(StepRows<'_>, Option<&[u8]>)],
    row: usize,
    scratch: &mut Scratch,
    out: &mut Vec<u8>,
) -> Result<()> {
    let size = context.measure_features(row, scratch)?;
    out.push(0x0a);
    put_varint(out, size as u64);
    context.put_features(row, scratch, out)?;

    scratch.sizes.clear();
    let mut sizes = Vec::with_capacity(lists.len());
    let mut total = 0;
    for (steps, present) in lists {
        let there = present.is_none_or(|present| present[row] != 0);
        let size =
            there.then(|| steps.measure(row, scratch)).transpose().map_err(|e| e.in_field(&steps.lane.spec.key))?;
        if let Some(size) = size {
            let entry = entry_size(&steps.lane.spec.key, size);
            total += 1 + varint_length(entry as u64) + entry;
        }
        sizes.push(size);
    }
    out.push(0x12);
    put_varint(out, total as u64);
    let mut next = 0;
    for ((steps, _), size) in lists.iter().zip(sizes) {
        if let Some(size) = size {
            put_entry(&steps.lane.spec.key, size, out);
            next = steps.put(row, next, scratch, out)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::example::encode::{EncodeBatch, Input, Values};
    use crate::example::plan::{spec, Dtype, Encoding, Spec};

    #[test]
    fn sequences_come_back() {
        let context = Plan::new(vec![spec("id", Dtype::Int64, Some(1))]).unwrap();
        let zipped = Spec { encoding: Encoding::Zlib, ..spec("z", Dtype::Float32, Some(1)) };
        let lists = Plan::new(vec![spec("tokens", Dtype::Int64, None), zipped]).unwrap();
        let ids: Vec<u8> = [1i64, 2].iter().flat_map(|v| v.to_le_bytes()).collect();
        let tokens: Vec<u8> = [5i64, 6, 7, 8].iter().flat_map(|v| v.to_le_bytes()).collect();
        let floats: Vec<u8> = [0.5f32, 1.5].iter().flat_map(|v| v.to_le_bytes()).collect();
        let inputs = [Input { values: Values::Numbers(&ids), row_splits: None, present: None }];
        let list_inputs = [
            ListInput {
                input: Input { values: Values::Numbers(&tokens), row_splits: Some(&[0, 2, 2, 4]), present: None },
                step_splits: &[0, 2, 3],
                present: None,
            },
            ListInput {
                input: Input { values: Values::Numbers(&floats), row_splits: None, present: None },
                step_splits: &[0, 0, 2],
                present: None,
            },
        ];
        let batch = EncodeBatch::new(&context, &inputs, 2).unwrap();
        let frames = encode(&batch, &lists, &list_inputs).unwrap();
        let (columns, list_columns) = decode(&context, &lists, frames.iter()).unwrap();
        assert_eq!(columns[0].values.bytes(), ids);
        assert_eq!(list_columns[0].step_splits, [0, 2, 3]);
        assert_eq!(list_columns[0].column.row_splits.as_deref(), Some(&[0, 2, 2, 4][..]));
        assert_eq!(list_columns[0].column.values.bytes(), tokens);
        assert_eq!(list_columns[1].step_splits, [0, 0, 2]);
        assert_eq!(list_columns[1].column.values.bytes(), floats);
    }

    #[test]
    fn an_error_names_the_record_not_the_step() {
        let context = Plan::new(vec![]).unwrap();
        let lists = Plan::new(vec![spec("a", Dtype::Int64, Some(1))]).unwrap();
        let wide = Plan::new(vec![spec("a", Dtype::Int64, None)]).unwrap();
        let tokens: Vec<u8> = [5i64, 6, 7, 8].iter().flat_map(|v| v.to_le_bytes()).collect();
        let inputs = [ListInput {
            input: Input { values: Values::Numbers(&tokens), row_splits: Some(&[0, 1, 2, 4]), present: None },
            step_splits: &[0, 2, 3],
            present: None,
        }];
        let frames = encode(&EncodeBatch::new(&context, &[], 2).unwrap(), &wide, &inputs).unwrap();
        let error = decode(&context, &lists, frames.iter()).unwrap_err();
        assert_eq!((error.record(), error.field()), (Some(1), Some("a")));
    }
}
