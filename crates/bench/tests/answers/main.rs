//! The programs that ask whether answers are right.

mod corpus_classes;
mod kills_lose_nothing_acknowledged;
mod orders_of_from_answer_alike;
mod random_changes_are_made_alike;
mod random_sql_is_answered_alike;
mod sql_reference_is_written_by_its_program;
