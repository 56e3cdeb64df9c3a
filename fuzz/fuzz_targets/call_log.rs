//! Bytes as a call log on disk: a session or an error that names the line; never a token that trains twice.
#![no_main]

use lego::config::{BuilderName, CaptureScope};
use lego::proxy::recover_all;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("calls.jsonl");
    std::fs::write(&path, data).expect("a file");
    let Ok(sessions) = recover_all(&path) else { return };
    for session in sessions {
        let capture = session.capture(CaptureScope::All, BuilderName::Segments);
        assert_eq!(capture.ledger.total(), capture.audit.sampled_tokens);
        let masks = capture.segments.iter().flat_map(|segment| &segment.response_mask);
        let trained: u64 = masks.map(|&mask| u64::from(mask)).sum();
        assert_eq!(trained, capture.ledger.trained);
    }
});
