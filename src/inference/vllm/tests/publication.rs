//! Publications that fail: the server goes on, and the version stays.

use super::*;

#[tokio::test]
async fn a_failed_publication_resumes_and_keeps_the_version() {
    let peer = Peer::start().await;
    let engine = connect(&peer).await;
    peer.fail("/collective_rpc");
    let error = engine
        .publish(version(7), Path::new("/weights"))
        .await
        .unwrap_err()
        .to_string();
    assert!(error.contains("/weights") && error.contains("it failed"), "{error}");
    assert_eq!(engine.version(), version(0));
    assert_eq!(peer.paths_of_control().last().unwrap(), "/resume");
    // Whoever paused resumes.
    engine.pause(PauseMode::Abort).await.unwrap();
    engine.publish(version(8), Path::new("/weights")).await.unwrap_err();
    assert_ne!(peer.paths_of_control().last().unwrap(), "/resume");
}

#[tokio::test]
async fn weights_beside_an_older_cache_are_not_published() {
    let peer = Peer::start().await;
    let engine = connect(&peer).await;
    peer.keep_cache();
    let error = engine.publish(version(7), Path::new("/weights")).await.unwrap_err();
    assert!(
        error.to_string().contains("keeps what older weights have cached"),
        "{error}"
    );
    assert_eq!(engine.version(), version(0));
    assert_eq!(peer.paths_of_control().last().unwrap(), "/resume");
}

#[tokio::test]
async fn a_server_that_could_not_go_on_is_paused_and_resumed_again() {
    for failing in ["/resume", "/pause?mode=keep&clear_cache=false"] {
        let peer = Peer::start().await;
        let engine = connect(&peer).await;
        peer.fail(failing);
        engine.publish(version(1), Path::new("/weights")).await.unwrap_err();
        assert_eq!(peer.paths_of_control().last().unwrap(), "/resume", "{failing}");
        peer.fail("nothing");
        engine.publish(version(1), Path::new("/weights")).await.unwrap();
        let pauses = peer
            .paths_of_control()
            .iter()
            .filter(|path| path.starts_with("/pause"))
            .count();
        assert_eq!((pauses, peer.sent("/resume").len()), (2, 2), "{failing}");
    }
}
