//! Splits CSV text into records and cells.

use crate::error::{Error, Result};

/// How the cells of a file are set apart.
#[derive(Clone, Copy, Debug)]
pub struct Dialect {
    delimiter: [u8; 4],
    length: usize,
    /// A space after each delimiter is not part of a cell.
    pub spaced: bool,
}

impl Dialect {
    /// Cells with this character between them.
    pub fn new(delimiter: char) -> Dialect {
        let mut bytes = [0; 4];
        let length = delimiter.encode_utf8(&mut bytes).len();
        Dialect { delimiter: bytes, length, spaced: false }
    }

    fn delimiter(&self) -> &[u8] {
        &self.delimiter[..self.length]
    }

    /// Whether a delimiter stands at this place.
    #[inline]
    fn delimits(&self, text: &[u8], at: usize) -> bool {
        text.get(at) == Some(&self.delimiter[0]) && (self.length == 1 || text[at..].starts_with(self.delimiter()))
    }

    /// Whether the first line of a file has a space after each delimiter: then all lines do.
    pub fn spaces(&self, line: &[u8]) -> bool {
        let mut after = (0..line.len())
            .filter(|&at| line[at..].starts_with(self.delimiter()))
            .map(|at| at + self.length)
            .peekable();
        after.peek().is_some() && after.all(|at| line.get(at) == Some(&b' '))
    }

    /// Whether a quote at this place, outside of quotes, opens a cell.
    fn opens(&self, before: &[u8]) -> bool {
        let spaces = if self.spaced { before.iter().rev().take_while(|&&byte| byte == b' ').count() } else { 0 };
        let before = &before[..before.len() - spaces];
        matches!(before.last(), None | Some(b'\n' | b'\r')) || before.ends_with(self.delimiter())
    }
}

/// The first place from `from` on that holds one of three bytes, or the end. Eight bytes at a time: cells are short.
#[inline]
fn find(text: &[u8], from: usize, needles: [u8; 3]) -> usize {
    const ONES: u64 = u64::MAX / 255;
    let mut at = from;
    while let Some(word) = text.get(at..).and_then(|rest| rest.first_chunk::<8>()) {
        let word = u64::from_le_bytes(*word);
        // The lowest bit that is set marks the first byte that is zero.
        let zeros = |bytes: u64| bytes.wrapping_sub(ONES) & !bytes & (ONES << 7);
        let found = needles.iter().fold(0, |found, &needle| found | zeros(word ^ (ONES * u64::from(needle))));
        if found != 0 {
            return at + found.trailing_zeros() as usize / 8;
        }
        at += 8;
    }
    at + text[at..].iter().position(|byte| needles.contains(byte)).unwrap_or(text.len() - at)
}

/// The end of the line break at `at`, if there is one.
fn after_break(text: &[u8], at: usize) -> Option<usize> {
    match text.get(at) {
        Some(b'\n') => Some(at + 1),
        Some(b'\r') => Some(at + 1 + usize::from(text.get(at + 1) == Some(&b'\n'))),
        _ => None,
    }
}

/// How many lines end in the text.
fn breaks(text: &[u8]) -> i64 {
    let mut at = 0;
    std::iter::from_fn(|| {
        at = after_break(text, find(text, at, [b'\n', b'\r', b'\n']))?;
        Some(())
    })
    .count() as i64
}

/// The end of the first line, without its break; `None` if it is cut off.
pub fn first_line(text: &[u8]) -> Option<&[u8]> {
    text.get(..find(text, 0, [b'\n', b'\r', b'\n'])).filter(|line| line.len() < text.len())
}

/// Where the last whole record ends in a text that begins with a record and goes on; `None` if none is whole.
pub fn whole_records(text: &[u8], dialect: &Dialect) -> Option<usize> {
    let quotes = text.contains(&b'"');
    let (mut at, mut end) = (0, None);
    loop {
        let mut quote = if quotes { find(text, at, [b'"'; 3]) } else { text.len() };
        while quote < text.len() && !dialect.opens(&text[..quote]) {
            quote = find(text, quote + 1, [b'"'; 3]);
        }
        // The text may go on with the other half of a line break.
        let certain = if quote == text.len() && text.ends_with(b"\r") { quote - 1 } else { quote };
        let last = text[at..certain.max(at)].iter().rposition(|byte| matches!(byte, b'\n' | b'\r'));
        end = last.map(|last| at + last + 1).or(end);
        if quote == text.len() {
            return end;
        }
        match closing_quote(text, quote + 1).filter(|&closing| closing + 1 < text.len()) {
            Some(closing) => at = closing + 1,
            None => return end, // what may be the closing quote is the first half of two
        }
    }
}

/// The quote that closes the cell whose content begins at `at`.
fn closing_quote(text: &[u8], mut at: usize) -> Option<usize> {
    loop {
        at = find(text, at, [b'"'; 3]);
        if at == text.len() {
            return None;
        }
        if text.get(at + 1) != Some(&b'"') {
            return Some(at);
        }
        at += 2;
    }
}

/// Records of equally many cells: where each cell lies in the text, and the line of each record.
#[derive(Debug, Default)]
pub struct Cells {
    /// The cells of all records, one record after the other.
    pub places: Vec<(u32, u32)>,
    /// The line where each record begins, counted from 0.
    pub lines: Vec<i64>,
    /// How many lines there are.
    pub breaks: i64,
}

impl Cells {
    /// The cells of a text that ends where a record does; each record has `width`. Quotes within cells are resolved in
    /// the text itself. An error comes with its line.
    pub fn split(text: &mut [u8], dialect: &Dialect, width: usize) -> std::result::Result<Cells, (i64, Error)> {
        if let Err(error) = std::str::from_utf8(text) {
            let at = error.valid_up_to();
            return Err((breaks(&text[..at]), not_text(text[at])));
        }
        let mut cells = Cells::default();
        let mut at = 0;
        while at < text.len() {
            let (line, before) = (cells.breaks, cells.places.len());
            at = cells.record(text, at, dialect).map_err(|error| (cells.breaks, error))?;
            match cells.places.len() - before {
                0 => {}
                found if found == width => cells.lines.push(line),
                found => return Err((line, Error::corrupt(format!("expected {width} cells, got {found}")))),
            }
        }
        Ok(cells)
    }

    /// Adds the cells of the record at `at`, none if the line is empty, and says where the next one begins.
    pub fn record(&mut self, text: &mut [u8], mut at: usize, dialect: &Dialect) -> Result<usize> {
        if let Some(next) = after_break(text, at) {
            self.breaks += 1;
            return Ok(next);
        }
        loop {
            if dialect.spaced {
                at += text[at..].iter().take_while(|&&byte| byte == b' ').count();
            }
            let quoted = text.get(at) == Some(&b'"');
            at = if quoted { self.quoted(text, at + 1)? } else { self.plain(text, at, dialect) };
            if at == text.len() {
                return Ok(at);
            } else if dialect.delimits(text, at) {
                at += dialect.length;
            } else if let Some(next) = after_break(text, at) {
                self.breaks += 1;
                return Ok(next);
            } else {
                let rest = String::from_utf8_lossy(&text[at..(at + 4).min(text.len())]);
                let got = rest.chars().next().unwrap_or_default();
                return Err(Error::corrupt(format!("expected CSV, got {got:?} after a closing quote")));
            }
        }
    }

    #[inline]
    fn plain(&mut self, text: &[u8], start: usize, dialect: &Dialect) -> usize {
        let needles = [dialect.delimiter[0], b'\n', b'\r'];
        let mut end = find(text, start, needles);
        while text.get(end) == Some(&needles[0]) && !dialect.delimits(text, end) {
            end = find(text, end + 1, needles);
        }
        self.places.push((start as u32, end as u32));
        end
    }

    fn quoted(&mut self, text: &mut [u8], start: usize) -> Result<usize> {
        let Some(closing) = closing_quote(text, start) else {
            return Err(Error::corrupt("expected CSV, got a quote that nothing closes"));
        };
        self.breaks += breaks(&text[start..closing]);
        let mut end = closing;
        let first = find(&text[..closing], start, [b'"'; 3]);
        if first < closing {
            end = first;
            let mut at = first;
            while at < closing {
                text[end] = text[at];
                end += 1;
                at += 1 + usize::from(text[at] == b'"'); // the second of two quotes is left out
            }
        }
        self.places.push((start as u32, end as u32));
        Ok(closing + 1)
    }
}

/// The error for a file that is not text.
pub fn not_text(byte: u8) -> Error {
    Error::corrupt(format!("expected UTF-8 text, got the byte 0x{byte:02x}")).advise("Convert the file to UTF-8")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(text: &str, delimiter: char, width: usize) -> Vec<String> {
        let mut text = text.as_bytes().to_vec();
        let cells = Cells::split(&mut text, &Dialect::new(delimiter), width).unwrap();
        let cell = |&(start, end): &(u32, u32)| String::from_utf8(text[start as usize..end as usize].to_vec()).unwrap();
        cells.places.iter().map(cell).collect()
    }

    #[test]
    fn quotes_are_resolved() {
        assert_eq!(split("\"say \"\"hi\"\"\",\"\"\"\"\r\n\"\",a\"b\"\n", ',', 2), ["say \"hi\"", "\"", "", "a\"b\""]);
        assert_eq!(split("a§b\n\"§\"§é\n", '§', 2), ["a", "b", "§", "é"]);
        assert_eq!(split("a¦b\n", '§', 1), ["a¦b"], "characters that begin with the same byte");
    }

    #[test]
    fn lines_are_counted_in_cells_too() {
        let mut text = b"1,\"a\r\nb\rc\nd\"\n\r\n\r2,x".to_vec();
        let cells = Cells::split(&mut text, &Dialect::new(','), 2).unwrap();
        assert_eq!((cells.lines, cells.breaks), (vec![0, 6], 6));
    }

    #[test]
    fn every_place_is_found() {
        let text: Vec<u8> = (1..=255).collect();
        for from in 0..20 {
            for needle in from as u8 + 1..=255 {
                assert_eq!(find(&text, from, [needle, 0, needle]), usize::from(needle) - 1);
            }
        }
    }

    #[test]
    fn a_text_is_cut_behind_its_last_whole_record() {
        let dialect = Dialect::new(',');
        let spaced = Dialect { spaced: true, ..dialect };
        let cut = |text: &str, dialect| whole_records(text.as_bytes(), dialect).map(|end| text[..end].to_owned());
        assert_eq!(cut("a,b\nc", &dialect).unwrap(), "a,b\n");
        assert_eq!(cut("a,b\r", &dialect), None, "a line feed may follow");
        assert_eq!(cut("a\rb\r", &dialect).unwrap(), "a\r");
        assert_eq!(cut("a,\"b\nc\"\nd,\"\n", &dialect).unwrap(), "a,\"b\nc\"\n");
        assert_eq!(cut("a,\"b\nc\"", &dialect), None, "another quote may follow");
        assert_eq!(cut("a,\"b\"\"\nc\n", &dialect), None);
        assert_eq!(cut("a,b\"\nc\n", &dialect).unwrap(), "a,b\"\nc\n", "a quote within a cell is a letter");
        assert_eq!(cut("a, \"b\nc", &dialect).unwrap(), "a, \"b\n");
        assert_eq!(cut("a, \"b\nc", &spaced), None);
    }
}
