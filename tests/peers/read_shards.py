"""Reads a folder of rollout shards with DuckDB, Polars and pandas, as it stands, and says what each has found.

    read_shards.py FOLDER      one JSON object a library

Nothing of lego is used.
"""

import json
import sys

import duckdb
import pandas
import polars


def with_duckdb(folder):
    """SQL over the files."""
    rows, tokens, reward, groups, ragged = duckdb.sql(
        f"""select count(*), sum(list_sum(response_mask)), avg(reward), count(distinct group_id),
            count(*) filter (len(response_ids) <> len(response_mask) or len(response_ids) <> len(response_logprobs))
            from read_parquet('{folder}/**/*.parquet')"""
    ).fetchall()[0]
    return rows, tokens, reward, groups, ragged


def with_polars(folder):
    """A lazy scan of the folder."""
    found = polars.scan_parquet(f"{folder}/**/*.parquet").select(
        polars.len().alias("rows"),
        polars.col("response_mask").list.sum().sum().alias("tokens"),
        polars.col("reward").mean(),
        polars.col("group_id").n_unique().alias("groups"),
        (
            (polars.col("response_ids").list.len() != polars.col("response_mask").list.len())
            | (polars.col("response_ids").list.len() != polars.col("response_logprobs").list.len())
        )
        .sum()
        .alias("ragged"),
    )
    return found.collect().row(0)


def with_pandas(folder):
    """The whole folder as one frame."""
    frame = pandas.read_parquet(folder)
    lengths = frame[["response_ids", "response_mask", "response_logprobs"]].map(len)
    ragged = (lengths.nunique(axis=1) != 1).sum()
    tokens = frame["response_mask"].map(sum).sum()
    return len(frame), tokens, frame["reward"].mean(), frame["group_id"].nunique(), ragged


def main():
    """One line a library."""
    folder = sys.argv[1]
    for name, read in (("duckdb", with_duckdb), ("polars", with_polars), ("pandas", with_pandas)):
        rows, tokens, reward, groups, ragged = read(folder)
        found = {
            "library": name,
            "rows": int(rows),
            "tokens": int(tokens),
            "reward": round(float(reward), 6),
            "groups": int(groups),
            "ragged": int(ragged),
        }
        print(json.dumps(found))


if __name__ == "__main__":
    main()
