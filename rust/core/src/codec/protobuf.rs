//! Protobuf's wire format, as far as `tf.train.Example` needs it.

/// Why bytes are not a protobuf message. Cheap to make: callers turn it into an [`crate::Error`] that has a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed(pub &'static str);

/// Groups nested deeper than this are refused, as protobuf itself does.
pub const MAX_DEPTH: usize = 100;

/// The value of one field on the wire.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum WireValue<'a> {
    /// Wire type 0.
    Varint(u64),
    /// Wire type 1.
    Fixed64,
    /// Wire type 2.
    Bytes(&'a [u8]),
    /// Wire types 3 and 4: skipped.
    Group,
    /// Wire type 5.
    Fixed32(u32),
}

/// The fields of a message in the order of the bytes.
#[derive(Clone, Debug)]
pub struct Fields<'a> {
    bytes: &'a [u8],
    position: usize,
}

impl<'a> Fields<'a> {
    /// Over a message's bytes.
    pub fn new(bytes: &'a [u8]) -> Self {
        Fields { bytes, position: 0 }
    }

    fn tag(&mut self) -> Result<(u32, u8), Malformed> {
        let tag = varint(self.bytes, &mut self.position).ok_or(Malformed("a broken field tag"))?;
        let tag = u32::try_from(tag).map_err(|_| Malformed("a field tag over 32 bits"))?;
        Ok((tag >> 3, (tag & 7) as u8))
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], Malformed> {
        let end = self.position.checked_add(length).ok_or(Malformed("a length over the end"))?;
        let taken = self.bytes.get(self.position..end).ok_or(Malformed("a length over the end"))?;
        self.position = end;
        Ok(taken)
    }

    fn value(&mut self, number: u32, wire_type: u8, depth: usize) -> Result<WireValue<'a>, Malformed> {
        match wire_type {
            0 => varint(self.bytes, &mut self.position).map(WireValue::Varint).ok_or(Malformed("a broken varint")),
            1 => self.take(8).map(|_| WireValue::Fixed64),
            2 => {
                let length = varint(self.bytes, &mut self.position).ok_or(Malformed("a broken length"))?;
                let length = usize::try_from(length).map_err(|_| Malformed("a length over the end"))?;
                self.take(length).map(WireValue::Bytes)
            }
            3 if depth < MAX_DEPTH => loop {
                match self.tag()? {
                    (end, 4) if end == number => return Ok(WireValue::Group),
                    (_, 4) => return Err(Malformed("a group that ends another one")),
                    (inner, wire_type) => self.value(inner, wire_type, depth + 1)?,
                };
            },
            3 => Err(Malformed("groups nested too deep")),
            4 => Err(Malformed("the end of a group that never began")),
            5 => {
                let bytes = self.take(4)?;
                Ok(WireValue::Fixed32(u32::from_le_bytes(bytes.try_into().expect("four bytes"))))
            }
            _ => Err(Malformed("an unknown wire type")),
        }
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = Result<(u32, WireValue<'a>), Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.position >= self.bytes.len() {
            return None;
        }
        let field = self.tag().and_then(|(number, wire_type)| match number {
            // Inside a group that is skipped, protobuf lets such a field pass, and so does `value`.
            0 => Err(Malformed("a field numbered zero")),
            _ => Ok((number, self.value(number, wire_type, 0)?)),
        });
        if field.is_err() {
            self.position = self.bytes.len();
        }
        Some(field)
    }
}

const CONTINUES: u64 = 0x8080_8080_8080_8080;

/// Closes the gaps that a varint's continuation bits leave: eight groups of 7 bits become one number.
#[inline]
fn squeeze(word: u64) -> u64 {
    let word = (word & 0x007f_007f_007f_007f) | ((word & 0x7f00_7f00_7f00_7f00) >> 1);
    let word = (word & 0x0000_3fff_0000_3fff) | ((word & 0x3fff_0000_3fff_0000) >> 2);
    (word & 0x0fff_ffff) | ((word & 0x0fff_ffff_0000_0000) >> 4)
}

/// Reads the varint at `position` and moves past it. `None` when it has no end within ten bytes.
#[inline]
pub fn varint(bytes: &[u8], position: &mut usize) -> Option<u64> {
    let (value, next) = varint_at(bytes, *position)?;
    *position = next;
    Some(value)
}

/// The varint at `position`, and where the next thing begins. By value, so that a loop keeps its position in a
/// register.
#[inline]
fn varint_at(bytes: &[u8], position: usize) -> Option<(u64, usize)> {
    match bytes.get(position) {
        Some(&byte) if byte < 0x80 => Some((u64::from(byte), position + 1)),
        Some(_) => long_varint_at(bytes, position),
        None => None,
    }
}

#[inline(never)]
fn long_varint_at(bytes: &[u8], position: usize) -> Option<(u64, usize)> {
    let mut value = 0u64;
    for (i, &byte) in bytes[position..].iter().take(10).enumerate() {
        value |= u64::from(byte & 0x7f) << (7 * i);
        if byte < 0x80 {
            return Some((value, position + i + 1));
        }
    }
    None
}

/// How many varints end in `packed`: bytes without a continuation bit.
#[inline]
pub fn count_varints(packed: &[u8]) -> usize {
    // Chunks short enough for byte-wide sums, which the compiler turns into vector instructions.
    packed.chunks(255).map(|chunk| usize::from(chunk.iter().fold(0u8, |sum, &byte| sum + u8::from(byte < 0x80)))).sum()
}

/// Calls `put` with each varint of `packed`; `false` if one is broken or longer than ten bytes.
pub fn each_varint(packed: &[u8], mut put: impl FnMut(u64)) -> bool {
    let mut position = 0;
    while position < packed.len() {
        match varint(packed, &mut position) {
            Some(value) => put(value),
            None => return false,
        }
    }
    true
}

/// Fills `out` with the varints of `packed`, each through `convert`, which also says whether it fits; `false`
/// unless they are just as many, all whole and all fit.
///
/// The list is read from both ends at once, two varints at each: where a varint ends is known only once it is read, so
/// one end alone would leave the processor waiting. Eight bytes hold two varints, whose ends are found and whose gaps
/// are closed without a branch that depends on their lengths; longer ones are read one by one.
#[inline]
pub fn read_varints<T>(packed: &[u8], out: &mut [T], convert: impl Fn(u64) -> (T, bool)) -> bool {
    let (mut rest, mut slots) = (packed, out);
    let mut all_fit = true;
    while let (Some(front), Some(back)) = (rest.first_chunk(), rest.last_chunk()) {
        if slots.len() < 4 || rest.len() < 16 {
            break;
        }
        let (Some((first, second, head)), Some((third, fourth, tail))) = (first_two(front), last_two(back)) else {
            break;
        };
        let [a, b, middle @ .., c, d] = slots else { return false };
        for (slot, value) in [(a, first), (b, second), (c, third), (d, fourth)] {
            let fits;
            (*slot, fits) = convert(value);
            all_fit &= fits;
        }
        (rest, slots) = (&rest[head..rest.len() - tail], middle);
    }
    let mut position = 0;
    for slot in slots {
        let Some((value, next)) = varint_at(rest, position) else { return false };
        let fits;
        (*slot, fits) = convert(value);
        all_fit &= fits;
        position = next;
    }
    all_fit && position == rest.len()
}

/// The two varints that eight bytes begin with and how many bytes they take, if both end within them.
#[inline]
fn first_two(eight: &[u8; 8]) -> Option<(u64, u64, usize)> {
    let word = u64::from_le_bytes(*eight);
    let ends = !word & CONTINUES;
    let later = ends & ends.wrapping_sub(1);
    if later == 0 {
        return None;
    }
    let (first, both) = (ends.trailing_zeros() + 1, later.trailing_zeros() + 1);
    let second = (word & (u64::MAX >> (64 - both))) >> first;
    Some((squeeze(word & (u64::MAX >> (64 - first))), squeeze(second), both as usize / 8))
}

/// The two varints that eight bytes end with and how many bytes they take, if the end before them is among the eight.
#[inline]
fn last_two(eight: &[u8; 8]) -> Option<(u64, u64, usize)> {
    let word = u64::from_le_bytes(*eight);
    let ends = !word & CONTINUES;
    let before = ends & (u64::MAX >> 1);
    // Bits from the top that belong to the last varint, and to both.
    let last = before.leading_zeros();
    let earlier = before & !(1u64 << 63 >> (last & 63));
    if ends == before || earlier == 0 {
        return None;
    }
    let both = earlier.leading_zeros();
    let second = (word << last) >> (64 - both + last);
    Some((squeeze(second), squeeze(word >> (64 - last)), both as usize / 8))
}

/// How many bytes `value` takes as a varint.
#[inline]
pub fn varint_length(value: u64) -> usize {
    (70 - (value | 1).leading_zeros() as usize) / 7
}

/// Appends `value` as a varint.
#[inline]
pub fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Opens the gaps that [`squeeze`] closes.
#[inline]
fn stretch(value: u64) -> u64 {
    let word = (value & 0x0fff_ffff) | ((value & 0x00ff_ffff_f000_0000) << 4);
    let word = (word & 0x0000_3fff_0000_3fff) | ((word & 0x0fff_c000_0fff_c000) << 2);
    (word & 0x007f_007f_007f_007f) | ((word & 0x3f80_3f80_3f80_3f80) << 1)
}

/// Writes `value` as a varint at `position`, where `out` has at least ten bytes left, and returns where it ends.
#[inline]
pub fn write_varint(out: &mut [u8], position: usize, value: u64) -> usize {
    if value >= 1 << 56 {
        return write_long_varint(out, position, value);
    }
    let length = varint_length(value);
    let word = stretch(value) | (CONTINUES & ((1u64 << (8 * (length - 1))) - 1));
    out[position..position + 8].copy_from_slice(&word.to_le_bytes());
    position + length
}

#[cold]
fn write_long_varint(out: &mut [u8], mut position: usize, mut value: u64) -> usize {
    while value >= 0x80 {
        out[position] = value as u8 | 0x80;
        position += 1;
        value >>= 7;
    }
    out[position] = value as u8;
    position + 1
}

/// Bytes of a map entry's body: the key and a value of `value` bytes.
pub(crate) fn entry_size(key: &str, value: usize) -> usize {
    1 + varint_length(key.len() as u64) + key.len() + 1 + varint_length(value as u64) + value
}

/// Appends a map entry up to its value, of `value` bytes, which comes next.
pub(crate) fn put_entry(key: &str, value: usize, out: &mut Vec<u8>) {
    out.push(0x0a);
    put_varint(out, entry_size(key, value) as u64);
    out.push(0x0a);
    put_varint(out, key.len() as u64);
    out.extend_from_slice(key.as_bytes());
    out.push(0x12);
    put_varint(out, value as u64);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples() -> Vec<u64> {
        let mut samples = vec![0, 1, u64::MAX, u64::MAX - 1, i64::MIN as u64];
        for shift in 0..64 {
            let power = 1u64 << shift;
            samples.extend([power - 1, power, power.wrapping_add(1), power.wrapping_mul(0x9e37_79b9_7f4a_7c15)]);
        }
        samples
    }

    fn as_it_is(value: u64) -> (u64, bool) {
        (value, true)
    }

    #[test]
    fn varints_agree_with_the_plain_writer() {
        for value in samples() {
            let mut plain = Vec::new();
            put_varint(&mut plain, value);
            assert_eq!(plain.len(), varint_length(value), "{value}");
            let mut quick = [0xeeu8; 10];
            let position = write_varint(&mut quick, 0, value);
            assert_eq!(&quick[..position], plain, "{value}");
            let mut position = 0;
            assert_eq!(varint(&plain, &mut position), Some(value));
            assert_eq!(position, plain.len());
        }
    }

    #[test]
    fn lists_of_varints_agree_with_one_at_a_time() {
        let all = samples();
        for length in 0..all.len() {
            for start in 0..8.min(all.len() - length) {
                let list = &all[start..start + length];
                let mut packed = Vec::new();
                list.iter().for_each(|&value| put_varint(&mut packed, value));
                let mut read = Vec::new();
                assert!(each_varint(&packed, |value| read.push(value)));
                assert_eq!(read, list);
                let mut filled = vec![0; list.len()];
                assert!(read_varints(&packed, &mut filled, as_it_is));
                assert_eq!(filled, list);
                assert!(!read_varints(&packed, &mut vec![0; list.len() + 1], as_it_is));
                assert!(list.is_empty() || !read_varints(&packed, &mut vec![0; list.len() - 1], as_it_is));
                assert!(list.is_empty() || !read_varints(&packed, &mut filled, |_| (0, false)));
                assert_eq!(count_varints(&packed), list.len());
            }
        }
    }

    #[test]
    fn broken_varints_are_found_anywhere() {
        for prefix in 0..20 {
            let mut eleven = vec![1u8; prefix];
            eleven.extend([0xff; 10]);
            eleven.push(1);
            assert!(!each_varint(&eleven, |_| ()), "eleven bytes after {prefix}");
            let mut cut = vec![1u8; prefix];
            cut.push(0x80);
            assert!(!read_varints(&eleven, &mut vec![0; prefix + 1], as_it_is), "eleven bytes after {prefix}");
            assert!(!read_varints(&cut, &mut vec![0; prefix + 1], as_it_is), "cut after {prefix}");
            assert!(!each_varint(&cut, |_| ()), "cut after {prefix}");
        }
        assert_eq!(varint(&[0xff; 11], &mut 0), None);
        assert_eq!(varint(&[], &mut 0), None);
        assert_eq!(varint(&[1], &mut 5), None);
    }

    #[test]
    fn minus_one_takes_ten_bytes() {
        let mut out = Vec::new();
        put_varint(&mut out, -1i64 as u64);
        assert_eq!(out, [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01]);
    }

    #[test]
    fn fields_skip_groups_and_refuse_nonsense() {
        let group = [0x0b, 0x10, 0x01, 0x0c, 0x18, 0x05];
        let fields: Result<Vec<_>, _> = Fields::new(&group).collect();
        assert_eq!(fields.unwrap(), [(1, WireValue::Group), (3, WireValue::Varint(5))]);
        for bad in
            [&[0x0b, 0x14][..], &[0x0c], &[0x00], &[0x0e], &[0x0a, 0xff], &[0x0a, 0x05, 1], &[0x0d, 1, 2], &[0x09, 1]]
        {
            assert!(Fields::new(bad).any(|field| field.is_err()), "{bad:?}");
        }
        let zero_inside = [0x0b, 0x00, 0x05, 0x0c];
        assert_eq!(Fields::new(&zero_inside).collect::<Vec<_>>(), [Ok((1, WireValue::Group))]);
        let deep = [0x0b; 500];
        assert!(Fields::new(&deep).any(|field| field.is_err()));
    }
}
