//! The same protocol where host and init share no kernel: over any stream of bytes, which may break and be made anew.
//!
//! What passes descriptors on one machine ([`super::wire`]) becomes frames with numbered channels. The ends keep what
//! the other has not confirmed, and say on each new stream how far they came: so every frame arrives once and in
//! order, a request is carried out at most once, and commands run on while no stream is there. Whoever carries the
//! stream can delay it and break it, but neither read nor change it: the ends agree on a key before anything of the
//! agent runs inside, and seal every frame.

mod bridge;
mod channels;
pub(in crate::sandbox) mod frame;
pub(in crate::sandbox) mod reliable;
pub(in crate::sandbox) mod seal;

pub(in crate::sandbox) use bridge::{Broken, Dial, Dialed, Remote};

/// Bytes that one end of a channel may send before the other has taken them.
pub(in crate::sandbox) const WINDOW: usize = 256 * 1024;
/// Bytes of one frame of a channel.
pub(in crate::sandbox) const PIECE: usize = 32 * 1024;
/// Connections to one listener at a time; further ones wait.
pub(in crate::sandbox) const CONNECTIONS: usize = 64;
/// How long an init waits for its host to come back, beyond what the host itself tries.
pub(in crate::sandbox) const ORPHANED: std::time::Duration = std::time::Duration::from_mins(6);
/// Name of the init's socket in its own network, which needs no file.
pub(in crate::sandbox) const SOCKET: &str = "lego-init";
