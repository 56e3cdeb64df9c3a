//! Which tasks a step works on: every epoch draws all tasks once, in an order of its own.

use std::collections::BTreeSet;

use rand::SeedableRng as _;
use rand::seq::SliceRandom as _;
use rand_chacha::ChaCha8Rng;

/// The order of tasks over all epochs: position `p` is task `order[p % tasks]` of epoch `p / tasks`.
#[derive(Debug, Clone)]
pub struct TaskOrder {
    tasks: usize,
    seed: u64,
    shuffle: bool,
    epochs: Option<u32>,
}

impl TaskOrder {
    /// An order over `tasks` tasks. Without `shuffle` every epoch keeps the order of the index.
    pub fn new(tasks: usize, seed: u64, shuffle: bool, epochs: Option<u32>) -> Self {
        Self {
            tasks,
            seed,
            shuffle,
            epochs,
        }
    }

    /// Indices of `count` tasks from position `start` on that are not in `taken`, which then holds them, and the
    /// position after the last one looked at. Fewer where the epochs end or all tasks are taken: a step works on a
    /// task once, so where an epoch ends in its middle a task of the next one may be passed over.
    pub fn take(&self, start: u64, count: usize, taken: &mut BTreeSet<usize>) -> (Vec<usize>, u64) {
        let mut picked = Vec::with_capacity(count);
        let mut epoch = None;
        let mut position = start;
        while picked.len() < count && taken.len() < self.tasks {
            let number = position / self.tasks as u64;
            if self.epochs.is_some_and(|epochs| number >= u64::from(epochs)) {
                break;
            }
            let order = match &epoch {
                Some((known, order)) if *known == number => order,
                _ => &epoch.insert((number, self.epoch(number))).1,
            };
            let task = order[(position % self.tasks as u64) as usize];
            if taken.insert(task) {
                picked.push(task);
            }
            position += 1;
        }
        (picked, position)
    }

    fn epoch(&self, number: u64) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.tasks).collect();
        if self.shuffle {
            let mut rng = ChaCha8Rng::seed_from_u64(self.seed);
            rng.set_stream(number);
            order.shuffle(&mut rng);
        }
        order
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(order: &TaskOrder, start: u64, count: usize) -> Vec<usize> {
        order.take(start, count, &mut BTreeSet::new()).0
    }

    #[test]
    fn an_epoch_holds_every_task_once() {
        let order = TaskOrder::new(7, 3, true, None);
        let mut first = take(&order, 0, 7);
        let second = take(&order, 7, 7);
        assert_ne!(first, second);
        assert_eq!([take(&order, 0, 3), take(&order, 3, 4)].concat(), first);
        first.sort_unstable();
        assert_eq!(first, (0..7).collect::<Vec<_>>());
    }

    #[test]
    fn epochs_end() {
        let order = TaskOrder::new(4, 3, false, Some(2));
        assert_eq!(take(&order, 6, 4), [2, 3]);
        assert!(take(&order, 8, 4).is_empty());
        assert!(take(&TaskOrder::new(0, 3, true, None), 0, 4).is_empty());
    }

    #[test]
    fn a_step_works_on_a_task_once() {
        // Fewer tasks than a step takes.
        let one = TaskOrder::new(1, 3, true, None);
        assert_eq!(one.take(0, 4, &mut BTreeSet::new()), (vec![0], 1));
        // Steps that do not divide the epoch: over many of them no step holds a task twice.
        let order = TaskOrder::new(7, 3, true, None);
        let mut position = 0;
        for _ in 0..100 {
            let mut taken = BTreeSet::new();
            let (first, after) = order.take(position, 3, &mut taken);
            let (more, after) = order.take(after, 2, &mut taken);
            let step: BTreeSet<usize> = first.into_iter().chain(more).collect();
            assert_eq!(step.len(), 5);
            position = after;
        }
    }
}
