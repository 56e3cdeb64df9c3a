//! Hashes that are the same in every process and release.

/// Tokens or bytes of one block of a prompt.
pub const BLOCK: usize = 256;

const SEED: u64 = 0x9e37_79b9_7f4a_7c15;

/// Of a name.
pub fn stable_hash(bytes: &[u8]) -> u64 {
    let mut words = bytes.chunks_exact(8);
    let mut hash = SEED ^ bytes.len() as u64;
    for word in &mut words {
        hash = fold(hash, u64::from_le_bytes(word.try_into().unwrap_or_default()));
    }
    let mut rest = [0; 8];
    rest[..words.remainder().len()].copy_from_slice(words.remainder());
    finish(fold(hash, u64::from_le_bytes(rest)))
}

/// Of two hashes, in this order.
pub fn joined(first: u64, second: u64) -> u64 {
    finish(fold(fold(SEED, first), second))
}

/// One hash for each whole block from the beginning, which stands for all that is before its end; at most so many.
pub fn blocks_of(bytes: &[u8], most: usize) -> Vec<u64> {
    let mut all = 0;
    bytes
        .chunks_exact(BLOCK)
        .take(most)
        .map(|block| {
            all = joined(all, stable_hash(block));
            all
        })
        .collect()
}

fn fold(hash: u64, word: u64) -> u64 {
    (hash.rotate_left(23) ^ word).wrapping_mul(0xff51_afd7_ed55_8ccd)
}

fn finish(mut hash: u64) -> u64 {
    hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    hash ^ (hash >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_release_may_not_change_them() {
        assert_eq!(stable_hash(b"session-1"), stable_hash(b"session-1"));
        assert_ne!(stable_hash(b"session-1"), stable_hash(b"session-2"));
        assert_ne!(stable_hash(b""), stable_hash(b"\0"));
        assert_ne!(joined(1, 2), joined(2, 1));
    }

    #[test]
    fn a_block_stands_for_all_before_it() {
        let one: Vec<u8> = (0..BLOCK * 3 + 5).map(|at| (at % 251) as u8).collect();
        let mut other = one.clone();
        other[BLOCK + 1] ^= 1;
        let (one, other) = (blocks_of(&one, 9), blocks_of(&other, 9));
        assert_eq!((one.len(), other.len()), (3, 3));
        assert_eq!(one[0], other[0]);
        assert!(one[1] != other[1] && one[2] != other[2]);
    }
}
