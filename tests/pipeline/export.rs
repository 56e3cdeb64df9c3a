//! `lego train --export`: a checkpoint as a plain folder.

use lego_policy::Weights;

use super::{lego, quickstart, succeeded};

#[test]
fn a_checkpoint_is_exported_and_its_files_are_named() {
    let runs = tempfile::tempdir().unwrap();
    let toml = quickstart();
    let toml = toml.to_str().unwrap();
    let to = runs.path().join("policy");
    let export = ["train", toml, "--export", to.to_str().unwrap()];
    let output = lego(&export, runs.path(), &[]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(4), "{said}");
    assert!(said.contains("there is no run ") && !to.exists(), "{said}");

    succeeded(&lego(&["train", toml, "--steps", "2"], runs.path(), &[]));
    let of = |which: &str| {
        let arguments = [&export[..], &["--checkpoint", which]].concat();
        lego(&arguments, runs.path(), &[])
    };
    for (which, words) in [
        ("best", "no checkpoint that was validated"),
        ("9", "no complete checkpoint of step 9"),
    ] {
        let output = of(which);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(4) && said.contains(words), "{said}");
    }
    let output = of("1");
    succeeded(&output);
    let rows: Vec<serde_json::Value> = String::from_utf8(output.stdout)
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(rows.len(), std::fs::read_dir(&to).unwrap().count());
    for row in &rows {
        let size = std::fs::metadata(row["path"].as_str().unwrap()).unwrap().len();
        assert!(row["bytes"] == size && row["step"] == 1, "{row}");
    }
    let (exported, kept) = (
        Weights::load(&to).unwrap(),
        Weights::load(&runs.path().join("quickstart/checkpoints/step_000001")).unwrap(),
    );
    assert!(exported.iter().zip(kept.iter()).all(|(a, b)| a == b));

    let again = of("latest");
    let said = String::from_utf8_lossy(&again.stderr).into_owned();
    assert!(
        again.status.code() == Some(2) && said.contains("is there already and not empty"),
        "{said}"
    );
    // What was exported is a policy like any other.
    let model = format!("policy.model={}", to.display());
    let set = [model.as_str(), "run.name=next"];
    succeeded(&lego(&["train", toml, "--steps", "1"], runs.path(), &set));
}
