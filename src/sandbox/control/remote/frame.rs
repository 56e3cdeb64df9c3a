//! What the ends say to each other, as bytes.

use std::io;

use super::seal::LARGEST;
use crate::sandbox::control::wire::{Reply, Request};

/// A part of a conversation. All but the last two are counted, and arrive once and in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::sandbox) enum Frame {
    /// A request or reply begins, or goes on.
    Piece(Vec<u8>),
    /// A request or reply ends.
    Last(Vec<u8>),
    /// A connection was made to this listener.
    Opened(u32, u32),
    /// Bytes of a channel.
    Data(u32, Vec<u8>),
    /// The sender has no more of them.
    End(u32),
    /// The sender takes no more of them.
    Closed(u32),
    /// The sender has taken so many.
    Credit(u32, u32),
    /// The host is done: the sandbox ends.
    Goodbye,
    /// How many counted frames this end has received.
    Received(u64),
    /// Asks for `Received`.
    Ping,
}

const UNCOUNTED: u8 = 0x80;

impl Frame {
    pub(in crate::sandbox) fn encode(&self) -> Vec<u8> {
        let with = |kind: u8, parts: &[&[u8]]| {
            let mut bytes = vec![kind];
            for part in parts {
                bytes.extend_from_slice(part);
            }
            bytes
        };
        match self {
            Self::Piece(bytes) => with(0, &[bytes]),
            Self::Last(bytes) => with(1, &[bytes]),
            Self::Opened(channel, listener) => with(2, &[&channel.to_le_bytes(), &listener.to_le_bytes()]),
            Self::Data(channel, bytes) => with(3, &[&channel.to_le_bytes(), bytes]),
            Self::End(channel) => with(4, &[&channel.to_le_bytes()]),
            Self::Closed(channel) => with(5, &[&channel.to_le_bytes()]),
            Self::Credit(channel, bytes) => with(6, &[&channel.to_le_bytes(), &bytes.to_le_bytes()]),
            Self::Goodbye => with(7, &[]),
            Self::Received(count) => with(UNCOUNTED, &[&count.to_le_bytes()]),
            Self::Ping => with(UNCOUNTED + 1, &[]),
        }
    }

    pub(in crate::sandbox) fn decode(bytes: &[u8]) -> io::Result<Self> {
        let bad = || io::Error::new(io::ErrorKind::InvalidData, "a frame of another form");
        let (kind, rest) = bytes.split_first().ok_or_else(bad)?;
        let word = |at: usize| -> io::Result<u32> {
            let bytes = rest.get(at..).and_then(|rest| rest.first_chunk::<4>());
            bytes.map(|bytes| u32::from_le_bytes(*bytes)).ok_or_else(bad)
        };
        Ok(match *kind {
            0 => Self::Piece(rest.to_vec()),
            1 => Self::Last(rest.to_vec()),
            2 => Self::Opened(word(0)?, word(4)?),
            3 => Self::Data(word(0)?, rest.get(4..).unwrap_or_default().to_vec()),
            4 => Self::End(word(0)?),
            5 => Self::Closed(word(0)?),
            6 => Self::Credit(word(0)?, word(4)?),
            7 => Self::Goodbye,
            UNCOUNTED => Self::Received(u64::from(word(0)?) | (u64::from(word(4)?) << 32)),
            129 => Self::Ping,
            _ => return Err(bad()),
        })
    }

    /// Whether it is one of those that arrive once and in order.
    pub(in crate::sandbox) fn is_counted(&self) -> bool {
        !matches!(self, Self::Received(_) | Self::Ping)
    }
}

/// A request or reply as a whole, with what descriptors carry where the ends share a kernel.
#[derive(Debug, Default, PartialEq, Eq)]
pub(in crate::sandbox) struct Message {
    /// The request or reply itself, as JSON.
    pub(in crate::sandbox) body: Vec<u8>,
    /// The channel of a stream or an output; 0: none.
    pub(in crate::sandbox) channel: u32,
    /// A command's standard input.
    pub(in crate::sandbox) text: Option<Vec<u8>>,
}

/// Most bytes of one: a request's body and its text.
const MESSAGE: usize = 160 << 20;

impl Message {
    pub(in crate::sandbox) fn request(request: &Request, channel: u32, text: Option<Vec<u8>>) -> io::Result<Self> {
        let body = serde_json::to_vec(request)?;
        Ok(Self { body, channel, text })
    }

    pub(in crate::sandbox) fn reply(reply: &Reply, channel: u32) -> io::Result<Self> {
        let body = serde_json::to_vec(reply)?;
        Ok(Self {
            body,
            channel,
            text: None,
        })
    }

    /// As frames, none too large.
    pub(in crate::sandbox) fn frames(&self) -> Vec<Frame> {
        let mut bytes = self.channel.to_le_bytes().to_vec();
        bytes.extend_from_slice(&(self.body.len() as u64).to_le_bytes());
        bytes.push(u8::from(self.text.is_some()));
        bytes.extend_from_slice(&self.body);
        bytes.extend_from_slice(self.text.as_deref().unwrap_or_default());
        let mut pieces: Vec<Frame> = bytes
            .chunks(LARGEST / 2)
            .map(|piece| Frame::Piece(piece.to_vec()))
            .collect();
        if let Some(Frame::Piece(last)) = pieces.pop() {
            pieces.push(Frame::Last(last));
        }
        pieces
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        let (channel, rest) = bytes.split_first_chunk::<4>()?;
        let (length, rest) = rest.split_first_chunk::<8>()?;
        let (has_text, rest) = rest.split_first()?;
        let (body, text) = rest.split_at_checked(usize::try_from(u64::from_le_bytes(*length)).ok()?)?;
        Some(Self {
            body: body.to_vec(),
            channel: u32::from_le_bytes(*channel),
            text: (*has_text == 1).then(|| text.to_vec()),
        })
    }
}

/// Puts messages together again.
#[derive(Default)]
pub(in crate::sandbox) struct Assembly(Vec<u8>);

impl Assembly {
    /// The message that ends with this piece.
    pub(in crate::sandbox) fn add(&mut self, piece: &[u8], is_last: bool) -> io::Result<Option<Message>> {
        let bad = |what: &str| io::Error::new(io::ErrorKind::InvalidData, what.to_owned());
        if self.0.len() + piece.len() > MESSAGE {
            return Err(bad("a message of too many bytes"));
        }
        self.0.extend_from_slice(piece);
        if !is_last {
            return Ok(None);
        }
        let message = Message::parse(&std::mem::take(&mut self.0));
        message.ok_or_else(|| bad("a message of another form")).map(Some)
    }
}
