//! A store keeps what it has acknowledged, whatever happens.

mod a_full_disk_leaves_the_database_intact;
mod altered_tables;
mod caches_change_no_answer;
mod changeable_rows;
mod changed_segments;
mod crashes_lose_nothing_acknowledged;
mod damage_is_named;
mod filters_first;
mod misplaced_data_is_noticed;
mod one_process_writes;
mod random_statements_match_a_model;
mod scans_read_little;
mod segment_indexes;
mod setup;
mod tables_keep_their_rows;
