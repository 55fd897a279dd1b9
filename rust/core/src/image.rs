//! Images inside a batch: columns of image files become columns of pixels.

use crate::columns::Column;
use crate::error::Result;
use crate::plan::Plan;

/// Which columns hold images, and what becomes of them.
#[derive(Clone, Debug, Default)]
pub struct Images {}

impl Images {
    /// Called once a batch's columns are complete, on whatever thread made them: replaces the columns that hold image
    /// files. `positions` has one number for each row, the row's place in the global order whoever reads it: with `epoch`
    /// it is all that randomness may depend on. An error names the row by its number within the batch (`in_record`) and
    /// the field.
    pub fn decode(&self, _plan: &Plan, _columns: &mut [Column], _epoch: u64, _positions: &[u64]) -> Result<()> {
        Ok(())
    }
}
