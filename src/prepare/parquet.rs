//! Records in Parquet: every row as the JSON object that a line would be.

use arrow_array::cast::AsArray as _;
use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_cast::cast;
use arrow_cast::display::{ArrayFormatter, FormatOptions};
use arrow_schema::DataType;
use bytes::Bytes;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use serde_json::{Map, Value};

use super::PrepareError;
use super::read::RawRecord;

/// Rows that are in memory at once.
const ROWS: usize = 256;

/// Calls `each` with every row in order; its number, from 1, stands for its line.
pub(super) fn rows(
    name: &str,
    bytes: Bytes,
    each: &mut dyn FnMut(RawRecord) -> Result<(), PrepareError>,
) -> Result<(), PrepareError> {
    let mut number = 0;
    let broken = |line: usize, reason: &dyn std::fmt::Display| PrepareError::Source {
        name: name.to_owned(),
        line,
        reason: format!("not readable as Parquet: {reason}"),
    };
    let reader = ParquetRecordBatchReaderBuilder::try_new(bytes)
        .and_then(|builder| builder.with_batch_size(ROWS).build())
        .map_err(|error| broken(1, &error))?;
    for batch in reader {
        let batch = batch.map_err(|error| broken(number + 1, &error))?;
        for row in 0..batch.num_rows() {
            number += 1;
            let object = object(&batch, row).map_err(|error| broken(number, &error))?;
            let bytes = serde_json::to_vec(&object).map_err(|error| broken(number, &error))?;
            each(RawRecord {
                line: number,
                element: None,
                bytes,
            })?;
        }
    }
    Ok(())
}

fn object(batch: &RecordBatch, row: usize) -> Result<Map<String, Value>, arrow_schema::ArrowError> {
    let schema = batch.schema();
    let fields = schema.fields().iter().zip(batch.columns());
    fields
        .map(|(field, column)| Ok((field.name().clone(), value(column, row)?)))
        .collect()
}

/// One cell. Types that JSON does not have are written as text.
fn value(column: &ArrayRef, row: usize) -> Result<Value, arrow_schema::ArrowError> {
    if column.is_null(row) {
        return Ok(Value::Null);
    }
    let items = |list: ArrayRef| {
        (0..list.len())
            .map(|at| value(&list, at))
            .collect::<Result<Vec<_>, _>>()
    };
    Ok(match column.data_type() {
        DataType::Utf8 => Value::String(column.as_string::<i32>().value(row).to_owned()),
        DataType::LargeUtf8 => Value::String(column.as_string::<i64>().value(row).to_owned()),
        DataType::Boolean => Value::Bool(column.as_boolean().value(row)),
        DataType::List(_) => Value::Array(items(column.as_list::<i32>().value(row))?),
        DataType::LargeList(_) => Value::Array(items(column.as_list::<i64>().value(row))?),
        DataType::Struct(fields) => {
            let table = column.as_struct();
            let cells = fields.iter().zip(table.columns());
            let cells = cells.map(|(field, column)| Ok((field.name().clone(), value(column, row)?)));
            Value::Object(cells.collect::<Result<Map<_, _>, arrow_schema::ArrowError>>()?)
        }
        kind if kind.is_integer() => {
            let whole = cast(column, &DataType::Int64)?;
            whole.as_primitive::<arrow_array::types::Int64Type>().value(row).into()
        }
        kind if kind.is_floating() => {
            let number = cast(column, &DataType::Float64)?;
            number
                .as_primitive::<arrow_array::types::Float64Type>()
                .value(row)
                .into()
        }
        DataType::Dictionary(_, inner) => value(&cast(column, inner)?, row)?,
        DataType::Utf8View => value(&cast(column, &DataType::Utf8)?, row)?,
        _ => Value::String(
            ArrayFormatter::try_new(column, &FormatOptions::default())?
                .value(row)
                .to_string(),
        ),
    })
}
