//! Which replica has seen the beginning of a prompt: a tree over blocks, in which a block's hash stands for its whole path.

use std::collections::{BTreeMap, HashMap};

use super::ReplicaId;

/// Blocks remembered at most; those that were used longest ago are forgotten first.
const REMEMBERED: usize = 1 << 18;

/// See the module.
#[derive(Debug)]
pub(super) struct Prefixes {
    blocks: HashMap<u64, Block>,
    quiet: BTreeMap<u64, u64>,
    clock: u64,
    most: usize,
}

#[derive(Debug)]
struct Block {
    replicas: Vec<ReplicaId>,
    used: u64,
}

impl Default for Prefixes {
    fn default() -> Self {
        Self {
            blocks: HashMap::new(),
            quiet: BTreeMap::new(),
            clock: 0,
            most: REMEMBERED,
        }
    }
}

impl Prefixes {
    /// How many of these blocks the replica has seen.
    pub(super) fn seen(&self, blocks: &[u64], replica: ReplicaId) -> usize {
        let has = |block: &u64| {
            self.blocks
                .get(block)
                .is_some_and(|block| block.replicas.contains(&replica))
        };
        // Its first blocks are used whenever its last are, so that it never has a later one alone.
        blocks.partition_point(has)
    }

    /// The replica has seen these blocks.
    pub(super) fn add(&mut self, blocks: &[u64], replica: ReplicaId) {
        // The last first: of one path the end is forgotten before the beginning.
        for &hash in blocks.iter().rev() {
            self.clock += 1;
            let used = self.clock;
            let block = self.blocks.entry(hash).or_insert_with(|| Block {
                replicas: Vec::new(),
                used,
            });
            self.quiet.remove(&block.used);
            block.used = used;
            if !block.replicas.contains(&replica) {
                block.replicas.push(replica);
            }
            self.quiet.insert(used, hash);
        }
        while self.blocks.len() > self.most
            && let Some((_, hash)) = self.quiet.pop_first()
        {
            self.blocks.remove(&hash);
        }
    }

    /// The replica has forgotten all.
    pub(super) fn forget(&mut self, replica: ReplicaId) {
        for block in self.blocks.values_mut() {
            block.replicas.retain(|other| *other != replica);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_beginning_is_found_and_memory_is_bounded() {
        let mut prefixes = Prefixes {
            most: 4,
            ..Prefixes::default()
        };
        prefixes.add(&[1, 2, 3], 0);
        prefixes.add(&[1, 2, 9], 1);
        assert_eq!((prefixes.seen(&[1, 2, 3], 0), prefixes.seen(&[1, 2, 3], 1)), (3, 2));
        assert_eq!(prefixes.seen(&[5], 0), 0);
        prefixes.add(&[7], 1);
        assert_eq!(prefixes.seen(&[1, 2, 3], 0), 2, "the end of the older path went first");
        prefixes.forget(1);
        assert_eq!((prefixes.seen(&[1, 2, 9], 1), prefixes.seen(&[1, 2], 0)), (0, 2));
        assert_eq!(prefixes.blocks.len(), prefixes.quiet.len());
    }
}
