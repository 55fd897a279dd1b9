//! The result of reading a damaged file: the records that are whole, and the gaps between them.

/// Bytes that hold no whole record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gap {
    /// Where they begin; in the inflated stream, if the shard is compressed.
    pub offset: u64,
    /// Number of bytes.
    pub bytes: u64,
    /// Number of whole records before them.
    pub record: u64,
    /// What is wrong.
    pub reason: String,
}

/// What a salvage has found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Number of whole records.
    pub records: u64,
    /// Their bytes, without the frames.
    pub record_bytes: u64,
    /// What was skipped.
    pub gaps: Vec<Gap>,
}

impl Report {
    /// Count a whole record.
    pub(crate) fn count(&mut self, record: &[u8]) {
        self.records += 1;
        self.record_bytes += record.len() as u64;
    }
}
