//! Columns that hold lists of plain numbers or of text.

use std::sync::Arc;

use arrow_array::cast::AsArray as _;
use arrow_array::types::{ArrowPrimitiveType, Float32Type, Int32Type, UInt8Type};
use arrow_array::{Array, ArrayRef, Float32Array, Int32Array, ListArray, PrimitiveArray, StringArray, UInt8Array};
use arrow_buffer::{NullBuffer, OffsetBuffer};
use arrow_schema::{DataType, Field};

use super::column::{Column, no_nulls, required};
use crate::trajectory::TokenId;

/// A list type whose items are never null.
pub(super) fn list_of(item: DataType) -> DataType {
    DataType::List(Arc::new(Field::new("item", item, false)))
}

/// A list column out of its items and the lengths of its rows; `None` is a null list.
pub(super) fn list(items: ArrayRef, lengths: &[Option<usize>]) -> ArrayRef {
    let field = Arc::new(Field::new("item", items.data_type().clone(), false));
    let offsets = OffsetBuffer::from_lengths(lengths.iter().map(|length| length.unwrap_or(0)));
    let nulls: NullBuffer = lengths.iter().map(Option::is_some).collect();
    Arc::new(ListArray::new(
        field,
        offsets,
        items,
        Some(nulls).filter(|nulls| nulls.null_count() > 0),
    ))
}

/// The values of a list of primitives.
fn numbers<P: ArrowPrimitiveType>(array: &ArrayRef) -> Result<Vec<Option<Vec<P::Native>>>, String> {
    let list = array.as_list::<i32>();
    list.iter()
        .map(|item| {
            let Some(item) = item else { return Ok(None) };
            no_nulls(&item)?;
            let item: &PrimitiveArray<P> = item.as_primitive();
            Ok(Some(item.values().to_vec()))
        })
        .collect()
}

macro_rules! list_column {
    ($type:ty, $item:expr, $items:expr, $decode:expr) => {
        impl Column for Option<Vec<$type>> {
            const NULLABLE: bool = true;

            fn data_type() -> DataType {
                list_of($item)
            }

            fn encode<'a>(values: impl Iterator<Item = &'a Self>) -> ArrayRef {
                let values: Vec<&'a Self> = values.collect();
                let lengths: Vec<Option<usize>> = values.iter().map(|value| value.as_ref().map(Vec::len)).collect();
                let items: fn(&mut dyn Iterator<Item = &'a $type>) -> ArrayRef = $items;
                list(items(&mut values.iter().copied().flatten().flatten()), &lengths)
            }

            fn decode(array: &ArrayRef) -> Result<Vec<Self>, String> {
                $decode(array)
            }
        }

        impl Column for Vec<$type> {
            fn data_type() -> DataType {
                list_of($item)
            }

            fn encode<'a>(values: impl Iterator<Item = &'a Self>) -> ArrayRef {
                let values: Vec<&'a Self> = values.collect();
                let lengths: Vec<Option<usize>> = values.iter().map(|value| Some(value.len())).collect();
                let items: fn(&mut dyn Iterator<Item = &'a $type>) -> ArrayRef = $items;
                list(items(&mut values.iter().copied().flatten()), &lengths)
            }

            fn decode(array: &ArrayRef) -> Result<Vec<Self>, String> {
                let decode: fn(&ArrayRef) -> Result<Vec<Option<Self>>, String> = $decode;
                required(decode(array)?.into_iter())
            }
        }
    };
}

list_column!(
    TokenId,
    DataType::Int32,
    |items| Arc::new(Int32Array::from_iter_values(items.map(|&id| id.cast_signed()))),
    |array: &ArrayRef| {
        let lists = numbers::<Int32Type>(array)?;
        Ok(lists
            .into_iter()
            .map(|ids| ids.map(|ids| ids.into_iter().map(i32::cast_unsigned).collect()))
            .collect())
    }
);
list_column!(
    i32,
    DataType::Int32,
    |items| Arc::new(Int32Array::from_iter_values(items.copied())),
    numbers::<Int32Type>
);
list_column!(
    u8,
    DataType::UInt8,
    |items| Arc::new(UInt8Array::from_iter_values(items.copied())),
    numbers::<UInt8Type>
);
list_column!(
    f32,
    DataType::Float32,
    |items| Arc::new(Float32Array::from_iter_values(items.copied())),
    numbers::<Float32Type>
);
list_column!(
    String,
    DataType::Utf8,
    |items| Arc::new(StringArray::from_iter_values(items)),
    |array: &ArrayRef| {
        let list = array.as_list::<i32>();
        list.iter()
            .map(|item| {
                item.map(|item| required(item.as_string::<i32>().iter().map(|text| text.map(str::to_owned))))
                    .transpose()
            })
            .collect()
    }
);
