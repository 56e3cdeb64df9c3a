//! The host's end of a sandbox's init: commands, files and processes over one socket.
//!
//! Every backend is driven by this, whatever made the walls around its init. Where that runs on this machine's kernel,
//! descriptors travel over the socket, so that output and files take no further hop; elsewhere `remote` carries them.

mod begin;
pub(in crate::sandbox) mod container;
mod forward;
pub(in crate::sandbox) mod layout;
pub(in crate::sandbox) mod link;
pub(in crate::sandbox) mod listener;
pub(in crate::sandbox) mod listing;
mod output;
pub(in crate::sandbox) mod remote;
mod session;
pub(in crate::sandbox) mod stream;
mod transfer;
mod walls;
pub(in crate::sandbox) mod wire;

pub(in crate::sandbox) use begin::{Started, start};
pub(in crate::sandbox) use session::{Control, LEFT_IN_PIPE, ports};
pub(in crate::sandbox) use walls::Walls;

/// Where the proxy answers inside.
const PROXY_PORT: u16 = 8080;
