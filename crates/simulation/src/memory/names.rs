//! Names of simulated files: live, durable, and the changes in between.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use super::Inode;

#[derive(Clone)]
pub(crate) enum Entry {
    File(Inode),
    Directory,
}

#[derive(Clone)]
pub(crate) enum NameChange {
    Link { path: PathBuf, entry: Entry },
    Unlink { path: PathBuf },
    Rename { from: PathBuf, to: PathBuf },
}

impl NameChange {
    /// Whether syncing the directory makes the change durable. A rename is durable as a whole with either side.
    fn concerns(&self, directory: &Path) -> bool {
        match self {
            NameChange::Link { path, .. } | NameChange::Unlink { path } => path.parent() == Some(directory),
            NameChange::Rename { from, to } => {
                from.parent() == Some(directory) || to.parent() == Some(directory)
            }
        }
    }
}

type Table = BTreeMap<PathBuf, Entry>;

pub(crate) struct Names {
    root: PathBuf,
    live: Table,
    durable: Table,
    unsynced: Vec<NameChange>,
}

impl Names {
    /// An empty directory.
    pub(crate) fn new(root: &Path) -> Self {
        let table = Table::from([(root.to_owned(), Entry::Directory)]);
        Self { root: root.to_owned(), live: table.clone(), durable: table, unsynced: Vec::new() }
    }

    pub(crate) fn get(&self, path: &Path) -> io::Result<&Entry> {
        self.live.get(path).ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))
    }

    pub(crate) fn check_parent(&self, path: &Path) -> io::Result<()> {
        match path.parent().and_then(|parent| self.live.get(parent)) {
            Some(Entry::Directory) => Ok(()),
            Some(Entry::File(_)) => Err(io::Error::from(io::ErrorKind::NotADirectory)),
            None => Err(io::Error::from(io::ErrorKind::NotFound)),
        }
    }

    pub(crate) fn check_vacant(&self, path: &Path) -> io::Result<()> {
        self.check_parent(path)?;
        if self.live.contains_key(path) {
            return Err(io::Error::from(io::ErrorKind::AlreadyExists));
        }
        Ok(())
    }

    pub(crate) fn check_empty_directory(&self, path: &Path) -> io::Result<()> {
        match self.get(path)? {
            Entry::File(_) => Err(io::Error::from(io::ErrorKind::NotADirectory)),
            Entry::Directory if self.list(path)?.is_empty() => Ok(()),
            Entry::Directory => Err(io::Error::from(io::ErrorKind::DirectoryNotEmpty)),
        }
    }

    pub(crate) fn list(&self, directory: &Path) -> io::Result<Vec<String>> {
        if !matches!(self.get(directory)?, Entry::Directory) {
            return Err(io::Error::from(io::ErrorKind::NotADirectory));
        }
        let inside = self.live.keys().filter(|path| path.parent() == Some(directory));
        Ok(inside.filter_map(|path| Some(path.file_name()?.to_string_lossy().into_owned())).collect())
    }

    pub(crate) fn live_files(&self) -> impl Iterator<Item = &Inode> {
        self.live.values().filter_map(|entry| match entry {
            Entry::File(inode) => Some(inode),
            Entry::Directory => None,
        })
    }

    pub(crate) fn apply(&mut self, change: NameChange) {
        apply(&mut self.live, &change);
        self.unsynced.push(change);
    }

    pub(crate) fn unsynced(&self) -> usize {
        self.unsynced.len()
    }

    pub(crate) fn sync(&mut self, directory: &Path) {
        let Self { durable, unsynced, .. } = self;
        unsynced.retain(|change| {
            let synced = change.concerns(directory);
            if synced {
                apply(durable, change);
            }
            !synced
        });
    }

    /// Keeps the first `kept` unsynced changes, loses the others.
    pub(crate) fn crash(&mut self, kept: usize) {
        for change in self.unsynced.iter().take(kept) {
            apply(&mut self.durable, change);
        }
        self.unsynced.clear();
        // Entries inside a directory that was lost cannot be reached.
        let reachable = self.durable.clone();
        let root = &self.root;
        self.durable.retain(|path, _| {
            path == root || path.parent().is_some_and(|parent| reachable.contains_key(parent))
        });
        self.live = self.durable.clone();
    }
}

fn apply(table: &mut Table, change: &NameChange) {
    match change {
        NameChange::Link { path, entry } => {
            table.insert(path.clone(), entry.clone());
        }
        NameChange::Unlink { path } => {
            table.remove(path);
        }
        NameChange::Rename { from, to } => {
            let moved: Vec<PathBuf> = table.keys().filter(|path| path.starts_with(from)).cloned().collect();
            for old in moved {
                if let (Some(entry), Ok(rest)) = (table.remove(&old), old.strip_prefix(from)) {
                    let new = if rest.as_os_str().is_empty() { to.clone() } else { to.join(rest) };
                    table.insert(new, entry);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOT: &str = "/simulated";

    fn path(name: &str) -> PathBuf {
        Path::new(ROOT).join(name)
    }

    fn file() -> Entry {
        Entry::File(Inode::default())
    }

    #[test]
    fn a_renamed_directory_takes_its_contents_along() {
        let mut names = Names::new(Path::new(ROOT));
        names.apply(NameChange::Link { path: path("a"), entry: Entry::Directory });
        names.apply(NameChange::Link { path: path("a/x"), entry: file() });
        names.apply(NameChange::Link { path: path("ab"), entry: file() });
        names.apply(NameChange::Rename { from: path("a"), to: path("b") });
        assert_eq!(names.list(Path::new(ROOT)).unwrap(), ["ab", "b"]);
        assert_eq!(names.list(&path("b")).unwrap(), ["x"]);
    }

    #[test]
    fn names_in_a_lost_directory_are_lost() {
        let mut names = Names::new(Path::new(ROOT));
        names.apply(NameChange::Link { path: path("a"), entry: Entry::Directory });
        names.apply(NameChange::Link { path: path("a/x"), entry: file() });
        names.sync(&path("a"));
        names.crash(0);
        assert!(names.list(Path::new(ROOT)).unwrap().is_empty());
        assert!(names.get(&path("a/x")).is_err());
    }
}
