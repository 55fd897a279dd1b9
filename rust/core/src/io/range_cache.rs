//! Downloaded ranges of a remote file; the oldest are evicted beyond a budget.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{PoisonError, RwLock};

use crate::error::{Error, Kind, Result};

/// The cached ranges of a file, by offset.
#[derive(Debug, Default)]
pub struct RangeCache(RwLock<CachedRanges>);

#[derive(Debug, Default)]
struct CachedRanges {
    ranges: BTreeMap<u64, Vec<u8>>,
    order: VecDeque<u64>,
    bytes: usize,
}

impl RangeCache {
    /// Add a range; it replaces a shorter one at the same offset. Evict the oldest ranges while all have more than
    /// `most` bytes in total.
    pub fn put(&self, offset: u64, bytes: Vec<u8>, most: usize) {
        let mut kept = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let CachedRanges { ranges, order, bytes: total } = &mut *kept;
        match ranges.get(&offset) {
            Some(before) if before.len() >= bytes.len() => return,
            Some(before) => *total -= before.len(),
            None => order.push_back(offset),
        }
        *total += bytes.len();
        ranges.insert(offset, bytes);
        while *total > most && order.len() > 1 {
            let Some(oldest) = order.pop_front() else { break };
            *total -= ranges.remove(&oldest).map_or(0, |range| range.len());
        }
    }

    /// Copy bytes from `offset` on if one range holds all of them, or fail with [`Kind::NotDownloaded`].
    pub fn read_at(&self, out: &mut [u8], offset: u64) -> Result<()> {
        let kept = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let found = kept.ranges.range(..=offset).next_back().and_then(|(start, range)| {
            let first = usize::try_from(offset - start).ok()?;
            range.get(first..first.checked_add(out.len())?)
        });
        match found {
            Some(bytes) => {
                out.copy_from_slice(bytes);
                Ok(())
            }
            None if out.is_empty() => Ok(()),
            None => {
                let message = format!("expected {} bytes here, got none of them yet", out.len());
                Err(Error::new(Kind::NotDownloaded(out.len() as u64), message).at_offset(offset))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_there_is_read_and_what_is_not_is_named() {
        let ranges = RangeCache::default();
        ranges.put(10, b"abcdef".to_vec(), 100);
        ranges.put(20, b"xyz".to_vec(), 100);
        let mut out = [0; 3];
        ranges.read_at(&mut out, 12).unwrap();
        assert_eq!(&out, b"cde");
        ranges.read_at(&mut out, 20).unwrap();
        assert_eq!(&out, b"xyz");
        for offset in [9, 14, 21, 30, u64::MAX] {
            let error = ranges.read_at(&mut out, offset).unwrap_err();
            assert_eq!((error.kind(), error.offset()), (Kind::NotDownloaded(3), Some(offset)));
        }
        ranges.put(20, b"x".to_vec(), 100);
        ranges.read_at(&mut out, 20).unwrap();
        ranges.put(20, b"xyz!".to_vec(), 100);
        ranges.read_at(&mut out, 21).unwrap();
        assert_eq!(&out, b"yz!");
        ranges.read_at(&mut [], 5).unwrap();
    }

    #[test]
    fn the_oldest_is_let_go() {
        let ranges = RangeCache::default();
        (0..5).for_each(|number| ranges.put(number * 10, vec![7; 10], 40));
        assert!(ranges.read_at(&mut [0], 0).is_err());
        assert!((1..5).all(|number| ranges.read_at(&mut [0], number * 10).is_ok()));
        ranges.put(u64::MAX / 2, vec![7; 80], 40);
        assert!(ranges.read_at(&mut [0], u64::MAX / 2).is_ok(), "the latest stays, whatever its size");
    }
}
