//! Bodies of requests: bounded each and all together, and unpacked where the client packed them.

use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::Request;
use axum::http::header;
use futures_util::StreamExt as _;

use super::error::ApiError;

/// Largest body, unpacked.
pub(super) const BODY_LIMIT: usize = 64 << 20;

/// Room that is set aside at once for a body of a declared length.
const RESERVED: usize = 1 << 20;

/// Room for all bodies that are being read or made prompts of, whoever sends them.
#[derive(Debug)]
pub(super) struct Room {
    bytes: usize,
    /// Longest wait for more of a body.
    patience: Duration,
    taken: AtomicUsize,
}

/// A body's part of the room; it is free again when this is dropped.
#[derive(Debug)]
pub(super) struct Share {
    room: Arc<Room>,
    bytes: usize,
}

/// A body, read, and the room that what is made of it takes.
pub(super) struct RequestBody {
    pub(super) bytes: Bytes,
    pub(super) share: Arc<Share>,
}

impl Room {
    pub(super) fn new(bytes: usize, patience: Duration) -> Arc<Self> {
        let taken = AtomicUsize::new(0);
        Arc::new(Self { bytes, patience, taken })
    }

    /// Bytes that are taken.
    pub(super) fn taken(&self) -> usize {
        self.taken.load(Ordering::Relaxed)
    }
}

impl Share {
    fn of(room: &Arc<Room>) -> Self {
        let room = Arc::clone(room);
        Self { room, bytes: 0 }
    }

    fn grow(&mut self, more: usize) -> Result<(), ApiError> {
        let room = &self.room;
        let fits = |taken: usize| taken.checked_add(more).filter(|&sum| sum <= room.bytes);
        let taken = room.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits);
        taken.map_err(|_| ApiError::no_room(room.bytes))?;
        self.bytes += more;
        Ok(())
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.room.taken.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// Reads a whole body. One for which there is no room is read to its end all the same, and thrown away: a client that is
/// still writing would not read the answer.
pub(super) async fn read(room: &Arc<Room>, request: Request) -> Result<RequestBody, ApiError> {
    let encodings: Vec<String> = request
        .headers()
        .get_all(header::CONTENT_ENCODING)
        .iter()
        .flat_map(|value| value.to_str().unwrap_or("?").split(','))
        .map(|name| name.trim().to_ascii_lowercase())
        .filter(|name| !name.is_empty() && name != "identity")
        .collect();
    let declared: Option<usize> = request
        .headers()
        .get(header::CONTENT_LENGTH)
        .and_then(|length| length.to_str().ok()?.parse().ok());
    if declared.is_some_and(|length| length > BODY_LIMIT) {
        return Err(ApiError::too_large(BODY_LIMIT));
    }
    let mut share = Share::of(room);
    let mut body = received(&mut share, declared.unwrap_or_default(), request).await?;
    // The last encoding was applied last.
    for encoding in encodings.iter().rev() {
        body = unpack(&mut share, encoding, &body)?;
    }
    let share = Arc::new(share);
    Ok(RequestBody { bytes: body, share })
}

async fn received(share: &mut Share, declared: usize, request: Request) -> Result<Bytes, ApiError> {
    let patience = share.room.patience;
    let mut pieces = request.into_body().into_data_stream();
    let (mut first, mut whole) = (Bytes::new(), Vec::new());
    let (mut len, mut refused) = (0, None);
    loop {
        let piece = match tokio::time::timeout(patience, pieces.next()).await {
            Err(_) => return Err(ApiError::slow_body(patience)),
            Ok(None) => break,
            Ok(Some(Err(error))) => return Err(ApiError::bad_request(format!("the body could not be read: {error}"))),
            Ok(Some(Ok(piece))) => piece,
        };
        len += piece.len();
        if len > BODY_LIMIT {
            return Err(ApiError::too_large(BODY_LIMIT));
        }
        if refused.is_some() {
            continue;
        }
        if let Err(error) = share.grow(piece.len()) {
            refused = Some(error);
            (first, whole) = (Bytes::new(), Vec::new());
            *share = Share::of(&share.room);
        } else if first.is_empty() {
            // Most bodies come in one piece.
            first = piece;
        } else {
            if whole.is_empty() {
                whole.reserve(declared.min(RESERVED));
                whole.extend_from_slice(&first);
            }
            whole.extend_from_slice(&piece);
        }
    }
    match refused {
        Some(error) => Err(error),
        None if whole.is_empty() => Ok(first),
        None => Ok(whole.into()),
    }
}

fn unpack(share: &mut Share, encoding: &str, body: &[u8]) -> Result<Bytes, ApiError> {
    match encoding {
        "zstd" => match zstd::stream::read::Decoder::new(body) {
            Ok(reader) => bounded(share, encoding, reader),
            Err(error) => Err(broken(encoding, &error)),
        },
        "gzip" | "x-gzip" => bounded(share, encoding, flate2::read::MultiGzDecoder::new(body)),
        "deflate" => bounded(share, encoding, flate2::read::ZlibDecoder::new(body)),
        other => Err(ApiError::encoding(other)),
    }
}

/// A small body can unpack to a very large one.
fn bounded(share: &mut Share, encoding: &str, mut reader: impl Read) -> Result<Bytes, ApiError> {
    let (mut out, mut piece) = (Vec::new(), [0; 16 << 10]);
    loop {
        let more = match reader.read(&mut piece) {
            Ok(0) => return Ok(out.into()),
            Ok(more) => more,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(broken(encoding, &error)),
        };
        if out.len() + more > BODY_LIMIT {
            return Err(ApiError::too_large(BODY_LIMIT));
        }
        share.grow(more)?;
        out.extend_from_slice(&piece[..more]);
    }
}

fn broken(encoding: &str, error: &std::io::Error) -> ApiError {
    ApiError::bad_request(format!("the body is no {encoding}: {error}"))
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    fn gzip(data: &[u8]) -> Vec<u8> {
        let mut writer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        writer.write_all(data).unwrap();
        writer.finish().unwrap()
    }

    async fn read_as(encoding: &str, body: Vec<u8>) -> Result<Bytes, ApiError> {
        let request = Request::builder()
            .header("content-encoding", encoding)
            .body(axum::body::Body::from(body))
            .unwrap();
        let room = Room::new(256 << 20, Duration::from_secs(1));
        let body = read(&room, request).await?;
        drop(body.share);
        assert_eq!(room.taken(), 0);
        Ok(body.bytes)
    }

    #[tokio::test]
    async fn packed_bodies_are_unpacked() {
        let text = b"{\"messages\": []}".to_vec();
        let zstd = zstd::stream::encode_all(&text[..], 1).unwrap();
        for (encoding, body) in [
            ("identity", text.clone()),
            ("gzip", gzip(&text)),
            ("zstd", zstd.clone()),
            ("zstd, gzip", gzip(&zstd)),
        ] {
            assert_eq!(read_as(encoding, body).await.unwrap(), text, "{encoding}");
        }
    }

    #[tokio::test]
    async fn a_small_body_does_not_unpack_without_end() {
        let bomb = gzip(&vec![b' '; BODY_LIMIT + 1]);
        assert!(bomb.len() < 1 << 20);
        assert_eq!(read_as("gzip", bomb).await.unwrap_err().status, 413);
        assert_eq!(read_as("gzip", b"no".to_vec()).await.unwrap_err().status, 400);
        assert_eq!(read_as("br", b"no".to_vec()).await.unwrap_err().status, 415);
    }
}
