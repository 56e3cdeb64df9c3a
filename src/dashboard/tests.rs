use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::{Request, StatusCode};
use serde_json::Value;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;

use super::server::router;
use super::*;

/// A folder with a log of another system, and something that is no run.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let lines: Vec<String> = (1..=40)
        .map(|step| {
            format!(
                "step:{step} - critic/score/mean:{} - actor/lr:1e-6\n",
                f64::from(step) / 40.0
            )
        })
        .collect();
    std::fs::write(folder.path().join("foreign.log"), lines.concat()).unwrap();
    std::fs::write(folder.path().join("notes.txt"), "nothing here").unwrap();
    folder
}

fn board(folder: &tempfile::TempDir) -> Arc<Board> {
    Board::open(&BoardOptions {
        roots: vec![folder.path().to_owned()],
        patience: Duration::from_mins(1),
    })
    .unwrap()
}

async fn ask(
    board: &Arc<Board>,
    options: &ServerOptions,
    request: Request<Body>,
) -> (StatusCode, axum::http::HeaderMap, String) {
    let response = router(Arc::clone(board), options, CancellationToken::new())
        .oneshot(request)
        .await
        .unwrap();
    let (status, headers) = (response.status(), response.headers().clone());
    let body = axum::body::to_bytes(response.into_body(), 64 << 20).await.unwrap();
    (status, headers, String::from_utf8(body.to_vec()).unwrap())
}

fn get(path: &str) -> Request<Body> {
    Request::get(path)
        .header("host", "127.0.0.1:8090")
        .body(Body::empty())
        .unwrap()
}

#[tokio::test]
async fn a_log_of_another_system_is_a_run() {
    let folder = folder();
    let board = board(&folder);
    let options = ServerOptions::default();
    let (status, headers, text) = ask(&board, &options, get("/api/runs")).await;
    assert_eq!(status, StatusCode::OK);
    assert!(
        headers["content-security-policy"]
            .to_str()
            .unwrap()
            .contains("script-src 'self'")
    );
    let runs: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(runs["runs"].as_array().unwrap().len(), 1, "{runs}");
    let id = runs["runs"][0]["id"].as_str().unwrap();
    assert_eq!(runs["runs"][0]["step"], 40);
    let (_, _, text) = ask(
        &board,
        &options,
        get(&format!("/api/series?run={id}&keys=critic/score/mean&points=10")),
    )
    .await;
    let series: Value = serde_json::from_str(&text).unwrap();
    let shown = &series["series"]["critic/score/mean"];
    assert_eq!(shown["n"], 40);
    assert!(shown["x"].as_array().unwrap().len() <= 10);
    for (name, status) in [
        ("diagnosis", 200),
        ("outcomes", 200),
        ("trials", 200),
        ("trial", 404),
        ("nothing", 404),
    ] {
        let (found, _, text) = ask(&board, &options, get(&format!("/api/{name}?run={id}"))).await;
        assert_eq!(found.as_u16(), status, "{name}: {text}");
    }
    let (found, _, text) = ask(&board, &options, get(&format!("/api/trials?run={id}&limit=x"))).await;
    assert_eq!((found.as_u16(), text.contains("`limit`")), (400, true), "{text}");
}

#[tokio::test]
async fn strangers_are_refused() {
    let folder = folder();
    let board = board(&folder);
    let open = ServerOptions::default();
    let foreign = Request::get("/api/runs")
        .header("host", "evil.example")
        .body(Body::empty())
        .unwrap();
    assert_eq!(ask(&board, &open, foreign).await.0, StatusCode::FORBIDDEN);
    let posted = Request::post("/api/import?name=x")
        .header("host", "127.0.0.1:8090")
        .header("origin", "http://evil.example")
        .body(Body::from("step:1 - a:1"))
        .unwrap();
    assert_eq!(ask(&board, &open, posted).await.0, StatusCode::FORBIDDEN);
    let closed = ServerOptions {
        token: Some("secret".to_owned()),
        base_path: "/x".to_owned(),
    };
    assert_eq!(
        ask(&board, &closed, get("/x/api/runs")).await.0,
        StatusCode::UNAUTHORIZED
    );
    let (status, headers, _) = ask(&board, &closed, get("/x/?token=secret")).await;
    assert_eq!(status, StatusCode::OK);
    let cookie = headers["set-cookie"].to_str().unwrap().to_owned();
    assert!(cookie.contains("HttpOnly") && cookie.contains("Path=/x"), "{cookie}");
    let known = Request::get("/x/api/runs")
        .header("cookie", cookie.split(';').next().unwrap())
        .body(Body::empty())
        .unwrap();
    assert_eq!(ask(&board, &closed, known).await.0, StatusCode::OK);
}

#[tokio::test]
async fn a_log_can_be_handed_over() {
    let folder = folder();
    let board = board(&folder);
    let post = |body: &'static str| {
        Request::post("/api/import?name=mine.log")
            .header("host", "127.0.0.1:8090")
            .header("origin", "http://127.0.0.1:8090")
            .body(Body::from(body))
            .unwrap()
    };
    let options = ServerOptions::default();
    assert_eq!(ask(&board, &options, post("nothing")).await.0, StatusCode::BAD_REQUEST);
    let (status, _, text) = ask(&board, &options, post("step:3 - a:1\n")).await;
    assert_eq!(status, StatusCode::OK, "{text}");
    board.tick(5);
    assert_eq!(board.seen().0, 2, "it stays when the folders are looked into again");
}

#[test]
fn one_file_holds_what_can_be_asked() {
    let folder = folder();
    let page = export(&board(&folder), &["foreign".to_owned()]).unwrap();
    let data = page
        .split("type=\"application/json\">")
        .nth(1)
        .unwrap()
        .split("</script>")
        .next()
        .unwrap();
    let data: Value = serde_json::from_str(data).unwrap();
    let answers = data["answers"].as_object().unwrap();
    assert!(
        answers
            .keys()
            .any(|key| key.starts_with("series?keys=critic/score/mean&run=foreign-")),
        "{:?}",
        answers.keys()
    );
    assert_eq!(
        data["trials"]["listed"], LISTED_TRIALS,
        "what it leaves out is said in it"
    );
    assert!(!page.contains("src=\"assets"), "nothing is loaded from elsewhere");
    assert!(
        export(&board(&folder), &["gone".to_owned()])
            .unwrap_err()
            .to_string()
            .contains("foreign")
    );
}
