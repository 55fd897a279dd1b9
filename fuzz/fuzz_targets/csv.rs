//! Any bytes as CSV files: the size of blocks makes no difference, and every row is there, with its line.
#![no_main]

use std::path::Path;

use libfuzzer_sys::fuzz_target;
use penstock_core::csv::{read, CsvOptions, CsvTable};
use penstock_core::example::plan::Dtype;
use penstock_core::Result;

fn table(files: &[&[u8]], options: &CsvOptions<'_>) -> Result<CsvTable> {
    let names: Vec<String> = (0..files.len()).map(|number| number.to_string()).collect();
    let paths: Vec<&Path> = names.iter().map(Path::new).collect();
    let open = |path: &Path| Ok(files[path.to_str().and_then(|name| name.parse().ok()).unwrap_or(0)]);
    read(&paths, open, options, &mut |_| Ok(()))
}

fn check(table: &CsvTable) {
    let rows: usize = table.lines.iter().map(Vec::len).sum();
    assert_eq!(table.names.len(), table.columns.len());
    for (dtype, column) in &table.columns {
        let elements = column.values.bytes().len() / dtype.width();
        assert!(column.present.as_ref().is_none_or(|present| present.len() == rows));
        match &column.value_splits {
            None => assert_eq!(elements, rows),
            Some(splits) => {
                assert_eq!((*dtype, splits.len(), splits[0]), (Dtype::Bytes, rows + 1, 0));
                for pair in splits.windows(2) {
                    let cell = &column.values.bytes()[pair[0] as usize..pair[1] as usize];
                    assert!(std::str::from_utf8(cell).is_ok());
                }
            }
        }
    }
    for lines in &table.lines {
        assert!(lines.first().is_none_or(|&line| line > 1) && lines.windows(2).all(|pair| pair[0] < pair[1]));
    }
}

fuzz_target!(|input: &[u8]| {
    let [block, files, text @ ..] = input else { return };
    let delimiter = [',', '\t', ' ', '§'][usize::from(files >> 6)];
    // Two files, where a byte that no text has stands between them.
    let files: Vec<&[u8]> = text.splitn(2, |&byte| byte == 0xff).collect();
    for texts in [Some(&[][..]), None] {
        let whole = table(&files, &CsvOptions { delimiter, texts, block: 1 << 20, threads: 1 });
        let pieces = table(&files, &CsvOptions { delimiter, texts, block: usize::from(*block), threads: 1 });
        match (whole, pieces) {
            (Ok(whole), Ok(pieces)) => {
                check(&whole);
                assert_eq!((&whole.names, &whole.lines), (&pieces.names, &pieces.lines));
                assert!(whole.columns == pieces.columns);
            }
            (Err(_), Err(_)) => {}
            (whole, pieces) => panic!("{:?} at once, {:?} in blocks", whole.err(), pieces.err()),
        }
    }
});
