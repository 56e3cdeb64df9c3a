//! run_dir
