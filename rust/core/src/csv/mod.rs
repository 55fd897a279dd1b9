//! Reads CSV files into typed columns, on several threads and in bounded memory.
//!
//! ```text
//! reader -> blocks of whole records -> cells -> columns of each block   on every thread
//!        -> columns of all, in order                                    on the thread that asks
//! ```
//!
//! A column has the type that all of its cells have, which only the last cell settles. Where numbers came before a
//! text, the files are read once more, for the texts of such columns alone.

mod column;
mod split;

use std::collections::HashSet;
use std::io::Read;
use std::path::Path;
use std::sync::atomic::{AtomicU8, Ordering};

use crate::error::{Error, Kind, Result};
use crate::example::columns::Column;
use crate::example::plan::Dtype;
use crate::io::file::Progress;
use crate::ordered_queue::pipeline;
use column::{ColumnKind, Typed};
use split::{first_line, not_text, whole_records, Cells, Dialect};

/// Longer records are refused: more likely, a quote was never closed.
const MOST_RECORD: usize = 64 << 20;

/// How to read.
#[derive(Clone, Debug)]
pub struct CsvOptions<'a> {
    /// Delimiter between cells.
    pub delimiter: char,
    /// The columns that stay texts; `None` for all of them.
    pub texts: Option<&'a [String]>,
    /// How many bytes are read at a time, about.
    pub block: usize,
    /// How many threads split and convert.
    pub threads: usize,
}

/// The columns of files that have the same header.
#[derive(Debug, Default)]
pub struct CsvTable {
    /// Their names.
    pub names: Vec<String>,
    /// Their types, and their cells.
    pub columns: Vec<(Dtype, Column)>,
    /// For each file, the line of each row.
    pub lines: Vec<Vec<i64>>,
}

/// Reads files of the same columns. Each is opened once, or twice.
pub fn read<R: Read + Send>(
    files: &[&Path],
    open: impl Fn(&Path) -> Result<R>,
    options: &CsvOptions<'_>,
    progress: Progress<'_>,
) -> Result<CsvTable> {
    let mut first = Pass::new(options, Vec::new());
    first.read(files, &open, progress)?;
    let Pass { names, columns, lines, .. } = first;
    let mut settled: Vec<_> = columns.into_iter().map(|column| column.and_then(Typed::settled)).collect();
    if settled.iter().any(Option::is_none) {
        let wanted = settled.iter().map(|column| if column.is_none() { Wanted::Texts } else { Wanted::Nothing });
        let mut second = Pass::new(options, wanted.map(|wanted| AtomicU8::new(wanted as u8)).collect());
        second.read(files, &open, progress)?;
        if second.names != names || second.lines != lines {
            return Err(Error::corrupt("expected files that stay as they are, got others on a second look"));
        }
        for (column, texts) in settled.iter_mut().zip(second.columns) {
            if column.is_none() {
                *column = texts.and_then(Typed::settled);
            }
        }
    }
    Ok(CsvTable { names, columns: settled.into_iter().flatten().collect(), lines })
}

/// What a pass makes of a column.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wanted {
    Typed,
    Texts,
    Nothing,
}

/// One pass over the files.
struct Pass<'a> {
    options: &'a CsvOptions<'a>,
    names: Vec<String>,
    /// `None` for a column whose texts are gone.
    columns: Vec<Option<Typed>>,
    /// A [`Wanted`] for each column. Threads may see a change late: that costs time and nothing else.
    wanted: Vec<AtomicU8>,
    lines: Vec<Vec<i64>>,
}

impl<'a> Pass<'a> {
    /// `wanted` is empty where the header and the options decide.
    fn new(options: &'a CsvOptions<'a>, wanted: Vec<AtomicU8>) -> Self {
        Pass { options, names: Vec::new(), columns: Vec::new(), wanted, lines: Vec::new() }
    }

    fn read<R: Read + Send>(
        &mut self,
        files: &[&Path],
        open: impl Fn(&Path) -> Result<R>,
        progress: Progress<'_>,
    ) -> Result<()> {
        let mut position = 0;
        for path in files {
            let mut blocks = Blocks::new(open(path)?, self.options);
            self.read_file(&mut blocks, &mut |bytes| {
                position += bytes;
                progress(position)
            })
            .map_err(|error| error.in_file(path))?;
        }
        Ok(())
    }

    fn read_file<R: Read + Send>(&mut self, blocks: &mut Blocks<R>, progress: Progress<'_>) -> Result<()> {
        let (header, lines) = blocks.header()?;
        let order = self.match_header(header).map_err(|error| error.at_line(lines.max(1) as u64))?;
        let Pass { options, columns, wanted, lines: all_lines, .. } = self;
        let (dialect, wanted) = (blocks.dialect, &*wanted);
        let (mut line, mut lines) = (lines + 1, Vec::new());
        let work = |text| Ok(Piece::new(text, &dialect, &order, wanted));
        pipeline(
            options.threads,
            || blocks.next(),
            work,
            |piece| {
                let piece = piece.map_err(|(found, error): (i64, Error)| error.at_line((line + found) as u64))?;
                let (bytes, breaks) = (piece.text.len() as u64, piece.cells.breaks);
                lines.extend(piece.cells.lines.iter().map(|found| line + found));
                piece.append_to(columns, &order, wanted);
                line += breaks;
                progress(bytes)
            },
        )?;
        all_lines.push(lines);
        Ok(())
    }

    /// The number of each cell's column; the first header names the columns.
    fn match_header(&mut self, header: Vec<String>) -> Result<Vec<usize>> {
        if let Some(at) = header.iter().position(String::is_empty) {
            return Err(Error::schema(format!("expected a name for every column, got none for column {}", at + 1)));
        }
        let mut sorted: Vec<&String> = header.iter().collect();
        sorted.sort();
        if let Some(twice) = sorted.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(Error::schema(format!("expected each column once, got '{}' twice", twice[0])));
        }
        if self.names.is_empty() {
            if self.wanted.is_empty() {
                let texts: Option<HashSet<&String>> = self.options.texts.map(|texts| texts.iter().collect());
                let stays = |name| texts.as_ref().is_none_or(|texts| texts.contains(name));
                let wanted = |name| if stays(name) { Wanted::Texts } else { Wanted::Typed };
                self.wanted = header.iter().map(|name| AtomicU8::new(wanted(name) as u8)).collect();
            }
            self.columns = header.iter().map(|_| Some(Typed::default())).collect();
            self.names = header.clone();
        }
        let mut known: Vec<(&String, usize)> = self.names.iter().zip(0..).collect();
        known.sort();
        if self.wanted.len() != header.len() || !known.iter().map(|(name, _)| *name).eq(sorted) {
            let (expected, got) = (self.names.join(", "), header.join(", "));
            return Err(Error::schema(format!("expected the columns {expected}, got {got}")));
        }
        let number = |name| known.binary_search_by_key(&name, |(name, _)| *name).map(|at| known[at].1);
        Ok(header.iter().filter_map(|name| number(name).ok()).collect())
    }
}

/// A block of records, split, and converted as far as its own cells tell.
struct Piece {
    text: Vec<u8>,
    cells: Cells,
    width: usize,
    /// In the order of the cells; empty where nothing is wanted.
    columns: Vec<Typed>,
}

impl Piece {
    fn new(
        mut text: Vec<u8>,
        dialect: &Dialect,
        order: &[usize],
        wanted: &[AtomicU8],
    ) -> std::result::Result<Piece, (i64, Error)> {
        let cells = Cells::split(&mut text, dialect, order.len())?;
        let mut piece = Piece { text, cells, width: order.len(), columns: Vec::new() };
        for (at, &number) in order.iter().enumerate() {
            let wanted = wanted[number].load(Ordering::Relaxed);
            piece.columns.push(if wanted == Wanted::Typed as u8 {
                Typed::of(piece.cells_of(at))
            } else if wanted == Wanted::Texts as u8 {
                Typed::texts(piece.cells_of(at))
            } else {
                Typed::default()
            });
        }
        Ok(piece)
    }

    /// The cells of a column.
    fn cells_of(&self, at: usize) -> impl Iterator<Item = &[u8]> + Clone {
        let places = self.cells.places.get(at..).unwrap_or_default();
        places.iter().step_by(self.width).map(|&(start, end)| &self.text[start as usize..end as usize])
    }

    /// Adds its columns to those of all pieces before it.
    fn append_to(mut self, columns: &mut [Option<Typed>], order: &[usize], wanted: &[AtomicU8]) {
        for (at, &number) in order.iter().enumerate() {
            let Some(column) = &mut columns[number] else { continue };
            let part = std::mem::take(&mut self.columns[at]);
            if wanted[number].load(Ordering::Relaxed) == Wanted::Nothing as u8 || column.append(part) {
                if column.kind == ColumnKind::Text {
                    wanted[number].store(Wanted::Texts as u8, Ordering::Relaxed);
                }
            } else if column.kind == ColumnKind::Text {
                column.append(Typed::texts(self.cells_of(at)));
            } else {
                columns[number] = None;
                wanted[number].store(Wanted::Nothing as u8, Ordering::Relaxed);
            }
        }
    }
}

/// Reads a file in blocks of whole records.
struct Blocks<R> {
    reader: R,
    dialect: Dialect,
    size: usize,
    /// What was read and belongs to the next block.
    rest: Vec<u8>,
    ended: bool,
}

impl<R: Read> Blocks<R> {
    fn new(reader: R, options: &CsvOptions<'_>) -> Self {
        let size = options.block.clamp(1, MOST_RECORD);
        Blocks { reader, dialect: Dialect::new(options.delimiter), size, rest: Vec::new(), ended: false }
    }

    /// Reads about as much again as there is, or a block.
    fn read_more(&mut self) -> Result<()> {
        let count = self.size.max(self.rest.len());
        let read = self.reader.by_ref().take(count as u64).read_to_end(&mut self.rest);
        self.ended = read.map_err(|error| Error::io("reading failed", &error))? == 0;
        if self.rest.len() > 2 * MOST_RECORD {
            let most = MOST_RECORD >> 20;
            return Err(Error::corrupt(format!("expected CSV, got a record of more than {most} MiB"))
                .advise("Is there a quote that nothing closes?"));
        }
        Ok(())
    }

    /// The next whole records.
    fn next(&mut self) -> Result<Option<Vec<u8>>> {
        while !self.ended {
            let whole = if self.rest.len() < self.size { None } else { whole_records(&self.rest, &self.dialect) };
            if let Some(end) = whole {
                let rest = self.rest.split_off(end);
                return Ok(Some(std::mem::replace(&mut self.rest, rest)));
            }
            self.read_more()?;
        }
        Ok(Some(std::mem::take(&mut self.rest)).filter(|rest| !rest.is_empty()))
    }

    /// The names in the first record, and how many lines there are up to its end.
    fn header(&mut self) -> Result<(Vec<String>, i64)> {
        while !self.ended && (self.rest.len() < 3 || first_line(&self.rest).is_none()) {
            self.read_more()?;
        }
        if self.rest.starts_with(b"\xef\xbb\xbf") {
            self.rest.drain(..3);
        }
        self.dialect.spaced = self.dialect.spaces(first_line(&self.rest).unwrap_or(&self.rest));
        let mut lines = 0;
        while let Some(mut text) = self.next()? {
            let mut at = 0;
            while at < text.len() {
                let mut cells = Cells::default();
                let line = lines + 1;
                at = cells.record(&mut text, at, &self.dialect).map_err(|error| error.at_line(line as u64))?;
                lines += cells.breaks;
                if !cells.places.is_empty() {
                    let name = |&(start, end): &(u32, u32)| {
                        let cell = &text[start as usize..end as usize];
                        let name = std::str::from_utf8(cell).map_err(|error| not_text(cell[error.valid_up_to()]));
                        Ok(name?.trim().to_owned())
                    };
                    let names = cells.places.iter().map(name).collect::<Result<_>>()?;
                    text.drain(..at);
                    text.append(&mut self.rest);
                    self.rest = text;
                    return Ok((names, lines));
                }
            }
        }
        Err(Error::new(Kind::Schema, "expected a header with the names of columns, got an empty file"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(block: usize, threads: usize) -> CsvOptions<'static> {
        CsvOptions { delimiter: ',', texts: Some(&[]), block, threads }
    }

    fn read_texts(texts: &[&str], options: &CsvOptions<'_>) -> Result<CsvTable> {
        let names: Vec<String> = (0..texts.len()).map(|number| number.to_string()).collect();
        let files: Vec<&Path> = names.iter().map(Path::new).collect();
        let open = |path: &Path| Ok(texts[path.to_str().unwrap().parse::<usize>().unwrap()].as_bytes());
        read(&files, open, options, &mut |_| Ok(()))
    }

    #[test]
    fn blocks_and_threads_make_no_difference() {
        let mut text = String::from("\u{feff}id,name,late,mixed\r\n");
        for row in 0..300 {
            let late = if row == 200 { "cat".to_owned() } else { row.to_string() };
            text += &format!("{row},\"a \"\"{row}\"\"\r\nb\",{late},{}\r\n", [0.5, -3.0, 7.0][row % 3]);
        }
        let whole = read_texts(&[&text], &options(1 << 20, 1)).unwrap();
        let dtypes: Vec<Dtype> = whole.columns.iter().map(|(dtype, _)| *dtype).collect();
        assert_eq!(dtypes, [Dtype::Int64, Dtype::Bytes, Dtype::Bytes, Dtype::Float64]);
        assert_eq!(whole.lines[0][..3], [2, 4, 6]);
        for (block, threads) in [(1, 1), (7, 2), (64, 3), (1000, 8)] {
            let pieces = read_texts(&[&text], &options(block, threads)).unwrap();
            assert_eq!((&pieces.names, &pieces.lines), (&whole.names, &whole.lines));
            assert!(pieces.columns == whole.columns, "{block} bytes on {threads} threads");
        }
    }

    #[test]
    fn files_may_order_their_columns_as_they_like() {
        let table = read_texts(&["a,b\n1,x\n", "b,a\n2,2.5\n"], &options(1 << 20, 2)).unwrap();
        assert_eq!(table.columns[0].1.values.bytes(), bytemuck::cast_slice::<f64, u8>(&[1.0, 2.5]));
        assert_eq!(table.columns[1].1.values.bytes(), b"x2");
        assert_eq!(table.lines, [[2], [2]]);
    }

    #[test]
    fn errors_say_where() {
        let cases = [
            ("", "expected a header with the names of columns, got an empty file - at 0"),
            ("a,,b\n", "expected a name for every column, got none for column 2 - at 0:1"),
            ("a, a\n", "expected each column once, got 'a' twice - at 0:1"),
            ("a,b\n1,2\n\n3\n", "expected 2 cells, got 1 - at 0:4"),
            ("a,b\n1,\"2\n", "expected CSV, got a quote that nothing closes - at 0:2"),
            ("a,b\n\"1\n2\"x,3\n", "expected CSV, got 'x' after a closing quote - at 0:3"),
        ];
        for (text, message) in cases {
            for block in [1, 1 << 20] {
                assert_eq!(read_texts(&[text], &options(block, 2)).unwrap_err().to_string(), message);
            }
        }
        let error = read_texts(&["a,b\n1,2\n", "a,c\n"], &options(9, 1)).unwrap_err();
        assert_eq!(error.to_string(), "expected the columns a, b, got a, c - at 1:1");
    }

    #[test]
    fn files_that_change_between_two_looks_are_refused() {
        let looks = std::sync::atomic::AtomicUsize::new(0);
        let open = |_: &Path| match looks.fetch_add(1, Ordering::SeqCst) {
            0 => Ok(&b"a\n1\n2\n3\n4\ncat\n"[..]),
            _ => Ok(&b"a\n1\ncat\n"[..]),
        };
        let error = read(&[Path::new("x")], open, &options(2, 1), &mut |_| Ok(())).unwrap_err();
        assert!(error.to_string().contains("second look"), "{error}");
    }

    #[test]
    fn an_endless_record_is_refused() {
        let endless = |_: &Path| Ok(std::io::Read::chain(&b"a\n\""[..], std::io::repeat(b'x')));
        let error = read(&[Path::new("x")], endless, &options(1 << 20, 1), &mut |_| Ok(())).unwrap_err();
        assert!(error.to_string().contains("more than 64 MiB"), "{error}");
    }
}
