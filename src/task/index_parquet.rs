//! The task index as Parquet: nested columns for other tools, flat ones for everybody.

use std::path::Path;
use std::sync::Arc;

use arrow_array::cast::AsArray as _;
use arrow_array::types::{Float64Type, Int32Type};
use arrow_array::{
    Array, ArrayRef, BooleanArray, Float64Array, Int32Array, ListArray, RecordBatch, StringArray, StructArray,
    new_null_array,
};
use arrow_buffer::OffsetBuffer;
use arrow_cast::cast;
use arrow_schema::{DataType, Field, Fields, Schema};
use arrow_select::concat::concat_batches;
use fs_err as fs;
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::properties::WriterProperties;

use super::{IndexRow, TaskError, write_atomically};

fn broken(path: &Path, reason: &dyn std::fmt::Display) -> TaskError {
    TaskError::Index {
        path: path.to_owned(),
        reason: reason.to_string(),
    }
}

fn text(name: &str) -> Field {
    Field::new(name, DataType::Utf8, true)
}

fn strings<'a>(rows: &'a [IndexRow], value: impl Fn(&'a IndexRow) -> Option<&'a str>) -> ArrayRef {
    Arc::new(rows.iter().map(value).collect::<StringArray>())
}

fn floats(rows: &[IndexRow], value: impl Fn(&IndexRow) -> Option<f64>) -> ArrayRef {
    Arc::new(rows.iter().map(value).collect::<Float64Array>())
}

fn integers(rows: &[IndexRow], value: impl Fn(&IndexRow) -> Option<i32>) -> ArrayRef {
    Arc::new(rows.iter().map(value).collect::<Int32Array>())
}

fn structure(fields: Vec<Field>, columns: Vec<ArrayRef>) -> Result<StructArray, arrow_schema::ArrowError> {
    StructArray::try_new(Fields::from(fields), columns, None)
}

fn batch(rows: &[IndexRow]) -> Result<RecordBatch, arrow_schema::ArrowError> {
    let id = || strings(rows, |row| Some(&row.instance_id));
    let path = || strings(rows, |row| Some(&row.task_path));
    let source = || strings(rows, |row| Some(&row.data_source));
    let constant = |value: &'static str| strings(rows, move |_| Some(value));

    let message = structure(vec![text("role"), text("content")], vec![constant("user"), path()])?;
    let prompt = ListArray::try_new(
        Arc::new(Field::new("item", message.data_type().clone(), true)),
        OffsetBuffer::from_lengths(std::iter::repeat_n(1, rows.len())),
        Arc::new(message),
        None,
    )?;
    let reward_model = structure(
        vec![text("style"), text("ground_truth")],
        vec![constant("rule"), new_null_array(&DataType::Utf8, rows.len())],
    )?;
    let extra_info = structure(
        vec![text("harbor_task_path"), text("instance_id"), text("data_source")],
        vec![path(), id(), source()],
    )?;
    RecordBatch::try_from_iter_with_nullable([
        ("prompt", Arc::new(prompt) as ArrayRef, true),
        ("reward_model", Arc::new(reward_model), true),
        ("extra_info", Arc::new(extra_info), true),
        ("instance_id", id(), true),
        ("task_path", path(), true),
        ("data_source", source(), true),
        ("image", strings(rows, |row| row.image.as_deref()), true),
        ("image_digest", strings(rows, |row| row.image_digest.as_deref()), true),
        ("split", strings(rows, |row| row.split.as_deref()), true),
        ("pass_rate", floats(rows, |row| row.pass_rate), true),
        ("n_attempts", integers(rows, |row| row.n_attempts), true),
        ("n_solved", integers(rows, |row| row.n_solved), true),
        ("oracle_reward", floats(rows, |row| row.oracle_reward), true),
        ("nop_reward", floats(rows, |row| row.nop_reward), true),
        ("verify_sec", floats(rows, |row| row.verify_sec), true),
        (
            "flaky",
            Arc::new(rows.iter().map(|row| row.flaky).collect::<BooleanArray>()),
            true,
        ),
        ("task_checksum", strings(rows, |row| row.task_checksum.as_deref()), true),
    ])
}

/// Writes an index, atomically.
pub(super) fn write(path: &Path, rows: &[IndexRow]) -> Result<(), TaskError> {
    let batch = batch(rows).map_err(|error| broken(path, &error))?;
    let properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::default()))
        .build();
    write_atomically(path, |file| {
        let mut writer = ArrowWriter::try_new(file, batch.schema(), Some(properties)).map_err(|e| broken(path, &e))?;
        writer.write(&batch).map_err(|error| broken(path, &error))?;
        writer.close().map_err(|error| broken(path, &error))?;
        Ok(())
    })
}

/// A column by name, cast to the type that is read, wherever a tool wrote a kin of it.
fn column(batch: &RecordBatch, names: &[&str], wanted: &DataType) -> Result<Option<ArrayRef>, String> {
    let Some(mut array) = names.first().and_then(|name| batch.column_by_name(name)).cloned() else {
        return Ok(None);
    };
    for name in &names[1..] {
        if let Some(list) = array.as_list_opt::<i32>() {
            // Only the first message counts; a prompt of ours has one.
            let firsts = list
                .iter()
                .map(|item| item.filter(|item| !item.is_empty()).map(|item| item.slice(0, 1)));
            let items: Vec<ArrayRef> = firsts
                .map(|item| item.unwrap_or_else(|| new_null_array(&list.value_type(), 1)))
                .collect();
            let items: Vec<&dyn Array> = items.iter().map(AsRef::as_ref).collect();
            array = arrow_select::concat::concat(&items).map_err(|error| error.to_string())?;
        }
        match array.as_struct_opt().and_then(|fields| fields.column_by_name(name)) {
            Some(inner) => array = Arc::clone(inner),
            None => return Ok(None),
        }
    }
    let place = names.join(".");
    cast(&array, wanted)
        .map(Some)
        .map_err(|_| format!("column `{place}`: expected {wanted}, found {}", array.data_type()))
}

/// The values of a text column, from the first of several places that is there.
fn texts(batch: &RecordBatch, places: &[&[&str]]) -> Result<Vec<Option<String>>, String> {
    for names in places {
        if let Some(array) = column(batch, names, &DataType::Utf8)? {
            return Ok(array
                .as_string::<i32>()
                .iter()
                .map(|value| value.map(str::to_owned))
                .collect());
        }
    }
    Ok(vec![None; batch.num_rows()])
}

fn rows(batch: &RecordBatch) -> Result<Vec<IndexRow>, String> {
    let n = batch.num_rows();
    let floats = |name| -> Result<Vec<Option<f64>>, String> {
        let array = column(batch, &[name], &DataType::Float64)?;
        Ok(array.map_or(vec![None; n], |array| {
            array.as_primitive::<Float64Type>().iter().collect()
        }))
    };
    let integers = |name| -> Result<Vec<Option<i32>>, String> {
        let array = column(batch, &[name], &DataType::Int32)?;
        Ok(array.map_or(vec![None; n], |array| {
            array.as_primitive::<Int32Type>().iter().collect()
        }))
    };
    let flaky = column(batch, &["flaky"], &DataType::Boolean)?
        .map_or(vec![None; n], |array| array.as_boolean().iter().collect());
    let ids = texts(batch, &[&["instance_id"], &["extra_info", "instance_id"]])?;
    let paths = texts(
        batch,
        &[
            &["task_path"],
            &["extra_info", "harbor_task_path"],
            &["prompt", "content"],
        ],
    )?;
    let sources = texts(batch, &[&["data_source"], &["extra_info", "data_source"]])?;
    let (images, digests) = (texts(batch, &[&["image"]])?, texts(batch, &[&["image_digest"]])?);
    let (splits, checksums) = (texts(batch, &[&["split"]])?, texts(batch, &[&["task_checksum"]])?);
    let (pass_rate, oracle, nop, verify) = (
        floats("pass_rate")?,
        floats("oracle_reward")?,
        floats("nop_reward")?,
        floats("verify_sec")?,
    );
    let (attempts, solved) = (integers("n_attempts")?, integers("n_solved")?);
    (0..n)
        .map(|at| {
            let task_path = paths[at].clone().ok_or_else(|| {
                format!(
                    "row {at} names no task: expected a column `task_path`, `extra_info.harbor_task_path` or `prompt`"
                )
            })?;
            let folder_name = Path::new(&task_path)
                .file_name()
                .map(|name| name.to_string_lossy().into_owned());
            Ok(IndexRow {
                instance_id: ids[at].clone().or(folder_name).unwrap_or_default(),
                task_path,
                data_source: sources[at].clone().unwrap_or_default(),
                image: images[at].clone(),
                image_digest: digests[at].clone(),
                split: splits[at].clone(),
                pass_rate: pass_rate[at],
                n_attempts: attempts[at],
                n_solved: solved[at],
                oracle_reward: oracle[at],
                nop_reward: nop[at],
                verify_sec: verify[at],
                flaky: flaky[at],
                task_checksum: checksums[at].clone(),
            })
        })
        .collect()
}

/// Reads an index.
pub(super) fn read(path: &Path) -> Result<Vec<IndexRow>, TaskError> {
    let file = fs::File::open(path)?.into_parts().0;
    let reader = ParquetRecordBatchReaderBuilder::try_new(file)
        .and_then(ParquetRecordBatchReaderBuilder::build)
        .map_err(|error| broken(path, &error))?;
    let schema: Arc<Schema> = arrow_array::RecordBatchReader::schema(&reader);
    let batches: Vec<RecordBatch> = reader.collect::<Result<_, _>>().map_err(|error| broken(path, &error))?;
    let batch = concat_batches(&schema, &batches).map_err(|error| broken(path, &error))?;
    rows(&batch).map_err(|reason| broken(path, &reason))
}
