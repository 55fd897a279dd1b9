//! What the fuzz targets share: plans, naive decoders to compare with, and inputs built by small programs.
//!
//! Bytes changed at random seldom hold a CRC or a nested length that fits. So an input that begins with [`PROGRAM`] is a
//! program: its bytes say what to build, and what is built is right in most places. Any other input is taken as it is.

use penstock_core::Kind;

pub mod build;
pub mod chunks;
pub mod columns;
pub mod naive;
pub mod plans;

/// The largest row while fuzzing: so small that an input can ask for more, and that many rows exceed the memory limit.
pub const ROW_BYTES: u64 = 1 << 20;

/// Whether an error is that of a row or record beyond [`ROW_BYTES`], which the naive decoders do not know.
pub fn is_too_large(error: &penstock_core::Error) -> bool {
    matches!(error.kind(), Kind::TooLarge | Kind::SchemaTooLarge)
}

/// The first byte of an input that is a program.
pub const PROGRAM: u8 = 0xff;

/// The bytes that an input stands for.
pub fn open(input: &[u8], build: impl FnOnce(&[u8]) -> Vec<u8>) -> std::borrow::Cow<'_, [u8]> {
    penstock_core::limits::set_max_row_bytes(ROW_BYTES);
    match input {
        [PROGRAM, program @ ..] => build(program).into(),
        _ => input.into(),
    }
}

/// Splits an input into records: each has its length before it, in two bytes; the last may be cut short.
pub fn records(mut input: &[u8]) -> Vec<&[u8]> {
    let mut records = Vec::new();
    while let [low, high, rest @ ..] = input {
        let (record, rest) = rest.split_at(rest.len().min(usize::from(u16::from_le_bytes([*low, *high]))));
        records.push(record);
        input = rest;
    }
    records
}
