//! Tar archives: listing, and the rules by which their files are read.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use penstock_core::codec::stream::Compression;
use penstock_core::format::tar::{self, FileContent};
use penstock_core::io::file::RandomAccessFile;
use pyo3::prelude::*;

use crate::interpreter::interruptible;

/// For each extension what its files are: "bytes", "int", "float", or the `descr` of arrays, which have this shape.
pub type Rules = Vec<(String, String, Vec<Option<u64>>)>;

/// The rules as the core takes them.
pub fn shared(rules: Option<Rules>) -> Option<Arc<tar::TarRules>> {
    let rule = |(extension, content, shape): (String, String, Vec<Option<u64>>)| {
        let content = match content.as_str() {
            "bytes" => FileContent::Bytes,
            "int" => FileContent::Int,
            "float" => FileContent::Float,
            _ => FileContent::Array(content, shape),
        };
        (extension, content)
    };
    rules.map(|rules| Arc::new(tar::TarRules(rules.into_iter().map(rule).collect())))
}

/// The keys of an archive's samples, how many of them have a file of each extension, and to how many bytes it is inflated:
/// none if it is not compressed.
#[pyfunction]
pub fn list_tar(py: Python<'_>, path: PathBuf) -> PyResult<(Vec<String>, BTreeMap<String, u64>, u64)> {
    let (listing, compression) = interruptible(py, None, |progress| {
        let file = RandomAccessFile::open(&path)?;
        let compression = tar::compression(&file)?;
        tar::scan(&file, compression, usize::MAX, progress).map(|listing| (listing, compression))
    })?;
    let inflated = match compression {
        Compression::None => 0,
        _ => listing.end,
    };
    Ok((listing.keys, listing.extensions, inflated))
}
