//! Selects rows of columns in any order, column by column, so that memory loads overlap.

use crate::error::{Error, Kind, Result};
use crate::example::encode::{Input, Values};
use crate::example::plan::Spec;

/// The chosen rows of one column.
#[derive(Debug)]
pub struct SelectedRows {
    values: Vec<u8>,
    value_splits: Option<Vec<i64>>,
}

impl SelectedRows {
    /// The chosen ones of the `rows` rows of a column whose rows all have the length that its spec says.
    pub fn new(spec: &Spec, input: &Input<'_>, rows: usize, chosen: &[i64]) -> Result<SelectedRows> {
        if let Some(row) = chosen.iter().find(|&&row| row < 0 || row as u64 >= rows as u64) {
            return Err(Error::new(Kind::OutOfRange, format!("row {row} is outside of columns of {rows} rows")));
        }
        match (&input.values, spec.count) {
            (Values::Numbers(bytes), Some(count)) => numbers(bytes, spec.dtype.width() * count, rows, chosen),
            (Values::Strings(data, splits), Some(1)) => strings(data, splits, rows, chosen),
            _ => Err(Error::usage("expected rows of one number or string each, or of numbers of one shape")),
        }
        .map_err(|error| error.in_field(&spec.key))
    }

    /// What the encoder takes; `present` has an entry for each of the chosen rows.
    pub fn input<'a>(&'a self, present: Option<&'a [u8]>) -> Input<'a> {
        let values = match &self.value_splits {
            Some(splits) => Values::Strings(&self.values, splits),
            None => Values::Numbers(&self.values),
        };
        Input { values, row_splits: None, present }
    }

    /// Whether all strings are UTF-8.
    pub fn is_text(&self) -> bool {
        let string = |pair: &[i64]| std::str::from_utf8(&self.values[pair[0] as usize..pair[1] as usize]).is_ok();
        self.values.is_ascii() || self.value_splits.as_ref().is_none_or(|splits| splits.windows(2).all(string))
    }
}

fn numbers(bytes: &[u8], width: usize, rows: usize, chosen: &[i64]) -> Result<SelectedRows> {
    if width.checked_mul(rows) != Some(bytes.len()) {
        return Err(Error::schema(format!("expected {rows} rows of {width} bytes, got {} bytes", bytes.len())));
    }
    /// A copy of a size that the compiler knows is one instruction.
    fn copy<const WIDTH: usize>(bytes: &[u8], chosen: &[i64]) -> Vec<u8> {
        let mut values = vec![0; WIDTH * chosen.len()];
        for (value, &row) in values.chunks_exact_mut(WIDTH).zip(chosen) {
            value.copy_from_slice(&bytes[row as usize * WIDTH..][..WIDTH]);
        }
        values
    }
    let values = match width {
        1 => copy::<1>(bytes, chosen),
        4 => copy::<4>(bytes, chosen),
        8 => copy::<8>(bytes, chosen),
        _ => chosen.iter().flat_map(|&row| &bytes[row as usize * width..][..width]).copied().collect(),
    };
    Ok(SelectedRows { values, value_splits: None })
}

fn strings(data: &[u8], splits: &[i64], rows: usize, chosen: &[i64]) -> Result<SelectedRows> {
    if splits.len() != rows + 1 {
        return Err(Error::schema(format!("expected {rows} rows, as other columns have, got {}", splits.len())));
    }
    let places: Vec<(i64, i64)> = chosen.iter().map(|&row| (splits[row as usize], splits[row as usize + 1])).collect();
    let mut values = Vec::new();
    let mut value_splits = Vec::with_capacity(chosen.len() + 1);
    value_splits.push(0);
    for (start, end) in places {
        let string = usize::try_from(start).ok().zip(usize::try_from(end).ok()).and_then(|(a, b)| data.get(a..b));
        let Some(string) = string else {
            return Err(Error::usage(format!("expected value splits that rise from 0 to {}, got others", data.len())));
        };
        values.extend_from_slice(string);
        value_splits.push(values.len() as i64);
    }
    Ok(SelectedRows { values, value_splits: Some(value_splits) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::example::plan::{spec, Dtype};

    fn input(values: Values<'_>) -> Input<'_> {
        Input { values, row_splits: None, present: None }
    }

    #[test]
    fn rows_of_any_width() {
        let bytes: Vec<u8> = (0..48).collect();
        for (dtype, count) in
            [(Dtype::Bool, 1), (Dtype::Int16, 1), (Dtype::Float32, 1), (Dtype::Int64, 1), (Dtype::Uint8, 3)]
        {
            let width = dtype.width() * count;
            let column = input(Values::Numbers(&bytes));
            let taken = SelectedRows::new(&spec("n", dtype, Some(count)), &column, 48 / width, &[2, 0, 2]).unwrap();
            let expected: Vec<u8> =
                [2, 0, 2].iter().flat_map(|row| &bytes[row * width..(row + 1) * width]).copied().collect();
            assert_eq!(taken.values, expected);
        }
    }

    #[test]
    fn strings_and_what_is_wrong_with_them() {
        let text = spec("s", Dtype::Bytes, Some(1));
        let data = "aßc\u{20ac}".as_bytes();
        let take =
            |splits: &[i64], chosen: &[i64]| SelectedRows::new(&text, &input(Values::Strings(data, splits)), 3, chosen);
        let taken = take(&[0, 1, 3, 7], &[2, 0, 1]).unwrap();
        assert_eq!((&taken.values[..], taken.value_splits.as_deref()), ("c€aß".as_bytes(), Some(&[0, 4, 5, 7][..])));
        assert!(taken.is_text());
        assert!(!take(&[0, 2, 3, 7], &[0, 1]).unwrap().is_text(), "a letter cut in two");
        assert_eq!(take(&[0, 1, 3, 7], &[3]).unwrap_err().kind(), Kind::OutOfRange);
        assert_eq!(take(&[0, 1, 3, 7], &[-1]).unwrap_err().kind(), Kind::OutOfRange);
        for wrong in [[0, 3, 1, 7], [-4, 1, 3, 7], [0, 1, 9, 7]] {
            assert!(take(&wrong, &[0, 1]).is_err(), "{wrong:?}");
        }
        assert!(take(&[0, 1, 3], &[0]).is_err());
    }
}
