//! The signatures, by where they show: in the process, in the environment, in what is captured, in learning, in speed.

pub(super) mod capture;
pub(super) mod crash;
pub(super) mod environment;
pub(super) mod learning;
pub(super) mod speed;
