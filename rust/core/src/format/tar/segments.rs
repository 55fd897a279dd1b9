//! Maps the bytes of scattered samples to ranges of the archive.

use std::ops::Range;

/// Parts of an archive, put in a row.
#[derive(Debug)]
pub(super) struct Segments {
    /// Where each begins in the row, and where the last one ends.
    starts: Vec<u64>,
    places: Vec<Range<u64>>,
    reach: u64,
}

/// A part of what is read.
pub(super) struct Part {
    /// Where it goes to.
    pub at: u64,
    /// Where it is in the archive.
    pub range: Range<u64>,
}

impl Segments {
    /// Segments that lie apart from each other, one after the other.
    pub(super) fn new(places: Vec<Range<u64>>) -> Segments {
        let mut starts = Vec::with_capacity(places.len() + 1);
        starts.push(0);
        let mut end = 0u64;
        for place in &places {
            end = end.saturating_add(place.end.saturating_sub(place.start));
            starts.push(end);
        }
        let reach = places.iter().map(|place| place.end).max().unwrap_or(0);
        Segments { starts, places, reach }
    }

    /// Where the last one of the archive ends.
    pub(super) fn reach(&self) -> u64 {
        self.reach
    }

    /// The segments, as an index has them.
    pub(super) fn to_vec(&self) -> Vec<Range<u64>> {
        self.places.clone()
    }

    /// Where a byte of the row is in the archive.
    pub(super) fn real(&self, offset: u64) -> u64 {
        let number = self.number(offset);
        self.places.get(number).map_or(self.reach, |place| place.start + (offset - self.starts[number]))
    }

    /// The parts of the archive that make up a range of the row; none behind its end.
    pub(super) fn parts(&self, range: Range<u64>) -> impl Iterator<Item = Part> + '_ {
        let first = self.number(range.start);
        let inside =
            self.places[first.min(self.places.len())..].iter().zip(&self.starts[first.min(self.places.len())..]);
        inside.map_while(move |(place, &start)| {
            let from = range.start.max(start);
            let to = range.end.min(start + (place.end - place.start));
            (from < to).then(|| Part {
                at: from - range.start,
                range: place.start + (from - start)..place.start + (to - start),
            })
        })
    }

    fn number(&self, offset: u64) -> usize {
        self.starts.partition_point(|&start| start <= offset) - 1
    }
}
