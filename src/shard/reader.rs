//! Reads shards, local or in an object store, whole or some columns of them.

use std::path::Path;
use std::sync::Arc;

use arrow_array::RecordBatch;
use futures_util::TryStreamExt as _;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{ArrowReaderBuilder, ParquetRecordBatchReaderBuilder};
use parquet::arrow::async_reader::ParquetRecordBatchStreamBuilder;

use super::remote::RemoteObject;
use super::row::{COLUMNS, decode};
use super::source::Listing;
use super::{Row, ShardError, ShardFile, ShardMeta, group_episodes};
use crate::trajectory::Episode;

/// A list of shards to read.
///
/// Every file is read whole or the read fails with the file's name: a foreign, damaged or newer file is
/// never skipped.
#[derive(Debug, Clone)]
pub struct ShardReader {
    files: Vec<ShardFile>,
    columns: Option<Vec<&'static str>>,
}

impl ShardReader {
    /// Lists the shards of local files and folders; a folder's are taken in the order of their paths.
    pub fn open<P: AsRef<Path>>(places: &[P]) -> Result<Self, ShardError> {
        let mut listing = Listing::default();
        places.iter().try_for_each(|place| listing.add_local(place.as_ref()))?;
        Ok(Self {
            files: listing.files,
            columns: None,
        })
    }

    /// The same for places that may be object-store URLs.
    ///
    /// The store's client bounds its own waits.
    pub async fn open_places(places: &[String]) -> Result<Self, ShardError> {
        let mut listing = Listing::default();
        for place in places {
            match place.strip_prefix("file://") {
                Some(path) => listing.add_local(Path::new(path))?,
                None if place.contains("://") => listing.add_remote(place).await?,
                None => listing.add_local(Path::new(place))?,
            }
        }
        Ok(Self {
            files: listing.files,
            columns: None,
        })
    }

    /// Reads only these columns; the others hold their defaults.
    pub fn with_columns(mut self, names: &[&str]) -> Result<Self, ShardError> {
        let known = |name: &&str| {
            COLUMNS
                .iter()
                .copied()
                .find(|column| column == name)
                .ok_or_else(|| ShardError::Column {
                    name: (*name).to_owned(),
                    nearest: COLUMNS
                        .iter()
                        .copied()
                        .min_by_key(|known| strsim::damerau_levenshtein(known, name))
                        .unwrap_or(""),
                })
        };
        self.columns = Some(names.iter().map(known).collect::<Result<_, _>>()?);
        Ok(self)
    }

    /// The shards, in order.
    pub fn files(&self) -> &[ShardFile] {
        &self.files
    }

    /// One of its shards alone.
    #[must_use]
    pub fn only(&self, file: &ShardFile) -> Self {
        Self {
            files: vec![file.clone()],
            columns: self.columns.clone(),
        }
    }

    /// Rows of one local shard, with its metadata; a bounded batch at a time goes through memory twice.
    pub fn read_local(&self, path: &Path) -> Result<(ShardMeta, Vec<Row>), ShardError> {
        let name = path.display().to_string();
        let damaged = |error: &dyn std::fmt::Display| ShardError::damaged(&name, error);
        let file = fs_err::File::open(path)?.into_parts().0;
        let builder = ParquetRecordBatchReaderBuilder::try_new(file).map_err(|error| damaged(&error))?;
        let (meta, builder) = self.prepared(&name, builder)?;
        let mut rows = Vec::new();
        for batch in builder.build().map_err(|error| damaged(&error))? {
            rows.extend(self.decoded(&name, &batch.map_err(|error| damaged(&error))?)?);
        }
        Ok((meta, rows))
    }

    /// Hands over the rows of one local shard, `batch` at a time, so that a file of any size goes through bounded
    /// memory; `from` rows are left out first, and at most `most` are read.
    pub fn each_batch(
        &self,
        path: &Path,
        batch: usize,
        (from, most): (usize, Option<usize>),
        mut take: impl FnMut(Vec<Row>),
    ) -> Result<(), ShardError> {
        let name = path.display().to_string();
        let damaged = |error: &dyn std::fmt::Display| ShardError::damaged(&name, error);
        let file = fs_err::File::open(path)?.into_parts().0;
        let builder = ParquetRecordBatchReaderBuilder::try_new(file).map_err(|error| damaged(&error))?;
        let (_, builder) = self.prepared(&name, builder)?;
        let mut builder = builder.with_batch_size(batch).with_offset(from);
        if let Some(most) = most {
            builder = builder.with_limit(most);
        }
        for batch in builder.build().map_err(|error| damaged(&error))? {
            take(self.decoded(&name, &batch.map_err(|error| damaged(&error))?)?);
        }
        Ok(())
    }

    /// Rows of one shard, with its metadata. Only the columns asked for are fetched from an object store.
    pub async fn read(&self, file: &ShardFile) -> Result<(ShardMeta, Vec<Row>), ShardError> {
        let (store, path) = match file {
            ShardFile::Local(path) => return self.read_local(path),
            ShardFile::Remote { store, path, .. } => (Arc::clone(store), path.clone()),
        };
        let name = file.to_string();
        let damaged = |error: &dyn std::fmt::Display| ShardError::damaged(&name, error);
        let input = RemoteObject { store, path };
        let builder = ParquetRecordBatchStreamBuilder::new(input)
            .await
            .map_err(|error| damaged(&error))?;
        let (meta, builder) = self.prepared(&name, builder)?;
        let mut batches = builder.build().map_err(|error| damaged(&error))?;
        let mut rows = Vec::new();
        while let Some(batch) = batches.try_next().await.map_err(|error| damaged(&error))? {
            rows.extend(self.decoded(&name, &batch)?);
        }
        Ok((meta, rows))
    }

    /// All rows of all shards.
    pub async fn rows(&self) -> Result<Vec<Row>, ShardError> {
        let mut rows = Vec::new();
        for file in &self.files {
            rows.extend(self.read(file).await?.1);
        }
        Ok(rows)
    }

    /// All rows of local shards.
    pub fn rows_local(&self) -> Result<Vec<Row>, ShardError> {
        let mut rows = Vec::new();
        for file in &self.files {
            match file {
                ShardFile::Local(path) => rows.extend(self.read_local(path)?.1),
                ShardFile::Remote { url, .. } => {
                    let reason = "is in an object store; expected a local file".to_owned();
                    return Err(ShardError::Place {
                        place: url.clone(),
                        reason,
                    });
                }
            }
        }
        Ok(rows)
    }

    /// All episodes of all shards, whose token ids must mean what they mean to `policy`, if one is given.
    ///
    /// All columns are read, whatever the reader was limited to: episodes need them.
    pub async fn episodes(&self, policy: Option<&ShardMeta>) -> Result<Vec<Episode>, ShardError> {
        let whole = Self {
            files: self.files.clone(),
            columns: None,
        };
        let mut rows = Vec::new();
        for file in &whole.files {
            let (meta, more) = whole.read(file).await?;
            if let Some(policy) = policy.filter(|_| more.iter().any(|row| row.response_ids.is_some())) {
                meta.check(&file.to_string(), policy)?;
            }
            rows.extend(more);
        }
        group_episodes(rows)
    }

    fn prepared<T>(
        &self,
        name: &str,
        builder: ArrowReaderBuilder<T>,
    ) -> Result<(ShardMeta, ArrowReaderBuilder<T>), ShardError> {
        let meta = ShardMeta::of(name, builder.metadata().file_metadata().key_value_metadata())?;
        let mask = match &self.columns {
            Some(columns) => ProjectionMask::columns(builder.parquet_schema(), columns.iter().copied()),
            None => ProjectionMask::all(),
        };
        Ok((meta, builder.with_projection(mask)))
    }

    fn decoded(&self, name: &str, batch: &RecordBatch) -> Result<Vec<Row>, ShardError> {
        decode(batch, self.columns.as_deref()).map_err(|reason| ShardError::damaged(name, &reason))
    }
}
