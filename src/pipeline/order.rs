//! Which tasks a step works on: every epoch draws all tasks once, in an order of its own.

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

    /// Indices of the tasks at positions `start..start + count`; fewer where the epochs end.
    pub fn take(&self, start: u64, count: usize) -> Vec<usize> {
        let mut picked = Vec::with_capacity(count);
        let mut epoch = None;
        for position in start..start + count as u64 {
            if self.tasks == 0 {
                break;
            }
            let number = position / self.tasks as u64;
            if self.epochs.is_some_and(|epochs| number >= u64::from(epochs)) {
                break;
            }
            let order = match &epoch {
                Some((known, order)) if *known == number => order,
                _ => &epoch.insert((number, self.epoch(number))).1,
            };
            picked.push(order[(position % self.tasks as u64) as usize]);
        }
        picked
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

    #[test]
    fn an_epoch_holds_every_task_once() {
        let order = TaskOrder::new(7, 3, true, None);
        let mut first = order.take(0, 7);
        let second = order.take(7, 7);
        assert_ne!(first, second);
        assert_eq!([order.take(0, 3), order.take(3, 4)].concat(), first);
        first.sort_unstable();
        assert_eq!(first, (0..7).collect::<Vec<_>>());
    }

    #[test]
    fn epochs_end() {
        let order = TaskOrder::new(4, 3, false, Some(2));
        assert_eq!(order.take(6, 4), [2, 3]);
        assert!(order.take(8, 4).is_empty());
        assert!(TaskOrder::new(0, 3, true, None).take(0, 4).is_empty());
    }
}
