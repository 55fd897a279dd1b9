//! Records one behind the other in memory that is reused.

/// Some records.
#[derive(Debug, Default)]
pub struct RecordArena {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl RecordArena {
    /// Remove all records; the memory stays.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }

    /// Return the record with this number.
    pub fn get(&self, number: usize) -> &[u8] {
        let begin = if number == 0 { 0 } else { self.ends[number - 1] };
        &self.bytes[begin..self.ends[number]]
    }

    /// Add the record that `write` appends to the memory, and return its number.
    pub fn push_with<E>(&mut self, write: impl FnOnce(&mut Vec<u8>) -> Result<(), E>) -> Result<usize, E> {
        let begin = self.bytes.len();
        if let Err(error) = write(&mut self.bytes) {
            self.bytes.truncate(begin);
            return Err(error);
        }
        self.ends.push(self.bytes.len());
        Ok(self.ends.len() - 1)
    }
}
