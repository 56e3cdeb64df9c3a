//! Folders written and read back; what is missing, unexpected or of another shape.

use std::{collections::BTreeMap, fs};

use super::*;
use crate::config::StoredType;
use crate::test_models::{FAMILIES, config, weights};
use crate::{Family, ModelConfig};

fn tensors(weights: &Weights) -> BTreeMap<String, HostTensor> {
    weights
        .iter()
        .map(|(name, tensor)| (name.to_owned(), tensor.clone()))
        .collect()
}

#[test]
fn folders_round_trip() {
    for family in FAMILIES {
        let dir = tempfile::tempdir().unwrap();
        let saved = weights(config(family), 2);
        saved.save(dir.path()).unwrap();
        let loaded = Weights::load(dir.path()).unwrap();
        assert_eq!(loaded.config(), saved.config());
        assert_eq!(tensors(&loaded), tensors(&saved));
    }
}

#[test]
fn half_types_lose_only_their_precision() {
    for (dtype, tolerance) in [(StoredType::Bf16, 4e-3), (StoredType::F16, 5e-4)] {
        let dir = tempfile::tempdir().unwrap();
        let saved = weights(
            ModelConfig {
                dtype,
                ..config(Family::Llama)
            },
            2,
        );
        saved.save(dir.path()).unwrap();
        let loaded = Weights::load(dir.path()).unwrap();
        for ((name, a), (_, b)) in saved.iter().zip(loaded.iter()) {
            for (a, b) in a.data.iter().zip(b.data.iter()) {
                assert!((a - b).abs() <= tolerance * a.abs() + 1e-7, "{name}: {a} {b}");
            }
        }
    }
}

#[test]
fn shards_are_read_by_their_index() {
    let dir = tempfile::tempdir().unwrap();
    let saved = weights(config(Family::Llama), 2);
    fs::write(dir.path().join("config.json"), saved.config().to_json()).unwrap();
    let all: Vec<_> = saved
        .iter()
        .map(|(n, t)| (n.to_owned(), t.shape.as_slice(), &*t.data))
        .collect();
    let mut map = serde_json::Map::new();
    for (i, part) in all.chunks(5).enumerate() {
        let file = format!("model-{i}.safetensors");
        write_tensors(&dir.path().join(&file), part, StoredType::F32, &[]).unwrap();
        for (name, ..) in part {
            map.insert(name.clone(), file.clone().into());
        }
    }
    let index = serde_json::json!({ "weight_map": map }).to_string();
    let path = dir.path().join("model.safetensors.index.json");
    fs::write(&path, index).unwrap();
    assert_eq!(tensors(&Weights::load(dir.path()).unwrap()), tensors(&saved));
    assert_eq!(&Weights::check(dir.path()).unwrap(), saved.config());
    fs::write(&path, r#"{"weight_map": {"x": "../model-0.safetensors"}}"#).unwrap();
    assert!(
        Weights::load(dir.path())
            .unwrap_err()
            .to_string()
            .contains("not a plain file name")
    );
}

#[test]
fn every_name_must_be_there_and_no_other() {
    let good = weights(config(Family::Qwen2), 2);
    let mut changed = tensors(&good);
    changed.remove("model.norm.weight");
    let extra = changed["model.layers.0.mlp.up_proj.weight"].clone();
    changed.insert("model.layers.2.mlp.up_proj.weight".to_owned(), extra);
    let error = Weights::from_tensors(good.config().clone(), changed)
        .unwrap_err()
        .to_string();
    assert!(error.contains("missing [model.norm.weight]"), "{error}");
    assert!(
        error.contains("unexpected [model.layers.2.mlp.up_proj.weight]"),
        "{error}"
    );
    let mut changed = tensors(&good);
    changed.get_mut("model.norm.weight").unwrap().shape = vec![4, 5];
    let error = Weights::from_tensors(good.config().clone(), changed)
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("`model.norm.weight` has shape [4, 5], config.json asks for [20]"),
        "{error}"
    );
}

#[test]
fn a_tied_copy_of_the_head_is_dropped() {
    let good = weights(config(Family::Llama), 2);
    let mut with_copy = tensors(&good);
    with_copy.insert(
        "lm_head.weight".to_owned(),
        with_copy["model.embed_tokens.weight"].clone(),
    );
    assert_eq!(
        tensors(&Weights::from_tensors(good.config().clone(), with_copy).unwrap()),
        tensors(&good)
    );
}

#[test]
fn unusable_folders_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let error = || Weights::load(dir.path()).unwrap_err().to_string();
    assert!(error().contains("config.json"), "{}", error());
    let good = weights(config(Family::Llama), 2);
    good.save(dir.path()).unwrap();
    let file = dir.path().join("model.safetensors");
    let bytes = fs::read(&file).unwrap();
    fs::write(&file, &bytes[..bytes.len() / 2]).unwrap();
    assert!(error().contains("not a readable safetensors file"), "{}", error());
    fs::remove_file(&file).unwrap();
    assert!(error().contains("neither model.safetensors nor"), "{}", error());
}

/// A folder whose file is changed; what `check` says of it. `load` must refuse it as well.
fn refused(change: impl FnOnce(&mut Vec<u8>)) -> String {
    let dir = tempfile::tempdir().unwrap();
    weights(config(Family::Llama), 2).save(dir.path()).unwrap();
    let file = dir.path().join("model.safetensors");
    let mut bytes = fs::read(&file).unwrap();
    change(&mut bytes);
    fs::write(&file, &bytes).unwrap();
    assert!(Weights::load(dir.path()).is_err());
    let said = Weights::check(dir.path()).unwrap_err().to_string();
    said.replace(&dir.path().display().to_string(), "[DIR]")
}

/// Replaces text of the header by other text of the same length.
fn swap(bytes: &mut [u8], from: &str, to: &str) {
    assert_eq!(from.len(), to.len());
    let at = bytes
        .windows(from.len())
        .position(|part| part == from.as_bytes())
        .unwrap();
    bytes[at..at + to.len()].copy_from_slice(to.as_bytes());
}

#[test]
fn a_folder_is_checked_by_its_headers_alone() {
    for family in FAMILIES {
        let dir = tempfile::tempdir().unwrap();
        let saved = weights(config(family), 2);
        saved.save(dir.path()).unwrap();
        assert_eq!(&Weights::check(dir.path()).unwrap(), saved.config());
    }
    let file = "[DIR]/model.safetensors: not a readable safetensors file: ";
    for (said, expected) in [
        (refused(|bytes| bytes.truncate(5)), "its 5 bytes are too few"),
        (
            refused(|bytes| bytes[..8].fill(0xff)),
            "its header is to have 18446744073709551615 bytes",
        ),
        (refused(|bytes| bytes[8] = b'!'), "its header: "),
        (refused(|bytes| bytes.truncate(bytes.len() - 4)), "its tensors take "),
        (refused(|bytes| bytes.push(0)), "its tensors take "),
        (
            refused(|bytes| swap(bytes, "\"data_offsets\":[0,", "\"data_offsets\":[4,")),
            "its header: invalid offset for tensor",
        ),
    ] {
        assert!(said.starts_with(file) && said.contains(expected), "{said}");
    }
    let said = refused(|bytes| swap(bytes, "\"F32\"", "\"I32\""));
    assert!(said.contains("has type I32"), "{said}");
    let said = refused(|bytes| swap(bytes, "model.norm.weight", "model.norm.wright"));
    assert!(
        said.contains("missing [model.norm.weight], unexpected [model.norm.wright]"),
        "{said}"
    );
}

#[test]
fn initial_weights_follow_the_seed() {
    let init = |seed| Weights::init(ModelConfig::tiny(64), seed).unwrap();
    assert_eq!(tensors(&init(1)), tensors(&init(1)));
    assert_ne!(tensors(&init(1)), tensors(&init(2)));
    let weights = init(1);
    let data = &weights.get("model.layers.0.mlp.gate_proj.weight").unwrap().data;
    let deviation = (data.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>() / data.len() as f64).sqrt();
    assert!((deviation - 0.02).abs() < 4e-4, "{deviation}");
    assert!(
        weights
            .get("model.norm.weight")
            .unwrap()
            .data
            .iter()
            .all(|x| x.to_bits() == 1f32.to_bits())
    );
}
