//! Which tasks an index holds: those that fit, that are not excluded, and that resemble none of another index.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::{Path, PathBuf};

use fs_err as fs;
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};

use super::PrepareError;
use super::stage::on_all_cores;
use crate::task::{Expression, IndexRow, TaskIndex};

/// How several indexes become one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Combine {
    /// Tasks of any; one that is in several counts once, where all of them mean the same folder.
    #[default]
    Union,
    /// Tasks of all, by id; the first index' rows.
    Intersection,
}

/// Part of the tasks as a split of their own.
#[derive(Debug, Clone, PartialEq)]
pub enum Split {
    /// A share of the tasks, by whole repositories.
    Share(String, f64),
    /// The tasks of these ids.
    Ids(String, Vec<String>),
}

/// Which tasks an index holds.
#[derive(Debug, Clone, Default)]
pub struct IndexOptions {
    /// Tasks must fit it.
    pub filter: Option<Expression>,
    /// Ids that are left out.
    pub exclude: Vec<String>,
    /// Indexes whose tasks, and tasks that resemble them, are left out.
    pub exclude_indexes: Vec<PathBuf>,
    /// From which estimated share of common word sequences two tasks resemble each other.
    pub resemblance: f64,
    /// Splits, the first that takes a task counts.
    pub splits: Vec<Split>,
    /// Decides which repositories a share takes.
    pub seed: u64,
    /// How several sources become one.
    pub combine: Combine,
    /// Whether tasks stay that validation refused.
    pub keep_invalid: bool,
}

/// Names that expressions know.
pub fn index_fields() -> Vec<&'static str> {
    vec![
        "instance_id",
        "task_path",
        "data_source",
        "image",
        "image_digest",
        "split",
        "pass_rate",
        "n_attempts",
        "n_solved",
        "oracle_reward",
        "nop_reward",
        "verify_sec",
        "flaky",
        "task_checksum",
    ]
}

/// Whether a row fits.
pub(super) fn fits(filter: &Expression, row: &IndexRow) -> bool {
    match serde_json::to_value(row) {
        Ok(Value::Object(fields)) => filter.fits(&fields),
        _ => filter.fits(&Map::new()),
    }
}

/// Hashes of a text that are kept.
const HASHES: usize = 128;
/// Words of one sequence.
const WORDS: usize = 5;
/// Hashes that have to be the same for two texts to be compared: with 32 bands of 4, two texts that share 0.8 are missed
/// once in 10⁷.
const BAND: usize = 4;

/// The smallest hash of a text's word sequences under each of many hash functions (Broder 1997): the share that two texts
/// have in common is the share of sequences that they have in common, as it is estimated.
#[derive(Debug, Clone, PartialEq, Eq)]
struct MinHash([u32; HASHES]);

impl MinHash {
    /// `None` for a text that is too short to resemble anything.
    fn of(text: &str) -> Option<Self> {
        let lower = text.to_lowercase();
        let words: Vec<&str> = lower
            .split(|c: char| !c.is_alphanumeric())
            .filter(|word| !word.is_empty())
            .collect();
        if words.len() < WORDS {
            return None;
        }
        let mut least = [u32::MAX; HASHES];
        for sequence in words.windows(WORDS) {
            let digest = Sha256::digest(sequence.join(" ").as_bytes());
            let part = |at: usize| u64::from_le_bytes([0, 1, 2, 3, 4, 5, 6, 7].map(|byte| digest[at + byte]));
            // Two hashes make all the others (Kirsch and Mitzenmacher 2006).
            let (one, other) = (part(0), part(8) | 1);
            for (at, known) in least.iter_mut().enumerate() {
                let hash = one
                    .wrapping_add(other.wrapping_mul(at as u64))
                    .wrapping_mul(0x9e37_79b9_7f4a_7c15);
                *known = (*known).min((hash >> 32) as u32);
            }
        }
        Some(Self(least))
    }

    fn resembles(&self, other: &Self) -> f64 {
        let same = self.0.iter().zip(&other.0).filter(|(one, other)| one == other).count();
        same as f64 / HASHES as f64
    }

    fn bands(&self) -> impl Iterator<Item = (usize, [u32; BAND])> {
        let bands = self.0.chunks_exact(BAND).enumerate();
        bands.map(|(at, band)| (at, [band[0], band[1], band[2], band[3]]))
    }
}

/// Why a task is left out, and which one it resembles.
type Excluded = (&'static str, Option<String>);

/// The rows that are not excluded, by id or by what they are or resemble in another index.
///
/// # Errors
/// Where such an index cannot be read.
pub fn without_excluded(mut rows: Vec<IndexRow>, options: &IndexOptions) -> Result<Vec<IndexRow>, PrepareError> {
    let excluded = excluded(&rows, options)?;
    rows.retain(|row| !excluded.contains_key(&row.instance_id));
    Ok(rows)
}

/// Why tasks are left out, by id.
pub(super) fn excluded(rows: &[IndexRow], options: &IndexOptions) -> Result<BTreeMap<String, Excluded>, PrepareError> {
    let mut out: BTreeMap<String, Excluded> = BTreeMap::new();
    let named: HashSet<&String> = options.exclude.iter().collect();
    for row in rows.iter().filter(|row| named.contains(&row.instance_id)) {
        out.insert(row.instance_id.clone(), ("excluded", None));
    }
    if options.exclude_indexes.is_empty() {
        return Ok(out);
    }
    let mut others: Vec<(String, PathBuf)> = Vec::new();
    for path in &options.exclude_indexes {
        let index = TaskIndex::read(path)?;
        others.extend(
            index
                .rows
                .iter()
                .map(|row| (row.instance_id.clone(), index.task_dir(row))),
        );
    }
    let ids: HashSet<&String> = others.iter().map(|(id, _)| id).collect();
    let hashes: Vec<(&String, MinHash)> = on_all_cores(&others, |(_, folder)| hash_of(folder))?
        .into_iter()
        .zip(&others)
        .filter_map(|(hash, (id, _))| Some((id, hash?)))
        .collect();
    let mut bands: HashMap<(usize, [u32; BAND]), Vec<usize>> = HashMap::new();
    for (at, (_, hash)) in hashes.iter().enumerate() {
        for band in hash.bands() {
            bands.entry(band).or_default().push(at);
        }
    }
    let own = on_all_cores(rows, |row| hash_of(Path::new(&row.task_path)))?;
    for (row, hash) in rows.iter().zip(own) {
        if ids.contains(&row.instance_id) {
            out.insert(row.instance_id.clone(), ("in_excluded_index", None));
            continue;
        }
        let Some(hash) = hash else { continue };
        let near = hash
            .bands()
            .filter_map(|band| bands.get(&band))
            .flatten()
            .find(|at| hashes[**at].1.resembles(&hash) >= options.resemblance);
        if let Some(near) = near {
            let like = hashes[*near].0.clone();
            out.insert(row.instance_id.clone(), ("resembles_excluded", Some(like)));
        }
    }
    Ok(out)
}

/// Of the issue in an instruction alone: the words around it are the same in all.
fn hash_of(folder: &Path) -> Result<Option<MinHash>, PrepareError> {
    let text = fs::read_to_string(folder.join("instruction.md"))?;
    let issue = text
        .split_once("<issue>")
        .and_then(|(_, rest)| rest.rsplit_once("</issue>"))
        .map_or(text.as_str(), |(issue, _)| issue);
    Ok(MinHash::of(issue))
}

/// Gives every task the split that takes it. No repository is in two: a share takes whole ones.
pub(super) fn split(
    rows: &mut [IndexRow],
    repos: &BTreeMap<String, String>,
    options: &IndexOptions,
) -> Result<(), PrepareError> {
    let repo_of = |row: &IndexRow| {
        repos
            .get(&row.instance_id)
            .cloned()
            .unwrap_or_else(|| row.instance_id.clone())
    };
    let mut taken: HashSet<String> = HashSet::new();
    for split in &options.splits {
        match split {
            Split::Ids(name, ids) => {
                let ids: HashSet<&String> = ids.iter().collect();
                for row in rows.iter_mut().filter(|row| ids.contains(&row.instance_id)) {
                    if taken.insert(row.instance_id.clone()) {
                        row.split = Some(name.clone());
                    }
                }
            }
            Split::Share(name, share) => {
                let mut members: BTreeMap<String, Vec<usize>> = BTreeMap::new();
                for (at, row) in rows
                    .iter()
                    .enumerate()
                    .filter(|(_, row)| !taken.contains(&row.instance_id))
                {
                    members.entry(repo_of(row)).or_default().push(at);
                }
                let mut order: Vec<(&String, &Vec<usize>)> = members.iter().collect();
                order.sort_by_key(|(repo, _)| {
                    let text = format!("{}:{name}:{repo}", options.seed);
                    crate::task::sha256_hex(text.as_bytes())
                });
                let wanted = share * rows.len() as f64;
                let mut have = 0.0;
                for (_, tasks) in order {
                    // A repository that brings more than is wanted is left to the others.
                    if have + tasks.len() as f64 > wanted + 1e-9 {
                        continue;
                    }
                    have += tasks.len() as f64;
                    for at in tasks {
                        taken.insert(rows[*at].instance_id.clone());
                        rows[*at].split = Some(name.clone());
                    }
                }
                if have == 0.0 && wanted > 0.0 {
                    return Err(PrepareError::Split {
                        name: name.clone(),
                        reason: format!(
                            "a share of {share} of {} tasks is {wanted:.1}, and every repository has more; name ids, or a larger share",
                            rows.len()
                        ),
                    });
                }
            }
        }
    }
    if !options.splits.is_empty() {
        for row in rows.iter_mut().filter(|row| !taken.contains(&row.instance_id)) {
            row.split = Some("train".to_owned());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_that_resemble_each_other_are_told_from_others() {
        let text = "When a list is sorted by two keys and one of them is missing, the order of the rest changes, and an error is \
                    raised whose message names neither of the keys nor the row where it was seen. The same happens with tuples.";
        let near = text.replace("tuples", "sets");
        let other = "The command prints its help twice where no argument is given, once on each of its two streams, and ends with \
                     another code than the manual says it does, which breaks scripts that look at the code alone.";
        let hash = |text: &str| MinHash::of(text).unwrap();
        assert!(hash(text).resembles(&hash(&near)) > 0.8);
        assert!(hash(text).resembles(&hash(&text.to_uppercase())) > 0.99);
        assert!(hash(text).resembles(&hash(other)) < 0.1);
        assert!(MinHash::of("too short").is_none());
    }

    #[test]
    fn shares_take_whole_repositories_and_the_same_ones_again() {
        let rows: Vec<IndexRow> = (0..40)
            .map(|n| IndexRow {
                instance_id: format!("t{n}"),
                ..IndexRow::default()
            })
            .collect();
        let repos: BTreeMap<String, String> = (0..40).map(|n| (format!("t{n}"), format!("r{}", n / 4))).collect();
        let split_with = |seed: u64| {
            let options = IndexOptions {
                splits: vec![
                    Split::Ids("held".into(), vec!["t0".into()]),
                    Split::Share("val".into(), 0.2),
                ],
                seed,
                ..IndexOptions::default()
            };
            let mut rows = rows.clone();
            split(&mut rows, &repos, &options).unwrap();
            rows
        };
        let first = split_with(1);
        assert_eq!(first, split_with(1));
        assert!((2..10).any(|seed| split_with(seed) != first));
        assert_eq!(first[0].split.as_deref(), Some("held"));
        let val: Vec<&IndexRow> = first.iter().filter(|row| row.split.as_deref() == Some("val")).collect();
        assert!((1..=8).contains(&val.len()), "{}", val.len());
        let repo = |row: &IndexRow| repos[&row.instance_id].clone();
        let of_val: HashSet<String> = val.iter().map(|row| repo(row)).collect();
        let train = first.iter().filter(|row| row.split.as_deref() == Some("train"));
        assert!(train.into_iter().all(|row| !of_val.contains(&repo(row))));
    }

    #[test]
    fn every_column_of_an_index_can_be_asked_for() {
        let Value::Object(row) = serde_json::to_value(IndexRow::default()).unwrap() else {
            unreachable!("a row is an object")
        };
        let columns: Vec<&str> = row.keys().map(String::as_str).collect();
        assert_eq!(columns, index_fields());
    }
}
