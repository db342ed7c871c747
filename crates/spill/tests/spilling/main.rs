//! Temporary space and what lies there.

mod compressed_partitions;
mod partitions_keep_their_rows;
mod temp_files_on_flash;
mod temp_space;
mod temp_space_policies;
