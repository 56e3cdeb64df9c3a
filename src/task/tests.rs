//! Task folders, good and bad, and the index both ways.

use std::path::Path;

use fs_err as fs;

use super::*;

const WHOLE: &str = r#"
schema_version = "1.4"
artifacts = ["/app/out.txt", { source = "/app/log", destination = "log.txt" }]
multi_step_reward_strategy = "final"
[task]
name = "org/fix-it"
authors = [{ name = "A", email = "a@b.c" }]
[metadata]
anything = { goes = [1, "x"] }
[agent]
timeout_sec = 900
user = 1000
[verifier]
timeout_sec = 12.5
user = "root"
environment_mode = "separate"
[verifier.environment]
docker_image = "x:1"
[[verifier.collect]]
command = "tar c /app"
[environment]
memory = "2G"
storage_mb = 100
workdir = "/src"
network_mode = "allowlist"
allowed_hosts = ["*.example.com", "10.0.0.0/8"]
[[environment.mcp_servers]]
name = "m"
url = "http://x"
[environment.healthcheck]
command = "true"
[[steps]]
name = "one"
min_reward = 0.5
[[steps]]
name = "two"
min_reward = { tests = 1 }
"#;

fn parse(text: &str) -> Result<(TaskConfig, Vec<SchemaWarning>), TaskError> {
    parse_task_toml(Path::new("t/task.toml"), text)
}

#[test]
fn the_whole_of_task_toml_is_read() {
    let (config, warnings) = parse(WHOLE).unwrap();
    assert_eq!(warnings, []);
    assert_eq!(config.environment.memory_mb(), Some(2048));
    assert_eq!(config.agent.user, Some(UserName::Id(1000)));
    assert_eq!(config.verifier.user, Some(UserName::Name("root".to_owned())));
    assert_eq!(config.verifier.timeout_sec, Some(Seconds(12.5)));
    assert_eq!(config.artifacts[1].destination.as_deref(), Some("log.txt"));
    assert_eq!(config.steps[0].min_reward, Some(MinReward::Scalar(0.5)));
    assert_eq!(
        config.steps[1].min_reward,
        Some(MinReward::Named([("tests".to_owned(), 1.0)].into()))
    );
    assert_eq!(config.environment.healthcheck.unwrap().retries, 3);
    assert_eq!(config.multi_step_reward_strategy, MultiStepReward::Final);
}

#[test]
fn unknown_keys_are_warned_of_with_line_and_nearest_key() {
    let text = "version = \"1.0\"\n[agent]\ntimeout_secs = 5\n[environment]\nzzz_unheard_of = 1\n[[steps]]\nname = \"a\"\n[steps.verifier]\nenvv = {}\n";
    let (config, warnings) = parse(text).unwrap();
    assert_eq!(config.schema_version.as_deref(), Some("1.0"));
    let lines: Vec<String> = warnings.iter().map(ToString::to_string).collect();
    assert_eq!(
        lines,
        [
            "t/task.toml:3: unknown key `timeout_secs` in `[agent]` is ignored; did you mean `timeout_sec`?",
            "t/task.toml:5: unknown key `zzz_unheard_of` in `[environment]` is ignored",
            "t/task.toml:9: unknown key `envv` in `[steps.verifier]` is ignored; did you mean `env`?",
        ]
    );
}

#[test]
fn a_newer_schema_is_warned_of() {
    let (_, warnings) = parse("schema_version = \"2.0\"").unwrap();
    assert!(warnings[0].message.contains("`2.0` is newer than 1.4"));
}

#[test]
fn wrong_types_are_errors_with_line_and_column() {
    let message = |text| parse(text).unwrap_err().to_string();
    assert_eq!(
        message("[agent]\ntimeout_sec = \"soon\""),
        "t/task.toml:2:15: invalid value: string \"soon\", expected a number of seconds, 0 or more"
    );
    assert!(message("[environment]\ncpus = 1\nmemory = \"8T\"").starts_with("t/task.toml:3:10: "));
    assert!(message("[environment]\nnetwork_mode = \"none\"").starts_with("t/task.toml:2:16: unknown variant `none`"));
    assert!(message("[agent\n").starts_with("t/task.toml:1:"));
    assert!(
        message("[environment]\nallowed_hosts = [\"a\"]\nnetwork_mode = \"public\"")
            .contains("needs `environment.network_mode")
    );
}

fn task(dir: &Path) {
    for (file, content) in [
        ("instruction.md", "Fix it."),
        ("tests/test.sh", "exit 0"),
        ("environment/files/a.sh", "x"),
    ] {
        let path = dir.join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }
}

#[test]
fn a_task_folder_is_opened_and_what_is_missing_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("fix-1");
    task(&folder);
    let loaded = Task::load(&folder).unwrap();
    assert_eq!((loaded.id.as_str(), loaded.instruction()), ("fix-1", "Fix it."));
    assert_eq!(loaded.workdir(), None);
    assert_eq!(loaded.local_source(), Some(folder.join("environment/files")));
    assert_eq!(loaded.solution_dir(), None);
    assert_eq!(loaded.verifier_timeout().as_secs(), 600);
    fs::write(
        folder.join("environment/Dockerfile"),
        "FROM x\nWORKDIR /a\nworkdir /srv/b\nWORKDIR $X\n",
    )
    .unwrap();
    assert_eq!(Task::load(&folder).unwrap().workdir().as_deref(), Some("/srv/b"));

    fs::remove_file(folder.join("tests/test.sh")).unwrap();
    let message = Task::load(&folder).unwrap_err().to_string();
    assert!(
        message.ends_with("fix-1: not a task: `tests/test.sh` is missing; expected the script that writes the reward")
    );
    fs::write(folder.join("tests/test.sh"), "").unwrap();
    fs::remove_file(folder.join("instruction.md")).unwrap();
    assert!(
        Task::load(&folder)
            .unwrap_err()
            .to_string()
            .contains("`instruction.md` is missing")
    );
}

#[test]
fn tests_with_an_image_of_their_own_need_no_script_here() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("t");
    task(&folder);
    fs::remove_file(folder.join("tests/test.sh")).unwrap();
    let images = |toml: &str| -> Vec<Option<TestsImage>> {
        fs::write(folder.join("task.toml"), toml).unwrap();
        let stages = Task::load(&folder).unwrap().stages().unwrap();
        stages.into_iter().map(|stage| stage.tests_image).collect()
    };
    let named = |name: &str| Some(TestsImage::Named(name.to_owned()));
    let built = |path: &str| Some(TestsImage::Built(folder.join(path)));
    let own = "[verifier.environment]\ndocker_image = \"x:1\"\n";
    assert_eq!(images(own), [named("x:1")]);
    fs::write(folder.join("tests/Dockerfile"), "FROM x").unwrap();
    assert_eq!(
        images("[verifier]\nenvironment_mode = \"separate\"\n"),
        [built("tests")]
    );
    assert_eq!(images(own), [named("x:1")]);
    for step in ["one", "two"] {
        fs::create_dir_all(folder.join("steps").join(step).join("tests")).unwrap();
        fs::write(folder.join("steps").join(step).join("instruction.md"), "").unwrap();
    }
    fs::write(folder.join("steps/two/tests/Dockerfile"), "FROM y").unwrap();
    let steps = format!("{own}[[steps]]\nname = \"one\"\n[[steps]]\nname = \"two\"\n");
    assert_eq!(images(&steps), [named("x:1"), built("steps/two/tests")]);

    // In the agent's sandbox they are uploaded.
    fs::write(folder.join("tests/test.sh"), "").unwrap();
    assert_eq!(images(""), [None]);
    let shared = "[verifier.environment]\n[[steps]]\nname = \"two\"\n[steps.verifier]\nenvironment_mode = \"shared\"\n";
    assert_eq!(images(shared), [None]);
}

#[test]
fn an_index_reads_back_as_it_was_written() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("index.parquet");
    let rows = vec![
        IndexRow {
            instance_id: "a".into(),
            task_path: dir.path().join("tasks/a").to_str().unwrap().into(),
            data_source: "quickstart".into(),
            split: Some("train".into()),
            pass_rate: Some(0.25),
            n_attempts: Some(4),
            n_solved: Some(1),
            flaky: Some(false),
            task_checksum: Some("00".into()),
            ..IndexRow::default()
        },
        IndexRow {
            instance_id: "b".into(),
            task_path: "/elsewhere/b".into(),
            ..IndexRow::default()
        },
    ];
    TaskIndex::write(&path, &rows).unwrap();
    let index = TaskIndex::read(&path).unwrap();
    assert_eq!(index.rows[0].task_path, "tasks/a");
    assert_eq!(index.task_dir(&index.rows[0]), dir.path().join("tasks/a"));
    assert_eq!(index.task_dir(&index.rows[1]), Path::new("/elsewhere/b"));
    assert_eq!(index.rows[0].pass_rate, Some(0.25));
    assert_eq!(index.rows[1], rows[1]);
    TaskIndex::write(&path, &[]).unwrap();
    assert_eq!(TaskIndex::read(&path).unwrap().rows, []);
}

#[test]
fn a_damaged_index_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("index.parquet");
    TaskIndex::write(&path, &[IndexRow::default()]).unwrap();
    let bytes = fs::read(&path).unwrap();
    fs::write(&path, &bytes[..bytes.len() / 2]).unwrap();
    let message = TaskIndex::read(&path).unwrap_err().to_string();
    assert!(
        message.contains("index.parquet: not a readable task index: "),
        "{message}"
    );
    assert!(
        TaskIndex::read(&dir.path().join("none"))
            .unwrap_err()
            .to_string()
            .contains("none")
    );
}

#[test]
fn an_index_of_other_tools_is_read_without_the_flat_columns() {
    use arrow_array::{ArrayRef, LargeStringArray, RecordBatch, StructArray};
    use std::sync::Arc;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("verl.parquet");
    let text = |value: &str| Arc::new(LargeStringArray::from(vec![value])) as ArrayRef;
    let field = |name: &str| Arc::new(arrow_schema::Field::new(name, arrow_schema::DataType::LargeUtf8, true));
    let extra = StructArray::from(vec![
        (field("harbor_task_path"), text("/data/t1")),
        (field("instance_id"), text("t1")),
        (field("data_source"), text("swe")),
    ]);
    let batch = RecordBatch::try_from_iter([("extra_info", Arc::new(extra) as ArrayRef)]).unwrap();
    let mut writer =
        parquet::arrow::ArrowWriter::try_new(fs::File::create(&path).unwrap().into_parts().0, batch.schema(), None)
            .unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
    let row = &TaskIndex::read(&path).unwrap().rows[0];
    assert_eq!(
        (
            row.instance_id.as_str(),
            row.task_path.as_str(),
            row.data_source.as_str()
        ),
        ("t1", "/data/t1", "swe")
    );
}
