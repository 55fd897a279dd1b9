//! The feature lists of a `tf.train.SequenceExample` as columns: a list with a value for each step, or a list of lists.

use std::collections::BTreeMap;

use crate::codec::protobuf::{Fields, Malformed, WireValue};
use crate::error::{Error, Result};
use crate::example::plan::{List, Plan};
use crate::example::walk::{malformed, merge_map, Feature};

const FLAT: &str = "/ragged_flat_values";
const LENGTHS: &str = "/ragged_row_lengths_0";

/// A feature list: the values of all steps, and how many each step has.
#[derive(Clone, Debug, PartialEq)]
pub struct FeatureList<'a> {
    /// The values of all steps, one after the other; `Unset` if no step has a list.
    pub values: Feature<'a>,
    /// How many values each step has.
    pub lengths: Vec<i64>,
}

/// The feature lists of a record by key; none for a record that is no `SequenceExample`. Bytes in their place that are
/// no feature lists count as an unknown field, which protobuf skips.
pub fn parse(record: &[u8]) -> Result<BTreeMap<&str, FeatureList<'_>>> {
    let mut lists = BTreeMap::new();
    for (key, messages) in messages(record).unwrap_or_default() {
        lists.insert(key, join(&messages).map_err(|error| error.in_field(key))?);
    }
    Ok(lists)
}

/// Whether a record has feature lists.
pub fn has_lists(record: &[u8]) -> bool {
    messages(record).is_ok_and(|lists| !lists.is_empty())
}

/// The columns of a plan that a record's feature lists fill.
pub(crate) fn columns<'a>(plan: &Plan, record: &'a [u8]) -> Result<Vec<(usize, Feature<'a>)>> {
    let mut found = Vec::new();
    for (key, messages) in messages(record).unwrap_or_default() {
        let place = |error: Error| error.in_field(key);
        if let Some(column) = plan.find(key.as_bytes()) {
            let spec = &plan.specs()[column];
            let steps = join(&messages).map_err(place)?;
            if spec.count.is_some() {
                let hint = "Declare the field as a list, such as list[int64]: a feature list has any number of steps.";
                return Err(place(Error::schema("expected a feature, got a feature list").advise(hint)));
            }
            if let Some(&length) = steps.lengths.iter().find(|&&length| length != 1) {
                let hint = "Declare the field as a list of lists, such as list[list[int64]].";
                return Err(place(
                    Error::schema(format!("expected one value in each step, got {length}")).advise(hint),
                ));
            }
            found.push((column, set(steps.values, spec.list())));
        } else if let Some(column) = plan.find(format!("{key}{FLAT}").as_bytes()) {
            let steps = join(&messages).map_err(place)?;
            found.push((column, set(steps.values, plan.specs()[column].list())));
            if let Some(column) = plan.find(format!("{key}{LENGTHS}").as_bytes()) {
                found.push((column, Feature::Ints(steps.lengths)));
            }
        }
    }
    Ok(found)
}

/// The error for a key that is both in the context and in the feature lists.
pub(crate) fn twice(key: &str) -> Error {
    Error::schema("expected a key in the context or in the feature lists, got it in both").in_field(key)
}

fn messages(record: &[u8]) -> std::result::Result<BTreeMap<&str, Vec<&[u8]>>, Malformed> {
    let mut lists = BTreeMap::new();
    for field in Fields::new(record) {
        if let (2, WireValue::Bytes(bytes)) = field? {
            merge_map(&mut lists, bytes, |list: &mut Vec<&[u8]>, bytes| {
                list.push(bytes);
                Ok(())
            })?;
        }
    }
    Ok(lists)
}

fn join<'a>(messages: &[&'a [u8]]) -> Result<FeatureList<'a>> {
    let mut steps = FeatureList { values: Feature::Unset, lengths: Vec::new() };
    for message in messages {
        for field in Fields::new(message) {
            let (1, WireValue::Bytes(bytes)) = field.map_err(malformed)? else { continue };
            let mut step = Feature::default();
            step.merge(bytes).map_err(malformed)?;
            steps.lengths.push(step.len() as i64);
            match (&mut steps.values, step) {
                (_, Feature::Unset) => {}
                (values @ Feature::Unset, step) => *values = step,
                (Feature::Bytes(values), Feature::Bytes(more)) => values.extend(more),
                (Feature::Floats(values), Feature::Floats(more)) => values.extend(more),
                (Feature::Ints(values), Feature::Ints(more)) => values.extend(more),
                (values, step) => {
                    let [expected, got] = [values.list(), step.list()].map(|list| list.map_or("none", List::name));
                    return Err(Error::schema(format!("expected a {expected} in each step, got a {got}")));
                }
            }
        }
    }
    Ok(steps)
}

/// Values, which a list of no steps has none of: of the kind that the column holds.
fn set(values: Feature<'_>, list: List) -> Feature<'_> {
    match (values, list) {
        (Feature::Unset, List::Bytes) => Feature::Bytes(Vec::new()),
        (Feature::Unset, List::Floats) => Feature::Floats(Vec::new()),
        (Feature::Unset, List::Ints) => Feature::Ints(Vec::new()),
        (values, _) => values,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::example::plan::{spec, Dtype};
    use crate::example::walk::walk;

    fn message(tag: u8, body: &[u8]) -> Vec<u8> {
        let mut out = vec![tag, body.len() as u8];
        out.extend_from_slice(body);
        out
    }

    fn ints(values: &[u8]) -> Vec<u8> {
        message(0x0a, &message(0x1a, &message(0x0a, values)))
    }

    /// A record with a context of `id = 7`, and one feature list.
    fn record(key: &str, steps: &[&[u8]]) -> Vec<u8> {
        let id = [message(0x0a, b"id"), message(0x12, &message(0x1a, &message(0x0a, &[7])))].concat();
        let list: Vec<u8> = steps.iter().flat_map(|values| ints(values)).collect();
        let entry = [message(0x0a, key.as_bytes()), message(0x12, &list)].concat();
        [message(0x0a, &message(0x0a, &id)), message(0x12, &message(0x0a, &entry))].concat()
    }

    #[test]
    fn steps_fill_columns() {
        let nested = [spec("id", Dtype::Int64, Some(1)), spec("a/ragged_flat_values", Dtype::Int64, None)];
        let lengths = spec("a/ragged_row_lengths_0", Dtype::Int64, None);
        let plan = Plan::new(nested.into_iter().chain([lengths]).collect()).unwrap();
        let bytes = record("a", &[&[1, 2], &[], &[3]]);
        let walked = walk(&plan, [&bytes[..]].into_iter()).unwrap();
        let numbers = |column: usize| -> Vec<i64> {
            let column = walked.column(column).unwrap();
            column.values.bytes().chunks(8).map(|word| i64::from_le_bytes(word.try_into().unwrap())).collect()
        };
        assert_eq!((numbers(0), numbers(1), numbers(2)), (vec![7], vec![1, 2, 3], vec![2, 0, 1]));
    }

    #[test]
    fn a_plain_list_has_one_value_in_each_step() {
        let plan = Plan::new(vec![spec("a", Dtype::Int64, None)]).unwrap();
        let column = |bytes: &[u8]| walk(&plan, [bytes].into_iter()).and_then(|walked| walked.column(0));
        assert_eq!(column(&record("a", &[&[1], &[2]])).unwrap().row_splits.unwrap(), [0, 2]);
        assert_eq!(column(&record("a", &[])).unwrap().row_splits.unwrap(), [0, 0]);
        assert_eq!(column(&record("a", &[&[1], &[2, 3]])).unwrap_err().field(), Some("a"));
        let fixed = Plan::new(vec![spec("a", Dtype::Int64, Some(2))]).unwrap();
        let both = record("a", &[&[1], &[2]]);
        assert!(walk(&fixed, [&both[..]].into_iter()).is_err());
    }

    #[test]
    fn a_key_in_both_places_is_an_error() {
        let plan = Plan::new(vec![spec("id", Dtype::Int64, None)]).unwrap();
        let bytes = record("id", &[&[1]]);
        assert_eq!(walk(&plan, [&bytes[..]].into_iter()).unwrap_err().field(), Some("id"));
    }

    #[test]
    fn other_bytes_in_their_place_are_skipped() {
        assert!(has_lists(&record("a", &[&[1]])));
        assert!(!has_lists(&[]));
        assert!(!has_lists(&[0x12, 1, 0xff]));
        assert!(parse(&[0x12, 1, 0xff]).unwrap().is_empty());
    }
}
