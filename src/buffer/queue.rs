//! Complete groups on their way to the trainer.

use std::collections::VecDeque;

/// A first-in-first-out queue with a bound. What does not fit pushes the oldest out, and is never lost silently.
#[derive(Debug)]
pub struct GroupQueue<T> {
    groups: VecDeque<T>,
    bound: usize,
}

impl<T> GroupQueue<T> {
    /// Of at most `bound` groups, at least one.
    pub fn new(bound: usize) -> Self {
        Self {
            groups: VecDeque::new(),
            bound: bound.max(1),
        }
    }

    /// Groups that wait.
    pub fn len(&self) -> usize {
        self.groups.len()
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    /// Whether another would push one out.
    pub fn is_full(&self) -> bool {
        self.groups.len() >= self.bound
    }

    /// Adds the newest, and hands back the oldest where there was no room.
    #[must_use]
    pub fn push(&mut self, group: T) -> Option<T> {
        self.groups.push_back(group);
        (self.groups.len() > self.bound)
            .then(|| self.groups.pop_front())
            .flatten()
    }

    /// Takes the oldest `count`, or all where there are fewer.
    pub fn take(&mut self, count: usize) -> Vec<T> {
        let count = count.min(self.groups.len());
        self.groups.drain(..count).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_goes_first_and_is_the_one_that_is_dropped() {
        let mut queue = GroupQueue::new(2);
        assert_eq!([queue.push(1), queue.push(2)], [None, None]);
        assert!(queue.is_full());
        assert_eq!(queue.push(3), Some(1));
        assert_eq!(queue.take(1), [2]);
        assert_eq!(queue.take(5), [3]);
        assert!(queue.is_empty());
    }
}
