//! A schema compiled once: which columns a record holds on the wire, and how.

use crate::error::{Error, Result};
use crate::limits;

/// The type of an element.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum Dtype {
    Bool,
    Int8,
    Int16,
    Int32,
    Int64,
    Uint8,
    Uint16,
    Uint32,
    Uint64,
    Float16,
    Float32,
    Float64,
    Bfloat16,
    /// Byte strings of any length.
    Bytes,
}

/// Which of the three lists of a `tf.train.Feature` holds the values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum List {
    Bytes,
    Floats,
    Ints,
}

impl List {
    /// The name that TensorFlow's users know it by.
    pub fn name(self) -> &'static str {
        match self {
            List::Bytes => "bytes_list",
            List::Floats => "float_list",
            List::Ints => "int64_list",
        }
    }
}

impl Dtype {
    const NAMES: [(Dtype, &'static str); 14] = [
        (Dtype::Bool, "bool"),
        (Dtype::Int8, "int8"),
        (Dtype::Int16, "int16"),
        (Dtype::Int32, "int32"),
        (Dtype::Int64, "int64"),
        (Dtype::Uint8, "uint8"),
        (Dtype::Uint16, "uint16"),
        (Dtype::Uint32, "uint32"),
        (Dtype::Uint64, "uint64"),
        (Dtype::Float16, "float16"),
        (Dtype::Float32, "float32"),
        (Dtype::Float64, "float64"),
        (Dtype::Bfloat16, "bfloat16"),
        (Dtype::Bytes, "bytes"),
    ];

    /// The dtype of this name, as NumPy spells it.
    pub fn parse(name: &str) -> Result<Dtype> {
        Self::NAMES.iter().find(|(_, known)| *known == name).map(|(dtype, _)| *dtype).ok_or_else(|| {
            let known: Vec<&str> = Self::NAMES.iter().map(|(_, name)| *name).collect();
            Error::usage(format!("expected a dtype out of {}, got {name:?}", known.join(", ")))
        })
    }

    /// The name, as NumPy spells it.
    pub fn name(self) -> &'static str {
        Self::NAMES.iter().find(|(dtype, _)| *dtype == self).map_or("", |(_, name)| name)
    }

    /// Bytes an element takes in memory; a byte string counts its bytes one by one.
    pub fn width(self) -> usize {
        match self {
            Dtype::Bool | Dtype::Int8 | Dtype::Uint8 | Dtype::Bytes => 1,
            Dtype::Int16 | Dtype::Uint16 | Dtype::Float16 | Dtype::Bfloat16 => 2,
            Dtype::Int32 | Dtype::Uint32 | Dtype::Float32 => 4,
            Dtype::Int64 | Dtype::Uint64 | Dtype::Float64 => 8,
        }
    }

    fn list(self) -> List {
        match self {
            Dtype::Bytes => List::Bytes,
            Dtype::Float16 | Dtype::Float32 | Dtype::Float64 | Dtype::Bfloat16 => List::Floats,
            _ => List::Ints,
        }
    }
}

/// How a column's elements lie in its list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    /// One value of the list per element.
    None,
    /// One byte string: the elements in C order, little endian.
    Bytes,
    /// The same, as a zlib stream.
    Zlib,
}

impl Encoding {
    /// The encoding of this name, as TFDS spells it.
    pub fn parse(name: &str) -> Result<Encoding> {
        match name {
            "none" => Ok(Encoding::None),
            "bytes" => Ok(Encoding::Bytes),
            "zlib" => Ok(Encoding::Zlib),
            _ => Err(Error::usage(format!("expected an encoding out of none, bytes, zlib, got {name:?}"))),
        }
    }
}

/// What a record that lacks a column means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Missing {
    /// An error.
    Refuse,
    /// A hole: the column says which rows are present.
    Mask,
    /// This row: its elements in C order, little endian, or the one byte string.
    Default(Vec<u8>),
}

/// One column on the wire.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spec {
    /// The feature's key.
    pub key: String,
    /// The element type.
    pub dtype: Dtype,
    /// How the elements lie in their list.
    pub encoding: Encoding,
    /// How many elements each record has; `None` when that differs.
    pub count: Option<usize>,
    /// What the absence of the key means.
    pub missing: Missing,
}

impl Spec {
    /// The list that holds the column.
    pub fn list(&self) -> List {
        match self.encoding {
            Encoding::None => self.dtype.list(),
            Encoding::Bytes | Encoding::Zlib => List::Bytes,
        }
    }

    /// Bytes of a row in memory, when every row has the same number.
    pub fn row_bytes(&self) -> Option<usize> {
        match self.dtype {
            Dtype::Bytes => None,
            dtype => Some(self.count? * dtype.width()),
        }
    }

    /// Bytes that a row of a fixed number of elements takes, its offsets included; `None` if that is more than fits.
    pub(crate) fn most_bytes(&self) -> Option<usize> {
        let width = if self.dtype == Dtype::Bytes { size_of::<i64>() } else { self.dtype.width() };
        self.count.unwrap_or(0).checked_mul(width)
    }

    /// "float32 x 13", for messages.
    pub fn describe(&self) -> String {
        match self.count {
            Some(1) => format!("one {} value", self.dtype.name()),
            Some(count) => format!("{count} {} values", self.dtype.name()),
            None => format!("{} values", self.dtype.name()),
        }
    }

    fn check(&self) -> Result<()> {
        let refuse = |message: String| Err(Error::usage(message).in_field(&self.key));
        if self.dtype == Dtype::Bytes && self.encoding != Encoding::None {
            return refuse("expected encoding none for a column of bytes".into());
        }
        if self.dtype == Dtype::Bfloat16 && self.encoding == Encoding::None {
            return refuse("expected encoding bytes or zlib for bfloat16: a float_list holds float32".into());
        }
        if self.count.is_some() && self.most_bytes().is_none_or(|bytes| bytes as u64 > limits::max_row_bytes()) {
            return Err(limits::too_wide("a row", self.describe()).in_field(&self.key));
        }
        let Missing::Default(row) = &self.missing else { return Ok(()) };
        match (self.dtype, self.row_bytes()) {
            (Dtype::Bytes, _) if self.count != Some(1) => {
                refuse("expected a default only for a single byte string".into())
            }
            (_, Some(bytes)) if bytes != row.len() => {
                refuse(format!("expected a default of {}, got {} bytes", self.describe(), row.len()))
            }
            (dtype, None) if row.len() % dtype.width() != 0 => {
                refuse(format!("expected a default of {}, got {} bytes", self.describe(), row.len()))
            }
            _ => Ok(()),
        }
    }
}

/// The columns of a record, compiled for encoding and for decoding.
#[derive(Clone, Debug)]
pub struct Plan {
    specs: Vec<Spec>,
    /// Column numbers in the order of their keys: how records are written, and where a key is looked up.
    sorted: Vec<usize>,
}

impl Plan {
    /// Compiles the columns; a key may stand there once.
    pub fn new(specs: Vec<Spec>) -> Result<Plan> {
        specs.iter().try_for_each(Spec::check)?;
        let mut sorted: Vec<usize> = (0..specs.len()).collect();
        sorted.sort_by(|&a, &b| specs[a].key.as_bytes().cmp(specs[b].key.as_bytes()));
        for pair in sorted.windows(2) {
            if specs[pair[0]].key == specs[pair[1]].key {
                return Err(Error::usage("expected each key once, got it twice").in_field(&specs[pair[0]].key));
            }
        }
        Ok(Plan { specs, sorted })
    }

    /// The columns, as declared.
    pub fn specs(&self) -> &[Spec] {
        &self.specs
    }

    /// Column numbers in the order of their keys.
    pub fn sorted(&self) -> &[usize] {
        &self.sorted
    }

    /// The number of the column with this key.
    pub fn find(&self, key: &[u8]) -> Option<usize> {
        let found = self.sorted.binary_search_by(|&column| self.specs[column].key.as_bytes().cmp(key));
        found.ok().map(|position| self.sorted[position])
    }
}

#[cfg(test)]
pub(crate) fn spec(key: &str, dtype: Dtype, count: Option<usize>) -> Spec {
    Spec { key: key.into(), dtype, encoding: Encoding::None, count, missing: Missing::Refuse }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_columns_by_key() {
        let plan = Plan::new(vec![spec("b", Dtype::Int64, None), spec("a", Dtype::Bytes, Some(1))]).unwrap();
        assert_eq!(plan.find(b"a"), Some(1));
        assert_eq!(plan.find(b"b"), Some(0));
        assert_eq!(plan.find(b"c"), None);
        assert_eq!(plan.sorted(), [1, 0]);
    }

    #[test]
    fn refuses_what_cannot_be_stored() {
        let twice = vec![spec("a", Dtype::Int64, None), spec("a", Dtype::Int64, None)];
        assert!(Plan::new(twice).is_err());
        assert!(Plan::new(vec![spec("a", Dtype::Bfloat16, None)]).is_err());
        assert!(Plan::new(vec![spec("a", Dtype::Int64, Some(usize::MAX))]).is_err());
        let zipped = Spec { encoding: Encoding::Zlib, ..spec("a", Dtype::Bytes, Some(1)) };
        assert!(Plan::new(vec![zipped]).is_err());
        let short = Spec { missing: Missing::Default(vec![0; 4]), ..spec("a", Dtype::Int64, Some(1)) };
        assert!(Plan::new(vec![short]).is_err());
    }

    #[test]
    fn names_go_both_ways() {
        for (dtype, name) in Dtype::NAMES {
            assert_eq!(Dtype::parse(name).unwrap(), dtype);
            assert_eq!(dtype.name(), name);
        }
        assert!(Dtype::parse("complex64").is_err());
    }
}
