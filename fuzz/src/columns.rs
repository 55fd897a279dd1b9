//! Columns seen as rows, and columns as what they are encoded from again.

use penstock_core::example::columns::Column;
use penstock_core::example::encode::{Input, Values};
use penstock_core::example::plan::{Dtype, Spec};

use crate::naive::Row;

/// Splits rise from zero to the end.
fn check_splits(splits: &[i64], end: usize) {
    assert_eq!((splits.first(), splits.last()), (Some(&0), Some(&(end as i64))));
    assert!(splits.windows(2).all(|pair| pair[0] <= pair[1]));
}

/// The rows of a column; whatever else it says about itself must fit.
pub fn rows(spec: &Spec, column: &Column, rows: usize) -> Vec<Row> {
    let bytes = column.values.bytes();
    let elements = match &column.value_splits {
        Some(splits) => {
            check_splits(splits, bytes.len());
            splits.len() - 1
        }
        None => {
            assert_eq!(bytes.len() % spec.dtype.width(), 0);
            bytes.len() / spec.dtype.width()
        }
    };
    assert_eq!(column.value_splits.is_some(), spec.dtype == Dtype::Bytes);
    assert_eq!(column.row_splits.is_some(), spec.count.is_none());
    if let Some(splits) = &column.row_splits {
        check_splits(splits, elements);
        assert_eq!(splits.len(), rows + 1);
    }
    if let Some(count) = spec.count {
        assert_eq!(elements, rows * count);
    }
    if let Some(present) = &column.present {
        assert_eq!(present.len(), rows);
    }
    let row = |row: usize| {
        let range = match (&column.row_splits, spec.count) {
            (Some(splits), _) => splits[row] as usize..splits[row + 1] as usize,
            (None, count) => row * count.unwrap_or(0)..(row + 1) * count.unwrap_or(0),
        };
        let values = match &column.value_splits {
            Some(splits) => {
                Row::Strings(range.map(|i| bytes[splits[i] as usize..splits[i + 1] as usize].to_vec()).collect())
            }
            None => Row::Numbers(bytes[range.start * spec.dtype.width()..range.end * spec.dtype.width()].to_vec()),
        };
        if column.present.as_ref().is_none_or(|present| present[row] == 1) {
            return values;
        }
        match values {
            Row::Numbers(bytes) => assert!(bytes.iter().all(|&byte| byte == 0), "a missing row is zeros"),
            Row::Strings(strings) => assert!(strings.iter().all(Vec::is_empty), "a missing row is empty"),
            Row::Missing => {}
        }
        Row::Missing
    };
    (0..rows).map(row).collect()
}

/// A decoded column, to be encoded again.
pub fn input(column: &Column) -> Input<'_> {
    let bytes = column.values.bytes();
    let values = match &column.value_splits {
        Some(splits) => Values::Strings(bytes, splits),
        None => Values::Numbers(bytes),
    };
    Input { values, row_splits: column.row_splits.as_deref(), present: column.present.as_deref() }
}
