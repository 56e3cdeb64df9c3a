//! One end of a conversation that outlives its streams: what was not confirmed is sent again, in order.

use std::collections::VecDeque;
use std::io;

use super::frame::Frame;
use super::seal::{HELLO, Hello, Master, Role, Seal};

/// Confirmations are owed after so many frames at the latest.
const OWED: u64 = 32;

/// What is left of the conversation whatever happens to streams.
pub(in crate::sandbox) struct Reliable {
    role: Role,
    master: Option<Master>,
    /// Counted frames that the other end has not confirmed.
    unconfirmed: VecDeque<Vec<u8>>,
    /// How many of them were put on the present stream.
    sent: usize,
    /// Counted frames that the other end has confirmed.
    confirmed: u64,
    /// Counted frames that came.
    received: u64,
    /// Of those, what was confirmed.
    told: u64,
}

/// One stream after both ends have said hello.
pub(in crate::sandbox) struct Stream {
    out: Seal,
    input: Seal,
    master: Master,
    /// How far this end said that it came.
    told: u64,
    /// Bytes that came and are no whole frame yet.
    pub(in crate::sandbox) buffer: Vec<u8>,
    /// Whether the other end has shown that it is the other end.
    pub(in crate::sandbox) is_known: bool,
}

impl Reliable {
    pub(in crate::sandbox) fn new(role: Role) -> Self {
        Self {
            role,
            master: None,
            unconfirmed: VecDeque::new(),
            sent: 0,
            confirmed: 0,
            received: 0,
            told: 0,
        }
    }

    /// A new stream; the first thing on it, sealed, is how far this end came.
    pub(in crate::sandbox) fn meet(&self, hello: Hello, theirs: [u8; HELLO], out: &mut Vec<u8>) -> io::Result<Stream> {
        let (mut seal, input, master) = hello.agree(self.role, theirs, self.master)?;
        seal.seal(&Frame::Received(self.received).encode(), out)?;
        Ok(Stream {
            out: seal,
            input,
            master,
            told: self.received,
            buffer: Vec::new(),
            is_known: false,
        })
    }

    /// Whether the other end has shown, by its first frame, that it is the other end: from then on this is the stream
    /// that is used.
    ///
    /// # Errors
    /// When it is not, or does not go on where it stopped.
    pub(in crate::sandbox) fn greet(&mut self, stream: &mut Stream) -> io::Result<bool> {
        let invalid = |what: &str| io::Error::new(io::ErrorKind::InvalidData, what.to_owned());
        if stream.is_known {
            return Ok(true);
        }
        let Some(bytes) = stream.input.open(&mut stream.buffer)? else {
            return Ok(false);
        };
        let Frame::Received(count) = Frame::decode(&bytes)? else {
            return Err(invalid("a stream begins otherwise"));
        };
        if stream.told != self.received {
            // What an older stream brought since would come twice.
            return Err(invalid("an older stream was not over yet"));
        }
        self.confirm(count)?;
        self.sent = 0;
        self.told = self.received;
        self.master = Some(stream.master);
        stream.is_known = true;
        Ok(true)
    }

    /// Takes the next counted frame that came on this stream.
    ///
    /// # Errors
    /// When the stream is not the other end's.
    pub(in crate::sandbox) fn next(&mut self, stream: &mut Stream) -> io::Result<Option<Frame>> {
        if !self.greet(stream)? {
            return Ok(None);
        }
        while let Some(bytes) = stream.input.open(&mut stream.buffer)? {
            match Frame::decode(&bytes)? {
                Frame::Received(count) => self.confirm(count)?,
                Frame::Ping => self.told = u64::MAX,
                frame => {
                    self.received += 1;
                    return Ok(Some(frame));
                }
            }
        }
        Ok(None)
    }

    fn confirm(&mut self, count: u64) -> io::Result<()> {
        let new = count
            .checked_sub(self.confirmed)
            .and_then(|new| usize::try_from(new).ok());
        let new = new.filter(|new| *new <= self.unconfirmed.len());
        let new =
            new.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "frames are confirmed that never were"))?;
        self.unconfirmed.drain(..new);
        self.sent = self.sent.saturating_sub(new);
        self.confirmed = count;
        Ok(())
    }

    /// Says this; it arrives once, on this stream or a later one.
    pub(in crate::sandbox) fn push(&mut self, frame: &Frame) {
        debug_assert!(frame.is_counted());
        self.unconfirmed.push_back(frame.encode());
    }

    /// Appends what is to be sent on this stream to `out`, up to about `most` bytes of it.
    pub(in crate::sandbox) fn fill(&mut self, stream: &mut Stream, out: &mut Vec<u8>, most: usize) -> io::Result<()> {
        if !stream.is_known {
            return Ok(());
        }
        while out.len() < most
            && let Some(frame) = self.unconfirmed.get(self.sent)
        {
            stream.out.seal(frame, out)?;
            self.sent += 1;
        }
        Ok(())
    }

    /// Confirms what came, if that is owed: after many frames, or, where nothing else is to do, after any.
    pub(in crate::sandbox) fn confirm_received(
        &mut self,
        stream: &mut Stream,
        out: &mut Vec<u8>,
        is_idle: bool,
    ) -> io::Result<()> {
        let owed = match self.told {
            u64::MAX => OWED,
            told => self.received - told,
        };
        if stream.is_known && (owed >= OWED || (is_idle && owed > 0)) {
            stream.out.seal(&Frame::Received(self.received).encode(), out)?;
            self.told = self.received;
        }
        Ok(())
    }

    /// Asks the other end whether it is there.
    pub(in crate::sandbox) fn ping(stream: &mut Stream, out: &mut Vec<u8>) -> io::Result<()> {
        stream.out.seal(&Frame::Ping.encode(), out)
    }

    /// Whether the other end has everything.
    pub(in crate::sandbox) fn is_done(&self) -> bool {
        self.unconfirmed.is_empty()
    }
}
