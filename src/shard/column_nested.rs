//! Columns that hold structures: weight versions, recorded routing, named rewards.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_array::cast::AsArray as _;
use arrow_array::types::{Float64Type, Int32Type};
use arrow_array::{Array, ArrayRef, BinaryArray, Float64Array, Int32Array, MapArray, StringArray, StructArray};
use arrow_buffer::OffsetBuffer;
use arrow_schema::{DataType, Field, Fields};

use super::column::{Column, no_nulls};
use super::column_list::{list, list_of};
use super::row::RoutedRun;
use crate::trajectory::VersionSpan;

fn version_fields() -> Fields {
    Fields::from(vec![
        Field::new("start", DataType::Int32, false),
        Field::new("end", DataType::Int32, false),
        Field::new("version", DataType::Utf8, false),
    ])
}

fn routed_fields() -> Fields {
    Fields::from(vec![
        Field::new("start", DataType::Int32, false),
        Field::new("rows", DataType::Binary, false),
    ])
}

fn entry_fields() -> Fields {
    Fields::from(vec![
        Field::new("key", DataType::Utf8, false),
        Field::new("value", DataType::Float64, true),
    ])
}

/// The numbers of a structure's field, each at least 0.
fn positions(item: &StructArray, field: usize) -> Result<Vec<u32>, String> {
    let array = item.column(field);
    no_nulls(array)?;
    let values = array.as_primitive::<Int32Type>().values().iter();
    values
        .map(|&value| u32::try_from(value).map_err(|_| format!("position {value} is negative")))
        .collect()
}

impl Column for Vec<VersionSpan> {
    fn data_type() -> DataType {
        list_of(DataType::Struct(version_fields()))
    }

    fn encode<'a>(values: impl Iterator<Item = &'a Self>) -> ArrayRef {
        let values: Vec<&Self> = values.collect();
        let lengths: Vec<Option<usize>> = values.iter().map(|spans| Some(spans.len())).collect();
        let spans: Vec<&VersionSpan> = values.into_iter().flatten().collect();
        let columns: Vec<ArrayRef> = vec![
            Arc::new(Int32Array::from_iter_values(
                spans.iter().map(|span| span.start.cast_signed()),
            )),
            Arc::new(Int32Array::from_iter_values(
                spans.iter().map(|span| span.end.cast_signed()),
            )),
            Arc::new(StringArray::from_iter_values(
                spans.iter().map(|span| span.version.to_string()),
            )),
        ];
        list(Arc::new(StructArray::new(version_fields(), columns, None)), &lengths)
    }

    fn decode(array: &ArrayRef) -> Result<Vec<Self>, String> {
        let lists = array.as_list::<i32>();
        no_nulls(lists)?;
        lists
            .iter()
            .flatten()
            .map(|item| {
                let item = item.as_struct();
                let (starts, ends) = (positions(item, 0)?, positions(item, 1)?);
                no_nulls(item.column(2))?;
                let versions = item.column(2).as_string::<i32>();
                (0..item.len())
                    .map(|at| {
                        let version = versions.value(at).parse().map_err(|error| format!("{error}"))?;
                        Ok(VersionSpan {
                            start: starts[at],
                            end: ends[at],
                            version,
                        })
                    })
                    .collect()
            })
            .collect()
    }
}

impl Column for Option<Vec<RoutedRun>> {
    const NULLABLE: bool = true;

    fn data_type() -> DataType {
        list_of(DataType::Struct(routed_fields()))
    }

    fn encode<'a>(values: impl Iterator<Item = &'a Self>) -> ArrayRef {
        let values: Vec<&Self> = values.collect();
        let lengths: Vec<Option<usize>> = values.iter().map(|runs| runs.as_ref().map(Vec::len)).collect();
        let runs: Vec<&RoutedRun> = values.into_iter().flatten().flatten().collect();
        let columns: Vec<ArrayRef> = vec![
            Arc::new(Int32Array::from_iter_values(
                runs.iter().map(|run| run.start.cast_signed()),
            )),
            Arc::new(BinaryArray::from_iter_values(runs.iter().map(|run| &run.rows))),
        ];
        list(Arc::new(StructArray::new(routed_fields(), columns, None)), &lengths)
    }

    fn decode(array: &ArrayRef) -> Result<Vec<Self>, String> {
        let lists = array.as_list::<i32>();
        lists
            .iter()
            .map(|item| {
                let Some(item) = item else { return Ok(None) };
                let item = item.as_struct();
                let starts = positions(item, 0)?;
                no_nulls(item.column(1))?;
                let rows = item.column(1).as_binary::<i32>();
                let runs = starts.into_iter().enumerate();
                Ok(Some(
                    runs.map(|(at, start)| RoutedRun {
                        start,
                        rows: rows.value(at).to_vec(),
                    })
                    .collect(),
                ))
            })
            .collect()
    }
}

impl Column for BTreeMap<String, f64> {
    fn data_type() -> DataType {
        DataType::Map(
            Arc::new(Field::new("entries", DataType::Struct(entry_fields()), false)),
            false,
        )
    }

    fn encode<'a>(values: impl Iterator<Item = &'a Self>) -> ArrayRef {
        let values: Vec<&Self> = values.collect();
        let offsets = OffsetBuffer::from_lengths(values.iter().map(|map| map.len()));
        let columns: Vec<ArrayRef> = vec![
            Arc::new(StringArray::from_iter_values(values.iter().flat_map(|map| map.keys()))),
            Arc::new(Float64Array::from_iter_values(
                values.iter().flat_map(|map| map.values().copied()),
            )),
        ];
        let entries = StructArray::new(entry_fields(), columns, None);
        let field = Arc::new(Field::new("entries", DataType::Struct(entry_fields()), false));
        Arc::new(MapArray::new(field, offsets, entries, None, false))
    }

    fn decode(array: &ArrayRef) -> Result<Vec<Self>, String> {
        let maps = array.as_map();
        no_nulls(maps)?;
        maps.iter()
            .flatten()
            .map(|entries| {
                no_nulls(entries.column(1))?;
                let (keys, values) = (
                    entries.column(0).as_string::<i32>(),
                    entries.column(1).as_primitive::<Float64Type>(),
                );
                Ok((0..entries.len())
                    .map(|at| (keys.value(at).to_owned(), values.value(at)))
                    .collect())
            })
            .collect()
    }
}
