//! A CSV column that grows block by block and widens its type when a cell does not fit.

use crate::example::columns::{Column, ColumnBuffer};
use crate::example::plan::Dtype;

/// What all cells so far are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ColumnKind {
    /// Empty.
    #[default]
    Nothing,
    /// `true` or `false`.
    Bool,
    /// Integers that int64 holds, or that uint64 does.
    Int,
    /// Numbers.
    Float,
    /// Anything.
    Text,
}

/// Cells of one kind, with what decides their type in the end.
#[derive(Debug, Default)]
pub struct Typed {
    /// What the cells are.
    pub kind: ColumnKind,
    rows: usize,
    /// The bits of an i64, a u64, an f64 or a bool for each row; zero where the cell is empty.
    numbers: Vec<u64>,
    /// 0 for each empty cell, where there is one.
    present: Option<Vec<u8>>,
    text: Vec<u8>,
    splits: Vec<i64>,
    /// Some integer is below zero; some is above the largest i64. Where both are true, the numbers are floats.
    negative: bool,
    above: bool,
    /// Some cell is a float as it is written; some has a digit.
    written: bool,
    digits: bool,
}

/// What one cell is.
#[derive(Debug, PartialEq)]
enum CellValue {
    Bool(bool),
    /// Its bits, and whether they are those of a u64 above every i64.
    Int(u64, bool),
    /// No integer of 64 bits, and whether it is written as a float: with a point, an exponent or letters.
    Float(f64, bool),
    Text,
}

impl Typed {
    /// The cells as texts.
    pub fn texts<'a>(cells: impl Iterator<Item = &'a [u8]>) -> Typed {
        let mut texts = Typed { kind: ColumnKind::Text, ..Typed::default() };
        texts.splits.reserve(cells.size_hint().0 + 1);
        texts.splits.push(0);
        for cell in cells {
            texts.text.extend_from_slice(cell);
            texts.splits.push(texts.text.len() as i64);
        }
        texts.rows = texts.splits.len() - 1;
        texts
    }

    /// The cells as whatever all of them are.
    pub fn of<'a>(cells: impl Iterator<Item = &'a [u8]> + Clone) -> Typed {
        let mut typed = Typed { numbers: Vec::with_capacity(cells.size_hint().0), ..Typed::default() };
        for cell in cells.clone() {
            if !typed.push(cell) {
                return Typed::texts(cells);
            }
        }
        typed
    }

    fn push(&mut self, cell: &[u8]) -> bool {
        let (kind, bits) = match if cell.is_empty() { None } else { Some(value(cell)) } {
            None => {
                self.add_empty(1);
                return true;
            }
            Some(CellValue::Bool(truth)) => (ColumnKind::Bool, u64::from(truth)),
            Some(CellValue::Int(bits, above)) => {
                let negative = !above && (bits as i64) < 0;
                if (above && self.negative || negative && self.above) && self.kind == ColumnKind::Int {
                    self.widen();
                }
                self.above |= above;
                self.negative |= negative;
                self.digits = true;
                match self.kind {
                    ColumnKind::Float => (ColumnKind::Float, as_float(bits, above).to_bits()),
                    _ => (ColumnKind::Int, bits),
                }
            }
            Some(CellValue::Float(value, written)) => {
                if self.kind == ColumnKind::Int {
                    self.widen();
                }
                self.written |= written;
                self.digits |= value.is_finite();
                (ColumnKind::Float, value.to_bits())
            }
            Some(CellValue::Text) => return false,
        };
        if self.kind != kind {
            if self.kind != ColumnKind::Nothing {
                return false;
            }
            self.kind = kind;
        }
        self.numbers.push(bits);
        if let Some(present) = &mut self.present {
            present.push(1);
        }
        self.rows += 1;
        true
    }

    /// Adds rows without a value.
    fn add_empty(&mut self, rows: usize) {
        if self.kind == ColumnKind::Text {
            self.splits.resize(self.splits.len() + rows, self.text.len() as i64);
        } else if rows > 0 {
            self.present.get_or_insert_with(|| vec![1; self.rows]).resize(self.rows + rows, 0);
            self.numbers.resize(self.rows + rows, 0);
        }
        self.rows += rows;
    }

    /// Integers become floats.
    fn widen(&mut self) {
        for bits in &mut self.numbers {
            *bits = as_float(*bits, self.above).to_bits();
        }
        self.kind = ColumnKind::Float;
    }

    /// Adds the rows of another column, unless nothing but texts holds both.
    pub fn append(&mut self, mut other: Typed) -> bool {
        if other.kind == ColumnKind::Nothing {
            self.add_empty(other.rows);
            return true;
        }
        if self.kind == ColumnKind::Nothing {
            let rows = std::mem::take(self).rows;
            self.kind = other.kind;
            self.splits = if other.kind == ColumnKind::Text { vec![0] } else { Vec::new() };
            self.add_empty(rows);
        }
        let mixed = (self.negative || other.negative) && (self.above || other.above);
        let (ours, theirs) = (self.kind, other.kind);
        for (column, beside) in [(&mut *self, theirs), (&mut other, ours)] {
            if column.kind == ColumnKind::Int && (beside == ColumnKind::Float || beside == ColumnKind::Int && mixed) {
                column.widen();
            }
        }
        if self.kind != other.kind {
            return false;
        }
        if self.present.is_some() || other.present.is_some() {
            let present = self.present.get_or_insert_with(|| vec![1; self.rows]);
            match &other.present {
                Some(others) => present.extend_from_slice(others),
                None => present.resize(self.rows + other.rows, 1),
            }
        }
        let start = self.text.len() as i64;
        self.numbers.append(&mut other.numbers);
        self.text.append(&mut other.text);
        self.splits.extend(other.splits.iter().skip(1).map(|split| start + split));
        self.rows += other.rows;
        self.negative |= other.negative;
        self.above |= other.above;
        self.written |= other.written;
        self.digits |= other.digits;
        true
    }

    /// The whole column and its type; `None` if its cells turn out to be texts, which are gone.
    pub fn settled(mut self) -> Option<(Dtype, Column)> {
        if self.kind == ColumnKind::Nothing {
            self = Typed { splits: vec![0; self.rows + 1], kind: ColumnKind::Text, ..Typed::default() };
        }
        let dtype = match self.kind {
            ColumnKind::Bool => Dtype::Bool,
            ColumnKind::Int if self.above => Dtype::Uint64,
            ColumnKind::Int => Dtype::Int64,
            ColumnKind::Float if self.written && self.digits => Dtype::Float64,
            ColumnKind::Float => return None, // integers that none of 64 bits is, or nothing but nan and inf
            ColumnKind::Text | ColumnKind::Nothing => Dtype::Bytes,
        };
        let values = match self.kind {
            ColumnKind::Text | ColumnKind::Nothing => ColumnBuffer::Strings(self.text),
            ColumnKind::Bool => ColumnBuffer::Strings(self.numbers.iter().map(|&bits| bits as u8).collect()),
            _ => ColumnBuffer::Numbers(self.numbers, 0, 8 * self.rows),
        };
        let value_splits = (dtype == Dtype::Bytes).then_some(self.splits);
        Some((dtype, Column { values, value_splits, row_splits: None, present: self.present, shapes: None }))
    }
}

fn as_float(bits: u64, above: bool) -> f64 {
    if above {
        bits as f64
    } else {
        bits as i64 as f64
    }
}

/// What a cell is that is not empty. Spaces around a number or a bool do not count.
fn value(cell: &[u8]) -> CellValue {
    let (mut start, mut end) = (0, cell.len());
    while start < end && cell[start] == b' ' {
        start += 1;
    }
    while start < end && cell[end - 1] == b' ' {
        end -= 1;
    }
    let cell = &cell[start..end];
    match cell.first() {
        Some(b'-' | b'.' | b'0'..=b'9') => number(cell),
        Some(b't' | b'f' | b'T' | b'F') => match cell {
            b"true" | b"True" | b"TRUE" => CellValue::Bool(true),
            b"false" | b"False" | b"FALSE" => CellValue::Bool(false),
            _ => CellValue::Text,
        },
        Some(b'n' | b'N' | b'i' | b'I') => float(cell, true),
        _ => CellValue::Text,
    }
}

/// Digits that surely make less than 2^64.
const SHORT: usize = 19;
/// Integers up to here are floats exactly, and so are the powers of ten up to the 22nd.
const EXACT: u64 = 1 << 53;
const POWERS: [f64; 23] = [
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20,
    1e21, 1e22,
];

fn number(cell: &[u8]) -> CellValue {
    let negative = cell[0] == b'-';
    let body = &cell[usize::from(negative)..];
    if matches!(body, [b'0', b'0'..=b'9', ..]) {
        return CellValue::Text; // a code
    }
    let digits = |from: usize, sum: u64| {
        let mut sum = sum;
        let mut at = from;
        while let Some(digit) = body.get(at).map(|byte| byte.wrapping_sub(b'0')).filter(|&digit| digit < 10) {
            sum = sum.wrapping_mul(10).wrapping_add(u64::from(digit));
            at += 1;
        }
        (at, sum)
    };
    let (point, whole) = digits(0, 0);
    if point == body.len() {
        return integer(cell, negative, whole);
    }
    let (end, mantissa) = if body[point] == b'.' { digits(point + 1, whole) } else { (point, whole) };
    let decimals = (end - point).saturating_sub(1);
    if end < body.len() || end == 1 || end > SHORT || mantissa > EXACT || decimals >= POWERS.len() {
        return float(cell, true);
    }
    let value = mantissa as f64 / POWERS[decimals]; // of two exact numbers: rounded once, as it must be
    CellValue::Float(if negative { -value } else { value }, true)
}

fn integer(cell: &[u8], negative: bool, size: u64) -> CellValue {
    let length = cell.len() - usize::from(negative);
    let size = if length <= SHORT { Some(size) } else { text(cell).parse().ok() };
    match size {
        _ if length == 0 => CellValue::Text,
        Some(size) if !negative => CellValue::Int(size, size > i64::MAX as u64),
        Some(size @ 1..) if size <= i64::MIN.unsigned_abs() => CellValue::Int(size.wrapping_neg(), false),
        _ => float(cell, false), // -0 too
    }
}

/// A number in any other form, by the standard library: the nearest float there is.
fn float(cell: &[u8], written: bool) -> CellValue {
    match text(cell).parse::<f64>() {
        Ok(value) if value.is_finite() || !cell.iter().any(u8::is_ascii_digit) => CellValue::Float(value, written),
        _ => CellValue::Text,
    }
}

/// The cell, if it may be a number at all.
fn text(cell: &[u8]) -> &str {
    std::str::from_utf8(cell).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_cell_is() {
        let cases = [
            ("7", CellValue::Int(7, false)),
            (" -3 ", CellValue::Int(-3i64 as u64, false)),
            ("9223372036854775808", CellValue::Int(1 << 63, true)),
            ("-9223372036854775808", CellValue::Int(1 << 63, false)),
            ("18446744073709551615", CellValue::Int(u64::MAX, true)),
            ("18446744073709551616", CellValue::Float(18446744073709551616.0, false)),
            ("-9223372036854775809", CellValue::Float(-9223372036854775808.0, false)),
            ("-0", CellValue::Float(-0.0, false)),
            ("0.5", CellValue::Float(0.5, true)),
            (".5", CellValue::Float(0.5, true)),
            ("5.", CellValue::Float(5.0, true)),
            ("1e3", CellValue::Float(1000.0, true)),
            ("-1.5E+2", CellValue::Float(-150.0, true)),
            ("0.1234567890123456789012", CellValue::Float(0.123_456_789_012_345_68, true)),
            ("-Infinity", CellValue::Float(f64::NEG_INFINITY, true)),
            ("inf", CellValue::Float(f64::INFINITY, true)),
            ("True", CellValue::Bool(true)),
        ];
        for (cell, expected) in cases {
            assert_eq!(value(cell.as_bytes()), expected, "{cell}");
        }
        let texts = [
            "1e999",
            "007",
            "-01",
            "00.5",
            "+5",
            "1_000",
            "-",
            ".",
            "-.",
            " ",
            "e5",
            "1e",
            "--1",
            "3\t",
            "0x10",
            "tru",
            "in",
            "n",
            "٣",
            "1 2",
            "1.2.3",
            "true false",
        ];
        for cell in texts {
            assert_eq!(value(cell.as_bytes()), CellValue::Text, "{cell}");
        }
    }

    #[test]
    fn floats_are_those_of_the_standard_library() {
        let mut state = 1u64;
        for _ in 0..20_000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let (whole, decimals) = (state >> (state % 60 + 2), state >> 40);
            let cell = format!("{}{whole}.{decimals}", if state & 1 == 0 { "-" } else { "" });
            assert_eq!(value(cell.as_bytes()), CellValue::Float(cell.parse().unwrap(), true), "{cell}");
        }
    }

    fn cells(text: &str) -> impl Iterator<Item = &[u8]> + Clone {
        text.split(',').map(str::as_bytes)
    }

    #[test]
    fn the_order_of_pieces_makes_no_difference() {
        let some = ["7", "-7", "18446744073709551615", "2.5", "", "true", "cat", "nan", "-0", "18446744073709551616"];
        for one in some {
            for other in some {
                let whole = format!("{one},1,{other}");
                let mut pieces = Typed::of(cells(&format!("{one},1")));
                if !pieces.append(Typed::of(cells(other))) {
                    pieces = Typed::texts(cells(&whole));
                }
                assert_eq!(pieces.settled(), Typed::of(cells(&whole)).settled(), "{whole}");
            }
        }
    }
}
