//! The queries. Each returns one row in exact types, so that results can be compared as text.

/// A query on TPC-H tables; `{lineitem}` and `{orders}` stand for the tables or their files.
#[derive(Debug, Clone, Copy)]
pub struct Query {
    pub name: &'static str,
    pub title: &'static str,
    template: &'static str,
}

/// The tables that the queries need.
pub const TABLES: [&str; 2] = ["lineitem", "orders"];

impl Query {
    pub fn named(name: &str) -> Option<&'static Query> {
        QUERIES.iter().find(|query| query.name.eq_ignore_ascii_case(name))
    }

    /// The SQL text, with tables by the names that `table` gives them.
    pub fn sql(&self, table: impl Fn(&str) -> String) -> String {
        let on_one_line = self.template.split_whitespace().collect::<Vec<_>>().join(" ");
        TABLES.iter().fold(on_one_line, |sql, name| sql.replace(&format!("{{{name}}}"), &table(name)))
    }

    /// The SQL text as people read it.
    pub fn text(&self) -> String {
        TABLES.iter().fold(self.template.to_owned(), |sql, name| sql.replace(&format!("{{{name}}}"), name))
    }
}

pub const QUERIES: [Query; 5] = [
    Query {
        name: "J1",
        title: "inner join, few columns",
        template: "\
SELECT count(*), sum(l_extendedprice), sum(o_totalprice),
       min(l_comment), max(l_comment), min(o_comment), max(o_comment)
FROM {lineitem} JOIN {orders} ON l_orderkey = o_orderkey",
    },
    Query {
        name: "J2",
        title: "inner join, all columns of both sides",
        template: "\
SELECT count(*), sum(l_orderkey), sum(l_partkey), sum(l_suppkey), sum(l_linenumber), sum(l_quantity),
       sum(l_extendedprice), sum(l_discount), sum(l_tax), max(l_returnflag), max(l_linestatus),
       max(l_shipdate), max(l_commitdate), max(l_receiptdate), max(l_shipinstruct), max(l_shipmode),
       max(l_comment), sum(o_orderkey), sum(o_custkey), max(o_orderstatus), sum(o_totalprice),
       max(o_orderdate), max(o_orderpriority), max(o_clerk), sum(o_shippriority), max(o_comment)
FROM {lineitem} JOIN {orders} ON l_orderkey = o_orderkey",
    },
    Query {
        name: "J3",
        title: "left join, half of the left side with one key",
        template: "\
SELECT count(*), count(o_orderkey), sum(l_extendedprice), sum(o_totalprice),
       min(l_comment), max(l_comment), min(o_comment), max(o_comment)
FROM (SELECT CASE WHEN l_orderkey % 2 = 0 THEN 1 ELSE l_orderkey END AS skewed_key,
             l_extendedprice, l_comment FROM {lineitem}) AS l
LEFT JOIN (SELECT o_orderkey, o_totalprice, o_comment FROM {orders}
           WHERE o_orderpriority <> '1-URGENT') AS o
       ON skewed_key = o_orderkey",
    },
    Query {
        name: "J4a",
        title: "semi join, orders with a late line",
        template: "\
SELECT count(*), sum(o_totalprice), min(o_comment), max(o_comment)
FROM {orders}
WHERE EXISTS (SELECT 1 FROM {lineitem} WHERE l_orderkey = o_orderkey AND l_commitdate < l_receiptdate)",
    },
    Query {
        name: "J4b",
        title: "semi join, lines of dear orders",
        template: "\
SELECT count(*), sum(l_extendedprice), min(l_comment), max(l_comment)
FROM {lineitem}
WHERE EXISTS (SELECT 1 FROM {orders} WHERE o_orderkey = l_orderkey AND o_totalprice > 100000)",
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_put_in() {
        let sql = Query::named("j1").unwrap().sql(|table| format!("'dir/{table}.parquet'"));
        assert!(
            sql.ends_with("FROM 'dir/lineitem.parquet' JOIN 'dir/orders.parquet' ON l_orderkey = o_orderkey")
        );
        assert!(QUERIES.iter().all(|query| !query.sql(str::to_owned).contains(['{', '\n'])));
        assert!(Query::named("J9").is_none());
    }
}
