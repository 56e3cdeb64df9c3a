//! The host's end of a sandbox's init: commands, files and processes over one socket.
//!
//! Every backend whose init runs on this machine's kernel is driven by this, whatever made the walls around it.
//! Descriptors travel over the socket, so that output and files take no further hop.

mod forward;
pub(in crate::sandbox) mod layout;
pub(in crate::sandbox) mod link;
pub(in crate::sandbox) mod listing;
mod output;
mod session;
pub(in crate::sandbox) mod stream;
mod transfer;
mod walls;
pub(in crate::sandbox) mod wire;

pub(in crate::sandbox) use session::{Control, Started, ports, start};
pub(in crate::sandbox) use walls::Walls;

/// Where the proxy answers inside.
const PROXY_PORT: u16 = 8080;
