//! How one value of a row becomes an Arrow column, and back.

use std::sync::Arc;

use arrow_array::cast::AsArray as _;
use arrow_array::types::{Float32Type, Int32Type, TimestampMicrosecondType};
use arrow_array::{Array, ArrayRef, BooleanArray, Float32Array, Int32Array, StringArray, TimestampMicrosecondArray};
use arrow_schema::{DataType, TimeUnit};
use jiff::Timestamp;

/// A type of the Rust row with its column type.
pub(super) trait Column: Sized {
    /// Whether the column may hold nulls.
    const NULLABLE: bool = false;

    /// The column's type.
    fn data_type() -> DataType;

    /// All values of a batch.
    fn encode<'a>(values: impl Iterator<Item = &'a Self>) -> ArrayRef
    where
        Self: 'a;

    /// All values of a column that was cast to `data_type` already; nulls only where allowed.
    fn decode(array: &ArrayRef) -> Result<Vec<Self>, String>;
}

/// The position of the first null, for the message.
pub(super) fn required<T>(values: impl Iterator<Item = Option<T>>) -> Result<Vec<T>, String> {
    values
        .enumerate()
        .map(|(at, value)| value.ok_or_else(|| format!("row {at} is null where a value is required")))
        .collect()
}

macro_rules! flat {
    ($type:ty, $data_type:expr, $array:ident, $to:expr, |$column:ident| $values:expr) => {
        impl Column for $type {
            fn data_type() -> DataType {
                $data_type
            }

            fn encode<'a>(values: impl Iterator<Item = &'a Self>) -> ArrayRef {
                let to: fn(&'a Self) -> _ = $to;
                Arc::new($array::from_iter(values.map(|value| Some(to(value)))))
            }

            fn decode($column: &ArrayRef) -> Result<Vec<Self>, String> {
                required($values)
            }
        }

        impl Column for Option<$type> {
            const NULLABLE: bool = true;

            fn data_type() -> DataType {
                $data_type
            }

            fn encode<'a>(values: impl Iterator<Item = &'a Self>) -> ArrayRef {
                let to: fn(&'a $type) -> _ = $to;
                Arc::new($array::from_iter(values.map(|value| value.as_ref().map(to))))
            }

            fn decode($column: &ArrayRef) -> Result<Vec<Self>, String> {
                Ok($values.collect())
            }
        }
    };
}

flat!(String, DataType::Utf8, StringArray, String::as_str, |column| column
    .as_string::<i32>()
    .iter()
    .map(|value| value.map(str::to_owned)));
flat!(i32, DataType::Int32, Int32Array, |value| *value, |column| column
    .as_primitive::<Int32Type>()
    .iter());
flat!(f32, DataType::Float32, Float32Array, |value| *value, |column| column
    .as_primitive::<Float32Type>()
    .iter());
flat!(bool, DataType::Boolean, BooleanArray, |value| *value, |column| column
    .as_boolean()
    .iter());

impl Column for Timestamp {
    fn data_type() -> DataType {
        DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()))
    }

    fn encode<'a>(values: impl Iterator<Item = &'a Self>) -> ArrayRef {
        let micros = values.map(|time| time.as_microsecond());
        Arc::new(TimestampMicrosecondArray::from_iter_values(micros).with_timezone("UTC"))
    }

    fn decode(array: &ArrayRef) -> Result<Vec<Self>, String> {
        required(array.as_primitive::<TimestampMicrosecondType>().iter())?
            .into_iter()
            .map(|micros| Self::from_microsecond(micros).map_err(|error| error.to_string()))
            .collect()
    }
}

/// Whether a column holds no nulls where none may be; used before lists are taken apart.
pub(super) fn no_nulls(array: &dyn Array) -> Result<(), String> {
    if array.null_count() == 0 {
        Ok(())
    } else {
        Err("a list holds a null".to_owned())
    }
}
