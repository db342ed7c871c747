//! What is asked: suites of queries over the same tables.

use std::path::Path;

use super::engines::Engine;

/// A query on the tables of its suite. Those of most suites return one row in exact types, so that results can be
/// compared as text.
#[derive(Debug, Clone, Copy)]
pub struct Query {
    pub name: &'static str,
    pub title: &'static str,
    pub sql: &'static str,
}

/// Queries that are measured and reported together.
#[derive(Debug)]
pub struct Suite {
    /// Of the option, and of the files that are written.
    pub name: &'static str,
    pub title: &'static str,
    /// What it is about, for the report.
    pub about: &'static str,
    pub data: Data,
    pub tables: &'static [&'static str],
    pub source: Source,
    pub engines: &'static [Engine],
    pub queries: &'static [Query],
    /// Results are compared as text. Otherwise numbers may differ by a millionth, as sums of floats and the types of
    /// averages do.
    pub is_exact: bool,
    /// The sum of the times over all queries is what counts; queries are not shown one by one.
    pub is_sum: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Data {
    /// TPC-H; the scale is the scale factor.
    Tpch,
    /// The tables of the group-by and join benchmark that H2O.ai began; the scale counts ten million rows.
    H2o,
    /// Documents, wide tables and the records of the sort benchmark; the scale counts millions of documents.
    Wide,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// Every engine reads the same Parquet files.
    Parquet,
    /// Each engine reads tables of its own, imported beforehand.
    OwnTables,
}

impl Suite {
    pub fn named(name: &str) -> Option<&'static Suite> {
        SUITES.iter().find(|suite| suite.name == name)
    }

    pub fn names() -> String {
        SUITES.iter().map(|suite| suite.name).collect::<Vec<_>>().join(", ")
    }

    pub fn query(&self, name: &str) -> Option<&'static Query> {
        self.queries.iter().find(|query| query.name.eq_ignore_ascii_case(name))
    }
}

impl Query {
    /// The SQL text on one line.
    pub fn line(&self) -> String {
        let without_comment = |line: &'static str| line.split("--").next().unwrap_or_default();
        let words = self.sql.lines().flat_map(|line| without_comment(line).split_whitespace());
        words.collect::<Vec<_>>().join(" ").trim_end_matches(';').to_owned()
    }

    /// The same with the folder that files are written to.
    pub fn line_with(&self, folder: &Path) -> String {
        self.line().replace(FOLDER, &folder.display().to_string())
    }
}

const TPCH_TABLES: [&str; 8] =
    ["customer", "lineitem", "nation", "orders", "part", "partsupp", "region", "supplier"];

static SUITES: [Suite; 9] = [
    Suite {
        name: "joins",
        title: "Joins beyond memory",
        about: "TPC-H `lineitem` ⋈ `orders`",
        data: Data::Tpch,
        tables: &["lineitem", "orders"],
        source: Source::Parquet,
        engines: &Engine::ALL,
        queries: &JOINS,
        is_exact: true,
        is_sum: false,
    },
    Suite {
        name: "aggregation",
        title: "Aggregation beyond memory",
        about: "Groups of TPC-H `lineitem`",
        data: Data::Tpch,
        tables: &["lineitem"],
        source: Source::Parquet,
        engines: &[Engine::Duckdb, Engine::Nandina, Engine::Datafusion, Engine::Polars],
        queries: &AGGREGATIONS,
        is_exact: true,
        is_sum: false,
    },
    Suite {
        name: "h2o",
        title: "The group-by and join questions of H2O.ai's benchmark",
        about: "`g` and `x` have ten million rows times the scale; `g` has 100 groups in `id1` and as many as a hundredth of \
                its rows in `id3`; the tables that `x` is joined with have a millionth, a thousandth and all of its rows",
        data: Data::H2o,
        tables: &["g", "x", "small", "medium", "big"],
        source: Source::Parquet,
        engines: &[Engine::Duckdb, Engine::Nandina, Engine::Datafusion, Engine::Polars],
        queries: &H2O,
        is_exact: false,
        is_sum: false,
    },
    Suite {
        name: "tpch",
        title: "TPC-H from Parquet files beyond memory",
        about: "The 22 queries of TPC-H",
        data: Data::Tpch,
        tables: &TPCH_TABLES,
        source: Source::Parquet,
        engines: &[Engine::Duckdb, Engine::Nandina, Engine::Datafusion, Engine::Polars],
        queries: &TPCH,
        is_exact: false,
        is_sum: true,
    },
    Suite {
        name: "tpch-tables",
        title: "TPC-H on own tables beyond memory",
        about: "The 22 queries of TPC-H on tables in each engine's own format",
        data: Data::Tpch,
        tables: &TPCH_TABLES,
        source: Source::OwnTables,
        engines: &[Engine::Duckdb, Engine::Nandina],
        queries: &TPCH,
        is_exact: false,
        is_sum: true,
    },
    Suite {
        name: "first-rows",
        title: "The first rows of an order, on own tables beyond memory",
        about: "The first rows of TPC-H tables and joins of them, with all columns, on tables in each engine's own format",
        data: Data::Tpch,
        tables: &TPCH_TABLES,
        source: Source::OwnTables,
        engines: &[Engine::Duckdb, Engine::Nandina],
        queries: &FIRST_ROWS,
        is_exact: false,
        is_sum: false,
    },
    Suite {
        name: "wide-joins",
        title: "Joins of wide rows, of which few or many match, on own tables",
        about: "All columns of joined TPC-H tables with filters of 0.01 to 50 %, on tables in each engine's own format",
        data: Data::Tpch,
        tables: &TPCH_TABLES,
        source: Source::OwnTables,
        engines: &[Engine::Duckdb, Engine::Nandina],
        queries: &WIDE_JOINS,
        is_exact: true,
        is_sum: false,
    },
    Suite {
        name: "wide-sorts",
        title: "Sorts of all rows of own tables into Parquet files",
        about: "TPC-H `lineitem` by a number and a text, with all columns and with those two",
        data: Data::Tpch,
        tables: &["lineitem"],
        source: Source::OwnTables,
        engines: &[Engine::Duckdb, Engine::Nandina],
        queries: &WIDE_SORTS,
        is_exact: true,
        is_sum: false,
    },
    Suite {
        name: "wide-rows",
        title: "Rows of 100 bytes to 2 KB, sorted and joined, on own tables",
        about: "A million JSON texts of 2 KB, half a million rows of 100 columns and twenty million records of the sort \
                benchmark, times the scale, on tables in each engine's own format",
        data: Data::Wide,
        tables: &["documents", "wide", "records"],
        source: Source::OwnTables,
        engines: &[Engine::Duckdb, Engine::Nandina],
        queries: &WIDE_ROWS,
        is_exact: true,
        is_sum: false,
    },
];

/// Stands for the folder that files are written to.
const FOLDER: &str = "{folder}";

const WIDE_SORTS: [Query; 2] = [
    Query {
        name: "S1",
        title: "all columns",
        sql: "COPY (SELECT * FROM lineitem ORDER BY l_extendedprice, l_comment) \
              TO '{folder}/lineitem.parquet' (FORMAT parquet, COMPRESSION snappy)",
    },
    Query {
        name: "S2",
        title: "the sort columns alone",
        sql: "COPY (SELECT l_extendedprice, l_comment FROM lineitem ORDER BY l_extendedprice, l_comment) \
              TO '{folder}/lineitem.parquet' (FORMAT parquet, COMPRESSION snappy)",
    },
];

const WIDE_ROWS: [Query; 7] = [
    Query {
        name: "W1",
        title: "all documents by key, into a file",
        sql: "COPY (SELECT * FROM documents ORDER BY k) TO '{folder}/d.parquet' (FORMAT parquet, COMPRESSION snappy)",
    },
    Query {
        name: "W2",
        title: "all rows of 100 columns by one, into a file",
        sql: "COPY (SELECT * FROM wide ORDER BY c7) TO '{folder}/w.parquet' (FORMAT parquet, COMPRESSION snappy)",
    },
    Query {
        name: "W3",
        title: "all records by key, into a file",
        sql: "COPY (SELECT * FROM records ORDER BY k) TO '{folder}/r.parquet' (FORMAT parquet, COMPRESSION snappy)",
    },
    Query {
        name: "W4",
        title: "the first hundred documents",
        sql: "SELECT * FROM documents ORDER BY k LIMIT 100",
    },
    Query {
        name: "W5",
        title: "a hundred rows of 100 columns from the middle of an order",
        sql: "SELECT * FROM wide ORDER BY c7 LIMIT 100 OFFSET 250000",
    },
    Query {
        name: "W6",
        title: "documents of 1 % of the rows of 100 columns, by their number",
        sql: "SELECT count(*), max(doc), max(c10), max(c20), max(c30), max(c40), max(c50), max(c60), max(c70), max(c80) \
              FROM wide JOIN documents USING (id) WHERE c0 = 7",
    },
    Query {
        name: "W7",
        title: "documents of 1 % of the rows of 100 columns, the oldest ones",
        sql: "SELECT count(*), max(doc), max(c10), max(c20), max(c30), max(c40), max(c50), max(c60), max(c70), max(c80) \
              FROM wide JOIN documents USING (id) WHERE id < 5000",
    },
];

/// The greatest value of every column that is no key of a join.
macro_rules! lineitem {
    () => {
        "max(l_suppkey), max(l_linenumber), max(l_quantity), max(l_extendedprice), max(l_discount), max(l_tax), \
         max(l_returnflag), max(l_linestatus), max(l_shipdate), max(l_commitdate), max(l_receiptdate), \
         max(l_shipinstruct), max(l_shipmode), max(l_comment)"
    };
}

macro_rules! orders {
    () => {
        "max(o_custkey), max(o_orderstatus), max(o_totalprice), max(o_orderdate), max(o_orderpriority), max(o_clerk), \
         max(o_shippriority), max(o_comment)"
    };
}

macro_rules! part {
    () => {
        "max(p_name), max(p_mfgr), max(p_brand), max(p_type), max(p_size), max(p_container), max(p_retailprice), \
         max(p_comment)"
    };
}

macro_rules! of_orders {
    ($condition:literal) => {
        concat!(
            "SELECT count(*), ",
            lineitem!(),
            ", ",
            orders!(),
            " FROM lineitem JOIN orders ON l_orderkey = o_orderkey WHERE ",
            $condition
        )
    };
}

macro_rules! of_parts {
    ($condition:literal) => {
        concat!(
            "SELECT count(*), ",
            lineitem!(),
            ", ",
            part!(),
            " FROM lineitem JOIN part ON l_partkey = p_partkey WHERE ",
            $condition
        )
    };
}

const WIDE_JOINS: [Query; 10] = [
    Query { name: "O1", title: "lines of 0.01 % of the orders", sql: of_orders!("o_custkey <= 150") },
    Query { name: "O2", title: "lines of 1 % of the orders", sql: of_orders!("o_custkey <= 15000") },
    Query { name: "O3", title: "lines of 10 % of the orders", sql: of_orders!("o_custkey <= 150000") },
    Query { name: "O4", title: "lines of half of the orders", sql: of_orders!("o_custkey <= 750000") },
    Query {
        name: "O5",
        title: "lines of the first two days",
        sql: of_orders!("o_orderdate < DATE '1992-01-03'"),
    },
    Query { name: "P1", title: "lines of 0.01 % of the parts", sql: of_parts!("p_partkey % 10000 = 7") },
    Query { name: "P2", title: "lines of 1 % of the parts", sql: of_parts!("p_partkey % 100 = 7") },
    Query { name: "P3", title: "lines of half of the parts", sql: of_parts!("p_partkey % 2 = 1") },
    Query {
        name: "C1",
        title: "orders with their customers",
        sql: concat!(
            "SELECT count(*), ",
            orders!(),
            ", max(c_name), max(c_address), max(c_nationkey), max(c_phone), max(c_acctbal), max(c_mktsegment), \
             max(c_comment) FROM orders JOIN customer ON o_custkey = c_custkey"
        ),
    },
    Query {
        name: "S1",
        title: "a star: lines of 0.1 % of the parts, with supplier and order",
        sql: concat!(
            "SELECT count(*), ",
            lineitem!(),
            ", ",
            orders!(),
            ", ",
            part!(),
            ", max(s_name), max(s_address), max(s_comment) FROM lineitem JOIN part ON l_partkey = p_partkey \
             JOIN supplier ON l_suppkey = s_suppkey JOIN orders ON l_orderkey = o_orderkey \
             WHERE p_partkey % 1000 = 7"
        ),
    },
];

const FIRST_ROWS: [Query; 6] = [
    Query {
        name: "F1",
        title: "the 100 dearest lines",
        sql: "SELECT * FROM lineitem ORDER BY l_extendedprice DESC, l_orderkey, l_linenumber LIMIT 100",
    },
    Query {
        name: "F2",
        title: "1,000 lines of a filter",
        sql: "SELECT * FROM lineitem WHERE l_shipmode = 'AIR' \
              ORDER BY l_partkey, l_orderkey, l_linenumber LIMIT 1000",
    },
    Query {
        name: "F3",
        title: "ten lines behind 10,000 others",
        sql: "SELECT * FROM lineitem ORDER BY l_suppkey, l_orderkey, l_linenumber LIMIT 10 OFFSET 10000",
    },
    Query {
        name: "F4",
        title: "the ten largest orders",
        sql: "SELECT * FROM orders ORDER BY o_totalprice DESC, o_orderkey LIMIT 10",
    },
    Query {
        name: "F5",
        title: "a join with both tables' columns",
        sql: "SELECT lineitem.*, orders.* FROM lineitem JOIN orders ON l_orderkey = o_orderkey \
              ORDER BY o_totalprice DESC, l_orderkey, l_linenumber LIMIT 100",
    },
    Query {
        name: "F6",
        title: "an outer join of three tables",
        sql: "SELECT customer.*, orders.*, l_comment FROM customer LEFT JOIN orders ON c_custkey = o_custkey \
              LEFT JOIN lineitem ON o_orderkey = l_orderkey AND l_quantity > 40 \
              ORDER BY c_acctbal DESC, c_custkey, o_orderkey, l_linenumber LIMIT 100",
    },
];

const JOINS: [Query; 5] = [
    Query {
        name: "J1",
        title: "inner join, few columns",
        sql: "\
SELECT count(*), sum(l_extendedprice), sum(o_totalprice),
       min(l_comment), max(l_comment), min(o_comment), max(o_comment)
FROM lineitem JOIN orders ON l_orderkey = o_orderkey",
    },
    Query {
        name: "J2",
        title: "inner join, all columns of both sides",
        sql: "\
SELECT count(*), sum(l_orderkey), sum(l_partkey), sum(l_suppkey), sum(l_linenumber), sum(l_quantity),
       sum(l_extendedprice), sum(l_discount), sum(l_tax), max(l_returnflag), max(l_linestatus),
       max(l_shipdate), max(l_commitdate), max(l_receiptdate), max(l_shipinstruct), max(l_shipmode),
       max(l_comment), sum(o_orderkey), sum(o_custkey), max(o_orderstatus), sum(o_totalprice),
       max(o_orderdate), max(o_orderpriority), max(o_clerk), sum(o_shippriority), max(o_comment)
FROM lineitem JOIN orders ON l_orderkey = o_orderkey",
    },
    Query {
        name: "J3",
        title: "left join, half of the left side with one key",
        sql: "\
SELECT count(*), count(o_orderkey), sum(l_extendedprice), sum(o_totalprice),
       min(l_comment), max(l_comment), min(o_comment), max(o_comment)
FROM (SELECT CASE WHEN l_orderkey % 2 = 0 THEN 1 ELSE l_orderkey END AS skewed_key,
             l_extendedprice, l_comment FROM lineitem) AS l
LEFT JOIN (SELECT o_orderkey, o_totalprice, o_comment FROM orders
           WHERE o_orderpriority <> '1-URGENT') AS o
       ON skewed_key = o_orderkey",
    },
    Query {
        name: "J4a",
        title: "semi join, orders with a late line",
        sql: "\
SELECT count(*), sum(o_totalprice), min(o_comment), max(o_comment)
FROM orders
WHERE EXISTS (SELECT 1 FROM lineitem WHERE l_orderkey = o_orderkey AND l_commitdate < l_receiptdate)",
    },
    Query {
        name: "J4b",
        title: "semi join, lines of dear orders",
        sql: "\
SELECT count(*), sum(l_extendedprice), min(l_comment), max(l_comment)
FROM lineitem
WHERE EXISTS (SELECT 1 FROM orders WHERE o_orderkey = l_orderkey AND o_totalprice > 100000)",
    },
];

const AGGREGATIONS: [Query; 8] = [
    Query {
        name: "A1",
        title: "60 million groups at scale 10: four of five lines have one of their own",
        sql: "\
SELECT count(*), sum(price), sum(lines), min(comment), max(comment)
FROM (SELECT l_orderkey, l_suppkey, sum(l_extendedprice) AS price, count(*) AS lines, min(l_comment) AS comment
      FROM lineitem GROUP BY l_orderkey, l_suppkey)",
    },
    Query {
        name: "A2",
        title: "15 million groups at scale 10, whose rows lie together",
        sql: "\
SELECT count(*), sum(quantity), max(quantity)
FROM (SELECT l_orderkey, sum(l_quantity) AS quantity FROM lineitem GROUP BY l_orderkey)",
    },
    Query {
        name: "A3",
        title: "two million groups at scale 10, whose rows lie everywhere",
        sql: "\
SELECT count(*), sum(price), min(least), max(greatest)
FROM (SELECT l_partkey, sum(l_extendedprice) AS price, min(l_shipdate) AS least, max(l_comment) AS greatest
      FROM lineitem GROUP BY l_partkey)",
    },
    Query { name: "A4", title: "distinct strings", sql: "SELECT count(DISTINCT l_comment) FROM lineitem" },
    Query {
        name: "A5",
        title: "several distinct counts in few groups",
        sql: "\
SELECT count(*), sum(parts), sum(suppliers), sum(orders)
FROM (SELECT l_shipmode, l_returnflag, count(DISTINCT l_partkey) AS parts, count(DISTINCT l_suppkey) AS suppliers,
             count(DISTINCT l_orderkey) AS orders
      FROM lineitem GROUP BY l_shipmode, l_returnflag)",
    },
    Query {
        name: "A6",
        title: "distinct rows",
        sql: "\
SELECT count(*), sum(l_partkey), max(l_shipinstruct)
FROM (SELECT DISTINCT l_partkey, l_suppkey, l_shipdate, l_shipinstruct FROM lineitem)",
    },
    Query {
        name: "A7",
        title: "grouping sets",
        sql: "\
SELECT count(*), sum(quantity), sum(lines)
FROM (SELECT l_suppkey, l_shipdate, sum(l_quantity) AS quantity, count(*) AS lines
      FROM lineitem GROUP BY ROLLUP (l_suppkey, l_shipdate))",
    },
    Query {
        name: "A8",
        title: "four groups",
        sql: "\
SELECT count(*), sum(quantity), sum(price), sum(charge), sum(lines)
FROM (SELECT l_returnflag, l_linestatus, sum(l_quantity) AS quantity, sum(l_extendedprice) AS price,
             sum(l_extendedprice * (1 - l_discount)) AS charge, count(*) AS lines
      FROM lineitem GROUP BY l_returnflag, l_linestatus)",
    },
];

const H2O: [Query; 15] = [
    Query {
        name: "G1",
        title: "sum v1 by id1",
        sql: "SELECT count(*), sum(v1) FROM (SELECT id1, sum(v1) AS v1 FROM g GROUP BY id1)",
    },
    Query {
        name: "G2",
        title: "sum v1 by id1, id2",
        sql: "SELECT count(*), sum(v1) FROM (SELECT id1, id2, sum(v1) AS v1 FROM g GROUP BY id1, id2)",
    },
    Query {
        name: "G3",
        title: "sum v1, mean v3 by id3",
        sql: "\
SELECT count(*), sum(v1), sum(v3)
FROM (SELECT id3, sum(v1) AS v1, avg(v3) AS v3 FROM g GROUP BY id3)",
    },
    Query {
        name: "G4",
        title: "means of v1, v2, v3 by id4",
        sql: "\
SELECT count(*), sum(v1), sum(v2), sum(v3)
FROM (SELECT id4, avg(v1) AS v1, avg(v2) AS v2, avg(v3) AS v3 FROM g GROUP BY id4)",
    },
    Query {
        name: "G5",
        title: "sums of v1, v2, v3 by id6",
        sql: "\
SELECT count(*), sum(v1), sum(v2), sum(v3)
FROM (SELECT id6, sum(v1) AS v1, sum(v2) AS v2, sum(v3) AS v3 FROM g GROUP BY id6)",
    },
    Query {
        name: "G6",
        title: "median and standard deviation of v3 by id4, id5",
        sql: "\
SELECT count(*), sum(middle), sum(deviation)
FROM (SELECT id4, id5, median(v3) AS middle, stddev(v3) AS deviation FROM g GROUP BY id4, id5)",
    },
    Query {
        name: "G7",
        title: "range v1 - v2 by id3",
        sql: "\
SELECT count(*), sum(span)
FROM (SELECT id3, max(v1) - min(v2) AS span FROM g GROUP BY id3)",
    },
    Query {
        name: "G8",
        title: "two largest v3 by id6",
        sql: "\
SELECT count(*), sum(v3)
FROM (SELECT id6, v3, row_number() OVER (PARTITION BY id6 ORDER BY v3 DESC) AS place FROM g)
WHERE place <= 2",
    },
    Query {
        name: "G9",
        title: "squared correlation of v1 and v2 by id2, id4",
        sql: "\
SELECT count(*), sum(r2)
FROM (SELECT id2, id4, power(corr(v1, v2), 2) AS r2 FROM g GROUP BY id2, id4)",
    },
    Query {
        name: "G10",
        title: "sum v3 and count by id1 to id6: a group of its own for every row",
        sql: "\
SELECT count(*), sum(v3), sum(lines)
FROM (SELECT id1, id2, id3, id4, id5, id6, sum(v3) AS v3, count(*) AS lines
      FROM g GROUP BY id1, id2, id3, id4, id5, id6)",
    },
    Query {
        name: "H1",
        title: "join with small on id1",
        sql: "SELECT count(*), sum(x.v1), sum(small.v2) FROM x JOIN small ON x.id1 = small.id1",
    },
    Query {
        name: "H2",
        title: "join with medium on id2",
        sql: "SELECT count(*), sum(x.v1), sum(medium.v2) FROM x JOIN medium ON x.id2 = medium.id2",
    },
    Query {
        name: "H3",
        title: "left join with medium on id2",
        sql: "SELECT count(*), sum(x.v1), sum(medium.v2) FROM x LEFT JOIN medium ON x.id2 = medium.id2",
    },
    Query {
        name: "H4",
        title: "join with medium on the string id5",
        sql: "SELECT count(*), sum(x.v1), sum(medium.v2) FROM x JOIN medium ON x.id5 = medium.id5",
    },
    Query {
        name: "H5",
        title: "join with big on id3",
        sql: "\
SELECT count(*), sum(x.v1), sum(big.v2), max(x.id4), max(big.id6) FROM x JOIN big ON x.id3 = big.id3",
    },
];

const fn tpch(name: &'static str, sql: &'static str) -> Query {
    Query { name, title: "", sql }
}

const TPCH: [Query; 22] = [
    tpch("Q1", include_str!("../../../nandina/tests/tpch/q01.sql")),
    tpch("Q2", include_str!("../../../nandina/tests/tpch/q02.sql")),
    tpch("Q3", include_str!("../../../nandina/tests/tpch/q03.sql")),
    tpch("Q4", include_str!("../../../nandina/tests/tpch/q04.sql")),
    tpch("Q5", include_str!("../../../nandina/tests/tpch/q05.sql")),
    tpch("Q6", include_str!("../../../nandina/tests/tpch/q06.sql")),
    tpch("Q7", include_str!("../../../nandina/tests/tpch/q07.sql")),
    tpch("Q8", include_str!("../../../nandina/tests/tpch/q08.sql")),
    tpch("Q9", include_str!("../../../nandina/tests/tpch/q09.sql")),
    tpch("Q10", include_str!("../../../nandina/tests/tpch/q10.sql")),
    tpch("Q11", include_str!("../../../nandina/tests/tpch/q11.sql")),
    tpch("Q12", include_str!("../../../nandina/tests/tpch/q12.sql")),
    tpch("Q13", include_str!("../../../nandina/tests/tpch/q13.sql")),
    tpch("Q14", include_str!("../../../nandina/tests/tpch/q14.sql")),
    tpch("Q15", include_str!("../../../nandina/tests/tpch/q15.sql")),
    tpch("Q16", include_str!("../../../nandina/tests/tpch/q16.sql")),
    tpch("Q17", include_str!("../../../nandina/tests/tpch/q17.sql")),
    tpch("Q18", include_str!("../../../nandina/tests/tpch/q18.sql")),
    tpch("Q19", include_str!("../../../nandina/tests/tpch/q19.sql")),
    tpch("Q20", include_str!("../../../nandina/tests/tpch/q20.sql")),
    tpch("Q21", include_str!("../../../nandina/tests/tpch/q21.sql")),
    tpch("Q22", include_str!("../../../nandina/tests/tpch/q22.sql")),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suites_and_queries_have_names() {
        let joins = Suite::named("joins").unwrap();
        assert!(
            joins
                .query("j1")
                .unwrap()
                .line()
                .ends_with("FROM lineitem JOIN orders ON l_orderkey = o_orderkey")
        );
        assert!(joins.query("J9").is_none() && Suite::named("none").is_none());
        for suite in &SUITES {
            for query in suite.queries {
                assert!(
                    !query.line().contains(['\n', ';']) && !query.line().contains("--"),
                    "{}",
                    query.name
                );
                assert!(suite.tables.iter().any(|table| query.sql.contains(table)), "{}", query.name);
            }
        }
    }
}
