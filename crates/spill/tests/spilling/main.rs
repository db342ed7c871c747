//! Temporary space and what lies there.

mod compressed_partitions;
mod partitions_keep_their_rows;
mod row_files;
mod temp_files_on_flash;
mod temp_space;
mod temp_space_policies;
