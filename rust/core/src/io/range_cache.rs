//! Parts of a file that is elsewhere: what someone has brought of it last.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{PoisonError, RwLock};

use crate::error::{Error, Kind, Result};

/// The pieces of a file, by where they begin.
#[derive(Debug, Default)]
pub struct RangeCache(RwLock<CachedRanges>);

#[derive(Debug, Default)]
struct CachedRanges {
    pieces: BTreeMap<u64, Vec<u8>>,
    order: VecDeque<u64>,
    bytes: usize,
}

impl RangeCache {
    /// Keeps a piece. It takes the place of one that begins there and is shorter; and what was brought first is let go, if
    /// all together has more than `most` bytes.
    pub fn put(&self, offset: u64, bytes: Vec<u8>, most: usize) {
        let mut kept = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let CachedRanges { pieces, order, bytes: total } = &mut *kept;
        match pieces.get(&offset) {
            Some(before) if before.len() >= bytes.len() => return,
            Some(before) => *total -= before.len(),
            None => order.push_back(offset),
        }
        *total += bytes.len();
        pieces.insert(offset, bytes);
        while *total > most && order.len() > 1 {
            let Some(oldest) = order.pop_front() else { break };
            *total -= pieces.remove(&oldest).map_or(0, |piece| piece.len());
        }
    }

    /// Fills `out` from `offset` on, if one piece has all of it; else an error that says what is wanted.
    pub fn read_at(&self, out: &mut [u8], offset: u64) -> Result<()> {
        let kept = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let found = kept.pieces.range(..=offset).next_back().and_then(|(start, piece)| {
            let first = usize::try_from(offset - start).ok()?;
            piece.get(first..first.checked_add(out.len())?)
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
        let pieces = RangeCache::default();
        pieces.put(10, b"abcdef".to_vec(), 100);
        pieces.put(20, b"xyz".to_vec(), 100);
        let mut out = [0; 3];
        pieces.read_at(&mut out, 12).unwrap();
        assert_eq!(&out, b"cde");
        pieces.read_at(&mut out, 20).unwrap();
        assert_eq!(&out, b"xyz");
        for offset in [9, 14, 21, 30, u64::MAX] {
            let error = pieces.read_at(&mut out, offset).unwrap_err();
            assert_eq!((error.kind(), error.offset()), (Kind::NotDownloaded(3), Some(offset)));
        }
        pieces.put(20, b"x".to_vec(), 100);
        pieces.read_at(&mut out, 20).unwrap();
        pieces.put(20, b"xyz!".to_vec(), 100);
        pieces.read_at(&mut out, 21).unwrap();
        assert_eq!(&out, b"yz!");
        pieces.read_at(&mut [], 5).unwrap();
    }

    #[test]
    fn the_oldest_is_let_go() {
        let pieces = RangeCache::default();
        (0..5).for_each(|number| pieces.put(number * 10, vec![7; 10], 40));
        assert!(pieces.read_at(&mut [0], 0).is_err());
        assert!((1..5).all(|number| pieces.read_at(&mut [0], number * 10).is_ok()));
        pieces.put(u64::MAX / 2, vec![7; 80], 40);
        assert!(pieces.read_at(&mut [0], u64::MAX / 2).is_ok(), "the latest stays, whatever its size");
    }
}
