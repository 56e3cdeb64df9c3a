//! Bodies of requests: bounded, and unpacked where the client packed them.

use std::io::Read;

use axum::body::{Bytes, to_bytes};
use axum::extract::Request;
use axum::http::header;

use super::error::ApiError;

/// Largest body, unpacked.
pub(super) const BODY_LIMIT: usize = 64 << 20;

/// Reads a whole body.
pub(super) async fn read(request: Request) -> Result<Bytes, ApiError> {
    let encodings: Vec<String> = request
        .headers()
        .get_all(header::CONTENT_ENCODING)
        .iter()
        .flat_map(|value| value.to_str().unwrap_or("?").split(','))
        .map(|name| name.trim().to_ascii_lowercase())
        .filter(|name| !name.is_empty() && name != "identity")
        .collect();
    let declared = request
        .headers()
        .get(header::CONTENT_LENGTH)
        .and_then(|length| length.to_str().ok()?.parse().ok());
    if declared.is_some_and(|length: usize| length > BODY_LIMIT) {
        return Err(ApiError::too_large(BODY_LIMIT));
    }
    let mut body = to_bytes(request.into_body(), BODY_LIMIT).await.map_err(|error| {
        let mut source: Option<&dyn std::error::Error> = Some(&error);
        while let Some(cause) = source {
            if cause.to_string().contains("length limit") {
                return ApiError::too_large(BODY_LIMIT);
            }
            source = cause.source();
        }
        ApiError::bad_request(format!("the body could not be read: {error}"))
    })?;
    // The last encoding was applied last.
    for encoding in encodings.iter().rev() {
        body = unpack(encoding, &body)?;
    }
    Ok(body)
}

fn unpack(encoding: &str, body: &[u8]) -> Result<Bytes, ApiError> {
    match encoding {
        "zstd" => match zstd::stream::read::Decoder::new(body) {
            Ok(reader) => bounded(encoding, reader),
            Err(error) => Err(broken(encoding, &error)),
        },
        "gzip" | "x-gzip" => bounded(encoding, flate2::read::MultiGzDecoder::new(body)),
        "deflate" => bounded(encoding, flate2::read::ZlibDecoder::new(body)),
        other => Err(ApiError::encoding(other)),
    }
}

/// A small body can unpack to a very large one.
fn bounded(encoding: &str, reader: impl Read) -> Result<Bytes, ApiError> {
    let mut out = Vec::new();
    reader
        .take(BODY_LIMIT as u64 + 1)
        .read_to_end(&mut out)
        .map_err(|error| broken(encoding, &error))?;
    if out.len() > BODY_LIMIT {
        return Err(ApiError::too_large(BODY_LIMIT));
    }
    Ok(out.into())
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
        read(request).await
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
