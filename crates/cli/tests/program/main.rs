//! The program from outside.

mod bad_files_are_named;
mod changing_rows_is_refused;
mod copies_are_whole;
mod demo_leaves_nothing;
mod exit_codes;
mod files_are_tables;
mod files_become_tables;
mod killed_while_writing;
mod memory_stays_near_the_limit;
mod nearest_names_are_suggested;
mod one_process_writes;
mod places_refuse_to_be_written;
mod plans_are_shown;
mod program;
mod results_have_formats;
mod settings_are_set_and_shown;
mod sql_comes_from_anywhere;
mod tables_survive_restarts;
mod tpch_is_generated;
mod views_and_external_tables;
