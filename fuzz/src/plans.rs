//! A handful of plans that together reach every way a column is decoded.

use penstock_core::example::plan::{Dtype, Encoding, Missing, Plan, Spec};

fn spec(key: &str, dtype: Dtype, count: Option<usize>) -> Spec {
    Spec { key: key.into(), dtype, encoding: Encoding::None, count, missing: Missing::Refuse }
}

fn optional(spec: Spec) -> Spec {
    Spec { missing: Missing::Mask, ..spec }
}

fn default(spec: Spec, row: &[u8]) -> Spec {
    Spec { missing: Missing::Default(row.to_vec()), ..spec }
}

fn bytes(spec: Spec) -> Spec {
    Spec { encoding: Encoding::Bytes, ..spec }
}

fn zlib(spec: Spec) -> Spec {
    Spec { encoding: Encoding::Zlib, ..spec }
}

/// As many elements of eight bytes as a row may have: some hundred rows that are allocated by this number alone exceed the
/// memory limit.
const WIDEST: Option<usize> = Some(crate::ROW_BYTES as usize / 8);

/// The columns of plan `number`, for any number.
fn columns(number: u8) -> Vec<Spec> {
    match number % 14 {
        // Rows of one size.
        0 => {
            vec![spec("a", Dtype::Int64, Some(1)), spec("b", Dtype::Float32, Some(3)), spec("c", Dtype::Int64, Some(2))]
        }
        // Rows of any size.
        1 => vec![spec("a", Dtype::Int64, None), spec("b", Dtype::Float32, None), spec("c", Dtype::Bytes, None)],
        2 => vec![
            spec("a", Dtype::Bytes, Some(1)),
            spec("b", Dtype::Bytes, Some(2)),
            optional(spec("c", Dtype::Bytes, None)),
        ],
        3 => vec![
            optional(spec("a", Dtype::Int64, Some(1))),
            optional(spec("b", Dtype::Float32, Some(2))),
            optional(spec("c", Dtype::Bytes, Some(1))),
            optional(spec("d", Dtype::Int64, None)),
        ],
        4 => vec![
            default(spec("a", Dtype::Int64, Some(1)), &7i64.to_le_bytes()),
            default(spec("b", Dtype::Float32, None), &1.5f32.to_le_bytes()),
            default(spec("c", Dtype::Bytes, Some(1)), b"none"),
            default(spec("d", Dtype::Int8, Some(3)), &[1, 2, 3]),
        ],
        5 => vec![
            spec("a", Dtype::Bool, None),
            spec("b", Dtype::Int8, None),
            spec("c", Dtype::Uint8, None),
            spec("d", Dtype::Int16, None),
            spec("e", Dtype::Uint16, None),
            spec("f", Dtype::Int32, None),
            spec("g", Dtype::Uint32, None),
            spec("h", Dtype::Uint64, None),
        ],
        6 => vec![
            spec("a", Dtype::Float16, Some(2)),
            spec("b", Dtype::Float64, Some(1)),
            spec("c", Dtype::Float16, None),
            optional(spec("d", Dtype::Float64, None)),
        ],
        7 => vec![
            bytes(spec("a", Dtype::Float64, Some(2))),
            bytes(spec("b", Dtype::Bfloat16, None)),
            bytes(optional(spec("c", Dtype::Uint8, None))),
            bytes(default(spec("d", Dtype::Int32, Some(1)), &[9, 0, 0, 0])),
        ],
        8 => vec![
            zlib(spec("a", Dtype::Int16, Some(4))),
            zlib(spec("b", Dtype::Float32, None)),
            zlib(optional(spec("c", Dtype::Uint8, None))),
        ],
        // One column out of many: the others are skipped.
        9 => vec![spec("c", Dtype::Int64, None)],
        10 => vec![],
        11 => vec![
            optional(spec("", Dtype::Int64, None)),
            spec("a", Dtype::Int64, Some(0)),
            optional(spec("b", Dtype::Bytes, Some(0))),
        ],
        12 => vec![
            spec("a", Dtype::Int64, WIDEST),
            bytes(spec("b", Dtype::Float64, WIDEST)),
            zlib(spec("c", Dtype::Uint64, WIDEST)),
        ],
        // Rows that are wide, and missing.
        _ => vec![
            optional(spec("a", Dtype::Int64, WIDEST)),
            optional(spec("b", Dtype::Bytes, WIDEST)),
            optional(zlib(spec("c", Dtype::Uint8, None))),
        ],
    }
}

/// Plan `number`, for any number.
pub fn plan(number: u8) -> Plan {
    Plan::new(columns(number)).expect("a plan that makes sense")
}
