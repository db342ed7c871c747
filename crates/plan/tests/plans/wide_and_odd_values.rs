//! Sides without rows, outputs without columns, values of many megabytes, nested values, keys that are all null.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, BinaryArray, DictionaryArray, FixedSizeListArray, Int32Array, Int64Array, ListArray,
    NullArray, StringArray, StringViewArray, StructArray,
};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::datatypes::{DataType, Field, Int32Type};
use datafusion::common::{JoinType, NullEquality};
use datafusion::physical_plan::collect;

use crate::harness::joins::{JOIN_TYPES, Join, Residual};
use crate::harness::rows::row_count;
use crate::harness::tables::{KeyType, Table, TableShape};
use crate::harness::{Engine, KIB, MIB, metric, plain, planned, register, run};

/// Every join type, and `NOT IN` where there is one key.
fn all_kinds(build: &Table, probe: &Table) -> Vec<Join> {
    let mut joins: Vec<Join> =
        JOIN_TYPES.iter().map(|&join_type| Join::new(join_type, build.clone(), probe.clone())).collect();
    if build.keys == 1 {
        joins.push(Join { null_aware: true, ..Join::new(JoinType::LeftAnti, build.clone(), probe.clone()) });
    }
    joins
}

/// Compares every kind of join with DataFusion's, without a limit and where it has to spill.
fn check_all(build: &Table, probe: &Table, what: &str) {
    for join in all_kinds(build, probe) {
        for (limit, partitions) in [(None, 2), (Some(256 * KIB), 1), (Some(256 * KIB), 3)] {
            let outcome = run(async { join.check(limit, partitions).await });
            outcome.unwrap_or_else(|difference| panic!("{what}: {difference}"));
        }
    }
}

#[test]
fn a_side_without_rows() {
    let shape = TableShape { null_percent: 5, text_bytes: 100, ..TableShape::of_rows(2_000) };
    let key = [KeyType::Int64];
    let full = |prefix| Table::draw(prefix, &key, &shape);
    let empty = |prefix| Table::draw(prefix, &key, &TableShape { rows: 0, ..shape.clone() });
    check_all(&empty("b_"), &full("p_"), "empty build side");
    check_all(&full("b_"), &empty("p_"), "empty probe side");
    check_all(&empty("b_"), &empty("p_"), "both sides empty");
}

#[test]
fn batches_without_rows_between_others() {
    let shape = TableShape { text_bytes: 100, ..TableShape::of_rows(2_000) };
    let with_gaps = |prefix, seed| {
        let mut table = Table::draw(prefix, &[KeyType::Utf8View], &TableShape { seed, ..shape.clone() });
        let gap = table.batches[0].slice(0, 0);
        table.batches =
            table.batches.iter().flat_map(|batch| [gap.clone(), batch.clone(), gap.clone()]).collect();
        table
    };
    check_all(&with_gaps("b_", 1), &with_gaps("p_", 2), "empty batches");
}

#[test]
fn an_output_without_columns_still_counts_rows() {
    let shape = TableShape { domain: 300, null_percent: 5, text_bytes: 100, ..TableShape::of_rows(3_000) };
    let build = Table::draw("b_", &[KeyType::LongText(100)], &shape);
    let probe = Table::draw("p_", &[KeyType::LongText(100)], &TableShape { seed: 2, rows: 1_000, ..shape });
    for join_type in JOIN_TYPES {
        let join = Join { projection: Some(vec![]), ..Join::new(join_type, build.clone(), probe.clone()) };
        for limit in [None, Some(256 * KIB)] {
            run(async {
                let right = row_count(&join.right_rows().await);
                let engine = Engine::new(limit, 2);
                let plan = join.plan(2);
                let ours = collect(Arc::clone(&plan), engine.task()).await.expect("rows");
                assert!(ours.iter().all(|batch| batch.num_columns() == 0));
                assert_eq!(row_count(&ours), right, "{join_type} under {limit:?}");
                assert_eq!(metric(&plan, "spilled_partitions") > 0, limit.is_some());
            });
        }
    }
}

#[test]
fn count_star_of_joins() {
    let shape = TableShape { domain: 300, text_bytes: 100, ..TableShape::of_rows(3_000) };
    let build = Table::draw("b_", &[KeyType::Int64], &shape);
    let probe = Table::draw("p_", &[KeyType::Int64], &TableShape { seed: 2, ..shape });
    for sql in [
        "SELECT count(*) FROM b JOIN p ON b_k0 = p_k0",
        "SELECT count(*) FROM b LEFT JOIN p ON b_k0 = p_k0 AND p_number > 50",
        "SELECT count(1) FROM b WHERE b_k0 IN (SELECT p_k0 FROM p WHERE p_number < 5)",
    ] {
        run(async {
            let context = plain();
            let engine = Engine::new(Some(MIB), 2);
            for (name, table) in [("b", &build), ("p", &probe)] {
                register(&context, name, table, 1);
                engine.register(name, table, 2);
            }
            let right = context.sql(sql).await.expect(sql).collect().await.expect(sql);
            let plan = planned(&engine.context, sql).await.expect(sql);
            let ours = engine.collect(&plan).await.expect(sql);
            crate::harness::rows::assert_same_rows(&ours, &right, sql);
        });
    }
}

/// Texts of 1 to `most_mib` MiB, one per row.
fn huge_texts(rows: usize, most_mib: usize, letter: &str) -> Vec<String> {
    (0..rows)
        .map(|row| format!("{row}{}", letter.repeat((1 + row * (most_mib - 1) / rows.max(1)) * MIB)))
        .collect()
}

#[test]
fn values_of_many_megabytes_as_payload() {
    let table = |prefix: &str, rows: usize, letter: &str, first_key: i64| {
        let texts = huge_texts(rows, 20, letter);
        let keys: ArrayRef =
            Arc::new(Int64Array::from_iter_values((0..rows as i64).map(|row| row + first_key)));
        let ids: ArrayRef = Arc::new(Int64Array::from_iter_values(0..rows as i64));
        let views: ArrayRef = Arc::new(StringViewArray::from_iter_values(&texts));
        let bytes: ArrayRef =
            Arc::new(BinaryArray::from_iter_values(texts.iter().map(|text| &text.as_bytes()[..MIB])));
        let names = ["k0", "id", "text", "bytes"].map(|name| format!("{prefix}{name}"));
        Table::of_columns(&names, vec![keys, ids, views, bytes]).in_batches_of(1)
    };
    let (build, probe) = (table("b_", 12, "ä", 0), table("p_", 9, "z", 5));
    for join_type in [JoinType::Inner, JoinType::Full, JoinType::LeftSemi, JoinType::RightAnti] {
        let join = Join::new(join_type, build.clone(), probe.clone());
        let checked = run(async { join.check(Some(64 * MIB), 2).await });
        let checked = checked.unwrap_or_else(|difference| panic!("{difference}"));
        // What a right anti join keeps of its build side are the keys.
        let spills = join_type != JoinType::RightAnti;
        assert_eq!(metric(&checked.plan, "spilled_partitions") > 0, spills, "{join_type}");
    }
}

#[test]
fn values_of_many_megabytes_as_keys() {
    let table = |prefix: &str, texts: Vec<String>| {
        let ids: ArrayRef = Arc::new(Int64Array::from_iter_values(0..texts.len() as i64));
        let keys: ArrayRef = Arc::new(StringArray::from_iter_values(texts));
        let names = ["k0", "id"].map(|name| format!("{prefix}{name}"));
        Table::of_columns(&names, vec![keys, ids]).in_batches_of(1)
    };
    let texts = huge_texts(8, 8, "k");
    let build = table("b_", texts.clone());
    // Every other key matches, twice.
    let probe = table(
        "p_",
        [texts.iter().step_by(2), texts.iter().step_by(2)].into_iter().flatten().cloned().collect(),
    );
    for join_type in [JoinType::Inner, JoinType::Left, JoinType::RightMark] {
        for limit in [None, Some(16 * MIB)] {
            let join = Join::new(join_type, build.clone(), probe.clone());
            let checked =
                run(async { join.check(limit, 2).await }).unwrap_or_else(|difference| panic!("{difference}"));
            assert_eq!(metric(&checked.plan, "spilled_partitions") > 0, limit.is_some(), "{join_type}");
        }
    }
}

/// Every fifth value is null.
fn validity(rows: usize) -> Option<NullBuffer> {
    Some(NullBuffer::from_iter((0..rows).map(|row| row % 5 != 3)))
}

/// Nested columns of `values.len()` rows, in which equal numbers make equal values.
fn nested(values: &[i64]) -> Vec<(&'static str, ArrayRef)> {
    let rows = values.len();
    let texts =
        || StringArray::from_iter(values.iter().map(|v| (v % 7 != 0).then(|| format!("text number {v}"))));
    let numbers = || Int64Array::from_iter(values.iter().map(|v| (v % 11 != 0).then_some(*v)));
    let lengths = values.iter().map(|v| (v % 4) as usize);
    let items: Vec<i32> =
        values.iter().flat_map(|v| (0..v % 4).map(move |at| (v * 10 + at) as i32)).collect();
    let item = Arc::new(Field::new_list_field(DataType::Int32, true));
    let list = ListArray::new(
        item,
        OffsetBuffer::from_lengths(lengths.clone()),
        Arc::new(Int32Array::from(items)),
        validity(rows),
    );
    let fields = vec![Field::new("number", DataType::Int64, true), Field::new("text", DataType::Utf8, true)];
    let pair =
        |nulls| StructArray::new(fields.clone().into(), vec![Arc::new(numbers()), Arc::new(texts())], nulls);
    let twice: Vec<i64> = values.iter().flat_map(|v| [*v, v + 1]).collect();
    let fixed = FixedSizeListArray::new(
        Arc::new(Field::new_list_field(DataType::Int64, true)),
        2,
        Arc::new(Int64Array::from(twice)),
        validity(rows),
    );
    let words: Vec<String> = (0..50).map(|word| format!("word {word}")).collect();
    let indices = Int32Array::from_iter(
        values.iter().enumerate().map(|(row, v)| (row % 5 != 3).then_some((v % 50) as i32)),
    );
    let dictionary = DictionaryArray::<Int32Type>::new(indices, Arc::new(StringArray::from(words)));
    let pairs_of: Vec<i64> = values.iter().flat_map(|v| (0..v % 4).map(move |at| v + at)).collect();
    let inner = StructArray::new(
        vec![Field::new("number", DataType::Int64, true)].into(),
        vec![Arc::new(Int64Array::from(pairs_of))],
        None,
    );
    let list_of_structs = ListArray::new(
        Arc::new(Field::new_list_field(inner.data_type().clone(), true)),
        OffsetBuffer::from_lengths(lengths),
        Arc::new(inner),
        None,
    );
    vec![
        ("list", Arc::new(list)),
        ("pair", Arc::new(pair(validity(rows)))),
        ("fixed", Arc::new(fixed)),
        ("dictionary", Arc::new(dictionary)),
        ("structs", Arc::new(list_of_structs)),
        ("nothing", Arc::new(NullArray::new(rows))),
    ]
}

#[test]
fn nested_values_as_payload() {
    let table = |prefix: &str, rows: i64, factor: i64| {
        let values: Vec<i64> = (0..rows).map(|row| row * factor % 1_000).collect();
        let mut names = vec![format!("{prefix}k0")];
        let mut columns: Vec<ArrayRef> =
            vec![KeyType::Int32.array(&values.iter().map(|v| Some(*v)).collect::<Vec<_>>())];
        for (name, column) in nested(&values) {
            names.push(format!("{prefix}{name}"));
            columns.push(column);
        }
        Table::of_columns(&names, columns)
    };
    check_all(&table("b_", 3_000, 7), &table("p_", 1_500, 13), "nested payload");
}

#[test]
fn nested_values_as_keys() {
    let table = |prefix: &str, rows: i64, factor: i64, wanted: &str| {
        let values: Vec<i64> = (0..rows).map(|row| row * factor % 400).collect();
        let (_, key) = nested(&values).into_iter().find(|(name, _)| *name == wanted).expect("a column");
        let ids: ArrayRef = Arc::new(Int64Array::from_iter_values(0..rows));
        let texts: ArrayRef =
            Arc::new(StringArray::from_iter_values((0..rows).map(|row| format!("{row:0150}"))));
        let names = ["k0", "id", "text"].map(|name| format!("{prefix}{name}"));
        Table::of_columns(&names, vec![key, ids, texts])
    };
    for wanted in ["list", "pair", "fixed", "dictionary", "structs"] {
        let (build, probe) = (table("b_", 800, 7, wanted), table("p_", 600, 13, wanted));
        for mut join in all_kinds(&build, &probe) {
            for null_equality in [NullEquality::NullEqualsNothing, NullEquality::NullEqualsNull] {
                if join.null_aware && null_equality == NullEquality::NullEqualsNull {
                    continue;
                }
                join.null_equality = null_equality;
                for limit in [None, Some(256 * KIB)] {
                    let outcome = run(async { join.check(limit, 2).await });
                    outcome.unwrap_or_else(|difference| panic!("{wanted}: {difference}"));
                }
            }
        }
    }
}

#[test]
fn keys_that_are_all_null() {
    let shape = TableShape { null_percent: 100, text_bytes: 200, ..TableShape::of_rows(900) };
    for keys in [&[KeyType::Int64][..], &[KeyType::Utf8View, KeyType::Date32]] {
        let build = Table::draw("b_", keys, &shape);
        let probe = Table::draw("p_", keys, &TableShape { rows: 60, seed: 2, ..shape.clone() });
        for (build, probe) in [(&build, &probe), (&probe, &build)] {
            for mut join in all_kinds(build, probe) {
                for null_equality in [NullEquality::NullEqualsNothing, NullEquality::NullEqualsNull] {
                    if join.null_aware && null_equality == NullEquality::NullEqualsNull {
                        continue;
                    }
                    join.null_equality = null_equality;
                    for residual in [Residual::None, Residual::BothSides] {
                        join.residual = if join.null_aware { Residual::None } else { residual };
                        for limit in [None, Some(256 * KIB)] {
                            let outcome = run(async { join.check(limit, 2).await });
                            outcome.unwrap_or_else(|difference| panic!("{difference}"));
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn null_as_the_type_of_a_key() {
    let table = |prefix: &str, rows: i64| {
        let ids: ArrayRef = Arc::new(Int64Array::from_iter_values(0..rows));
        let names = ["k0", "id"].map(|name| format!("{prefix}{name}"));
        Table::of_columns(&names, vec![Arc::new(NullArray::new(rows as usize)), ids])
    };
    let (build, probe) = (table("b_", 40), table("p_", 30));
    // Without `NOT IN`: DataFusion sees no null in a column whose type is null, and so keeps every row.
    for mut join in all_kinds(&build, &probe).into_iter().filter(|join| !join.null_aware) {
        join.null_equality = NullEquality::NullEqualsNull;
        let outcome = run(async { join.check(None, 2).await });
        outcome.unwrap_or_else(|difference| panic!("{difference}"));
    }
}
