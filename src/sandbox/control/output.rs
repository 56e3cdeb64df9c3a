//! Output of a command, bounded: its head and its tail, the middle left out with a note.

use std::collections::VecDeque;

/// Keeps the first and the last half of `limit` bytes.
#[derive(Debug)]
pub(in crate::sandbox) struct Bounded {
    head: Vec<u8>,
    tail: VecDeque<u8>,
    half: usize,
    dropped: u64,
}

impl Bounded {
    pub(in crate::sandbox) fn new(limit: usize) -> Self {
        Self {
            head: Vec::new(),
            tail: VecDeque::new(),
            half: limit.div_ceil(2),
            dropped: 0,
        }
    }

    pub(in crate::sandbox) fn push(&mut self, bytes: &[u8]) {
        let room = self.half.saturating_sub(self.head.len()).min(bytes.len());
        let (first, mut rest) = bytes.split_at(room);
        self.head.extend_from_slice(first);
        if rest.len() > self.half {
            self.dropped += (rest.len() - self.half + self.tail.len()) as u64;
            self.tail.clear();
            rest = &rest[rest.len() - self.half..];
        }
        let excess = (self.tail.len() + rest.len()).saturating_sub(self.half);
        self.tail.drain(..excess);
        self.dropped += excess as u64;
        self.tail.extend(rest);
    }

    /// The text, lossily decoded, and how many bytes it lacks.
    pub(in crate::sandbox) fn finish(mut self) -> (String, u64) {
        if self.dropped > 0 {
            let note = format!("\n[… {} bytes left out …]\n", self.dropped);
            self.head.extend_from_slice(note.as_bytes());
        }
        self.head.extend(self.tail);
        (String::from_utf8_lossy(&self.head).into_owned(), self.dropped)
    }
}

#[cfg(test)]
mod tests {
    use super::Bounded;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn keeps_head_and_tail_whatever_the_chunks(chunks in prop::collection::vec(prop::collection::vec(97u8..122, 0..40), 0..20), limit in 2usize..60) {
            let all: Vec<u8> = chunks.concat();
            let mut kept = Bounded::new(limit);
            for chunk in &chunks {
                kept.push(chunk);
            }
            let (text, dropped) = kept.finish();
            let half = limit.div_ceil(2);
            if all.len() <= 2 * half {
                prop_assert_eq!(text.as_bytes(), &all[..]);
                prop_assert_eq!(dropped, 0);
            } else {
                prop_assert!(text.as_bytes().starts_with(&all[..half]));
                prop_assert!(text.as_bytes().ends_with(&all[all.len() - half..]));
                prop_assert_eq!(dropped as usize, all.len() - 2 * half);
            }
        }
    }

    #[test]
    fn bytes_that_are_no_text_survive_lossily() {
        let mut kept = Bounded::new(10);
        kept.push(b"a\xff\xfeb");
        assert_eq!(kept.finish().0, "a\u{fffd}\u{fffd}b");
    }
}
