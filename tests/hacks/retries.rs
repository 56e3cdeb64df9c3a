//! Infrastructure failures of one trial of a group.

use crate::played::{Place, Play, is_possible, play_group};
use crate::tasks::TaskFiles;

#[tokio::test(flavor = "multi_thread")]
async fn a_trial_that_is_tried_again_is_tried_alone() {
    if !is_possible(Place::Namespaces).await {
        return;
    }
    // Ready by chance, one time in four: some trials of the group are tried again, and each for itself.
    let mut task = TaskFiles::calculator();
    task.toml += "[environment.healthcheck]\ncommand = \"[ $(od -An -N1 -tu1 /dev/urandom) -lt 64 ]\"\nretries = 1\n";
    let set = ["rollout.group_size=3", "rollout.max_retries=60"];
    let (starts, retries) = play_group(Place::Namespaces, Play::new("group", task, &["true"]), &set).await;
    assert_eq!(starts.len(), 3, "{starts:?}");
    for (name, count) in &starts {
        assert_eq!(
            *count,
            1 + retries.get(name).copied().unwrap_or(0),
            "{name}: {starts:?} {retries:?}"
        );
    }
}
