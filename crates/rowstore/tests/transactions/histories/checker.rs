//! What a history of transactions over lists says of their isolation (Kingsbury and Alvaro, *Elle: Inferring Isolation Anomalies
//! from Experimental Observations*, VLDB 2020).
//!
//! Every element is appended once, so that a list that has been read names all who wrote it, in their order. From that follow
//! the dependencies between transactions, in Adya's terms: `ww` from a writer to the next one of a list, `wr` from a writer to who
//! read what it wrote, `rw` from a reader to the writer of what it did not see yet; and those of time, from a transaction to all
//! that begin when it has ended. Under snapshot isolation each circle has two `rw` behind each other: so there is none of single
//! steps, each of another dependency and perhaps an `rw` behind it (Cerone and Gotsman, *Analysing Snapshot Isolation*, PODC 2016).

use std::collections::{HashMap, HashSet};

pub type Key = usize;
pub type Element = u64;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    Append(Key, Element),
    Read(Key, Vec<Element>),
}

#[derive(Debug, Clone)]
pub struct Ran {
    pub steps: Vec<Step>,
    /// Elements whose appends were taken back before the end.
    pub taken_back: Vec<Element>,
    pub is_committed: bool,
    /// A moment before it began, and one after it had ended: whole numbers, each given once.
    pub began: u64,
    pub ended: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Anomaly {
    /// An element that nobody has appended.
    Garbage,
    /// Adya's G1a: an element of a transaction that was rolled back, or of a part of one.
    AbortedRead,
    /// Adya's G1b: a list without the last elements of the one who wrote the one at its end.
    IntermediateRead,
    /// An element twice in a list.
    Duplicate,
    /// A transaction does not see what it has done itself, or sees a list change under it.
    Internal,
    /// Two readers have seen elements in different orders.
    Order,
    /// An element of a committed transaction that is not there at the end.
    Lost,
    /// Adya's G0: a circle of `ww`.
    DirtyWrite,
    /// Adya's G1c: a circle of `ww` and `wr`.
    CircularFlow,
    /// Any other circle without two `rw` behind each other.
    NoSnapshot,
}

/// What is wrong with a history whose last transaction has read all lists, after all others had ended.
pub fn anomalies(history: &[Ran]) -> HashSet<Anomaly> {
    let mut found = HashSet::new();
    let writers = Writers::of(history);
    let committed = || history.iter().enumerate().filter(|(_, ran)| ran.is_committed);
    let mut orders: HashMap<Key, Vec<Element>> = HashMap::new();
    for step in history.last().map_or(&[][..], |last| &last.steps) {
        if let Step::Read(key, list) = step {
            orders.insert(*key, list.clone());
        }
    }
    for (reader, ran) in history.iter().enumerate() {
        internal(ran, &mut found);
        for (key, list) in reads_of_others(ran) {
            writers.check(reader, key, &list, &mut found);
            if !orders.get(&key).is_some_and(|order| order.starts_with(&list)) {
                found.insert(Anomaly::Order);
            }
        }
    }
    for (_, ran) in committed() {
        for (key, element) in appends(ran) {
            if !orders.get(&key).is_some_and(|order| order.contains(&element)) {
                found.insert(Anomaly::Lost);
            }
        }
    }
    // Without one order of each list there are no dependencies.
    if found.is_empty() {
        found.extend(Dependencies::of(history, &orders, &writers).circle());
    }
    found
}

/// What a transaction appended and did not take back.
fn appends(ran: &Ran) -> impl Iterator<Item = (Key, Element)> {
    ran.steps.iter().filter_map(|step| match step {
        Step::Append(key, element) if !ran.taken_back.contains(element) => Some((*key, *element)),
        _ => None,
    })
}

/// Lists as the transaction found them, without its own elements.
fn reads_of_others(ran: &Ran) -> Vec<(Key, Vec<Element>)> {
    let own: HashSet<Element> = ran
        .steps
        .iter()
        .filter_map(|step| match step {
            Step::Append(_, element) => Some(*element),
            Step::Read(..) => None,
        })
        .collect();
    let read = |step: &Step| match step {
        Step::Read(key, list) => {
            Some((*key, list.iter().copied().filter(|element| !own.contains(element)).collect()))
        }
        Step::Append(..) => None,
    };
    ran.steps.iter().filter_map(read).collect()
}

/// Later reads of a list are the first one and the own appends behind it. Where some of these have been taken back, they may be there or
/// not: when that was is not known.
fn internal(ran: &Ran, found: &mut HashSet<Anomaly>) {
    let kept = |list: &[Element]| -> Vec<Element> {
        list.iter().copied().filter(|element| !ran.taken_back.contains(element)).collect()
    };
    let mut known: HashMap<Key, (Option<Vec<Element>>, Vec<Element>)> = HashMap::new();
    for step in &ran.steps {
        match step {
            Step::Append(key, element) => {
                if !ran.taken_back.contains(element) {
                    known.entry(*key).or_default().1.push(*element);
                }
            }
            Step::Read(key, list) => {
                let list = kept(list);
                let (before, own) = known.entry(*key).or_default();
                let expected = before.as_ref().map(|before| [before.as_slice(), own].concat());
                let is_as_expected = match expected {
                    Some(expected) => list == expected,
                    None => list.ends_with(own),
                };
                if !is_as_expected {
                    found.insert(Anomaly::Internal);
                }
                let others = list.len().saturating_sub(own.len());
                before.get_or_insert_with(|| list[..others].to_vec());
            }
        }
    }
}

/// Who appended which element.
struct Writers<'h> {
    history: &'h [Ran],
    of: HashMap<Element, usize>,
}

impl<'h> Writers<'h> {
    fn of(history: &'h [Ran]) -> Self {
        let mut of = HashMap::new();
        for (number, ran) in history.iter().enumerate() {
            for step in &ran.steps {
                if let Step::Append(_, element) = step {
                    assert!(of.insert(*element, number).is_none(), "elements are appended once");
                }
            }
        }
        Self { history, of }
    }

    fn check(&self, reader: usize, key: Key, list: &[Element], found: &mut HashSet<Anomaly>) {
        if list.iter().collect::<HashSet<_>>().len() < list.len() {
            found.insert(Anomaly::Duplicate);
        }
        for element in list {
            let Some(&writer) = self.of.get(element) else {
                found.insert(Anomaly::Garbage);
                continue;
            };
            let ran = &self.history[writer];
            if !ran.is_committed || ran.taken_back.contains(element) {
                found.insert(Anomaly::AbortedRead);
            }
        }
        let Some(writer) = list.last().and_then(|last| self.of.get(last)) else { return };
        let last_of_writer = appends(&self.history[*writer]).filter(|(appended, _)| *appended == key).last();
        if *writer != reader && last_of_writer.is_some_and(|(_, element)| list.last() != Some(&element)) {
            found.insert(Anomaly::IntermediateRead);
        }
    }
}

/// The dependencies between committed transactions, and moments: behind the transactions come the ends of all, in their order.
struct Dependencies {
    ww: Vec<Vec<usize>>,
    wr: Vec<Vec<usize>>,
    time: Vec<Vec<usize>>,
    rw: Vec<Vec<usize>>,
}

impl Dependencies {
    fn of(history: &[Ran], orders: &HashMap<Key, Vec<Element>>, writers: &Writers<'_>) -> Self {
        let mut ends: Vec<(u64, usize)> = history
            .iter()
            .enumerate()
            .filter(|(_, ran)| ran.is_committed)
            .map(|(number, ran)| (ran.ended, number))
            .collect();
        ends.sort_unstable();
        let none = vec![Vec::new(); history.len() + ends.len()];
        let mut found = Self { ww: none.clone(), wr: none.clone(), time: none.clone(), rw: none };
        let mut add = |to: fn(&mut Self) -> &mut Vec<Vec<usize>>, one: usize, other: usize| {
            if one != other {
                to(&mut found)[one].push(other);
            }
        };
        for order in orders.values() {
            for pair in order.windows(2) {
                add(|found| &mut found.ww, writers.of[&pair[0]], writers.of[&pair[1]]);
            }
        }
        for (reader, ran) in history.iter().enumerate().filter(|(_, ran)| ran.is_committed) {
            for (key, list) in reads_of_others(ran) {
                if let Some(last) = list.last() {
                    add(|found| &mut found.wr, writers.of[last], reader);
                }
                if let Some(next) = orders[&key].get(list.len()) {
                    add(|found| &mut found.rw, reader, writers.of[next]);
                }
            }
            let moments_before = ends.partition_point(|(ended, _)| *ended < ran.began);
            if let Some(moment) = moments_before.checked_sub(1) {
                add(|found| &mut found.time, history.len() + moment, reader);
            }
        }
        for (moment, (_, ended)) in ends.iter().enumerate() {
            add(|found| &mut found.time, *ended, history.len() + moment);
            if moment > 0 {
                add(|found| &mut found.time, history.len() + moment - 1, history.len() + moment);
            }
        }
        found
    }

    fn circle(&self) -> Option<Anomaly> {
        let union = |parts: &[&Vec<Vec<usize>>]| -> Vec<Vec<usize>> {
            (0..self.ww.len())
                .map(|from| parts.iter().flat_map(|part| part[from].clone()).collect())
                .collect()
        };
        let before = union(&[&self.ww, &self.wr, &self.time]);
        // A step, and perhaps one `rw` behind it.
        let steps: Vec<Vec<usize>> = before
            .iter()
            .map(|next| {
                let behind = next.iter().flat_map(|next| &self.rw[*next]);
                next.iter().chain(behind).copied().collect()
            })
            .collect();
        if has_circle(&self.ww) {
            Some(Anomaly::DirtyWrite)
        } else if has_circle(&union(&[&self.ww, &self.wr])) {
            Some(Anomaly::CircularFlow)
        } else {
            has_circle(&steps).then_some(Anomaly::NoSnapshot)
        }
    }
}

/// Whether there is a way from a node to itself: some are left when those that nothing leads to are taken away, again and again.
fn has_circle(edges: &[Vec<usize>]) -> bool {
    let mut leading = vec![0; edges.len()];
    edges.iter().flatten().for_each(|to| leading[*to] += 1);
    let mut free: Vec<usize> = (0..edges.len()).filter(|node| leading[*node] == 0).collect();
    let mut taken = 0;
    while let Some(node) = free.pop() {
        taken += 1;
        for to in &edges[node] {
            leading[*to] -= 1;
            if leading[*to] == 0 {
                free.push(*to);
            }
        }
    }
    taken < edges.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    const X: Key = 0;
    const Y: Key = 1;

    /// A committed transaction, at the same time as all others.
    fn ran(steps: &[Step]) -> Ran {
        Ran { steps: steps.to_vec(), taken_back: Vec::new(), is_committed: true, began: 0, ended: 1000 }
    }

    fn append(key: Key, element: Element) -> Step {
        Step::Append(key, element)
    }

    fn read(key: Key, list: &[Element]) -> Step {
        Step::Read(key, list.to_vec())
    }

    /// What is found in transactions, and one at the end that reads these lists.
    fn found(transactions: &[Ran], x: &[Element], y: &[Element]) -> Vec<Anomaly> {
        let last = Ran { began: 2000, ended: 2001, ..ran(&[read(X, x), read(Y, y)]) };
        anomalies(&[transactions, &[last]].concat()).into_iter().collect()
    }

    #[test]
    fn transactions_behind_each_other_are_right() {
        let first = Ran { began: 1, ended: 2, ..ran(&[append(X, 1), append(Y, 2), append(X, 3)]) };
        let second =
            Ran { began: 3, ended: 4, ..ran(&[read(X, &[1, 3]), append(X, 4), read(X, &[1, 3, 4])]) };
        let third = Ran { is_committed: false, began: 5, ended: 6, ..ran(&[read(Y, &[2]), append(Y, 5)]) };
        assert_eq!(found(&[first, second, third], &[1, 3, 4], &[2]), []);
    }

    #[test]
    fn reads_of_what_was_never_committed_are_found() {
        assert_eq!(found(&[ran(&[read(X, &[7])])], &[7], &[]), [Anomaly::Garbage]);
        let aborted = Ran { is_committed: false, ..ran(&[append(X, 1)]) };
        assert_eq!(found(std::slice::from_ref(&aborted), &[1], &[]), [Anomaly::AbortedRead]);
        let taken_back = Ran { taken_back: vec![1], ..ran(&[append(X, 1), append(Y, 2)]) };
        assert_eq!(found(&[taken_back], &[1], &[2]), [Anomaly::AbortedRead]);
        let two = ran(&[append(X, 1), append(X, 2)]);
        let between = ran(&[read(X, &[1])]);
        assert_eq!(found(&[two, between], &[1, 2], &[]), [Anomaly::IntermediateRead]);
    }

    #[test]
    fn lists_that_cannot_be_are_found() {
        let one = ran(&[append(X, 1)]);
        assert_eq!(found(std::slice::from_ref(&one), &[1, 1], &[]), [Anomaly::Duplicate]);
        assert_eq!(found(std::slice::from_ref(&one), &[], &[]), [Anomaly::Lost]);
        let blind = ran(&[append(Y, 2), read(Y, &[])]);
        assert_eq!(found(&[blind], &[], &[2]), [Anomaly::Internal]);
        let two = ran(&[append(X, 2)]);
        let twice = Ran { began: 1, ended: 2, ..ran(&[read(X, &[]), read(X, &[1])]) };
        assert_eq!(found(&[one.clone(), twice], &[1], &[]), [Anomaly::Internal]);
        let other = ran(&[read(X, &[2])]);
        assert_eq!(found(&[one, two, other], &[1, 2], &[]), [Anomaly::Order]);
    }

    #[test]
    fn circles_are_found() {
        let dirty = [ran(&[append(X, 1), append(Y, 2)]), ran(&[append(X, 3), append(Y, 4)])];
        assert_eq!(found(&dirty, &[1, 3], &[4, 2]), [Anomaly::DirtyWrite]);
        let flow = [ran(&[append(X, 1), read(Y, &[2])]), ran(&[append(Y, 2), read(X, &[1])])];
        assert_eq!(found(&flow, &[1], &[2]), [Anomaly::CircularFlow]);
        let skewed = [ran(&[append(X, 1), append(Y, 2)]), ran(&[read(X, &[]), read(Y, &[2])])];
        assert_eq!(found(&skewed, &[1], &[2]), [Anomaly::NoSnapshot]);
        let lost = [ran(&[read(X, &[]), append(X, 1)]), ran(&[read(X, &[]), append(X, 2)])];
        assert_eq!(found(&lost, &[1, 2], &[]), [Anomaly::NoSnapshot]);
        let fork = [
            ran(&[append(X, 1)]),
            ran(&[append(Y, 2)]),
            ran(&[read(X, &[1]), read(Y, &[])]),
            ran(&[read(X, &[]), read(Y, &[2])]),
        ];
        assert_eq!(found(&fork, &[1], &[2]), [Anomaly::NoSnapshot]);
    }

    #[test]
    fn what_had_ended_is_seen() {
        let first = Ran { began: 1, ended: 2, ..ran(&[append(X, 1)]) };
        let stale = |began| Ran { began, ended: 5, ..ran(&[read(X, &[])]) };
        assert_eq!(found(&[first.clone(), stale(3)], &[1], &[]), [Anomaly::NoSnapshot]);
        assert_eq!(found(&[first, stale(0)], &[1], &[]), []);
    }

    #[test]
    fn write_skew_is_snapshot_isolation() {
        let skew = [ran(&[read(X, &[]), append(Y, 1)]), ran(&[read(Y, &[]), append(X, 2)])];
        assert_eq!(found(&skew, &[2], &[1]), []);
    }
}
