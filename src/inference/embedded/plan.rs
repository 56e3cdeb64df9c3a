//! Which tokens one pass of the model takes.

/// Tokens each sequence feeds in the next pass, in the order of `needs`.
///
/// `needs[i]` is what sequence `i` has yet to feed; 0 stands still. A sequence that needs one token decodes
/// and is always served; the rest of `budget`, but at least a quarter of it, goes to prompts in order, so that
/// a long prompt neither stalls those who decode nor is starved by them.
pub(super) fn plan(needs: &[usize], budget: usize) -> Vec<usize> {
    let decoding = needs.iter().filter(|need| **need == 1).count();
    let mut left = budget.saturating_sub(decoding).max(budget / 4).max(1);
    needs
        .iter()
        .map(|&need| {
            if need <= 1 {
                return need;
            }
            let chunk = need.min(left);
            left -= chunk;
            chunk
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn decoding_goes_first_and_prompts_share_the_rest() {
        assert_eq!(plan(&[1, 700, 1, 0, 300], 512), [1, 510, 1, 0, 0]);
        assert_eq!(plan(&[200, 400, 400], 512), [200, 312, 0]);
        assert_eq!(plan(&[1; 6], 4), [1; 6]);
        assert_eq!(plan(&[1, 1, 1, 1, 9], 4), [1, 1, 1, 1, 1]);
    }

    proptest! {
        #[test]
        fn a_pass_is_bounded_and_makes_progress(needs in prop::collection::vec(0_usize..2000, 0..40), budget in 1_usize..600) {
            let planned = plan(&needs, budget);
            prop_assert_eq!(planned.len(), needs.len());
            prop_assert!(planned.iter().zip(&needs).all(|(chunk, need)| chunk <= need));
            let total: usize = planned.iter().sum();
            prop_assert!(total <= budget + needs.len().max(budget / 4));
            prop_assert_eq!(total > 0, needs.iter().any(|need| *need > 0));
        }
    }
}
