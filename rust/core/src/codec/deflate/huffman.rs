//! Canonical Huffman codes in deflate's bit order.

/// No code is longer.
pub(super) const MOST_BITS: usize = 15;

/// The bits of a symbol; none if it has no code.
#[derive(Clone, Copy, Default)]
pub(super) struct Code {
    pub(super) bits: u16,
    pub(super) length: u8,
}

/// A code for each symbol that is used.
pub(super) struct Codes<const SYMBOLS: usize>([Code; SYMBOLS]);

impl<const SYMBOLS: usize> Codes<SYMBOLS> {
    /// Those with which these uses take the fewest bits, none of them longer than `limit`.
    pub(super) fn of(uses: &[u32; SYMBOLS], limit: usize) -> Self {
        let mut leaves: Vec<(u32, usize)> = uses.iter().copied().zip(0..).filter(|(uses, _)| *uses > 0).collect();
        let unused = (0..2).filter(|symbol| uses[*symbol] == 0);
        leaves.extend(unused.take(2usize.saturating_sub(leaves.len())).map(|symbol| (0, symbol))); // readers want two
        leaves.sort_unstable();
        let counts = depths(&leaves, limit);
        let mut codes = [Code::default(); SYMBOLS];
        let mut rarest = leaves.iter();
        for length in (1..=limit).rev() {
            for (_, symbol) in rarest.by_ref().take(counts[length]) {
                codes[*symbol].length = length as u8;
            }
        }
        let mut next = [0; MOST_BITS + 1];
        for length in 2..=limit {
            next[length] = (next[length - 1] + counts[length - 1] as u16) << 1;
        }
        for code in codes.iter_mut().filter(|code| code.length > 0) {
            let length = usize::from(code.length);
            code.bits = next[length].reverse_bits() >> (16 - length);
            next[length] += 1;
        }
        Self(codes)
    }

    #[inline]
    pub(super) fn code(&self, symbol: usize) -> Code {
        self.0[symbol]
    }

    /// The bits of a symbol.
    pub(super) fn length(&self, symbol: usize) -> u32 {
        self.0[symbol].length.into()
    }

    /// The lengths of all symbols up to the last that is used, but of so many at least.
    pub(super) fn lengths(&self, least: usize) -> impl ExactSizeIterator<Item = u8> + '_ {
        let used = self.0.iter().rposition(|code| code.length > 0).map_or(0, |last| last + 1);
        self.0[..used.max(least)].iter().map(|code| code.length)
    }
}

/// How many leaves of the best tree have each depth. Leaves, rarest first, are two or more.
fn depths(leaves: &[(u32, usize)], limit: usize) -> [usize; MOST_BITS + 1] {
    let count = leaves.len();
    let mut above = vec![0; 2 * count - 1]; // the parent of each node: leaves first, then what joins two, as it is made
    let mut weights: Vec<u32> = Vec::with_capacity(count - 1);
    let (mut leaf, mut joined) = (0, 0);
    for made in 0..count - 1 {
        let mut weight = 0;
        for _ in 0..2 {
            if leaf < count && (joined == made || leaves[leaf].0 <= weights[joined]) {
                weight += leaves[leaf].0;
                above[leaf] = count + made;
                leaf += 1;
            } else {
                weight += weights[joined];
                above[count + joined] = count + made;
                joined += 1;
            }
        }
        weights.push(weight);
    }
    let mut depth = vec![0; 2 * count - 1];
    let mut counts = [0; MOST_BITS + 1];
    for node in (0..2 * count - 2).rev() {
        depth[node] = depth[above[node]] + 1;
        if node < count {
            counts[depth[node].min(limit)] += 1;
        }
    }
    // Leaves that were too deep take room that is not there: others go deeper by one, each with one of those beside it.
    let mut taken: usize = (1..=limit).map(|depth| counts[depth] << (limit - depth)).sum();
    while taken > 1 << limit {
        let depth = (1..limit).rev().find(|depth| counts[*depth] > 0).unwrap_or(1);
        counts[depth] -= 1;
        counts[depth + 1] += 2;
        counts[limit] -= 1;
        taken -= 1;
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rare_symbols_have_long_codes_but_none_too_long() {
        let mut uses = [0; 19];
        (uses[0], uses[1]) = (1, 1);
        for symbol in 2..19 {
            uses[symbol] = uses[symbol - 1] + uses[symbol - 2]; // the deepest tree
        }
        for limit in [5, 7, 15] {
            let codes = Codes::of(&uses, limit);
            let lengths: Vec<u8> = codes.lengths(0).collect();
            assert!(lengths.windows(2).all(|pair| pair[0] >= pair[1]), "{lengths:?}");
            assert!(lengths.iter().all(|length| (1..=limit as u8).contains(length)));
            let taken: u32 = lengths.iter().map(|length| 1 << (limit as u8 - length)).sum();
            assert_eq!(taken, 1 << limit, "every sequence of bits means something");
        }
    }

    #[test]
    fn one_symbol_or_none_makes_a_code_of_two() {
        for symbol in [0, 1, 5] {
            let mut uses = [0; 19];
            uses[symbol] = 3;
            let codes = Codes::of(&uses, 7);
            assert_eq!(codes.lengths(0).map(u32::from).sum::<u32>(), 2);
            assert_eq!(codes.length(symbol), 1);
        }
        assert_eq!(Codes::of(&[0; 19], 7).lengths(0).collect::<Vec<u8>>(), [1, 1]);
    }
}
