#![expect(clippy::float_cmp, reason = "tests; the numbers are read, not computed")]

use super::reward::{read, shell};
use super::*;

fn rewarded(files: &[(&str, &[u8])]) -> Result<(f64, BTreeMap<String, f64>), VerifierError> {
    let folder = tempfile::tempdir().unwrap();
    for (name, content) in files {
        fs_err::write(folder.path().join(name), content).unwrap();
    }
    read(folder.path())
}

#[test]
fn rewards_that_count() {
    assert_eq!(rewarded(&[("reward.txt", b" 1.0\n")]).unwrap().0, 1.0);
    assert_eq!(rewarded(&[("reward.txt", b"-2e-1")]).unwrap().0, -0.2);
    assert_eq!(rewarded(&[("reward.json", b"0.5")]).unwrap().0, 0.5);
    assert_eq!(rewarded(&[("reward.json", b"{\"tests\": 1}")]).unwrap().0, 1.0);
    let (reward, rewards) = rewarded(&[("reward.json", b"{\"reward\": 0, \"style\": 0.75}")]).unwrap();
    assert_eq!((reward, rewards["style"], rewards.len()), (0.0, 0.75, 2));
    // reward.json goes first.
    assert_eq!(rewarded(&[("reward.json", b"1"), ("reward.txt", b"0")]).unwrap().0, 1.0);
}

#[test]
fn what_is_no_reward_is_an_error_and_never_zero() {
    let cases: &[(&str, &[u8], &str)] = &[
        ("reward.txt", b"", "empty"),
        ("reward.txt", b" \n", "empty"),
        ("reward.txt", b"nan", "not a finite number"),
        ("reward.txt", b"inf", "not a finite number"),
        ("reward.txt", b"1e300", "not a finite number"),
        ("reward.txt", b"1 0", "found `1 0`"),
        ("reward.txt", b"PASSED", "found `PASSED`"),
        ("reward.txt", b"\xff", "not text"),
        ("reward.json", b"", "empty"),
        ("reward.json", b"NaN", "not JSON"),
        ("reward.json", b"{\"reward\": NaN}", "not JSON"),
        ("reward.json", b"{\"reward\": null}", "`reward` is `null`"),
        ("reward.json", b"{\"reward\": \"1\"}", "not a number"),
        ("reward.json", b"{\"reward\": true}", "not a number"),
        ("reward.json", b"[1]", "not a number"),
        ("reward.json", b"{}", "0 numbers"),
        ("reward.json", b"{\"a\": 1, \"b\": 0}", "2 numbers"),
    ];
    for (file, content, expected) in cases {
        let error = rewarded(&[(file, content)]).unwrap_err().to_string();
        assert!(error.contains(expected) && error.contains(file), "{content:?}: {error}");
    }
    // A broken reward.json is not passed over for a reward.txt.
    assert!(matches!(
        rewarded(&[("reward.json", b"x"), ("reward.txt", b"1")]),
        Err(VerifierError::Invalid { .. })
    ));
    assert!(matches!(rewarded(&[]), Err(VerifierError::Missing { .. })));
    let huge = vec![b'1'; 70_000];
    assert!(
        rewarded(&[("reward.txt", &huge)])
            .unwrap_err()
            .to_string()
            .contains("larger than")
    );
}

#[test]
fn a_link_or_folder_is_no_reward() {
    let folder = tempfile::tempdir().unwrap();
    fs_err::write(folder.path().join("elsewhere"), "1").unwrap();
    std::os::unix::fs::symlink("elsewhere", folder.path().join("reward.txt")).unwrap();
    assert!(matches!(
        read(folder.path()),
        Err(VerifierError::Invalid { file: "reward.txt", .. })
    ));
    fs_err::create_dir(folder.path().join("reward.json")).unwrap();
    assert!(matches!(
        read(folder.path()),
        Err(VerifierError::Invalid {
            file: "reward.json",
            ..
        })
    ));
}

#[test]
fn the_script_says_which_shell() {
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("test.sh");
    for (first, expected) in [
        ("#!/bin/bash\nset -e", "bash"),
        ("#!/usr/bin/env bash", "bash"),
        ("#! /bin/sh -e", "sh"),
        ("echo", "sh"),
        ("", "sh"),
        ("#!/usr/bin/python3", "python3"),
    ] {
        fs_err::write(&script, first).unwrap();
        assert_eq!(shell(&script).unwrap(), expected, "{first}");
    }
    assert_eq!(
        shell(&folder.path().join("none")).unwrap_err().kind(),
        io::ErrorKind::NotFound
    );
}
