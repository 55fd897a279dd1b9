//! Any records as SequenceExamples: decoded as the naive decoder says, and back again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use penstock_core::example::columns::Column;
use penstock_core::example::encode::{EncodeBatch, Input};
use penstock_core::example::plan::{Encoding, Missing, Plan};
use penstock_core::example::sequence::{self, ListColumn, ListInput, Sequence};
use penstock_fuzz::columns::{input, rows};
use penstock_fuzz::naive::{self, Row};
use penstock_fuzz::{build, is_too_large, open, plans, records};

/// The steps of a feature list of each record, `None` for a record that lacks it.
type Steps = Vec<Option<Vec<Row>>>;

fn expected(context: &Plan, lists: &Plan, records: &[&[u8]]) -> Option<(Vec<Vec<Row>>, Vec<Steps>)> {
    let parsed: Vec<Sequence<'_>> = records.iter().map(|record| sequence::parse(record).ok()).collect::<Option<_>>()?;
    let mut columns = Vec::new();
    for spec in context.specs() {
        let rows = parsed.iter().map(|record| naive::row(spec, record.context.get(spec.key.as_str())));
        columns.push(rows.collect::<Option<_>>()?);
    }
    let mut all = Vec::new();
    for spec in lists.specs() {
        let steps = parsed.iter().map(|record| match record.lists.get(spec.key.as_str()) {
            Some(list) => list.iter().map(|step| naive::row(spec, Some(step))).collect::<Option<_>>().map(Some),
            None if spec.missing == Missing::Refuse => None,
            None => Some(None),
        });
        all.push(steps.collect::<Option<_>>()?);
    }
    Some((columns, all))
}

/// The steps of a decoded feature list.
fn steps(lists: &Plan, number: usize, list: &ListColumn, records: usize) -> Steps {
    assert_eq!((list.step_splits.len(), list.step_splits[0]), (records + 1, 0));
    let spec = &lists.specs()[number];
    assert_eq!(list.present.as_ref().map(Vec::len), (spec.missing == Missing::Mask).then_some(records));
    let all = rows(spec, &list.column, list.step_splits[records] as usize);
    let of_record = |record: usize| {
        let steps = &all[list.step_splits[record] as usize..list.step_splits[record + 1] as usize];
        let there = list.present.as_ref().is_none_or(|present| present[record] == 1);
        assert!(there || steps.is_empty());
        there.then(|| steps.to_vec())
    };
    (0..records).map(of_record).collect()
}

fn decode(context: &Plan, lists: &Plan, records: &[&[u8]]) -> Option<(Vec<Column>, Vec<ListColumn>)> {
    let expected = expected(context, lists, records);
    match (sequence::decode(context, lists, records.iter().copied()), expected) {
        (Ok((columns, list_columns)), Some((context_rows, list_steps))) => {
            for (number, (column, expected)) in columns.iter().zip(context_rows).enumerate() {
                assert_eq!(rows(&context.specs()[number], column, records.len()), expected);
            }
            for (number, (list, mut expected)) in list_columns.iter().zip(list_steps).enumerate() {
                if list.present.is_none() {
                    // A list with a default: the records that lack it have no steps.
                    expected.iter_mut().for_each(|steps| *steps = Some(steps.take().unwrap_or_default()));
                }
                assert_eq!(steps(lists, number, list, records.len()), expected);
            }
            Some((columns, list_columns))
        }
        (Ok(_), None) => {
            // Another library inflates for the naive decoder, and it is a little stricter about odd streams.
            let zlib = |plan: &Plan| plan.specs().iter().any(|spec| spec.encoding == Encoding::Zlib);
            assert!(zlib(context) || zlib(lists), "took what the naive decoder refuses");
            None
        }
        (Err(error), Some(_)) if is_too_large(&error) => None,
        (Err(error), Some(_)) => panic!("refused what the naive decoder takes: {error}"),
        (Err(error), None) => {
            assert!(error.record().is_some_and(|record| record < records.len() as u64));
            None
        }
    }
}

fn check(bytes: &[u8]) {
    let [context, lists, rest @ ..] = bytes else { return };
    let (context, lists) = (plans::plan(*context), plans::plan(*lists));
    let records = records(rest);
    let Some(decoded) = decode(&context, &lists, &records) else { return };
    let (columns, list_columns) = &decoded;
    let inputs: Vec<Input<'_>> = columns.iter().map(input).collect();
    let list_inputs: Vec<ListInput<'_>> = list_columns
        .iter()
        .map(|list| ListInput {
            input: input(&list.column),
            step_splits: &list.step_splits,
            present: list.present.as_deref(),
        })
        .collect();
    let batch = EncodeBatch::new(&context, &inputs, records.len()).expect("what was decoded can be encoded");
    let frames = sequence::encode(&batch, &lists, &list_inputs).expect("what was decoded can be encoded");
    let again: Vec<&[u8]> = frames.iter().collect();
    assert_eq!(decode(&context, &lists, &again).as_ref(), Some(&decoded));
}

fuzz_target!(|input: &[u8]| check(&open(input, |program| build::records(program, 2))));
