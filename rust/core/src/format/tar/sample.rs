//! Encodes a sample, the files of one key, as a `tf.train.Example`.

use std::collections::BTreeMap;

use super::member::{next, Member, Slice};
use crate::codec::protobuf::{entry_size, put_entry, put_varint, varint_length};
use crate::error::{Error, Result};

/// The field that holds a sample's key.
pub const KEY: &str = "__key__";

/// A member's key and extension, as WebDataset has them: the name up to the first dot of its last part, and the rest in
/// small letters. Nothing for members that are no part of a sample: folders and links, files without an extension,
/// hidden ones, and what is called `__so__`.
pub fn key_and_extension(member: &Member) -> Result<Option<(&str, String)>> {
    let name = member.name.as_str();
    if !member.is_file {
        return Ok(None);
    }
    if name.starts_with('/') || name.split('/').any(|part| part == "..") {
        let message = format!("expected a name within the archive, got {name:?}");
        return Err(Error::corrupt(message).at_offset(member.begin));
    }
    let first = name.split('/').next().unwrap_or_default();
    if first.len() >= 4 && first.starts_with("__") && first.ends_with("__") {
        return Ok(None);
    }
    let base = name.rfind('/').map_or(0, |slash| slash + 1);
    let parts = name[base..].split_once('.').filter(|(stem, extension)| !stem.is_empty() && !extension.is_empty());
    Ok(parts.map(|(stem, extension)| (&name[..base + stem.len()], extension.to_lowercase())))
}

/// The error for a second file of one extension.
pub(super) fn duplicate(member: &Member) -> Error {
    let message = format!("expected one file of each extension in a sample, got another one: {:?}", member.name);
    Error::corrupt(message).at_offset(member.begin)
}

/// What a file of a sample is read as.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileContent {
    /// Its bytes.
    Bytes,
    /// A whole number in text.
    Int,
    /// A number in text.
    Float,
    /// An array in NumPy's format, of this `descr` and this shape; `None` stands for any size.
    Array(String, Vec<Option<u64>>),
}

/// What the files of samples are read as, by extension; others are left out. Without rules all are read, as bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TarRules(pub BTreeMap<String, FileContent>);

fn content<'r>(rules: Option<&'r TarRules>, extension: &str) -> Option<&'r FileContent> {
    match rules {
        Some(rules) => rules.0.get(extension),
        None => Some(&FileContent::Bytes),
    }
}

/// A value of the example.
enum FeatureValue<'a> {
    Bytes(&'a [u8]),
    /// Numbers as they are packed, and the tag of their list.
    Packed(u8, Vec<u8>),
}

const FLOATS: u8 = 0x12;
const INTS: u8 = 0x1a;

impl FeatureValue<'_> {
    fn bytes(&self) -> &[u8] {
        match self {
            FeatureValue::Bytes(bytes) => bytes,
            FeatureValue::Packed(_, bytes) => bytes,
        }
    }

    fn list_size(&self) -> usize {
        1 + varint_length(self.bytes().len() as u64) + self.bytes().len()
    }

    fn feature_size(&self) -> usize {
        1 + varint_length(self.list_size() as u64) + self.list_size()
    }

    fn put(&self, key: &str, out: &mut Vec<u8>) {
        put_entry(key, self.feature_size(), out);
        out.push(match self {
            FeatureValue::Bytes(_) => 0x0a,
            FeatureValue::Packed(tag, _) => *tag,
        });
        put_varint(out, self.list_size() as u64);
        out.push(0x0a);
        put_varint(out, self.bytes().len() as u64);
        out.extend_from_slice(self.bytes());
    }
}

/// Appends the example of a sample, whose members are all there is in `sample`.
pub fn write(sample: Slice<'_>, rules: Option<&TarRules>, out: &mut Vec<u8>) -> Result<()> {
    let mut sample = sample;
    let mut key: Option<String> = None;
    let mut values: Vec<(String, FeatureValue<'_>)> = Vec::new();
    let mut seen: Vec<String> = vec![KEY.to_owned()];
    let mut at = sample.begin;
    let end = sample.begin + sample.bytes.len() as u64;
    while at < end {
        let Some(member) = next(&mut sample, at)? else { break };
        at = member.end();
        let Some((its_key, extension)) = key_and_extension(&member)? else { continue };
        if *key.get_or_insert_with(|| its_key.to_owned()) != its_key {
            let message = format!("expected the files of one sample, got {:?}", member.name);
            return Err(Error::corrupt(message).at_offset(member.begin));
        }
        if seen.contains(&extension) {
            return Err(duplicate(&member));
        }
        if let Some(content) = content(rules, &extension) {
            let data = sample.part(member.data, member.size);
            let place = |error: Error| error.in_field(&extension).at_offset(member.begin);
            read(content, &extension, data, &member, &mut values).map_err(place)?;
        }
        seen.push(extension);
    }
    let Some(key) = key else {
        let message = "expected the files of a sample, got others";
        return Err(Error::corrupt(message).at_offset(sample.begin));
    };
    let with_key = rules.is_none_or(|rules| rules.0.contains_key(KEY));
    let key = with_key.then_some((KEY.to_owned(), FeatureValue::Bytes(key.as_bytes())));
    let entry = |(key, value): &(String, FeatureValue<'_>)| {
        let size = entry_size(key, value.feature_size());
        1 + varint_length(size as u64) + size
    };
    let size: usize = key.iter().chain(&values).map(entry).sum();
    out.reserve(size + 11);
    out.push(0x0a);
    put_varint(out, size as u64);
    key.iter().chain(&values).for_each(|(key, value)| value.put(key, out));
    Ok(())
}

fn read<'a>(
    content: &FileContent,
    extension: &str,
    data: &'a [u8],
    member: &Member,
    values: &mut Vec<(String, FeatureValue<'a>)>,
) -> Result<()> {
    let refuse = |what: &str| {
        let text = String::from_utf8_lossy(&data[..data.len().min(40)]).into_owned();
        Error::schema(format!("expected {what} in {:?}, got {text:?}", member.name))
    };
    let text = || std::str::from_utf8(data).ok().map(str::trim);
    match content {
        FileContent::Bytes => values.push((extension.to_owned(), FeatureValue::Bytes(data))),
        FileContent::Int => {
            let number: i64 = text().and_then(|text| text.parse().ok()).ok_or_else(|| refuse("a whole number"))?;
            values.push((extension.to_owned(), packed_ints(&[number as u64])));
        }
        FileContent::Float => {
            let number: f32 = text().and_then(|text| text.parse().ok()).ok_or_else(|| refuse("a number"))?;
            values.push((extension.to_owned(), FeatureValue::Packed(FLOATS, number.to_le_bytes().to_vec())));
        }
        FileContent::Array(descr, shape) => {
            let array = Array::parse(data).ok_or_else(|| refuse("an array in NumPy's format, in C order"))?;
            let fits = array.shape.len() == shape.len()
                && shape.iter().zip(&array.shape).all(|(size, got)| size.is_none_or(|size| size == *got));
            if array.descr != descr || !fits {
                let expected: Vec<_> =
                    shape.iter().map(|size| size.map_or("?".into(), |size| size.to_string())).collect();
                let (expected, got, name) = (expected.join(","), &array.shape, &member.name);
                let message =
                    format!("expected an array of {descr}[{expected}] in {name:?}, got {}{got:?}", array.descr);
                return Err(Error::schema(message).advise("Say what they are: schema={...}."));
            }
            if shape.iter().filter(|size| size.is_none()).count() > 1 {
                values.push((format!("{extension}/value"), FeatureValue::Bytes(array.data)));
                values.push((format!("{extension}/shape"), packed_ints(&array.shape)));
            } else {
                values.push((extension.to_owned(), FeatureValue::Bytes(array.data)));
            }
        }
    }
    Ok(())
}

fn packed_ints<'a>(numbers: &[u64]) -> FeatureValue<'a> {
    let mut packed = Vec::new();
    numbers.iter().for_each(|&number| put_varint(&mut packed, number));
    FeatureValue::Packed(INTS, packed)
}

/// An array in NumPy's format.
struct Array<'a> {
    descr: &'a str,
    shape: Vec<u64>,
    data: &'a [u8],
}

impl<'a> Array<'a> {
    /// Reads the header; none where it is no header, of Fortran order, or does not fit the data.
    fn parse(bytes: &'a [u8]) -> Option<Array<'a>> {
        let rest = bytes.strip_prefix(b"\x93NUMPY")?;
        let (length, rest) = match rest {
            [1, _, low, high, rest @ ..] => (usize::from(u16::from_le_bytes([*low, *high])), rest),
            [2 | 3, _, a, b, c, d, rest @ ..] => (usize::try_from(u32::from_le_bytes([*a, *b, *c, *d])).ok()?, rest),
            _ => return None,
        };
        let header = std::str::from_utf8(rest.get(..length)?).ok()?;
        let data = &rest[length..];
        let after = |name: &str| header.split_once(&format!("'{name}':")).map(|(_, rest)| rest.trim_start());
        let descr = after("descr")?.strip_prefix('\'')?.split_once('\'')?.0;
        if !after("fortran_order")?.starts_with("False") {
            return None;
        }
        let shape = after("shape")?.strip_prefix('(')?.split_once(')')?.0;
        let shape = shape.split(',').map(str::trim).filter(|size| !size.is_empty());
        let shape = shape.map(|size| size.parse().ok()).collect::<Option<Vec<u64>>>()?;
        let width: u64 = descr.get(2..)?.parse().ok()?;
        let whole = shape.iter().try_fold(width, |product, &size| product.checked_mul(size))?;
        (whole == data.len() as u64).then_some(Array { descr, shape, data })
    }
}
