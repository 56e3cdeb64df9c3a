//! Keys and sealed frames. Each stream begins with one number of each end (X25519); the first agreement also gives the
//! key by which the ends know each other on later streams.
//!
//! The first stream is made before any code of the agent runs. A later one whose peer lacks the key fails at its first
//! frame. What it must not do: interpret what it carries.

use std::io;

use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::agreement::{EphemeralPrivateKey, UnparsedPublicKey, X25519, agree_ephemeral};
use ring::hkdf::{HKDF_SHA256, KeyType, Prk, Salt};
use ring::rand::SystemRandom;

/// Bytes of an end's number.
pub(in crate::sandbox) const HELLO: usize = 32;
/// Bytes before a sealed frame: its length.
const LENGTH: usize = 4;
/// Bytes behind one.
const TAG: usize = 16;
/// Largest frame.
pub(in crate::sandbox) const LARGEST: usize = 64 * 1024;

/// What the ends know each other by.
#[derive(Clone, Copy)]
pub(in crate::sandbox) struct Master([u8; 32]);

/// Which end this is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::sandbox) enum Role {
    Host,
    Init,
}

/// One end's part of an agreement.
pub(in crate::sandbox) struct Hello {
    private: EphemeralPrivateKey,
    /// What the other end is told.
    pub(in crate::sandbox) public: [u8; HELLO],
}

struct Bytes32;

impl KeyType for Bytes32 {
    fn len(&self) -> usize {
        32
    }
}

fn failed(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.to_owned())
}

fn expand(from: &Prk, info: &[&[u8]]) -> io::Result<[u8; 32]> {
    let mut key = [0; 32];
    let filled = from.expand(info, Bytes32).and_then(|okm| okm.fill(&mut key));
    filled.map_err(|_| failed("no key could be derived")).map(|()| key)
}

impl Hello {
    pub(in crate::sandbox) fn new() -> io::Result<Self> {
        let unavailable = |_| failed("the system gives no random numbers");
        let private = EphemeralPrivateKey::generate(&X25519, &SystemRandom::new()).map_err(unavailable)?;
        let number = private.compute_public_key().map_err(unavailable)?;
        let mut public = [0; HELLO];
        public.copy_from_slice(number.as_ref());
        Ok(Self { private, public })
    }

    /// The stream's two directions, and what later streams are known by. `master` is `None` on the first one.
    pub(in crate::sandbox) fn agree(
        self,
        role: Role,
        theirs: [u8; HELLO],
        master: Option<Master>,
    ) -> io::Result<(Seal, Seal, Master)> {
        let (host, init) = match role {
            Role::Host => (self.public, theirs),
            Role::Init => (theirs, self.public),
        };
        let salt = Salt::new(HKDF_SHA256, &master.map_or([0; 32], |master| master.0));
        let theirs = UnparsedPublicKey::new(&X25519, theirs);
        let agreed = agree_ephemeral(self.private, &theirs, |shared| salt.extract(shared))
            .map_err(|_| failed("the other end's number is none"))?;
        let key = |name: &[u8]| expand(&agreed, &[b"lego sandbox 1 ", name, &host, &init]);
        let (to_init, to_host) = (Seal::new(key(b"to init")?)?, Seal::new(key(b"to host")?)?);
        let master = match master {
            Some(master) => master,
            None => Master(key(b"master")?),
        };
        Ok(match role {
            Role::Host => (to_init, to_host, master),
            Role::Init => (to_host, to_init, master),
        })
    }
}

/// One direction of one stream.
pub(in crate::sandbox) struct Seal {
    key: LessSafeKey,
    /// Frames so far: no number is used twice with a key.
    count: u64,
}

impl Seal {
    fn new(key: [u8; 32]) -> io::Result<Self> {
        let key = UnboundKey::new(&CHACHA20_POLY1305, &key).map_err(|_| failed("no key"))?;
        Ok(Self {
            key: LessSafeKey::new(key),
            count: 0,
        })
    }

    fn nonce(&mut self) -> Nonce {
        let mut nonce = [0; NONCE_LEN];
        nonce[..8].copy_from_slice(&self.count.to_le_bytes());
        self.count += 1;
        Nonce::assume_unique_for_key(nonce)
    }

    /// Appends the sealed frame to `out`.
    pub(in crate::sandbox) fn seal(&mut self, frame: &[u8], out: &mut Vec<u8>) -> io::Result<()> {
        let length = u32::try_from(frame.len() + TAG).map_err(|_| failed("a frame is too long"))?;
        let mut sealed = frame.to_vec();
        let nonce = self.nonce();
        self.key
            .seal_in_place_append_tag(nonce, Aad::from(length.to_le_bytes()), &mut sealed)
            .map_err(|_| failed("a frame could not be sealed"))?;
        out.extend_from_slice(&length.to_le_bytes());
        out.extend_from_slice(&sealed);
        Ok(())
    }

    /// Takes the next frame off the front of `input`; `None` where it is not whole yet.
    ///
    /// # Errors
    /// When it was not sealed by the other end, or is out of order: nothing more of this stream can be believed.
    pub(in crate::sandbox) fn open(&mut self, input: &mut Vec<u8>) -> io::Result<Option<Vec<u8>>> {
        let Some(head) = input.first_chunk::<LENGTH>() else {
            return Ok(None);
        };
        let (head, length) = (*head, u32::from_le_bytes(*head) as usize);
        if !(TAG..=LARGEST + TAG).contains(&length) {
            return Err(failed("a frame's length is no such one"));
        }
        if input.len() < LENGTH + length {
            return Ok(None);
        }
        let rest = input.split_off(LENGTH + length);
        let mut frame = std::mem::replace(input, rest);
        frame.drain(..LENGTH);
        let nonce = self.nonce();
        let opened = self.key.open_in_place(nonce, Aad::from(head), &mut frame);
        let length = opened.map_err(|_| failed("a frame is not the other end's"))?.len();
        frame.truncate(length);
        Ok(Some(frame))
    }
}
