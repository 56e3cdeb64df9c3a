//! Experts on disk, each a tensor of its own, and in memory, one behind the other.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::HostTensor;
use crate::layout::Parameter;

/// Puts the parts of each parameter together where all of them are there, with the right shape.
pub(super) fn stack(parameters: &[Parameter], tensors: &mut BTreeMap<String, HostTensor>) {
    for p in parameters.iter().filter(|p| !p.parts.is_empty()) {
        let fits = |part: &String| tensors.get(part).is_some_and(|tensor| tensor.shape == p.shape[1..]);
        if !p.parts.iter().all(fits) {
            continue;
        }
        let mut data = Vec::with_capacity(p.shape.iter().product());
        for tensor in p.parts.iter().filter_map(|part| tensors.remove(part)) {
            data.extend_from_slice(&tensor.data);
        }
        let (shape, data) = (p.shape.clone(), data.into());
        tensors.insert(p.name.clone(), HostTensor { shape, data });
    }
}

/// The same of nothing but shapes.
pub(super) fn stack_shapes(parameters: &[Parameter], shapes: &mut BTreeMap<String, Vec<usize>>) {
    for p in parameters.iter().filter(|p| !p.parts.is_empty()) {
        let fits = |part: &String| shapes.get(part).is_some_and(|shape| *shape == p.shape[1..]);
        if p.parts.iter().all(fits) {
            for part in &p.parts {
                shapes.remove(part);
            }
            shapes.insert(p.name.clone(), p.shape.clone());
        }
    }
}

/// The tensors of a parameter as they are stored: name, shape, values.
pub(super) fn stored<'a>(
    p: &'a Parameter,
    data: &'a Arc<[f32]>,
) -> impl Iterator<Item = (String, &'a [usize], &'a [f32])> {
    let whole = p.parts.is_empty();
    let one = whole.then(|| (p.name.clone(), p.shape.as_slice(), &**data));
    let size: usize = p.shape[1..].iter().product();
    let parts = p.parts.iter().zip(data.chunks(size.max(1)));
    one.into_iter()
        .chain(parts.map(|(name, values)| (name.clone(), &p.shape[1..], values)))
}
